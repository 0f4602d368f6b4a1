//! How long a promotion takes to be answered: from the moment the new leader is writable, as a
//! probe of the lab sees it, to the answer that names it.

use std::time::{Duration, Instant};

use tidegate_client::{Level, Policy};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};
use tidegate_lab::wait::LIMIT;
use tokio::time::MissedTickBehavior;

use super::desk::Desk;
use super::lost_write::{POLL_INTERVAL, served};
use super::stage::{Stage, connection, on_both_majors};

on_both_majors! {
    promotions =>
        a_promotion_is_answered_within_two_poll_intervals_pg15,
        a_promotion_is_answered_within_two_poll_intervals_pg18;
}

const PROMOTIONS: usize = 10;

const TICK: Duration = Duration::from_millis(1);

async fn promotions(major: Major) {
    let stage = Stage::set(major, 1).await;
    let desk = stage.desk().await;
    stage.stall.forget();
    let mut times = Vec::new();
    let (mut leader, mut standby) = (stage.l(), stage.r1());
    for _ in 0..PROMOTIONS {
        times.push(detected(&desk, leader, standby).await);
        // Nothing was lost: it follows as it is.
        leader.repoint(standby).await.expect("it is a standby now");
        leader.start().await.expect("it starts");
        let name = leader.name();
        let serves = |partition: &tidegate_proto::v1::Partition| {
            partition.nodes.iter().any(|node| node.name == name && node.session_eligible)
        };
        desk.until_partition("the old leader serves as a standby", serves).await;
        (leader, standby) = (standby, leader);
    }
    times.sort_unstable();
    println!("detection {major:?}: p90 {:?} of {times:?}", p90(&times));
    assert!(p90(&times) <= stage.stall.allow(POLL_INTERVAL * 2), "{times:?}");
}

/// Stops a leader, promotes its standby, and measures.
async fn detected(desk: &Desk, leader: &Server, standby: &Server) -> Duration {
    leader.stop(Stop::Fast).await.expect("it stops");
    let probe = connection(standby).await;
    let writable = async {
        ticking(async || {
            let row = probe.query_one("select not pg_is_in_recovery()", &[]).await;
            row.expect("a probe").get(0)
        })
        .await;
        Instant::now()
    };
    let strict = Policy::new(Level::Leader);
    let session = desk.session();
    let named = async {
        ticking(async || {
            let answer = desk.select(&session, &strict).await;
            answer.node == standby.name() && served(&answer).leader_timeline.is_some()
        })
        .await;
        Instant::now()
    };
    let promote = async { standby.promote().await.expect("a promotion") };
    let (writable_at, named_at, _) = tokio::join!(writable, named, promote);
    named_at.saturating_duration_since(writable_at)
}

/// Asks each millisecond until it is so.
async fn ticking(mut holds: impl AsyncFnMut() -> bool) {
    let started_at = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !holds().await {
        assert!(started_at.elapsed() < LIMIT, "in vain");
        ticks.tick().await;
    }
}

/// The nearest rank.
fn p90(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 9).div_ceil(10) - 1]
}
