//! S01: who wrote a row is not sent to a standby that does not show it.

use std::time::Duration;

use futures::future::join_all;
use tidegate_lab::install::Major;

use crate::bench::{Bench, name_of, waiting};
use crate::on_both_versions;
use crate::session::Session;

on_both_versions! {
    held_replay =>
        s01_read_your_writes_with_held_replay_pg15,
        s01_read_your_writes_with_held_replay_pg18;
}

const READS: u64 = 200;

/// Ample: a busy machine must not turn a wait into a fallback.
const BUDGET: Duration = Duration::from_millis(500);

/// Reads while r2 does not have the row yet either.
const EARLY: u64 = 5;

/// Reads side by side, as of one page.
const AT_ONCE: u64 = 5;

async fn held_replay(major: Major) {
    let bench = Bench::start(major).await;
    bench.r1().pause_replay().await.expect("r1 pauses");
    bench.r2().pause_replay().await.expect("r2 pauses");
    bench.stall.forget();
    let fallbacks_before = bench.fallbacks().await;

    let mut u = Session::carrying();
    let recorded = bench.write(&mut u, 1).await.position();
    let (mut found, mut before_r2, mut asked, mut took) = (0, 0, 0, Duration::ZERO);
    let (mut missing, mut unaware_took) = (0_u64, Duration::ZERO);
    while asked < READS {
        if asked == EARLY {
            bench.r2().resume_replay().await.expect("r2 resumes");
        }
        let early = before_r2 == asked && !bench.has_applied(bench.r2(), recorded).await;
        before_r2 += if early { AT_ONCE } else { 0 };
        let budget = if asked < EARLY { Duration::ZERO } else { BUDGET };
        let (reads, span) = read(&bench, &u, budget).await;
        assert!(reads.iter().all(|(node, _)| matches!(&**node, "r2" | "l")), "{reads:?}");
        found += count(&reads, true);
        took += span;
        // The wrong way: the writer's reads without its token, at the same time.
        let (reads, span) = read(&bench, &Session::tokenless(), budget).await;
        assert!(reads.iter().all(|(node, shown)| node != "r1" || !shown), "{reads:?}");
        missing += count(&reads, false);
        unaware_took += span;
        asked += AT_ONCE;
    }
    assert_eq!(found, READS, "reads that found the row");
    assert!(missing > 0, "r1 pauses before the row and may serve who brings no token");
    let fallbacks = bench.fallbacks().await - fallbacks_before;
    assert!(fallbacks >= EARLY, "{fallbacks} fallbacks");
    assert!(fallbacks <= before_r2, "{fallbacks} fallbacks, {before_r2} reads before r2 had it");
    // On a machine too busy for reads that demand nothing, freshness may cost as much again.
    let limit = bench.stall.allow(Duration::from_secs(2).max(unaware_took * 2));
    assert!(took <= limit, "{took:?}, and without the token {unaware_took:?}");

    // Who has written nothing is still spread over both.
    let mut v = Session::of("v");
    let served = bench.served_by(&mut v, "r1").await;
    assert!(!bench.reads(&served, 1).await, "r1 pauses before the row");
    println!(
        "S01 {major:?}: {READS} reads in {took:?}, {before_r2} before r2 had the row, \
         {fallbacks} fallbacks; without the token {missing} of {READS} miss it"
    );
}

/// A few reads of one session: the node of each, whether that has the row, and their time.
async fn read(bench: &Bench, who: &Session, budget: Duration) -> (Vec<(String, bool)>, Duration) {
    let asked_at = bench.clock.now();
    let reads = (0..AT_ONCE).map(|_| async {
        let served = bench.served(&mut who.clone(), waiting(budget)).await;
        (name_of(&served).to_owned(), bench.reads(&served, 1).await)
    });
    let reads = join_all(reads).await;
    (reads, bench.clock.now().since(asked_at))
}

fn count(reads: &[(String, bool)], wanted: bool) -> u64 {
    reads.iter().map(|(_, shown)| u64::from(*shown == wanted)).sum()
}
