//! S03: a wait ends on the standby that catches up within the budget, and the leader is spared.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_proto::v1;
use tidegate_proto::v1::wait_until_fresh_response::Outcome;

use crate::bench::{Bench, Commit, name_of, served, waiting};
use crate::on_both_versions;
use crate::session::Session;

on_both_versions! {
    within_budget =>
        s03_wait_within_budget_of_delayed_standbys_pg15,
        s03_wait_within_budget_of_delayed_standbys_pg18;
}

const DELAY: Duration = Duration::from_millis(300);
const BUDGET: Duration = Duration::from_secs(1);
const ROUNDS: i64 = 5;

async fn within_budget(major: Major) {
    let bench = Bench::start(major).await;
    bench.delay_replay(DELAY).await;
    let fallbacks_before = bench.fallbacks().await;
    let (mut waits, mut selects, mut missing) = (Vec::new(), Vec::new(), 0_u64);
    for id in 1..=ROUNDS {
        bench.stall.forget();
        let mut u = Session::carrying();
        let commit = bench.write(&mut u, id).await;
        // The wrong way: at once and without the token.
        let at_once = bench.served(&mut Session::tokenless(), v1::Policy::default()).await;
        missing += u64::from(!bench.reads(&at_once, id).await);

        let ended = bench.wait(&mut u, BUDGET).await;
        waits.push(within_window(&bench, &commit));
        assert_eq!(ended.outcome(), Outcome::Fresh, "{ended:?}");
        assert_standby_with_row(&bench, &ended.served.expect("a node"), id).await;

        // A select waits just so.
        let id = 1_000 + id;
        let mut u = Session::carrying();
        let commit = bench.write(&mut u, id).await;
        let answer = bench.select(&mut u, waiting(BUDGET)).await;
        selects.push(within_window(&bench, &commit));
        assert_eq!(answer.reason(), v1::Reason::Waited, "{answer:?}");
        assert_standby_with_row(&bench, &served(&answer), id).await;
    }
    assert_eq!(bench.fallbacks().await, fallbacks_before, "the leader was asked");
    assert!(missing > 0, "a read without the token must be able to miss the row");
    println!(
        "S03 {major:?}: waits {waits:?}, selects {selects:?}; without the token {missing} of \
         {ROUNDS} miss the row"
    );
}

/// The time since a commit, which must be 250 to 700 ms.
fn within_window(bench: &Bench, commit: &Commit) -> Duration {
    let now = bench.clock.now();
    let (longest, took) = (now.since(commit.asked_at), now.since(commit.at));
    assert!(longest >= Duration::from_millis(250), "{longest:?}");
    assert!(took <= bench.stall.allow(Duration::from_millis(700)), "{took:?}");
    took
}

async fn assert_standby_with_row(bench: &Bench, node: &v1::Served, id: i64) {
    assert!(matches!(name_of(node), "r1" | "r2"), "{node:?}");
    assert!(bench.reads(node, id).await, "{node:?}");
}
