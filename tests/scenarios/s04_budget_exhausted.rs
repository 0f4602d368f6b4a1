//! S04: where no standby can serve within the budget, the leader does, and the answer says why.

use std::time::Duration;

use tidegate_lab::install::Major;
use tidegate_proto::v1;
use tidegate_proto::v1::above_cap_step::Kind;
use tidegate_proto::v1::select_replica_response::Outcome;

use crate::bench::{Bench, name_of, served, waiting};
use crate::on_both_versions;
use crate::session::Session;

on_both_versions! {
    both_paused =>
        s04_budget_exhausted_falls_back_with_a_reason_pg15,
        s04_budget_exhausted_falls_back_with_a_reason_pg18;
}

const BUDGET: Duration = Duration::from_millis(50);

const ROUNDS: usize = 5;

/// The budget and what an answer may take besides.
const LIMIT: Duration = Duration::from_millis(100);

async fn both_paused(major: Major) {
    let bench = Bench::start(major).await;
    for standby in bench.cluster.standbys() {
        standby.pause_replay().await.expect("it pauses");
    }
    let mut u = Session::carrying();
    bench.write(&mut u, 1).await;

    let (answer, fell_back_in) = asked(&bench, &mut u, waiting(BUDGET), (1, 0)).await;
    let leader = served(&answer);
    assert_eq!((name_of(&leader), answer.reason()), ("l", v1::Reason::LeaderFallback));
    assert!(bench.reads(&leader, 1).await, "the leader has the row");

    // An ordinary leader read is counted as that and not as a fallback.
    let by_policy = v1::Policy { level: v1::Level::Leader.into(), ..v1::Policy::default() };
    let (answer, _) = asked(&bench, &mut u, by_policy, (0, 1)).await;
    assert_eq!(answer.reason(), v1::Reason::LeaderByPolicy);

    let no_leader = v1::Policy { fallback: Some(false), ..waiting(BUDGET) };
    let (answer, refused_in) = asked(&bench, &mut u, no_leader.clone(), (0, 0)).await;
    let Some(Outcome::Refused(refused)) = &answer.outcome else { panic!("{answer:?}") };
    assert!(refused.retry_after.is_some(), "{answer:?}");
    assert_eq!(answer.reason(), v1::Reason::NotCovered);

    let stale = v1::AboveCapStep { kind: Kind::Stale.into(), wait_budget: None };
    let labelled = v1::Policy { above_cap: vec![stale], ..no_leader };
    let (answer, labelled_in) = asked(&bench, &mut u, labelled, (0, 0)).await;
    let behind = served(&answer);
    assert_eq!(answer.reason(), v1::Reason::StaleByPolicy);
    let lag = behind.stale.as_ref().and_then(|stale| stale.lag.as_ref()).expect("a lag");
    assert!(lag.bytes > 0 && answer.met.is_empty(), "{answer:?}");
    assert!(!bench.reads(&behind, 1).await, "that is what the label says");

    // The wrong way: the same read without the token is served at once, unlabelled, and misses.
    let (answer, _) = asked(&bench, &mut Session::tokenless(), waiting(BUDGET), (0, 0)).await;
    let unaware = served(&answer);
    assert_eq!((answer.reason(), unaware.stale), (v1::Reason::Covered, None));
    assert!(!bench.reads(&unaware, 1).await, "both standbys pause before the row");
    println!(
        "S04 {major:?}: fallback in {fell_back_in:?}, refusal in {refused_in:?}, labelled in \
         {labelled_in:?}"
    );
}

/// Asks a few times; each time (fallbacks, ordinary leader reads) must grow by just `growth`.
///
/// Returns the answer of median time, which must be within [`LIMIT`]: beside other tests
/// one answer may come late without a fault of the service.
async fn asked(
    bench: &Bench,
    session: &mut Session,
    policy: v1::Policy,
    growth: (u64, u64),
) -> (v1::SelectReplicaResponse, Duration) {
    bench.stall.forget();
    let mut answers = Vec::new();
    for _ in 0..ROUNDS {
        let before = Counters::read(bench).await;
        let asked_at = bench.clock.now();
        let answer = bench.select(session, policy.clone()).await;
        let took = bench.clock.now().since(asked_at);
        assert_eq!(before.growth(bench).await, growth, "fallbacks, ordinary leader reads");
        answers.push((took, answer));
    }
    answers.sort_by_key(|(took, _)| *took);
    let (median, answer) = answers.swap_remove(ROUNDS / 2);
    assert!(answers.iter().all(|(_, other)| other.reason == answer.reason), "{answers:?}");
    assert!(median <= bench.stall.allow(LIMIT), "{median:?}: {answer:?}");
    (answer, median)
}

/// Reads the leader was asked to serve, by why.
struct Counters {
    fallbacks: u64,
    ordinary: u64,
}

impl Counters {
    async fn read(bench: &Bench) -> Self {
        let by_policy = [("answer", "leader"), ("reason", "leader_by_policy")];
        let admitted = bench.counter("fallbacks", &[("verdict", "admitted")]).await;
        Self { fallbacks: admitted, ordinary: bench.counter("selects", &by_policy).await }
    }

    async fn growth(&self, bench: &Bench) -> (u64, u64) {
        let now = Self::read(bench).await;
        (now.fallbacks - self.fallbacks, now.ordinary - self.ordinary)
    }
}
