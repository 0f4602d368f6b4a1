//! `Replicas`: whether a primary takes writes only with every replica that could take its place.
//!
//! A primary that does without one of them goes on taking writes while that one is promoted, and
//! nothing it answers shows it. So each replica that was attached for a while counts for good: one
//! that has gone may be the promoted one. It asks no server, and reads no settings of one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::generation::Server;
use crate::instant::Instant;

/// Servers that are remembered: more than any store has at a time.
const SERVERS_MAX: usize = 64;
/// What all servers are one under, where none may have a replica.
const ANY: Server = Server::new([0; 20]);

/// How many of its replicas a primary needs to take a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// All that could be promoted.
    All,
    /// That was not read yet.
    Unread,
    /// Not all: it may be deposed and not know.
    Fewer {
        /// So many.
        needed: u64,
        /// Of so many.
        of: u64,
        /// That stays so until the server needs as many.
        lasts: bool,
    },
}

/// The replicas of each primary of a store, as it shows them.
#[derive(Clone, Debug)]
pub struct Replicas {
    is_single: bool,
    /// One that is attached for so long may be promoted later. A connection that a replica has
    /// given up is gone by then.
    settled_after: Duration,
    servers: BTreeMap<Server, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// So many must follow so that it takes a write.
    needed: Option<u64>,
    /// So many were attached for long enough.
    most: u64,
    /// Since when more are, and the fewest of these.
    more: Option<(Instant, u64)>,
    seen_at: Instant,
}

impl Replicas {
    /// The replicas of primaries whose settings are read, each anew: see [`Self::needs`].
    pub const fn read(settled_after: Duration) -> Self {
        Self { is_single: false, settled_after, servers: BTreeMap::new() }
    }

    /// The replicas of primaries that were said to have none, and so need none.
    pub const fn single(settled_after: Duration) -> Self {
        Self { is_single: true, settled_after, servers: BTreeMap::new() }
    }

    /// Notes how many of its replicas a server needs to take a write, as it said.
    pub fn needs(&mut self, server: Server, needed: u64, now: Instant) {
        self.seen(server, now).needed = Some(needed);
    }

    /// Takes in how many replicas a server shows `now`; says whether it needs all that it ever had.
    pub fn attached(&mut self, server: Server, attached: u64, now: Instant) -> Needs {
        let settled_after = self.settled_after;
        let seen = self.seen(server, now);
        let (since, fewest) = seen.more.unwrap_or((now, attached));
        let fewest = fewest.min(attached);
        seen.more = Some((since, fewest));
        if now.since(since) >= settled_after {
            (seen.most, seen.more) = (seen.most.max(fewest), Some((now, attached)));
        }
        if attached <= seen.most {
            seen.more = None;
        }
        let of = seen.most.max(attached);
        match seen.needed {
            None => Needs::Unread,
            Some(needed) if needed >= of => Needs::All,
            Some(needed) => Needs::Fewer { needed, of, lasts: needed < seen.most },
        }
    }

    fn seen(&mut self, server: Server, now: Instant) -> &mut Seen {
        // The first replica gives its primary another name, so do restarts: where none may be, one
        // that was counts under every name.
        let key = if self.is_single { ANY } else { server };
        if !self.servers.contains_key(&key) && self.servers.len() >= SERVERS_MAX {
            let oldest = self.servers.iter().min_by_key(|(_, seen)| seen.seen_at);
            if let Some(oldest) = oldest.map(|(server, _)| *server) {
                self.servers.remove(&oldest);
            }
        }
        let needed = self.is_single.then_some(0);
        let new = Seen { needed, most: 0, more: None, seen_at: now };
        let seen = self.servers.entry(key).or_insert(new);
        seen.seen_at = now;
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Server = Server::new([1; 20]);
    const PROMOTED: Server = Server::new([2; 20]);
    const SETTLED: u64 = 20;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn read() -> Replicas {
        Replicas::read(Duration::from_nanos(SETTLED))
    }

    fn fewer(needed: u64, of: u64) -> Needs {
        Needs::Fewer { needed, of, lasts: false }
    }

    fn for_good(needed: u64, of: u64) -> Needs {
        Needs::Fewer { needed, of, lasts: true }
    }

    #[test]
    fn a_server_whose_settings_were_not_read_may_do_without_any_replica() {
        let mut replicas = read();
        assert_eq!(replicas.attached(P, 1, at(0)), Needs::Unread);
        replicas.needs(P, 1, at(1));
        assert_eq!(replicas.attached(P, 1, at(1)), Needs::All);
        assert_eq!(replicas.attached(PROMOTED, 1, at(2)), Needs::Unread, "it has its own");
        replicas.needs(PROMOTED, 0, at(3));
        assert_eq!(replicas.attached(PROMOTED, 1, at(3)), fewer(0, 1));
        assert_eq!(replicas.attached(PROMOTED, 0, at(3)), Needs::All, "nobody can be promoted");
    }

    #[test]
    fn a_replica_that_was_added_counts_at_once_and_also_when_it_has_gone() {
        let mut replicas = read();
        replicas.needs(P, 1, at(0));
        assert_eq!(replicas.attached(P, 1, at(0)), Needs::All);
        assert_eq!(replicas.attached(P, 2, at(100)), fewer(1, 2));
        assert_eq!(replicas.attached(P, 2, at(100 + SETTLED)), for_good(1, 2));
        assert_eq!(replicas.attached(P, 1, at(200)), for_good(1, 2), "promoted, or only stopped");
        replicas.needs(P, 2, at(300));
        assert_eq!(replicas.attached(P, 2, at(300)), Needs::All, "the setting was raised");
        replicas.needs(P, 1, at(400));
        assert_eq!(replicas.attached(P, 1, at(400)), for_good(1, 2), "and lowered again");
    }

    #[test]
    fn a_connection_that_a_replica_has_just_given_up_is_not_counted_for_good() {
        let mut replicas = read();
        replicas.needs(P, 1, at(0));
        assert_eq!(replicas.attached(P, 2, at(1)), fewer(1, 2));
        assert_eq!(replicas.attached(P, 1, at(SETTLED)), Needs::All);
        assert_eq!(replicas.attached(P, 2, at(SETTLED + 1)), fewer(1, 2), "once more");
        assert_eq!(replicas.attached(P, 3, at(SETTLED + 2)), fewer(1, 3));
        assert_eq!(replicas.attached(P, 2, at(3 * SETTLED)), for_good(1, 2));
        assert_eq!(replicas.attached(P, 1, at(3 * SETTLED)), for_good(1, 2), "two stayed");
    }

    #[test]
    fn where_none_may_be_one_that_was_counts_under_every_name() {
        let mut replicas = Replicas::single(Duration::from_nanos(SETTLED));
        assert_eq!(replicas.attached(P, 0, at(0)), Needs::All);
        assert_eq!(replicas.attached(PROMOTED, 1, at(1)), fewer(0, 1), "the name changes with it");
        assert_eq!(replicas.attached(PROMOTED, 1, at(1 + SETTLED)), for_good(0, 1));
        assert_eq!(replicas.attached(PROMOTED, 0, at(90)), for_good(0, 1));
        assert_eq!(replicas.attached(P, 0, at(99)), for_good(0, 1), "restarted");
    }

    #[test]
    fn the_servers_that_are_remembered_have_a_limit() {
        let mut replicas = read();
        for number in 0..=u8::try_from(SERVERS_MAX).expect("few") {
            replicas.needs(Server::new([number; 20]), 1, at(u64::from(number)));
        }
        assert_eq!(replicas.servers.len(), SERVERS_MAX);
        let oldest = Server::new([0; 20]);
        assert_eq!(replicas.attached(oldest, 1, at(100)), Needs::Unread, "the oldest has gone");
    }
}
