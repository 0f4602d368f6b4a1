//! What befalls the store in a round, and what that must make the instances announce.
//!
//! Each fault says how many records the servers show as lost by it, so that a fault that did
//! nothing is seen.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::chain::{contents, differing};
use super::expiry;
use super::place::{INSTANCES, Place};
use super::stage::Stage;

/// The replica lacks the last second, in which sessions have at least so many turns.
const LACKS: (Duration, u64) = (Duration::from_millis(800), 10);
/// Within this after its loss an instance that waits for no fence has sampled its barrier.
const EARLY: Duration = Duration::from_millis(400);
/// How long a server stands still.
const FROZEN: Duration = Duration::from_secs(10);
/// How late everything arrives at a slow replica, and for how long.
const SLOW: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(4));
/// Turns of sessions while something lasts.
const TURNS: u64 = 40;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The primary is killed and a replica promoted that lacks the last second.
    Killed,
    /// The replica is promoted beside the primary, on which one instance goes on recording.
    Split,
    /// The same, until the other instance stands and records: the first still reads the old one.
    LeftBehind,
    /// Every key is removed.
    Flushed,
    /// The same while no instance runs.
    FlushedRestarted,
    /// An old snapshot is restored.
    Restored,
    /// The same while no instance runs.
    RestoredRestarted,
    /// Records are evicted.
    Evicted,
    /// Records expire.
    Expired,
    /// Every script is removed.
    ScriptsFlushed,
    /// The primary stands still for ten seconds.
    Frozen,
    /// The same while the replica is promoted; one instance waits for the old one.
    FrozenDeposed,
    /// Everything arrives late at the replica.
    SlowReplica,
    /// An instance is started when the other has ended its fence.
    LateInstance,
}

/// What a fault did.
#[derive(Clone, Debug)]
pub(super) struct Fired {
    /// Records that the servers show as lost.
    pub(super) lost: u64,
    /// Which instances must have announced a loss.
    pub(super) announce: [bool; 2],
    /// Reads that the fault itself made and that promised to show what was written.
    pub(super) judged: u64,
    /// What those lacked, for people.
    pub(super) stale: Vec<String>,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Killed,
        Self::Split,
        Self::LeftBehind,
        Self::Flushed,
        Self::FlushedRestarted,
        Self::Restored,
        Self::RestoredRestarted,
        Self::Evicted,
        Self::Expired,
        Self::ScriptsFlushed,
        Self::Frozen,
        Self::FrozenDeposed,
        Self::SlowReplica,
        Self::LateInstance,
    ];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed, replica promoted",
            Self::Split => "split, records on the old",
            Self::LeftBehind => "split, reads on the old",
            Self::Flushed => "FLUSHALL",
            Self::FlushedRestarted => "FLUSHALL, all restarted",
            Self::Restored => "old snapshot",
            Self::RestoredRestarted => "old snapshot, all restarted",
            Self::Evicted => "eviction",
            Self::Expired => "expiry",
            Self::ScriptsFlushed => "SCRIPT FLUSH",
            Self::Frozen => "SIGSTOP 10 s",
            Self::FrozenDeposed => "SIGSTOP 10 s, promoted",
            Self::SlowReplica => "slow replica",
            Self::LateInstance => "started after the fence",
        }
    }

    /// Says whether it loses records, so that a round in which none is lost shows nothing.
    const fn loses(self) -> bool {
        match self {
            Self::Killed
            | Self::Split
            | Self::LeftBehind
            | Self::Flushed
            | Self::FlushedRestarted
            | Self::Restored
            | Self::RestoredRestarted
            | Self::Evicted
            | Self::Expired
            | Self::LateInstance => true,
            // Whether a frozen primary took anything after it was deposed is a matter of chance.
            Self::ScriptsFlushed | Self::Frozen | Self::FrozenDeposed | Self::SlowReplica => false,
        }
    }

    /// Lets it happen. `seed` says which instance it befalls first.
    pub(super) async fn play(self, stage: &mut Stage, place: &Place, seed: u64) -> Result<Fired> {
        let first = usize::from(seed.is_multiple_of(2));
        let mut announce = [true; 2];
        let lost = match self {
            Self::Expired => {
                let fired = Box::pin(expiry::play(stage, place)).await?;
                ensure!(fired.lost > 0, "{}: nothing was lost", self.name());
                return Ok(fired);
            }
            Self::Killed => killed(stage, place, first).await?,
            Self::Split => split(stage, place, first, false).await?,
            Self::LeftBehind => split(stage, place, first, true).await?,
            Self::Flushed => flushed(stage).await?,
            Self::FlushedRestarted => flushed_restarted(stage, place).await?,
            Self::Restored => restored(stage, place, false).await?,
            Self::RestoredRestarted => restored(stage, place, true).await?,
            Self::Evicted => evicted(stage).await?,
            Self::ScriptsFlushed => scripts_flushed(stage).await?,
            Self::Frozen => {
                announce = [false; 2];
                frozen(stage, place).await?
            }
            Self::FrozenDeposed => frozen_deposed(stage, place, first).await?,
            Self::SlowReplica => {
                announce = [false; 2];
                slow_replica(stage, place).await?
            }
            Self::LateInstance => {
                announce[first] = false;
                late_instance(stage, place, first).await?
            }
        };
        ensure!(lost > 0 || !self.loses(), "{}: nothing was lost", self.name());
        Ok(Fired { lost, announce, judged: 0, stale: Vec::new() })
    }
}

/// The late standby gets what was written so far, and nothing later.
async fn late_up_to_now(place: &Place) -> Result<()> {
    place.late().resume_replay().await?;
    place.let_pass(EARLY, 0).await?;
    place.late().pause_replay().await
}

/// Cuts the replica off for a while, kills the primary and promotes the replica; returns what the
/// replica lacks.
async fn fail_over(stage: &mut Stage, place: &Place) -> Result<u64> {
    late_up_to_now(place).await?;
    // Silent for less than it takes a primary to refuse: it takes writes up to its end.
    stage.chain.cut().await?;
    place.let_pass(LACKS.0, LACKS.1).await?;
    place.hush(true);
    let before = contents(stage.chain.primary()).await?;
    stage.chain.primary().kill().await?;
    stage.chain.promote().await?;
    Ok(differing(&before, &contents(stage.chain.primary()).await?))
}

async fn killed(stage: &mut Stage, place: &Place, first: usize) -> Result<u64> {
    let lost = fail_over(stage, place).await?;
    stage.follow_primary(first);
    place.await_turns(TURNS).await?;
    stage.follow_primary(1 - first);
    stage.chain.rejoin().await?;
    Ok(lost)
}

/// `first` goes to the promoted replica at once, the other stays.
async fn split(stage: &mut Stage, place: &Place, first: usize, stands: bool) -> Result<u64> {
    stage.chain.cut().await?;
    let before = contents(stage.chain.primary()).await?;
    stage.chain.promote().await?;
    stage.follow_primary(first);
    // A barrier that is sampled too early is on the late standby; what is recorded on the old
    // primary after it is not.
    late_up_to_now(place).await?;
    place.await_turns(TURNS).await?;
    stage.chain.await_refusal(stage.chain.old()).await?;
    // Who reads on the old primary must have others write on the new one.
    place.hush(!stands);
    let after = contents(stage.chain.old()).await?;
    if stands {
        place.await_disbelief(first).await?;
        place.await_belief(first).await?;
        place.await_turns(TURNS * 2).await?;
    }
    stage.follow_primary(1 - first);
    stage.chain.rejoin().await?;
    Ok(differing(&after, &before))
}

async fn flushed(stage: &Stage) -> Result<u64> {
    let primary = stage.chain.primary();
    let before = contents(primary).await?;
    primary.flush().await?;
    Ok(before.len() as u64)
}

async fn flushed_restarted(stage: &mut Stage, place: &Place) -> Result<u64> {
    end_all(stage, place).await?;
    let lost = flushed(stage).await?;
    start_all(stage, place).await?;
    Ok(lost)
}

async fn end_all(stage: &mut Stage, place: &Place) -> Result<()> {
    for instance in 0..INSTANCES {
        place.ends(instance);
        stage.halt(instance).await?;
    }
    Ok(())
}

async fn start_all(stage: &mut Stage, place: &Place) -> Result<()> {
    for instance in 0..INSTANCES {
        stage.start(instance).await?;
        place.runs();
    }
    Ok(())
}

/// The late standby has all that the snapshot knows of, and nothing later.
async fn restored(stage: &mut Stage, place: &Place, restarted: bool) -> Result<u64> {
    let old = stage.chain.primary().snapshot().await?;
    let then = contents(stage.chain.primary()).await?;
    late_up_to_now(place).await?;
    place.let_pass(LACKS.0, LACKS.1).await?;
    place.hush(true);
    if restarted {
        end_all(stage, place).await?;
    }
    let lost = differing(&contents(stage.chain.primary()).await?, &then);
    stage.chain.primary().restore(&old).await?;
    stage.chain.mend().await?;
    if restarted {
        start_all(stage, place).await?;
    }
    Ok(lost)
}

async fn evicted(stage: &Stage) -> Result<u64> {
    let primary = stage.chain.primary();
    let (held, before) = (contents(primary).await?.len(), primary.evicted().await?);
    let half = i64::try_from(held / 2)?;
    primary.evict("volatile-ttl", half).await?;
    let evicted = primary.evicted().await? - before;
    primary.end_eviction().await?;
    u64::try_from(evicted).context("the count of evictions went back")
}

async fn scripts_flushed(stage: &Stage) -> Result<u64> {
    let primary = stage.chain.primary();
    let cached = primary.info().await?.number("number_of_cached_scripts")?;
    ensure!(cached > 0, "there is no script to lose");
    primary.flush_scripts().await?;
    Ok(0)
}

async fn frozen(stage: &Stage, place: &Place) -> Result<u64> {
    let primary = stage.chain.primary();
    primary.freeze().await?;
    let passed = place.let_pass(FROZEN, TURNS).await;
    primary.thaw().await?;
    passed.map(|()| 0)
}

/// `first` goes to the promoted replica, the other waits for the frozen one.
async fn frozen_deposed(stage: &mut Stage, place: &Place, first: usize) -> Result<u64> {
    stage.chain.primary().freeze().await?;
    stage.chain.cut().await?;
    stage.chain.promote().await?;
    stage.follow_primary(first);
    let passed = place.let_pass(FROZEN, TURNS).await;
    stage.chain.old().thaw().await?;
    passed?;
    let before = contents(stage.chain.old()).await?;
    stage.chain.await_refusal(stage.chain.old()).await?;
    let after = contents(stage.chain.old()).await?;
    place.await_turns(TURNS).await?;
    stage.follow_primary(1 - first);
    stage.chain.rejoin().await?;
    Ok(differing(&after, &before))
}

async fn slow_replica(stage: &Stage, place: &Place) -> Result<u64> {
    stage.chain.slow(SLOW.0).await?;
    place.let_pass(SLOW.1, TURNS).await?;
    stage.chain.mend().await?;
    Ok(0)
}

/// `late` is ended before the failover and started when the other stands again.
async fn late_instance(stage: &mut Stage, place: &Place, late: usize) -> Result<u64> {
    late_up_to_now(place).await?;
    stage.chain.cut().await?;
    place.let_pass(LACKS.0, LACKS.1).await?;
    place.hush(true);
    place.ends(late);
    stage.halt(late).await?;
    let before = contents(stage.chain.primary()).await?;
    stage.chain.primary().kill().await?;
    stage.chain.promote().await?;
    let lost = differing(&before, &contents(stage.chain.primary()).await?);
    stage.follow_primary(1 - late);
    place.await_disbelief(1 - late).await?;
    place.await_belief(1 - late).await?;
    stage.follow_primary(late);
    stage.start(late).await?;
    place.runs();
    stage.chain.rejoin().await?;
    Ok(lost)
}
