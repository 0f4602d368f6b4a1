//! `CheckError`: why a store cannot be used, and what to change.
//!
//! What may pass by itself is told from what an operator must change: the service starts without
//! the one and does not with the other.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};
use thiserror::Error;

use super::RedisSettings;
use super::rights::missing;
use crate::config::{Password, Topology};
use crate::store::redis::dial::DialError;

/// Why a store cannot be used now. One line each.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CheckError {
    /// It may be there later.
    #[error("the token store at {at} cannot be reached: {text}")]
    Unreachable {
        /// Where it was looked for.
        at: String,
        /// What happened.
        text: String,
    },
    /// Something must be changed.
    #[error("`{setting}`: {text}")]
    Refused {
        /// Our setting.
        setting: &'static str,
        /// What is wrong, and what to change.
        text: String,
    },
}

impl CheckError {
    pub(super) fn refused(setting: &'static str, text: impl Into<String>) -> Self {
        Self::Refused { setting, text: text.into() }
    }
}

/// A server that answers and must be changed.
pub(super) fn unfit(settings: &RedisSettings, text: &str) -> CheckError {
    CheckError::refused("store.urls", format!("the store at {}: {text}", settings.shown()))
}

/// A server that said nothing in time.
pub(super) fn silent(settings: &RedisSettings) -> CheckError {
    unreachable(settings, "it does not answer in time")
}

/// A replica where a primary should be.
pub(super) fn replica(settings: &RedisSettings, primary: Option<(&str, &str)>) -> CheckError {
    let of = primary.map_or_else(String::new, |(host, port)| format!(" of {host}:{port}"));
    if settings.topology != Topology::Single {
        return unreachable(settings, &format!("it answers as a replica{of}"));
    }
    let text = format!(
        "what answers at {} is a replica{of} or a sentinel; name the primary too, or set \
             `store.topology` to \"sentinel\"",
        settings.shown()
    );
    CheckError::refused("store.urls", text)
}

fn unreachable(settings: &RedisSettings, text: &str) -> CheckError {
    CheckError::Unreachable { at: settings.shown(), text: text.to_owned() }
}

/// True if the user may not do it.
pub(super) fn is_denied(error: &ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoPerm)
}

/// Why no link came about.
pub(super) fn of_dial(error: DialError, settings: &RedisSettings) -> CheckError {
    match error {
        DialError::File(error) => {
            let setting = match error.setting {
                "ca_file" => "store.ca_file",
                "cert_file" => "store.cert_file",
                "key_file" => "store.key_file",
                _ => "store.password_file",
            };
            CheckError::refused(setting, format!("{}: {}", error.file, error.text))
        }
        DialError::Server(error) => of_error(&error, settings),
        DialError::NoPrimary(_) => replica(settings, None),
    }
}

/// What an error of the connection, or of all that was asked, means.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver's kinds may grow")]
pub(super) fn of_error(error: &RedisError, settings: &RedisSettings) -> CheckError {
    // One line, whatever a driver says.
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    match error.kind() {
        ErrorKind::AuthenticationFailed => unknown_user(settings, &text),
        ErrorKind::Server(ServerErrorKind::NoPerm) => missing(&["info"], settings),
        ErrorKind::Parse => CheckError::refused(
            "store.urls",
            format!("what answers at {} is no Redis: {text}", settings.shown()),
        ),
        ErrorKind::InvalidClientConfig if text.contains("sentinel") => no_sentinel(),
        ErrorKind::InvalidClientConfig => {
            CheckError::refused("store.urls", format!("{}: {text}", settings.shown()))
        }
        ErrorKind::MasterNameNotFoundBySentinel => CheckError::refused(
            "store.sentinel_master",
            format!("no sentinel of {} shows a primary of this name that is up", settings.shown()),
        ),
        ErrorKind::Io => of_io(&text, settings),
        _ => match error.code() {
            Some("NOAUTH" | "WRONGPASS") => unknown_user(settings, &text),
            Some("DENIED") => unfit(settings, "it is in protected mode: give it a password"),
            Some("ERR") if text.contains("CLUSTER") || text.contains("cluster support") => {
                let text = "what answers is no cluster; set it to \"single\"";
                CheckError::refused("store.topology", text)
            }
            Some("ERR") if text.to_ascii_lowercase().contains("sentinel") => no_sentinel(),
            _ => unreachable(settings, &text),
        },
    }
}

fn no_sentinel() -> CheckError {
    let text =
        "what answers is no sentinel; name sentinels in `store.urls`, or set it to \"single\"";
    CheckError::refused("store.topology", text)
}

/// What an error that a server answered with means.
pub(super) fn of_server(error: &ServerError, settings: &RedisSettings) -> CheckError {
    match error.code() {
        "NOAUTH" | "WRONGPASS" => unknown_user(settings, &error.to_string()),
        _ => unreachable(settings, &error.to_string()),
    }
}

/// A broken connection may be whole later; a certificate will not become another.
fn of_io(text: &str, settings: &RedisSettings) -> CheckError {
    let lower = text.to_ascii_lowercase();
    let shown = settings.shown();
    if lower.contains("certificaterequired") || lower.contains("certificate required") {
        let text =
            format!("{shown} wants to be shown a certificate: {text}; set it and `key_file`");
        return CheckError::refused("store.cert_file", text);
    }
    if lower.contains("certificate") {
        let text = format!("{shown} shows a certificate that is not trusted: {text}");
        return CheckError::refused("store.ca_file", text);
    }
    unreachable(settings, text)
}

fn unknown_user(settings: &RedisSettings, text: &str) -> CheckError {
    let setting = match settings.password {
        Password::None | Password::File(_) => "store.password_file",
        Password::Text(_) => "TIDEGATE_STORE__PASSWORD",
    };
    let user = settings.username.as_deref().unwrap_or("default");
    let text = format!(
        "{} does not take the password of the user `{user}`: {text}; set it, or `store.username`, \
         to what the server knows{}",
        settings.shown(),
        match settings.topology {
            Topology::Sentinel { .. } => ", and give the sentinels none: theirs is not supported",
            Topology::Single | Topology::Cluster => "",
        }
    );
    CheckError::refused(setting, text)
}
