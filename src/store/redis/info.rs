//! `ServerInfo`: what a server says of itself beside each answer, read from `INFO`.
//!
//! It judges nothing: what a name, a role or a lag means is for the core's `SharedGuard` and for
//! whoever counts replicas.

use redis::Value;
use tidegate_core::store_guard::Server;

/// What a server says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServerInfo {
    /// Its `master_replid`.
    pub(super) server: Server,
    /// It is no replica.
    pub(super) is_primary: bool,
    /// Records it has evicted since it started; 0 where it was not asked.
    pub(super) evicted: u64,
    /// Replicas that copied all it holds since it started; 0 where it was not asked.
    pub(super) copied: u64,
    /// The lag of each replica that is attached, in seconds.
    pub(super) lags: Vec<u64>,
    /// It takes writes with replicas alone, of which it says neither how many nor how far.
    pub(super) needs_replicas: bool,
}

impl ServerInfo {
    /// Reads an answer to `INFO`; `None` if that is none.
    pub(super) fn read(value: &Value) -> Option<Self> {
        if let Value::BulkString(bytes) = value {
            return Self::parse(&String::from_utf8_lossy(bytes));
        }
        let (Value::SimpleString(text) | Value::VerbatimString { text, .. }) = value else {
            return None;
        };
        Self::parse(text)
    }

    /// Reads the lines of `INFO`; `None` if they name no server.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut server, mut is_primary, mut evicted, mut copied) = (None, false, 0, 0);
        let (mut lags, mut needs_replicas) = (Vec::new(), false);
        for line in text.lines() {
            let Some((name, value)) = line.trim_end().split_once(':') else { continue };
            match name {
                "master_replid" => server = Server::parse(value),
                "role" => is_primary = value == "master",
                "evicted_keys" => evicted = value.parse().ok()?,
                "sync_full" => copied = value.parse().ok()?,
                // Only shown where both settings are in force.
                "min_slaves_good_slaves" => needs_replicas = true,
                _ => lags.extend(lag(name, value)),
            }
        }
        Some(Self { server: server?, is_primary, evicted, copied, lags, needs_replicas })
    }

    /// Replicas that were heard of within the last `seconds`.
    pub(super) fn replicas_within(&self, seconds: u64) -> usize {
        self.lags.iter().filter(|lag| **lag <= seconds).count()
    }
}

/// The lag of a replica: `slave0:ip=..,port=..,state=online,offset=..,lag=0`.
fn lag(name: &str, value: &str) -> Option<u64> {
    let number = name.strip_prefix("slave")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let field = |wanted: &str| {
        value.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='))
    };
    if field("state")? != "online" {
        return None;
    }
    field("lag")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_primary_says_who_it_is_and_how_far_its_replicas_are() {
        let text = format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n\
             slave0:ip=127.0.0.1,port=1,state=online,offset=9,lag=0\r\n\
             slave1:ip=127.0.0.1,port=2,state=online,offset=9,lag=11,type=replica\r\n\
             slave2:ip=127.0.0.1,port=3,state=wait_bgsave,offset=0,lag=0\r\n\
             slave_read_only:1\r\nmaster_replid:{ID}\r\n# Stats\r\n\
             evicted_keys:7\r\nsync_full:3\r\n"
        );
        let info = ServerInfo::parse(&text).expect("it names itself");
        assert_eq!(Some(info.server), Server::parse(ID));
        assert!(info.is_primary);
        assert_eq!((info.evicted, info.copied), (7, 3));
        assert_eq!(info.lags, [0, 11]);
        assert_eq!((info.replicas_within(10), info.replicas_within(11)), (1, 2));
        assert!(!info.needs_replicas, "it takes writes alone");
        let needs = format!("{text}min_slaves_good_slaves:2\r\n");
        assert!(ServerInfo::parse(&needs).is_some_and(|info| info.needs_replicas));
    }

    #[test]
    fn a_replica_is_no_primary_and_a_text_without_a_name_is_none() {
        let replica = format!("role:slave\r\nmaster_replid:{ID}\r\n");
        assert!(ServerInfo::parse(&replica).is_some_and(|info| !info.is_primary));
        for text in ["", "role:master\r\n", "role:master\r\nmaster_replid:0123\r\n"] {
            assert_eq!(ServerInfo::parse(text), None, "{text:?}");
        }
        let torn = format!("role:master\r\nmaster_replid:{ID}\r\nevicted_keys:many\r\n");
        assert_eq!(ServerInfo::parse(&torn), None, "a count that is none");
    }
}
