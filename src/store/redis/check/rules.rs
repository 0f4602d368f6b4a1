//! What a server must be to keep records, and for how long its answers count.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::refusal::{CheckError, is_denied, unfit};
use super::rights::grant;
use super::{Asked, RedisSettings};
use crate::config::{Redundancy, Topology};

/// The oldest server the tests run on. Valkey shows itself as Redis 7.2.
const OLDEST: (u64, u64) = (7, 0);
/// The fence where a deposed primary cannot be kept from taking records: as long as its clients may
/// need to notice.
const FENCE_ASYNC: Duration = Duration::from_secs(30);

/// What a store allows to conclude.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// What keeps a deposed primary from being believed.
    pub redundancy: Redundancy,
    /// How long nothing is believed after a loss.
    pub fence: Duration,
    /// An answer is believed so long after its server took a write of ours; `None`: always.
    pub believed_for: Option<Duration>,
    /// The longest `min-replicas-max-lag` of its servers, which the fence covers.
    pub max_lag: Option<Duration>,
    /// Replicas that are attached, of the server that has the fewest.
    pub replicas: u64,
    /// What it is: `Redis 7.0.15`.
    pub version: String,
    /// What an operator may want to change; each a sentence.
    pub hints: Vec<String>,
}

impl Checked {
    /// What holds for both.
    pub(super) fn and(mut self, other: Self) -> Self {
        // Under `fenced` a server without replicas takes no write: no need to tell them apart.
        let rank = |redundancy| match redundancy {
            Redundancy::Single => 0,
            Redundancy::Fenced => 1,
            Redundancy::Async => 2,
        };
        if rank(other.redundancy) > rank(self.redundancy) {
            self.redundancy = other.redundancy;
        }
        self.fence = self.fence.max(other.fence);
        let both = [self.believed_for, other.believed_for];
        self.believed_for = both.into_iter().flatten().min();
        self.max_lag = self.max_lag.max(other.max_lag);
        self.replicas = self.replicas.min(other.replicas);
        for hint in other.hints {
            if !self.hints.contains(&hint) {
                self.hints.push(hint);
            }
        }
        self
    }
}

/// Refuses records that would expire while they are needed.
pub(super) fn lifetimes(settings: &RedisSettings) -> Result<(), CheckError> {
    let least = settings.d_max.saturating_mul(2);
    if settings.lifetime >= least {
        return Ok(());
    }
    let least = humantime::format_duration(least);
    let text = format!("raise it to {least}, twice `limits.d_max`: records expire after it");
    Err(CheckError::refused("limits.token_lifetime", text))
}

/// What one server allows.
///
/// # Errors
/// [`CheckError::Refused`] with what to change on it, or in our settings.
pub(super) async fn of(
    server: &Asked<'_>,
    settings: &RedisSettings,
) -> Result<Checked, CheckError> {
    let said = server.field("redis_version").unwrap_or_default();
    let version =
        version(said, server.field("valkey_version")).map_err(|text| unfit(settings, &text))?;
    mode(server, settings)?;
    role(server, settings)?;
    eviction(server, settings)?;
    // Were none assumed where the count is hidden, nobody would wait for a fence.
    let replicas = server
        .number("connected_slaves")
        .ok_or_else(|| unfit(settings, "its INFO does not show `connected_slaves`"))?;
    // It has none now and takes no write alone: one may have been promoted.
    let needs_replicas = server.number("min_slaves_good_slaves").is_some();
    let redundancy = settings.redundancy.unwrap_or(match settings.topology {
        Topology::Single if replicas == 0 && !needs_replicas => Redundancy::Single,
        Topology::Single | Topology::Sentinel { .. } | Topology::Cluster => Redundancy::Fenced,
    });
    let (fence, believed_for) = match redundancy {
        Redundancy::Single if replicas > 0 => {
            let text = format!(
                "the store has {replicas} replicas, and one may be promoted; remove the setting, \
                 or set it to \"fenced\" or \"async\""
            );
            return Err(CheckError::refused("store.redundancy", text));
        }
        Redundancy::Single if needs_replicas => {
            let text = "the store takes writes with replicas alone (`min-replicas-to-write`) and \
                        has none: one may have been promoted; set that to 0 on a server that never \
                        has any, or remove the setting, or set it to \"fenced\" or \"async\"";
            return Err(CheckError::refused("store.redundancy", text));
        }
        Redundancy::Single => (settings.fence.unwrap_or(Duration::ZERO), None),
        Redundancy::Async => (settings.fence.unwrap_or(FENCE_ASYNC), None),
        Redundancy::Fenced => {
            let lag = fenced_by(server, replicas, settings).await?;
            (fence(lag, settings)?, Some(lag))
        }
    };
    let hints = hints(server, replicas, settings);
    let max_lag = believed_for;
    Ok(Checked { redundancy, fence, believed_for, max_lag, replicas, version, hints })
}

/// What it is, if it is new enough.
fn version(redis: &str, valkey: Option<&str>) -> Result<String, String> {
    let mut numbers = redis.split('.').map(|number| number.parse::<u64>().unwrap_or_default());
    let found = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if found < OLDEST {
        let (major, minor) = OLDEST;
        return Err(format!(
            "its version is {redis}; update it to Redis {major}.{minor} or Valkey 7.2, or newer"
        ));
    }
    Ok(valkey.map_or_else(|| format!("Redis {redis}"), |valkey| format!("Valkey {valkey}")))
}

/// Refuses another kind of server than the topology asks for.
fn mode(server: &Asked<'_>, settings: &RedisSettings) -> Result<(), CheckError> {
    let mode = server.field("redis_mode").unwrap_or("standalone");
    let wanted = match (&settings.topology, mode) {
        (Topology::Single | Topology::Sentinel { .. }, "standalone")
        | (Topology::Cluster, "cluster") => return Ok(()),
        (_, "sentinel") => "sentinel",
        (_, "cluster") => "cluster",
        _ => "single",
    };
    let text = format!("what answers runs in {mode} mode; set it to \"{wanted}\"");
    Err(CheckError::refused("store.topology", text))
}

fn role(server: &Asked<'_>, settings: &RedisSettings) -> Result<(), CheckError> {
    if server.field("role") == Some("master") {
        return Ok(());
    }
    let primary = server.field("master_host").zip(server.field("master_port"));
    Err(super::refusal::replica(settings, primary))
}

fn eviction(server: &Asked<'_>, settings: &RedisSettings) -> Result<(), CheckError> {
    match server.field("maxmemory_policy") {
        Some("noeviction") => Ok(()),
        policy => {
            let policy = policy.unwrap_or("not shown");
            let text = format!(
                "its `maxmemory-policy` is {policy}, which drops records; set it to noeviction"
            );
            Err(unfit(settings, &text))
        }
    }
}

/// Within which lag a server with `replicas` takes writes, proven to need all of them.
async fn fenced_by(
    server: &Asked<'_>,
    replicas: u64,
    settings: &RedisSettings,
) -> Result<Duration, CheckError> {
    // A primary that keeps one of two replicas goes on while the other is promoted.
    let needed = replicas.max(1);
    let least = |found: &str| {
        let text = format!(
            "its `min-replicas-to-write` is {found}; set it to {needed}, the number of its \
             replicas, so that a deposed primary takes no record; where that cannot be set, set \
             `store.redundancy` to \"async\""
        );
        unfit(settings, &text)
    };
    match replica_settings(server, settings).await? {
        Some((count, _)) if count < needed => Err(least(&count.to_string())),
        Some((_, 0)) => {
            let text = "its `min-replicas-max-lag` is 0, so `min-replicas-to-write` is not in \
                        force; set it to 10";
            Err(unfit(settings, text))
        }
        Some((_, lag)) => Ok(Duration::from_secs(lag)),
        // Only shown where both settings are in force.
        None if server.number("min_slaves_good_slaves").is_none() => Err(least("0")),
        None if needed > 1 => {
            let text = format!(
                "its `min-replicas-to-write` may not be read, and it has {replicas} replicas; \
                 grant it: {}",
                grant(settings)
            );
            Err(unfit(settings, &text))
        }
        None => settings.max_lag.ok_or_else(|| {
            let text = "the server's `min-replicas-max-lag` may not be read; set it to the same, \
                        or grant +config|get";
            CheckError::refused("store.max_lag", text)
        }),
    }
}

/// `min-replicas-to-write` and `min-replicas-max-lag`, in seconds; `None`: they may not be read.
async fn replica_settings(
    server: &Asked<'_>,
    settings: &RedisSettings,
) -> Result<Option<(u64, u64)>, CheckError> {
    let names = ["min-replicas-to-write", "min-replicas-max-lag"];
    let mut asks = Pipeline::new();
    for name in names {
        asks.cmd("CONFIG").arg("GET").arg(name);
    }
    let mut found = Vec::new();
    for answer in server.answers(&asks, settings).await? {
        if let Value::ServerError(error) = &answer
            && !is_denied(error)
        {
            // Managed services do not know the command at all.
            tracing::debug!(%error, "the settings of the store cannot be read");
        }
        let pair = redis::from_redis_value::<Vec<String>>(answer).unwrap_or_default();
        found.extend(pair.get(1).and_then(|value| value.parse::<u64>().ok()));
    }
    Ok(match found.as_slice() {
        [count, lag] => Some((*count, *lag)),
        _ => None,
    })
}

/// Long enough that a deposed primary has stopped to take records.
fn fence(lag: Duration, settings: &RedisSettings) -> Result<Duration, CheckError> {
    let least = lag.saturating_mul(2) + Duration::from_secs(2);
    match settings.fence {
        Some(fence) if fence < least => {
            let least = humantime::format_duration(least);
            let text = format!(
                "raise it to {least}, twice `min-replicas-max-lag` of the servers and 2s, or lower \
                 that"
            );
            Err(CheckError::refused("store.fence", text))
        }
        Some(fence) => Ok(fence),
        None => Ok(least),
    }
}

fn hints(server: &Asked<'_>, replicas: u64, settings: &RedisSettings) -> Vec<String> {
    let mut hints = Vec::new();
    if server.number("aof_enabled") == Some(0) {
        hints.push(
            "the store has `appendonly no`: a restart of its primary loses records, which is \
             announced and makes reads slower for a while"
                .to_owned(),
        );
    }
    if replicas < u64::from(settings.wait_replicas) {
        hints.push(format!(
            "`store.wait_replicas` is {}, and {replicas} replicas are attached: each write waits \
             in vain",
            settings.wait_replicas
        ));
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told_to_be_updated() {
        for old in ["6.2.14", "2.8.0", "", "unstable"] {
            let text = version(old, None).expect_err(old);
            assert!(text.contains("update it to Redis 7.0 or Valkey 7.2"), "{text}");
        }
        assert_eq!(version("7.0.15", None), Ok("Redis 7.0.15".to_owned()));
        assert_eq!(version("8.2", None), Ok("Redis 8.2".to_owned()));
        // Valkey shows another version for compatibility.
        assert_eq!(version("7.2.4", Some("9.1.2")), Ok("Valkey 9.1.2".to_owned()));
    }

    #[test]
    fn of_several_servers_the_strictest_counts() {
        let one = |redundancy, seconds, believed_for, replicas| Checked {
            redundancy,
            fence: Duration::from_secs(seconds),
            believed_for,
            max_lag: believed_for,
            replicas,
            version: "Redis 7.0.15".to_owned(),
            hints: vec!["a".to_owned()],
        };
        let seconds = |count| Some(Duration::from_secs(count));
        let both = one(Redundancy::Fenced, 22, seconds(10), 1).and(one(
            Redundancy::Fenced,
            12,
            seconds(5),
            2,
        ));
        let strictest = one(Redundancy::Fenced, 22, seconds(5), 1);
        assert_eq!(both, Checked { max_lag: seconds(10), ..strictest }, "the fence covers ten");
        let mixed = one(Redundancy::Single, 0, None, 0).and(one(Redundancy::Async, 30, None, 1));
        assert_eq!(mixed, one(Redundancy::Async, 30, None, 0));
    }
}
