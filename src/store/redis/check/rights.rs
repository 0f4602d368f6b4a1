//! What the user of a store needs to be allowed, and what of it is denied.
//!
//! Each command is tried once: the names of categories and the words of refusals differ between
//! servers, the code of a refusal does not.

use redis::{Cmd, Pipeline, Value};

use super::refusal::{CheckError, is_denied};
use super::{Asked, RedisSettings};
use crate::config::Topology;

/// Commands every store needs, as `ACL SETUSER` names them.
const NEEDED: [&str; 8] = ["info", "get", "mget", "set", "del", "eval", "evalsha", "script|load"];
/// What finds the servers of a cluster and follows its keys. The one after `asking` is asked there.
const CLUSTER: [&str; 3] = ["cluster|slots", "asking", "ping"];
/// What reads the servers' settings. Without it they must be in ours.
const SETTINGS: &str = "config|get";

/// What `settings` need to be allowed.
fn needed(settings: &RedisSettings) -> Vec<&'static str> {
    let mut needed = NEEDED.to_vec();
    if settings.topology == Topology::Cluster {
        needed.extend(CLUSTER);
    }
    if settings.wait_replicas > 0 {
        needed.push("wait");
    }
    needed
}

/// The command that gives a user all it needs and takes everything else.
pub(super) fn grant(settings: &RedisSettings) -> String {
    let user = settings.username.as_deref().unwrap_or("tidegate");
    let commands: Vec<String> =
        needed(settings).into_iter().chain([SETTINGS]).map(|name| format!("+{name}")).collect();
    format!(
        "ACL SETUSER {user} on >PASSWORD resetkeys ~{}* resetchannels -@all {}",
        settings.prefix('*'),
        commands.join(" ")
    )
}

/// Tries each command on the probe key.
///
/// # Errors
/// [`CheckError::Refused`] names what is denied.
pub(super) async fn check(server: &Asked<'_>, settings: &RedisSettings) -> Result<(), CheckError> {
    let needed = needed(settings);
    let mut tries = Pipeline::new();
    for name in &needed {
        tries.add_command(tried(name, &server.probe));
    }
    let answers = server.answers(&tries, settings).await?;
    let is_refused =
        |answer: &Value| matches!(answer, Value::ServerError(error) if is_denied(error));
    let denied = needed.iter().zip(&answers).filter(|(_, answer)| is_refused(answer));
    let denied = denied.map(|(name, _)| *name);
    let denied: Vec<&str> = denied.collect();
    if denied.is_empty() { Ok(()) } else { Err(missing(&denied, settings)) }
}

/// The refusal of a user that may not run these commands on the keys of this installation.
pub(super) fn missing(denied: &[&str], settings: &RedisSettings) -> CheckError {
    let user = settings.username.as_deref().unwrap_or("default");
    let denied: Vec<String> = denied.iter().map(|name| format!("+{name}")).collect();
    CheckError::refused(
        "store.username",
        format!(
            "the user `{user}` may not do all that is needed: {} on keys ~{}*; grant it: {}",
            denied.join(" "),
            settings.prefix('*'),
            grant(settings)
        ),
    )
}

/// A call of a command that changes nothing which outlives it.
fn tried(name: &str, probe: &str) -> Cmd {
    let (command, arguments): (&str, &[&str]) = match name {
        "get" => ("GET", &[probe]),
        "mget" => ("MGET", &[probe]),
        "set" => ("SET", &[probe, "", "PX", "1"]),
        "del" => ("DEL", &[probe]),
        "eval" => ("EVAL", &["return 1", "1", probe]),
        // No script has this digest: the answer is that, or a refusal.
        "evalsha" => ("EVALSHA", &["0000000000000000000000000000000000000000", "1", probe]),
        "script|load" => ("SCRIPT", &["LOAD", "return 1"]),
        "wait" => ("WAIT", &["0", "1"]),
        "cluster|slots" => ("CLUSTER", &["SLOTS"]),
        "asking" => ("ASKING", &[]),
        "ping" => ("PING", &[]),
        _ => ("INFO", &["server"]),
    };
    let mut tried = redis::cmd(command);
    for argument in arguments {
        tried.arg(*argument);
    }
    tried
}
