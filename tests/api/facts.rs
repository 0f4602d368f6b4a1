//! Good strings of the service on stage, and the broken ones that tables make of them.
//!
//! `{token}` is a good token; `{token cut 9}` its first characters, `{token plus X}` with more
//! behind, `{token as X}` with another beginning, `{token twice}`, `{token bit N}` with a bit of
//! its byte N flipped. `{capture insert=X}` has another field, `{capture fields N}` only the first.
//! `{x 300}` is 300 times `x`. Anything else stands for itself.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate::seal::Keyring;
use tidegate_core::token::{BodyLimits, SessionToken};

use super::stage::{Routing, Stage, of_subject};

/// The fields of evidence, in their order.
const FIELDS: [&str; 15] = [
    "tge1",
    "kind",
    "server_version_num",
    "system_id",
    "timeline",
    "start_us",
    "reset_us",
    "in_recovery",
    "insert",
    "flush",
    "replay",
    "received_tli",
    "row",
    "segment_size",
    "synchronous_commit",
];
/// Bytes in front of a token's body: tag and key id.
const HEAD_BYTES: usize = 9;
/// Bytes behind a token's body.
const MAC_BYTES: usize = 16;

/// One good string of each kind.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) token: String,
    foreign: String,
    capture: String,
    before: String,
    sample: String,
    incarnation: String,
}

impl Facts {
    /// Asks the servers and the service for them.
    pub(crate) async fn of(stage: &Stage, routing: &mut Routing) -> Self {
        let ask = async |server: &str, function: &str| {
            let query = format!("select tidegate.{function}()");
            stage.server(server).value::<String>(&query).await.expect("a string")
        };
        let before = ask("l", "before").await;
        let (_, capture) = stage.write().await;
        let (_, answer) = stage.written(routing, of_subject("")).await;
        let other = Keyring::generated("other", "default", 8192).expect("random");
        Self {
            token: answer.token,
            foreign: other.seal(&SessionToken::new().encode(1)),
            capture,
            before,
            sample: ask("r1", "sample").await,
            incarnation: ask("l", "incarnation").await,
        }
    }

    /// The string a word of a table stands for.
    pub(crate) fn filled(&self, word: &str) -> String {
        let inner = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let Some(inner) = inner else { return word.to_owned() };
        let (what, change) = inner.split_once(' ').unwrap_or((inner, ""));
        let good = match what {
            "token" => &self.token,
            "foreign" => &self.foreign,
            "capture" => &self.capture,
            "before" => &self.before,
            "sample" => &self.sample,
            "incarnation" => &self.incarnation,
            text => return text.repeat(change.parse().expect("a count")),
        };
        changed(good, change)
    }
}

fn changed(good: &str, change: &str) -> String {
    if let Some((field, value)) = change.split_once('=').filter(|(field, _)| !field.contains(' ')) {
        let at = FIELDS.iter().position(|known| *known == field).expect("a field of evidence");
        let mut fields: Vec<&str> = good.split('|').collect();
        fields[at] = value;
        return fields.join("|");
    }
    let (how, argument) = change.split_once(' ').unwrap_or((change, ""));
    let count = || argument.parse::<usize>().expect("a count");
    match how {
        "" => good.to_owned(),
        "cut" => good.chars().take(count()).collect(),
        "plus" => format!("{good}{argument}"),
        "twice" => format!("{good}{good}"),
        "as" => format!("{argument}{}", &good[argument.trim().len()..]),
        "fields" => good.split('|').take(count()).collect::<Vec<_>>().join("|"),
        "bit" if argument == "last" => flipped(good, bytes_of(good).len() - 1),
        "bit" => flipped(good, count()),
        other => panic!("`{other}` changes nothing that is known here"),
    }
}

/// The bytes of a token, unsigned ones included.
pub(crate) fn bytes_of(token: &str) -> Vec<u8> {
    let text = token.strip_prefix("tg1.").expect("a token");
    URL_SAFE_NO_PAD.decode(text).expect("base64url")
}

/// A token with the lowest bit of one byte flipped.
pub(crate) fn flipped(token: &str, at: usize) -> String {
    let mut bytes = bytes_of(token);
    bytes[at] ^= 1;
    format!("tg1.{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// A token that names a key the service does not have.
pub(crate) fn of_unknown_key(token: &str) -> String {
    flipped(token, HEAD_BYTES - 1)
}

/// What a token says: it is signed, not secret.
pub(crate) fn opened(token: &str) -> SessionToken {
    let bytes = bytes_of(token);
    let body = &bytes[HEAD_BYTES..bytes.len() - MAC_BYTES];
    SessionToken::decode(body, BodyLimits::default()).expect("a body").0
}
