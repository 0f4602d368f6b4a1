//! S08: a leader on which nobody writes makes no replica look old, and a replica that stands still
//! is asked no more once it may be older than the bound.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::Server;
use tidegate_proto::v1;

use crate::aged::{Bounded, Writer, asked, within};
use crate::bench::{Bench, POLL_INTERVAL, name_of};
use crate::on_both_versions;
use crate::session::Session;

on_both_versions! {
    idle =>
        s08_bounded_on_an_idle_leader_pg15,
        s08_bounded_on_an_idle_leader_pg18;
}

/// How old a state may be, and how long nobody writes; `TIDEGATE_LONG=1` makes both what the
/// scenario says.
fn spans() -> (Duration, Duration) {
    let is_long = std::env::var_os("TIDEGATE_LONG").is_some();
    let (bound, idle) = if is_long { (5, 60) } else { (2, 12) };
    (Duration::from_secs(bound), Duration::from_secs(idle))
}

/// A busy machine may take this long to see what an idle one sees at once.
const BUDGET: Duration = Duration::from_secs(1);
/// Between two reads while nobody writes, and while somebody does.
const IDLE_PAUSE: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(25);
/// What an answer may take besides.
const MARGIN: Duration = Duration::from_millis(500);
/// Reads once r1 is too old.
const READS: usize = 40;

async fn idle(major: Major) {
    let bench = Bench::start(major).await;
    let (bound, idle) = spans();
    let policy = within(bound, BUDGET);
    let begun_at = bench.clock.now();
    let mut answers = Vec::new();
    while bench.clock.now().since(begun_at) < idle {
        answers.push(asked(&bench, None, &policy, bound).await);
        tokio::time::sleep(IDLE_PAUSE).await;
    }
    let by_replica = |answer: &Bounded| answer.names("r1") || answer.names("r2");
    let others: Vec<&Bounded> = answers.iter().filter(|answer| !by_replica(answer)).collect();
    assert!(others.is_empty(), "of {}, not by a replica: {others:?}", answers.len());
    // The wrong way: by the time of what it last applied, the same replica is long too old.
    let looks_old = age_of_last_commit(bench.r1()).await;
    assert!(looks_old > bound * 2, "{looks_old:?}: somebody wrote");

    bench.stall.forget();
    bench.r1().pause_replay().await.expect("r1 pauses");
    let paused_at = bench.clock.now();
    let writer = Writer::start(&bench).await;
    let (last_on_r1, on_r2) = after_the_pause(&bench, &writer, &policy, bound).await;
    let stayed = last_on_r1.map_or(Duration::ZERO, |at| at.since(paused_at));
    let limit = bench.stall.allow(bound + POLL_INTERVAL + MARGIN);
    assert!(stayed <= limit, "r1 was named {stayed:?} after its pause");
    // The wrong way: who names no bound is sent to r1, and misses what was written since.
    let (mut on_r1, due) = (0_u64, writer.newest_before(bench.clock.now() - bound));
    for _ in 0..READS {
        let eventual = v1::Policy { level: v1::Level::Eventual.into(), ..v1::Policy::default() };
        let served = bench.served(&mut Session::tokenless(), eventual).await;
        if name_of(&served) == "r1" {
            on_r1 += 1;
            assert!(bench.newest(&served).await < due, "r1 stands still");
        }
    }
    assert!(on_r1 > 0, "r1 may serve whoever demands nothing");
    println!(
        "S08 {major:?}: {} reads within {bound:?} over {idle:?} without a write were served by \
         replicas, whose last commit looked {looks_old:?} old; r1 was named until {stayed:?} after \
         its pause, then r2 {on_r2} times; without a bound {on_r1} of {READS} were on r1",
        answers.len()
    );
}

/// Reads until r1 lacks what the bound demands, and [`READS`] times more; when r1 was last asked
/// for a read, and how many r2 served of the last ones.
async fn after_the_pause(
    bench: &Bench,
    writer: &Writer,
    policy: &v1::Policy,
    bound: Duration,
) -> (Option<tidegate_core::instant::Instant>, usize) {
    let (mut last_on_r1, mut late) = (None, Vec::new());
    while late.len() < READS {
        // Row 1 came after the pause, so r1 lacks it.
        let is_late = writer.newest_before(bench.clock.now() - bound) > 0;
        let answer = asked(bench, Some(writer), policy, bound).await;
        if answer.names("r1") {
            last_on_r1 = Some(answer.asked_at);
        }
        if is_late {
            assert!(!answer.names("r1"), "{answer:?}");
            late.push(answer);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let on_r2 = late.iter().filter(|answer| answer.names("r2")).count();
    assert!(on_r2 * 10 >= READS * 9, "r2 is fresh: {late:?}");
    (last_on_r1, on_r2)
}

/// How long ago the last commit that a standby has applied was made, as the standby tells it.
async fn age_of_last_commit(standby: &Server) -> Duration {
    let age =
        "select extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())::float8";
    let seconds: f64 = standby.value(age).await.expect("a standby that answers");
    Duration::from_secs_f64(seconds)
}
