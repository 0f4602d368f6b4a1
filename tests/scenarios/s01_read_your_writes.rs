//! S01: who wrote a row is not sent to a standby that does not show it.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_proto::v1;

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

async fn held_replay(major: Major) {
    let bench = Bench::start(major).await;
    bench.r1().pause_replay().await.expect("r1 pauses");
    bench.r2().pause_replay().await.expect("r2 pauses");
    bench.stall.forget();
    let fallbacks_before = bench.fallbacks().await;

    let mut u = Session::carrying();
    let recorded = bench.write(&mut u, 1).await.position();
    let (mut found, mut before_r2, mut selecting) = (0, 0, Duration::ZERO);
    for read in 0..READS {
        if read == EARLY {
            bench.r2().resume_replay().await.expect("r2 resumes");
        }
        let early = before_r2 == read && !bench.has_applied(bench.r2(), recorded).await;
        before_r2 += u64::from(early);
        let policy = waiting(if read < EARLY { Duration::ZERO } else { BUDGET });
        let asked_at = bench.clock.now();
        let served = bench.served(&mut u, policy).await;
        selecting += bench.clock.now().since(asked_at);
        assert!(matches!(name_of(&served), "r2" | "l"), "{served:?}");
        found += u64::from(bench.reads(&served, 1).await);
    }
    assert_eq!(found, READS, "reads that found the row");
    let fallbacks = bench.fallbacks().await - fallbacks_before;
    assert!(fallbacks >= EARLY, "{fallbacks} fallbacks");
    assert!(fallbacks <= before_r2, "{fallbacks} fallbacks, {before_r2} reads before r2 had it");
    assert!(selecting <= bench.stall.allow(Duration::from_secs(2)), "{selecting:?}");

    // Who has written nothing is still spread over both.
    let mut v = Session::of("v");
    let served = bench.served_by(&mut v, "r1").await;
    assert!(!bench.reads(&served, 1).await, "r1 pauses before the row");

    // The wrong way: the writer's reads without its token.
    let (mut named_r1, mut missing) = (0_u64, 0_u64);
    for _ in 0..READS {
        let served = bench.served(&mut Session::tokenless(), v1::Policy::default()).await;
        named_r1 += u64::from(name_of(&served) == "r1");
        missing += u64::from(!bench.reads(&served, 1).await);
    }
    assert!(missing > 0 && missing == named_r1, "{missing} missing, {named_r1} named r1");
    println!(
        "S01 {major:?}: {READS} reads selected in {selecting:?}, {before_r2} before r2 had the \
         row, {fallbacks} fallbacks; without the token {missing} of {READS} miss it"
    );
}
