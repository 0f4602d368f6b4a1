//! S09: one bound, and a cluster that gets worse step by step. A fresh replica serves, then one
//! that is waited for, then the leader; and when nothing shows how old anything is, nobody does.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};
use tidegate_lab::wait::LIMIT;
use tidegate_proto::v1;

use crate::aged::{Bounded, Writer, asked, within};
use crate::bench::Bench;
use crate::on_both_versions;
use crate::session::Session;

on_both_versions! {
    ladder =>
        s09_bounded_ladder_pg15,
        s09_bounded_ladder_pg18;
}

/// How old a state may be; `TIDEGATE_LONG=1` makes it what the scenario says.
fn bound() -> Duration {
    let is_long = std::env::var_os("TIDEGATE_LONG").is_some();
    Duration::from_secs(if is_long { 5 } else { 2 })
}

/// How far r1 is delayed.
const DELAY: Duration = Duration::from_secs(60);
/// How long reads wait then, and otherwise.
const LONG_BUDGET: Duration = Duration::from_secs(2);
const BUDGET: Duration = Duration::from_millis(100);
/// Reads of each policy on each step.
const READS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The bench with a third standby, and reads under two policies: one allows the leader.
struct Stage {
    bench: Bench,
    writer: Writer,
    bound: Duration,
    /// What was answered so far, for whoever looks into a failure.
    seen: BTreeMap<(&'static str, &'static str, String), usize>,
}

async fn ladder(major: Major) {
    let bench = Bench::of(major, 3, |options| options).await;
    let (r1, r2, r3) = (bench.r1().clone(), bench.r2().clone(), bench.cluster.standby(2).clone());
    let writer = Writer::start(&bench).await;
    r1.apply_delay(DELAY).await.expect("r1 lags");
    r3.pause_replay().await.expect("r3 pauses");
    let mut stage = Stage { bench, writer, bound: bound(), seen: BTreeMap::new() };
    stage.until_late("r1 and r3 fall behind", &[&r1, &r3]).await;

    // The wrong way: who names no bound is sent to all of them, and misses rows on two.
    let missed = stage.strangers_that_missed().await;
    assert!(missed > 0, "r1 and r3 may serve whoever demands nothing");

    let (allowed, forbidden) = stage.reads("r2 is fresh", BUDGET).await;
    for answers in [&allowed, &forbidden] {
        let on_r2 = answers.iter().filter(|answer| answer.names("r2")).count();
        assert!(on_r2 * 10 >= READS * 9, "r2 is fresh: {answers:?}");
    }

    r2.pause_replay().await.expect("r2 pauses");
    stage.until_late("r2 falls behind", &[&r1, &r2, &r3]).await;
    let waited = stage.waited_for(&r2).await;

    r2.pause_replay().await.expect("r2 pauses");
    stage.until_late("r2 falls behind again", &[&r1, &r2, &r3]).await;
    let (allowed, forbidden) = stage.reads("all lag", BUDGET).await;
    let by_leader =
        |answer: &Bounded| answer.names("l") && answer.reason == v1::Reason::LeaderFallback;
    assert!(allowed.iter().all(by_leader), "{allowed:?}");
    assert!(forbidden.iter().all(|answer| answer.node.is_none()), "{forbidden:?}");
    let not_covered = |answer: &Bounded| answer.reason == v1::Reason::NotCovered;
    assert!(forbidden.iter().all(not_covered), "{forbidden:?}");

    stage.bench.cluster.leader().stop(Stop::Immediate).await.expect("the leader is gone");
    stage.until_not_provable().await;
    let (allowed, forbidden) = stage.reads("the leader is gone", BUDGET).await;
    let not_provable =
        |answer: &Bounded| answer.node.is_none() && answer.reason == v1::Reason::NotProvable;
    for answers in [&allowed, &forbidden] {
        assert!(answers.iter().all(not_provable), "{answers:?}");
    }
    println!(
        "S09 {major:?}: within {:?}: r2; after {waited:?} r2; {READS} times the leader, and nobody \
         where that is forbidden; {READS} times nobody; {missed} of {READS} reads without a bound \
         missed a row",
        stage.bound
    );
}

impl Stage {
    /// Asks once under each policy; every answer is held against the rows.
    async fn ask(&mut self, step: &'static str, budget: Duration) -> (Bounded, Bounded) {
        let allows = within(self.bound, budget);
        let forbids = v1::Policy { fallback: Some(false), ..allows.clone() };
        let (bench, writer) = (&self.bench, Some(&self.writer));
        let (allowed, forbidden) = tokio::join!(
            asked(bench, writer, &allows, self.bound),
            asked(bench, writer, &forbids, self.bound)
        );
        assert!(!forbidden.names("l"), "the policy forbids it: {forbidden:?}");
        for (policy, answer) in [("allowed", &allowed), ("forbidden", &forbidden)] {
            let node = answer.node.as_deref().unwrap_or("nobody");
            let ended = format!("{node}, {}", answer.reason.as_str_name());
            *self.seen.entry((step, policy, ended)).or_default() += 1;
        }
        tokio::time::sleep(PAUSE).await;
        (allowed, forbidden)
    }

    /// Asks [`READS`] times under each policy.
    async fn reads(
        &mut self,
        step: &'static str,
        budget: Duration,
    ) -> (Vec<Bounded>, Vec<Bounded>) {
        let mut answers = (Vec::new(), Vec::new());
        for _ in 0..READS {
            let (allowed, forbidden) = self.ask(step, budget).await;
            answers.0.push(allowed);
            answers.1.push(forbidden);
        }
        answers
    }

    /// Goes on asking until each of these servers itself lacks what the bound demands.
    async fn until_late(&mut self, step: &'static str, servers: &[&Server]) {
        let begun_at = self.bench.clock.now();
        loop {
            drop(self.ask(step, BUDGET).await);
            let due = self.writer.newest_before(self.bench.clock.now() - self.bound);
            let mut late = 0;
            for server in servers {
                late += usize::from(self.bench.newest_at(server).await < due);
            }
            if late == servers.len() {
                return;
            }
            assert!(self.bench.clock.now().since(begun_at) < LIMIT, "{step}: {:?}", self.seen);
        }
    }

    /// A read is asked, then its replica goes on: how long it waited for it.
    async fn waited_for(&mut self, replica: &Server) -> Duration {
        let ((allowed, forbidden), resumed) =
            tokio::join!(self.ask("r2 goes on", LONG_BUDGET), async {
                tokio::time::sleep(PAUSE).await;
                replica.resume_replay().await
            });
        resumed.expect("it goes on");
        for answer in [&allowed, &forbidden] {
            assert!(answer.names("r2") && answer.reason == v1::Reason::Waited, "{answer:?}");
        }
        allowed.waited
    }

    /// Goes on asking until nothing shows any more how old anything is.
    async fn until_not_provable(&mut self) {
        let begun_at = self.bench.clock.now();
        loop {
            let (allowed, forbidden) = self.ask("the leader goes", BUDGET).await;
            let reasons = [allowed.reason, forbidden.reason];
            if reasons == [v1::Reason::NotProvable; 2] {
                return;
            }
            assert!(self.bench.clock.now().since(begun_at) < LIMIT, "{:?}", self.seen);
        }
    }

    /// Of [`READS`] reads that demand nothing, those that miss a row the bound would demand.
    async fn strangers_that_missed(&self) -> usize {
        let eventual = v1::Policy { level: v1::Level::Eventual.into(), ..v1::Policy::default() };
        let mut missed = 0;
        for _ in 0..READS {
            let due = self.writer.newest_before(self.bench.clock.now() - self.bound);
            let served = self.bench.served(&mut Session::tokenless(), eventual.clone()).await;
            missed += usize::from(self.bench.newest(&served).await < due);
        }
        missed
    }
}
