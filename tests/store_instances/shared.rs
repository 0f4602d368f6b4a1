//! What is recorded through one instance is known to the other, over restarts of either.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_lab::redis::{Group, Kind, Options, Server};
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::store_changed::Kind as Befell;
use tidegate_proto::v1::token_store::Condition;
use tidegate_proto::v1::wait_until_fresh_response::Outcome;
use tidegate_proto::v1::{Guarantee, Reason, SelectReplicaResponse, Stored};

use super::stage::{ALICE, Instance, Stage, carrying, named, subject};

/// Short, and long enough for a busy machine's replica.
const LAG_SECONDS: u32 = 5;

/// Two instances on one Redis, whose lookups are believed.
async fn pair(stage: &Stage, redis: &Server, more: &str) -> (Instance, Instance) {
    let (a, b) = (stage.instance(redis, more).await, stage.instance(redis, more).await);
    for instance in [&a, &b] {
        instance.until_store(Condition::Well).await;
    }
    (a, b)
}

fn meets_session(answer: &SelectReplicaResponse) -> bool {
    answer.met().any(|met| met == Guarantee::ReadYourWrites)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_recorded_through_one_instance_is_read_through_the_other() {
    let stage = Stage::set().await;
    for kind in [Kind::Redis, Kind::Valkey] {
        let redis = Server::start(Options::new(kind)).await.expect("a server starts");
        let (a, b) = pair(&stage, &redis, "").await;
        let first = if kind == Kind::Redis { 1 } else { 101 };
        for id in first..first + 10 {
            stage.hold().await;
            let (to, from) = if id % 2 == 0 { (&a, &b) } else { (&b, &a) };
            let recorded = to.record(subject(ALICE), stage.write(id).await).await;
            assert_eq!(recorded.stored(), Stored::PrimaryOnly);
            for instance in [from, to] {
                let answer = instance.select(subject(ALICE)).await;
                assert_eq!(named(&answer), "l", "the standby lacks it: {answer:?}");
                stage.fresh(&answer, id).await;
                assert!(meets_session(&answer), "{answer:?}");
            }
            stage.release().await;
            until("the standby serves her", LIMIT, || async {
                let answer = from.select(subject(ALICE)).await;
                stage.fresh(&answer, id).await;
                Ok(named(&answer) != "l" && !named(&answer).is_empty())
            })
            .await
            .expect("it has caught up");
        }
        let store = a.store().await;
        assert!(store.update_count >= 5 && store.lookup_count > 0, "{store:?}");
        assert_eq!((store.pending_count, store.malformed_count), (0, 0), "{store:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing_and_is_no_loss() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let (mut a, mut b) = pair(&stage, &redis, "").await;
    let mut losses = Vec::new();
    for id in 1..=4 {
        stage.hold().await;
        let (restarts, stays) = if id % 2 == 0 { (&mut a, &b) } else { (&mut b, &a) };
        stays.record(subject(ALICE), stage.write(id).await).await;
        restarts.restart().await;
        // From its first answer on: nothing is believed too early.
        let answer = restarts.select(subject(ALICE)).await;
        stage.fresh(&answer, id).await;
        restarts.until_store(Condition::Well).await;
        let answer = restarts.select(subject(ALICE)).await;
        assert_eq!(named(&answer), "l", "the standby lacks it: {answer:?}");
        losses.push(restarts.store().await.loss_count);
        stage.release().await;
    }
    assert_eq!(losses, [0; 4], "a restart of an instance is none of the store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_store_says_so_and_promises_less() {
    let stage = Stage::set().await;
    let group = Group::start(Options::new(Kind::Redis), 1).await.expect("a group starts");
    let more = "redundancy = \"async\"\nfence = \"1s\"";
    let (a, b) = pair(&stage, group.primary(), more).await;
    assert_eq!(a.store().await.redundancy, "async");
    let recorded = a.record(subject(ALICE), stage.write(1).await).await;
    stage.release().await;
    until("the standby serves her", LIMIT, || async {
        Ok(!["l", ""].contains(&named(&b.select(subject(ALICE)).await)))
    })
    .await
    .expect("it has caught up");
    let answer = b.select(subject(ALICE)).await;
    assert_eq!(answer.reason(), Reason::StoreAsync, "{answer:?}");
    assert!(!meets_session(&answer), "a record may be behind: {answer:?}");
    let carried = b.select(carrying(&recorded.token)).await;
    assert_eq!(carried.reason(), Reason::Covered, "{carried:?}");
    assert!(meets_session(&carried), "a token is never behind: {carried:?}");

    // A wait has no reason to say that with: whatever the record lacks, it waits for.
    stage.hold().await;
    stage.write(2).await;
    let waited = b.wait(subject("carol")).await;
    assert_ne!(waited.outcome(), Outcome::Fresh, "the standby lacks row 2: {waited:?}");
    stage.release().await;
    let waited = b.wait(subject("carol")).await;
    assert_eq!(waited.outcome(), Outcome::Fresh, "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_on_a_replica_too_is_said_to_be_replicated() {
    let stage = Stage::set().await;
    let options = Options::new(Kind::Redis).min_replicas(1, 2);
    let group = Group::start(options, 1).await.expect("a group starts");
    let more = "wait_replicas = 1\nwait = \"500ms\"";
    let a = stage.instance(group.primary(), more).await;
    let store = a.until_store(Condition::Well).await;
    assert_eq!(store.redundancy, "fenced", "{store:?}");
    let recorded = a.record(subject(ALICE), stage.write(1).await).await;
    assert_eq!(recorded.stored(), Stored::Replicated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_instance_is_ready_once_its_records_are_promised_to_all() {
    let stage = Stage::set().await;
    let options = Options::new(Kind::Redis).min_replicas(1, LAG_SECONDS);
    let group = Group::start(options, 1).await.expect("a group starts");
    let (mut a, b) = pair(&stage, group.primary(), "").await;
    let stall = Stall::watch().expect("stalls are watched");
    let (clock, mut took) = (Clock::new(), Vec::new());
    for id in 1..=3 {
        stage.hold().await;
        let began_at = clock.now();
        let seen = a.restart_seen().await;
        took.push(clock.now().since(began_at));
        assert!(seen.contains(&Condition::Unsettled), "it is not believed before: {seen:?}");
        a.until_store(Condition::Well).await;
        let recorded = a.record(subject(ALICE), stage.write(id).await).await;
        assert_eq!(recorded.stored(), Stored::PrimaryOnly, "its first record: {recorded:?}");
        let answer = b.select(subject(ALICE)).await;
        assert_eq!(named(&answer), "l", "the standby lacks it: {answer:?}");
        stage.release().await;
    }
    // Nobody is helped by an instance that waits for a store that is not there.
    group.primary().kill().await.expect("it is gone");
    stall.forget();
    let began_at = clock.now();
    a.restart().await;
    let without = clock.now().since(began_at);
    let recorded = a.record(subject(ALICE), stage.write(4).await).await;
    assert_eq!(recorded.stored(), Stored::Memory, "{recorded:?}");
    say(&format!("ready after {took:?} with max-lag {LAG_SECONDS} s; {without:?} without a store"));
    let settles = Duration::from_secs(u64::from(LAG_SECONDS) + 2);
    assert!(without < stall.allow(settles), "{without:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_added_is_an_alarm_that_says_what_to_set() {
    let stage = Stage::set().await;
    let kept = || Options::new(Kind::Redis).min_replicas(1, LAG_SECONDS);
    let group = Group::start(kept(), 1).await.expect("a group starts");
    let primary = group.primary();
    let (a, _b) = pair(&stage, primary, "").await;
    let mut told = a.watch().await;
    let added = kept().replica_of(primary.address());
    let _added = Server::start(added).await.expect("another replica starts");
    let why = told.until(Befell::Unfit).await;
    // What finds it first says it: a heartbeat, or the check of a new link.
    let says = |text: &str| text.contains("`min-replicas-to-write`") && text.contains(" to 2");
    assert!(says(&why), "{why}");
    a.until_store(Condition::Unfit).await;
    let alarms = a.alarms().await;
    assert!(alarms[0].starts_with("STORE_UNFIT: ") && says(&alarms[0]), "{alarms:?}");
    stage.hold().await;
    let recorded = a.record(subject(ALICE), stage.write(1).await).await;
    assert_eq!(recorded.stored(), Stored::Memory, "{recorded:?}");
    let answer = a.select(subject(ALICE)).await;
    stage.fresh(&answer, 1).await;
    assert!(["", "l"].contains(&named(&answer)), "subjects are unknown: {answer:?}");
    stage.release().await;

    primary.set("min-replicas-to-write", "2").await.expect("it is set");
    // It copied all there was, and may have been promoted meanwhile, for all that is known: that is
    // a loss, which nobody ends before the server needs all its replicas.
    told.until(Befell::Stands).await;
    a.until_store(Condition::Well).await;
    assert_eq!(a.alarms().await, Vec::<String>::new());
}

#[expect(clippy::print_stdout, reason = "figures are what a run is read for")]
fn say(text: &str) {
    println!("{text}");
}
