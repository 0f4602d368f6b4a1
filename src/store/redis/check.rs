//! `check`: whether the servers behind a link may keep records, and which rules they allow.
//!
//! - `rights`: what the user may do, command by command
//! - `rules`: version, role, eviction, replicas: what a server says of itself
//! - `refusal`: why a store cannot be used, and what to change
//!
//! Each link is checked before anything it says is believed. It changes nothing on a server but a
//! probe of its own that expires at once, and repairs nothing.

mod refusal;
mod rights;
mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::{Pipeline, Value};

use super::dial::{Dial, Link};
use super::keys::{Bucket, Layout};
use super::settings::RedisSettings;

pub use refusal::CheckError;
pub use rules::Checked;

/// Time all questions to one server may take together.
const LIMIT: Duration = Duration::from_secs(2);

/// What a server says of itself, from `INFO`, and where it can be asked more.
struct Asked<'a> {
    link: &'a Link,
    slot: Slot,
    /// A key of a bucket that it holds.
    probe: String,
    said: BTreeMap<String, String>,
}

/// Connects to the store of `settings` and checks it.
///
/// # Errors
/// [`CheckError::Unreachable`] if that may change by itself, [`CheckError::Refused`] if not.
pub async fn survey(settings: &RedisSettings) -> Result<Checked, CheckError> {
    rules::lifetimes(settings)?;
    let dialled = Dial::new(settings.clone()).link().await;
    let link = dialled.map_err(|error| refusal::of_dial(error, settings))?;
    check(&link, settings).await
}

/// Checks every server behind `link` that holds a bucket.
///
/// # Errors
/// As [`survey`].
pub(super) async fn check(link: &Link, settings: &RedisSettings) -> Result<Checked, CheckError> {
    let layout = Layout::of(settings);
    let asked = layout.buckets().map(|bucket| asked(link, &layout, bucket, settings));
    let asked = futures::future::try_join_all(asked).await?;
    // One server holds many buckets; it is checked once.
    let servers: BTreeMap<String, Asked<'_>> = asked
        .into_iter()
        .map(|asked| (asked.field("run_id").unwrap_or_default().to_owned(), asked))
        .collect();
    let mut checked: Option<Checked> = None;
    for server in servers.values() {
        rights::check(server, settings).await?;
        let one = rules::of(server, settings).await?;
        checked = Some(match checked {
            Some(before) => before.and(one),
            None => one,
        });
    }
    checked.ok_or_else(|| refusal::silent(settings))
}

async fn asked<'a>(
    link: &'a Link,
    layout: &Layout,
    bucket: Bucket,
    settings: &RedisSettings,
) -> Result<Asked<'a>, CheckError> {
    let (slot, probe) = (layout.slot(bucket), layout.nothing(bucket));
    let mut asked = Asked { link, slot, probe, said: BTreeMap::new() };
    let mut info = Pipeline::new();
    info.cmd("INFO");
    let text = match asked.answers(&info, settings).await?.into_iter().next() {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Some(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => text,
        Some(Value::ServerError(error)) if refusal::is_denied(&error) => {
            return Err(rights::missing(&["info"], settings));
        }
        Some(Value::ServerError(error)) => return Err(refusal::of_server(&error, settings)),
        Some(_) | None => return Err(refusal::silent(settings)),
    };
    let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    asked.said = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(asked)
}

impl Asked<'_> {
    /// Its answers to some commands, in their order, errors among them.
    async fn answers(
        &self,
        commands: &Pipeline,
        settings: &RedisSettings,
    ) -> Result<Vec<Value>, CheckError> {
        match tokio::time::timeout(LIMIT, self.link.ask(self.slot, commands)).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => Err(refusal::of_error(&error, settings)),
            Err(_) => Err(refusal::silent(settings)),
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.said.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}
