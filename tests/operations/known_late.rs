//! What another device writes while a call still waits for its own evidence to be recorded.
//!
//! A leader sample sent before that write says nothing of it, though it was sent after the call.

use std::time::Duration;

use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::wait_until_fresh_response::Outcome as Ended;
use tidegate_proto::v1::{self, Level, Reason};

use super::stage::{Stage, connect, metric, named, read, select, subject, wait};

/// How long each byte between the service and its leader takes.
const SLOW: Duration = Duration::from_millis(500);
/// A wait that sees the next sample after its record was known, and gives up on a held standby.
const BUDGET: Duration = Duration::from_secs(3);
/// An answer of the leader may slip past before it is held: so often is it tried to hold one.
const TRIES: i64 = 5;
/// The last poll of the leader that was answered there.
const POLLED: &str = "select max(query_start)::text from pg_stat_activity \
     where application_name like 'tidegate/%' and query like '%tge1|poll|%' and state = 'idle'";

/// A standby's sample of a life nobody lives: the leader's next sample makes a mark of it.
async fn sample_of_nobody(stage: &Stage) -> String {
    let sample: String =
        stage.cluster.standby(0).value("select tidegate.sample()").await.expect("a sample");
    let mut fields: Vec<&str> = sample.split('|').collect();
    assert!(fields.len() > 11, "{sample}");
    // When it started, and the timeline it receives, which would prove its line.
    (fields[5], fields[11]) = ("1", "");
    fields.join("|")
}

/// The leader's time.
async fn time(stage: &Stage) -> String {
    let now = stage.cluster.leader().value("select clock_timestamp()::text").await;
    now.expect("a time")
}

/// Waits until the leader has made a poll since then.
async fn until_polled(stage: &Stage, since: &str) {
    let leader = stage.cluster.leader();
    let polled = format!("select ({POLLED})::timestamptz > '{since}'");
    let came = || async { Ok(leader.value::<Option<bool>>(&polled).await? == Some(true)) };
    until("the leader to be polled", LIMIT, came).await.expect("a poll");
}

/// Waits until the leader was not polled for longer than an idle partition waits between two polls.
async fn until_held(stage: &Stage) {
    let leader = stage.cluster.leader();
    let held = "select max(query_start) < clock_timestamp() - interval '600ms' \
         from pg_stat_activity where application_name like 'tidegate/%'";
    let silent = || async { Ok(leader.value::<Option<bool>>(held).await? == Some(true)) };
    until("an answer to be held", LIMIT, silent).await.expect("no more polls");
}

/// Waits until the service has a read and a wait to answer.
async fn until_called(service: &Service) {
    let came = || async { Ok(metric(service, "tidegate_calls_in_flight").await.round() == 2.0) };
    until("both calls to have come", LIMIT, came).await.expect("they come");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_judged_by_no_sample_from_before_it_though_sent_after_the_call() {
    let stage = Stage::set(1).await;
    let proxy = Proxy::start(stage.cluster.leader().address()).await.expect("a proxy");
    let options = stage.options().await.poll_through("l", proxy.address());
    let service = Service::start(options.limit("poll_timeout", "\"30s\"")).await;
    let service = service.expect("a service");
    until("r1 to serve sessions", LIMIT, || async {
        let partition = service.partition().await?;
        Ok(partition.nodes.iter().any(|node| node.name == "r1" && node.session_eligible))
    })
    .await
    .expect("it has the row of its leader");
    let mut client = connect(&service).await;
    stage.hold().await;
    let evidence = vec![sample_of_nobody(&stage).await];
    for id in 1..=TRIES {
        // The answer of one poll is held, so that the next is sent after the calls have come.
        proxy.set(Mode::HalfOpen).await.expect("answers are held");
        until_held(&stage).await;
        let whose = format!("subject {id}");
        let carrying = v1::Session { evidence: evidence.clone(), ..subject(&whose) };
        let (mut reads, mut waits) = (client.clone(), client.clone());
        let asked = read(carrying.clone(), Level::Session);
        let reading = tokio::spawn(async move { select(&mut reads, asked).await });
        let waiting = tokio::spawn(async move {
            waits.wait_until_fresh(wait(carrying, BUDGET)).await.expect("an answer").into_inner()
        });
        until_called(&service).await;
        let since = time(&stage).await;
        proxy.set(Mode::Delay(SLOW)).await.expect("a slow leader");
        until_polled(&stage, &since).await;
        proxy.set(Mode::HalfOpen).await.expect("answers are held");
        stage.write(&mut client, &whose, id).await;
        let held = !reading.is_finished() && !waiting.is_finished();
        proxy.set(Mode::Delay(SLOW)).await.expect("what was held comes");
        let read = reading.await.expect("a decision");
        let waited = waiting.await.expect("an end");
        proxy.set(Mode::Pass).await.expect("a fast leader");
        if !held {
            continue;
        }
        let node = named(&read);
        assert!(node.is_empty() || stage.shows(node, id).await, "it lacks the row: {read:?}");
        assert_ne!(read.reason(), Reason::FutureMark, "{read:?}");
        assert_eq!(waited.outcome(), Ended::TimedOut, "nothing was lost: {waited:?}");
        for notices in [&read.notices, &waited.notices] {
            assert_eq!(notices.len(), 1, "only what was read of nobody may be gone: {notices:?}");
        }
        return;
    }
    panic!("no answer of the leader could be held in {TRIES} tries");
}
