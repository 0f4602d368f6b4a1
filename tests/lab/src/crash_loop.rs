//! A leader that crashes again and again, its last lives never replicated, and then stays dead.
//!
//! What is left of those lives is a row each in a log that nobody else has. Nothing here says what
//! a service should make of it: it says how long the service took to name who was promoted.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::postgres::{Server, Stop};
use crate::service::Service;
use crate::wait::{LIMIT, until};

/// Lives of the leader that no standby hears of.
pub const CRASHES: usize = 3;

/// What became of one leader that crashed for good.
#[derive(Clone, Debug)]
#[must_use]
pub struct CrashLoop {
    /// The standby that was promoted.
    pub promoted: String,
    /// From its promotion to the service's word that it leads.
    pub led_after: Duration,
    /// Lineage rows of the dead leader that the promoted one does not have.
    pub lives_unseen: i64,
}

/// Lets the leader of a pair crash for good and promotes its standby, again and again; returns the
/// last leader and its standby too.
///
/// Each time the dead leader comes back as a clone of the new one, and the roles are changed. No
/// operator helps.
///
/// # Errors
/// If a server fails, or the service does not follow.
pub async fn crash_loops<'a>(
    service: &Service,
    (mut leader, mut standby): (&'a Server, &'a Server),
    rounds: usize,
) -> Result<(Vec<CrashLoop>, (&'a Server, &'a Server))> {
    let mut loops = Vec::new();
    for _ in 0..rounds {
        loops.push(crash_loop(service, leader, standby).await?);
        leader.clone_from(standby).await?;
        (leader, standby) = (standby, leader);
        await_replica(service, standby).await?;
    }
    Ok((loops, (leader, standby)))
}

/// Lets a leader crash for good and promotes its standby. The service must be in front of both.
///
/// # Errors
/// If a server fails, or the service does not follow.
pub async fn crash_loop(service: &Service, leader: &Server, standby: &Server) -> Result<CrashLoop> {
    standby.cut_reception().await?;
    for _ in 0..CRASHES {
        leader.restart(Stop::Immediate).await?;
        await_row(service, leader).await?;
    }
    let lives_unseen = rows(leader).await? - rows(standby).await?;
    let unseen = i64::try_from(CRASHES)?;
    ensure!(lives_unseen == unseen, "{lives_unseen} lives are unseen, not {unseen}");
    leader.stop(Stop::Immediate).await?;
    standby.promote().await?;
    let promoted_at = Instant::now();
    let promoted = standby.name().to_owned();
    let leads = || async { Ok(service.partition().await?.leader_node == promoted) };
    until("the promoted standby leads", LIMIT, leads).await?;
    let led_after = promoted_at.elapsed();
    Ok(CrashLoop { promoted, led_after, lives_unseen })
}

/// Waits until a leader leads in the life it is in now, and the row of that stands.
async fn await_row(service: &Service, leader: &Server) -> Result<()> {
    let life: String = leader.value("select tidegate.incarnation()").await?;
    let what = format!("the row of {} in its new life stands", leader.name());
    until(&what, LIMIT, || async {
        let partition = service.partition().await?;
        let mut nodes = partition.nodes.iter();
        let node = nodes.find(|node| node.name == leader.name() && node.incarnation == life);
        let stands = node.is_some_and(|node| node.row_epoch == partition.epoch);
        Ok(stands && partition.leader_node == leader.name())
    })
    .await
    .map(drop)
}

/// Waits until a replica serves sessions.
async fn await_replica(service: &Service, replica: &Server) -> Result<()> {
    let life: String = replica.value("select tidegate.incarnation()").await?;
    let what = format!("{} serves sessions again", replica.name());
    until(&what, LIMIT, || async {
        let mut nodes = service.partition().await?.nodes.into_iter();
        let node = nodes.find(|node| node.name == replica.name() && node.incarnation == life);
        Ok(node.is_some_and(|node| node.session_eligible && node.quarantine_reason.is_empty()))
    })
    .await
    .map(drop)
}

async fn rows(server: &Server) -> Result<i64> {
    server.value("select count(*) from tidegate.lineage").await
}
