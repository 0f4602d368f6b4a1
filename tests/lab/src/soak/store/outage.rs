//! The store is gone for a while under load, and comes back with all it had: nobody promoted, no
//! loss announced. What was recorded meanwhile must be in it afterwards.

use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_core::guards::Guards;

use super::play::{Play, Round, fair};
use super::tally::Tally;
use crate::claims::{Claims, Op};
use crate::stall::Stall;

/// Turns of sessions before and after it.
const TURNS: u64 = 30;
/// A select that needs no store answers within this.
const CARRIED_P99: Duration = Duration::from_millis(250);

/// What an outage came to.
#[derive(Clone, Debug)]
#[must_use]
pub struct Outage {
    /// What sessions did, their waits among it.
    pub tally: Tally,
    /// Reads that lacked what they had promised to show, then or afterwards.
    pub stale: Vec<String>,
    /// How long until both instances believed the store again.
    pub back: Duration,
    /// The longest time the machine stood still.
    pub stall: Duration,
}

/// Stops the store for so long.
///
/// # Errors
/// When a server or an instance does not do what it is told.
pub async fn outage(lasts: Duration, seed: u64) -> Result<Outage> {
    let stall = Stall::watch()?;
    let mut play = Box::pin(Play::open(0, Guards::on(), seed)).await?;
    let (mut round, mut back) = (Round::default(), Duration::ZERO);
    play.live(async |stage, place| {
        fair(stage, place, seed).await?;
        place.storm(true);
        place.late().pause_replay().await?;
        place.await_turns(TURNS).await?;
        let servers = [stage.chain.primary(), stage.chain.replica(), stage.chain.old()];
        stall.forget();
        for server in servers {
            server.freeze().await?;
        }
        place.outage(true);
        let passed = place.let_pass(lasts, TURNS).await;
        place.outage(false);
        for server in servers {
            server.thaw().await?;
        }
        passed?;
        let back_at = Instant::now();
        stage.chain.mend().await?;
        round.back(place).await?;
        back = back_at.elapsed();
        place.await_turns(TURNS).await
    })
    .await?;
    play.look(&mut round).await?;
    play.close().await?;
    Ok(Outage { tally: round.tally, stale: round.stale, back, stall: stall.largest() })
}

impl Outage {
    /// Claims that carried tokens worked, and that nothing recorded was lost.
    pub fn claim(&self, claims: &mut Claims) {
        let Self { tally, .. } = self;
        let judged = tally.judged + tally.carried;
        let stale = self.stale.len() as u64;
        claims.count("outage: recorded writes missed, stale", stale, 0, judged);
        let name = "outage: failed calls with a carried token";
        claims.count(name, tally.carried_failed, 0, tally.took[0].len() as u64);
        let kept = tally.in_memory;
        #[expect(clippy::cast_precision_loss, reason = "nothing here is counted to 2^53")]
        claims.claim("outage: records kept meanwhile", kept as f64, Op::AtLeast, 1.0, kept.max(1));
        let limit = (CARRIED_P99 + self.stall * 3).as_secs_f64() * 1e3;
        let name = "outage: ms of a select with a carried token, p99";
        claims.claim(name, tally.p99(0), Op::AtMost, limit, tally.took[0].len() as u64);
        claims.figure("outage: ms of a select by name alone, p99", tally.p99(1));
        claims.figure("outage: selects by name alone", tally.took[1].len() as u64);
        claims
            .figure("outage: ms until the store is believed again", self.back.as_secs_f64() * 1e3);
    }
}
