//! A split with two instances: A stays on the deposed primary, B connects to the promoted replica
//! and takes its barrier. What A recorded, was acknowledged, and lies past the barrier is missed.
//!
//! The leader of the database is a counter here; a position is recorded under a key of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use crate::redis::{Group, Info, Kind, Options};
use crate::wait::{LIMIT, until};

/// A pause between two records of A, so that the machine does other things too.
const PAUSE: Duration = Duration::from_millis(2);

/// What happens to the old primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its line to the promoted replica falls silent; it lives on.
    Silent,
    /// It is frozen, and A's next record waits in its socket.
    Frozen {
        /// How long the replica goes on answering, unread, before the line falls silent.
        answers: Duration,
        /// From the promotion to the thaw.
        time: Duration,
    },
}

/// When A takes a record for stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// When the server acknowledges it.
    Acknowledged,
    /// When the server also shows a replica that answered within the maximum lag, in the same
    /// script.
    LiveLag,
    /// When A's own clock shows an unbroken chain of acknowledged records: from the sending of one
    /// to the answer to the next at most the maximum lag, for that lag and two seconds more.
    Chain,
}

/// One split to play.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// Which servers.
    pub kind: Kind,
    /// How many replicas; the first is promoted, the others stay with the old primary.
    pub replicas: usize,
    /// `min-replicas-to-write` and `min-replicas-max-lag`, if set.
    pub min_replicas: Option<(usize, u32)>,
    /// What happens to the old primary.
    pub fault: Fault,
    /// When A takes a record for stored.
    pub check: Check,
    /// How long after the promotion B takes its later barrier.
    pub fence: Duration,
    /// How long after the promotion A gives up.
    pub watched: Duration,
}

/// What a split did.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From the promotion to the last record that A took for stored.
    pub stored_for: Option<Duration>,
    /// From the promotion to the first refusal, if there was one.
    pub refused_after: Option<Duration>,
    /// Records that A took for stored after the promotion.
    pub stored: usize,
    /// Those of all records that the promoted replica has not, and that lie past a barrier taken
    /// as soon as B was connected.
    pub missed_at_once: usize,
    /// The same for a barrier taken after the fence.
    pub missed_after_fence: usize,
}

/// What A remembers of its records.
#[derive(Debug, Default)]
struct Diary {
    stored: Vec<(u64, Instant)>,
    refused_at: Vec<Instant>,
}

impl Split {
    /// Plays it on servers of its own.
    ///
    /// # Errors
    /// When a server does not do what it is told.
    pub async fn play(self) -> Result<Outcome> {
        let mut options = Options::new(self.kind);
        if let Some((replicas, max_lag)) = self.min_replicas {
            options = options.min_replicas(replicas, max_lag);
        }
        let group = Group::start(options, self.replicas).await?;
        let (old, new) = (group.primary(), group.replica(0));
        // B writes nothing here: the promoted replica would refuse it for want of its own.
        let position = Arc::new(AtomicU64::new(0));
        let a = self.start(old.connect_patiently().await?, &position);
        let stores = || async { Ok(a.stored.load(Ordering::SeqCst) > 0) };
        until("A stores", LIMIT, stores).await?;
        if let Fault::Frozen { answers, .. } = self.fault {
            old.freeze().await?;
            tokio::time::sleep(answers).await;
        }
        group.split(0).await?;
        let promoted_at = Instant::now();
        let mut b = new.connect_patiently().await?;
        let early = position.load(Ordering::SeqCst);
        let thaw = async {
            if let Fault::Frozen { time, .. } = self.fault {
                tokio::time::sleep(time).await;
                old.thaw().await?;
            }
            anyhow::Ok(())
        };
        let fence = async {
            tokio::time::sleep(self.fence).await;
            position.load(Ordering::SeqCst)
        };
        let (thawed, late, ()) = tokio::join!(thaw, fence, tokio::time::sleep(self.watched));
        thawed?;
        a.ended.store(true, Ordering::SeqCst);
        let diary = a.task.await.context("A panicked")??;
        let keys: BTreeSet<String> =
            redis::cmd("KEYS").arg("*").query_async(&mut b).await.context("B reads")?;
        Ok(diary.judge(promoted_at, &keys, early, late))
    }

    fn start(self, connection: MultiplexedConnection, position: &Arc<AtomicU64>) -> Recorder {
        let ended = Arc::new(AtomicBool::new(false));
        let stored = Arc::new(AtomicU64::new(0));
        let a = A {
            split: self,
            position: Arc::clone(position),
            ended: Arc::clone(&ended),
            stored: Arc::clone(&stored),
            last_sent_at: None,
            chain_since: None,
        };
        Recorder { ended, stored, task: tokio::spawn(a.record(connection)) }
    }
}

/// A as it is seen from outside.
struct Recorder {
    ended: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    task: JoinHandle<Result<Diary>>,
}

/// The instance that stays where it is.
struct A {
    split: Split,
    position: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    /// When the last record that was acknowledged was sent.
    last_sent_at: Option<Instant>,
    /// The first answer of the chain that is not broken yet.
    chain_since: Option<Instant>,
}

impl A {
    /// Writes, records what it wrote, goes on, whether that was acknowledged or not.
    async fn record(mut self, mut connection: MultiplexedConnection) -> Result<Diary> {
        let script = Script::new(
            "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INFO', 'replication')",
        );
        let mut diary = Diary::default();
        while !self.ended.load(Ordering::SeqCst) {
            // The write itself: from here on the database has it.
            let written = self.position.fetch_add(1, Ordering::SeqCst) + 1;
            let (key, sent_at) = (written.to_string(), Instant::now());
            let mut call = script.key(&key);
            let said = call.arg(&key).invoke_async::<String>(&mut connection).await;
            let now = Instant::now();
            match said {
                Ok(said) if self.believes(&Info::parse(&said), sent_at, now) => {
                    diary.stored.push((written, now));
                    self.stored.fetch_add(1, Ordering::SeqCst);
                }
                Ok(_) => diary.refused_at.push(now),
                Err(error) if error.code() == Some("NOREPLICAS") => diary.refused_at.push(now),
                Err(error) => return Err(error).context("A records"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(diary)
    }

    /// Whether an acknowledged record counts as stored.
    fn believes(&mut self, info: &Info, sent_at: Instant, now: Instant) -> bool {
        let Some((replicas, max_lag)) = self.split.min_replicas else { return true };
        let limit = Duration::from_secs(u64::from(max_lag));
        let last = self.last_sent_at.replace(sent_at);
        if last.is_none_or(|last| now - last > limit) {
            self.chain_since = Some(now);
        }
        match self.split.check {
            Check::Acknowledged => true,
            Check::LiveLag => {
                let lags = info.replica_lags();
                lags.iter().filter(|lag| **lag <= i64::from(max_lag)).count() >= replicas
            }
            Check::Chain => {
                self.chain_since.is_some_and(|since| now - since > limit + Duration::from_secs(2))
            }
        }
    }
}

impl Diary {
    fn judge(
        &self,
        promoted_at: Instant,
        keys: &BTreeSet<String>,
        early: u64,
        late: u64,
    ) -> Outcome {
        let after = |at: &Instant| at.checked_duration_since(promoted_at);
        let stored: Vec<Duration> = self.stored.iter().filter_map(|(_, at)| after(at)).collect();
        let missed = |barrier: u64| {
            let past = self.stored.iter().filter(|(written, _)| *written > barrier);
            past.filter(|(written, _)| !keys.contains(&written.to_string())).count()
        };
        Outcome {
            stored_for: stored.last().copied(),
            refused_after: self.refused_at.iter().filter_map(after).next(),
            stored: stored.len(),
            missed_at_once: missed(early),
            missed_after_fence: missed(late),
        }
    }
}
