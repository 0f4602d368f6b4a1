//! `play`: one kind of failover happens to the servers; says what is true afterwards.

use anyhow::Result;
use fastrand::Rng;

use super::kind::Kind;
use super::promotions::Rejoin;
use super::trio::{Commit, Trio};
use super::truth::Played;
use super::{branches, crashes, gaps, promotions, standbys};

/// Plays one kind on a trio that is whole: one leader with two standbys.
///
/// Afterwards one server leads and takes writes, and [`Trio::repair`] mends the rest, also after an
/// error. Everything that may vary is drawn from `random`.
///
/// # Errors
/// When the lab fails: a server does not do what it is told.
pub async fn play(kind: Kind, trio: &mut Trio, random: &mut Rng) -> Result<Played> {
    trio.markers.clear();
    trio.censuses.clear();
    trio.steps.clear();
    let began_at = trio.now();
    let done = recipe(kind, trio, random).await;
    // Also after an error everybody can look again.
    trio.look().await?;
    if done.is_err() {
        let others: Vec<_> = trio.others();
        others.iter().for_each(|server| trio.breaks(server));
    }
    done?;
    let leader = trio.leader().clone();
    trio.write(&leader, Commit::Flushed).await?;
    trio.ask_all().await?;
    trio.all_seen().await?;
    Ok(Played {
        kind: kind.name().to_owned(),
        span: (began_at, trio.now()),
        leader: leader.name().to_owned(),
        steps: std::mem::take(&mut trio.steps),
        markers: std::mem::take(&mut trio.markers),
        censuses: std::mem::take(&mut trio.censuses),
        broken: trio.broken.iter().cloned().collect(),
    })
}

async fn recipe(kind: Kind, trio: &mut Trio, random: &mut Rng) -> Result<()> {
    // Every kind begins with a row that all servers have and all watchers have seen.
    let leader = trio.leader().clone();
    trio.write(&leader, Commit::Flushed).await?;
    for standby in trio.others() {
        standby.catch_up_with(&leader).await?;
    }
    trio.all_seen().await?;
    match kind {
        Kind::KilledRewound => promotions::killed(trio, random, Rejoin::Rewind).await,
        Kind::KilledCloned => promotions::killed(trio, random, Rejoin::Clone).await,
        Kind::Repointed => promotions::killed(trio, random, Rejoin::Later).await,
        Kind::Switchover => promotions::switchover(trio, random).await,
        Kind::PausedPromoted => promotions::paused(trio, random).await,
        Kind::BesideLiving => promotions::beside_living(trio, random).await,
        Kind::OldReturns => promotions::old_returns(trio, random).await,
        Kind::NaiveRejoin => promotions::naive_rejoin(trio, random).await,
        Kind::CrashLoop => promotions::crash_loop(trio, random).await,
        Kind::ResetPromoted => promotions::reset(trio, random).await,
        Kind::AsyncLost => crashes::async_lost(trio).await,
        Kind::BackendKilled => crashes::backend_killed(trio).await,
        Kind::TornRecord => crashes::torn_record(trio).await,
        Kind::CleanRestart => crashes::clean_restart(trio).await,
        Kind::ResetLeader => crashes::reset(trio).await,
        Kind::Restored => crashes::restored(trio, random).await,
        Kind::TwoCrashes => gaps::two_crashes(trio, random).await,
        Kind::CrashThenClean => gaps::crash_then_clean(trio).await,
        Kind::BeforeTheRow => gaps::before_the_row(trio, random).await,
        Kind::TwoPromotions => gaps::two_promotions(trio, random).await,
        Kind::PromotedRestarted => gaps::promoted_restarted(trio, random).await,
        Kind::SameNumber => branches::same_number(trio, random).await,
        Kind::Twins => branches::twins(trio, random).await,
        Kind::TwinAttached => branches::twin_attached(trio, random).await,
        Kind::StandbyCrash => standbys::crash(trio, random).await,
        Kind::StandbyRestart => standbys::restart(trio, random).await,
    }
}
