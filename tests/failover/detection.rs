//! How long a promotion takes to be answered: from the moment the new leader is writable, as a
//! probe of the lab sees it, to the answer that names it.

use std::time::Duration;

use tidegate_client::{Level, Policy};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::LIMIT;
use tidegate_proto::v1;
use tokio::time::MissedTickBehavior;

use super::desk::Desk;
use super::lost_write::{CLOCK, POLL_INTERVAL, served};
use super::stage::{Stage, connection, on_both_majors};

on_both_majors! {
    promotions =>
        a_promotion_is_answered_within_two_poll_intervals_pg15,
        a_promotion_is_answered_within_two_poll_intervals_pg18;
}

/// Promotions that nobody announces, and as many that the lab announces as soon as it sees them.
const EACH: usize = 6;

const TICK: Duration = Duration::from_millis(1);

async fn promotions(major: Major) {
    let stage = Stage::set(major, 1).await;
    let desk = stage.desk().await;
    stage.stall.forget();
    let (mut polled, mut hinted) = (Vec::new(), Vec::new());
    let (mut leader, mut standby) = (stage.l(), stage.r1());
    for round in 0..2 * EACH {
        let (times, hint) = match round % 2 {
            0 => (&mut polled, false),
            _ => (&mut hinted, true),
        };
        times.push(detected(&desk, (leader, standby), hint).await);
        // Nothing was lost: it follows as it is.
        leader.repoint(standby).await.expect("it is a standby now");
        leader.start().await.expect("it starts");
        let name = leader.name();
        let serves = |partition: &v1::Partition| {
            partition.nodes.iter().any(|node| node.name == name && node.session_eligible)
        };
        desk.until_partition("the old leader serves as a standby", serves).await;
        (leader, standby) = (standby, leader);
    }
    polled.sort_unstable();
    hinted.sort_unstable();
    println!(
        "detection {major:?}: p90 {:?} of {polled:?}; with a hint p90 {:?} of {hinted:?}",
        p90(&polled),
        p90(&hinted)
    );
    assert!(p90(&polled) <= stage.stall.allow(POLL_INTERVAL * 2), "{polled:?}");
    assert!(p90(&hinted) <= stage.stall.allow(POLL_INTERVAL), "{hinted:?}");
}

/// Stops a leader, promotes its standby, and measures.
async fn detected(desk: &Desk, (leader, standby): (&Server, &Server), hint: bool) -> Duration {
    leader.stop(Stop::Fast).await.expect("it stops");
    let probe = connection(standby).await;
    let mut admin = desk.admin().await;
    let writable = async {
        ticking(async || {
            let row = probe.query_one("select not pg_is_in_recovery()", &[]).await;
            row.expect("a probe").get(0)
        })
        .await;
        let writable_at = CLOCK.now();
        if hint {
            let announced = admin.announce_failover(of_promotion(standby)).await;
            announced.expect("it is taken");
        }
        writable_at
    };
    let strict = Policy::new(Level::Leader);
    let session = desk.session();
    let named = async {
        ticking(async || {
            let answer = desk.select(&session, &strict).await;
            answer.node == standby.name() && served(&answer).leader_timeline.is_some()
        })
        .await;
        CLOCK.now()
    };
    let promote = async { standby.promote().await.expect("a promotion") };
    let (writable_at, named_at, _) = tokio::join!(writable, named, promote);
    named_at.since(writable_at)
}

/// What a failover manager says of a promotion.
fn of_promotion(standby: &Server) -> v1::AnnounceFailoverRequest {
    v1::AnnounceFailoverRequest {
        partition: PARTITION.to_owned(),
        node: String::new(),
        new_leader_node: standby.name().to_owned(),
        source: "the lab".to_owned(),
    }
}

/// Asks each millisecond until it is so.
async fn ticking(mut holds: impl AsyncFnMut() -> bool) {
    let started_at = CLOCK.now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !holds().await {
        assert!(CLOCK.now().since(started_at) < LIMIT, "in vain");
        ticks.tick().await;
    }
}

/// The nearest rank.
fn p90(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 9).div_ceil(10) - 1]
}
