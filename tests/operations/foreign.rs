//! Two instances that each keep their records in their own memory, which no operator should run:
//! neither serves a subject from what it cannot know.
//!
//! An instance that is cut off from the leader is seen by nobody: the README says so.

use tidegate_core::guards::Guards;
use tidegate_lab::install::Major;
use tidegate_lab::metrics::gauge;
use tidegate_lab::service::Service;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::watch_events_response::Event;
use tidegate_proto::v1::{Guarantee, Level, Reason, WatchEventsRequest};

use super::stage::{Client, Stage, connect, named, read, select, subject, until_tried};

/// Reads of one subject: a replica that lacks its write is named half of the time, if at all.
const READS: usize = 30;
/// Times that the wrong way is tried.
#[cfg(feature = "unsafe-guards")]
const TRIES: usize = 4;

macro_rules! on_both_versions {
    ($($claim:ident => $pg15:ident, $pg18:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg15() {
            $claim(Major::V15).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg18() {
            $claim(Major::V18).await;
        }
    )*};
}

on_both_versions! {
    never_stale =>
        a_write_recorded_by_another_instance_is_never_silently_missed_pg15,
        a_write_recorded_by_another_instance_is_never_silently_missed_pg18;
    came_and_went =>
        an_instance_says_who_is_beside_it_and_believes_again_when_they_are_gone_pg15,
        an_instance_says_who_is_beside_it_and_believes_again_when_they_are_gone_pg18;
    hidden =>
        an_instance_that_may_not_look_believes_nothing_and_says_so_pg15,
        an_instance_that_may_not_look_believes_nothing_and_says_so_pg18;
}

/// One instance of the lab, with a client.
async fn instance(stage: &Stage, name: &str, guards: Guards) -> (Service, Client) {
    let options = stage.options().await.instance(name).guards(guards);
    let service = Service::start(options).await.expect("an instance starts");
    let client = connect(&service).await;
    (service, client)
}

/// Reads of a subject that were answered with a node without row `id` and no word of doubt.
async fn missed(stage: &Stage, client: &mut Client, who: &str, id: i64) -> usize {
    let mut missed = 0;
    for _ in 0..READS {
        let answer = select(client, read(subject(who), Level::Session)).await;
        let promised = answer.met().any(|met| met == Guarantee::ReadYourWrites);
        let node = named(&answer);
        missed += usize::from(promised && !node.is_empty() && !stage.shows(node, id).await);
    }
    missed
}

/// What the second instance misses of a write recorded by the first, and the other way round.
async fn missed_beside(major: Major, names: [&str; 2], guards: Guards) -> [usize; 2] {
    let stage = Stage::of(major, 2).await;
    let (first, mut one) = instance(&stage, names[0], guards).await;
    let (second, mut other) = instance(&stage, names[1], guards).await;
    stage.hold().await;
    stage.write(&mut one, "ann", 1).await;
    let by_second = missed(&stage, &mut other, "ann", 1).await;
    stage.write(&mut other, "bob", 2).await;
    let by_first = missed(&stage, &mut one, "bob", 2).await;
    stage.release().await;
    for service in [first, second] {
        service.stop().await.expect("it ends");
    }
    [by_second, by_first]
}

async fn never_stale(major: Major) {
    assert_eq!(missed_beside(major, ["a", "b"], Guards::on()).await, [0, 0]);
    assert_eq!(missed_beside(major, ["a", "a"], Guards::on()).await, [0, 0], "of one name");
    #[cfg(feature = "unsafe-guards")]
    {
        let off = Guards::without("foreign_instance").expect("a guard of that name");
        let mut missed = [0; 2];
        // Where the machine lets no look through for half a second, that instance takes a barrier,
        // and with it the row that it would have missed: then it is tried again.
        for _ in 0..TRIES {
            let more = missed_beside(major, ["a", "b"], off).await;
            missed = [missed[0] + more[0], missed[1] + more[1]];
            if missed.iter().all(|missed| *missed > 0) {
                return;
            }
        }
        panic!("without the guard each misses what the other recorded: {missed:?}");
    }
}

/// The alarm of a service about other instances; empty: none.
async fn alarm(service: &Service) -> String {
    let partition = service.partition().await.expect("it answers");
    let mut alarms = partition.alarms.into_iter();
    alarms.find(|alarm| alarm.starts_with("FOREIGN_INSTANCE")).unwrap_or_default()
}

/// What the metric says of other instances.
async fn beside(service: &Service) -> u64 {
    let shown = gauge(service.admin_address(), "beside_other_instances", &[]).await;
    shown.expect("metrics are shown")
}

/// Why a subject's read was answered as it was.
async fn reason(client: &mut Client, who: &str) -> Reason {
    select(client, read(subject(who), Level::Session)).await.reason()
}

async fn came_and_went(major: Major) {
    let stage = Stage::of(major, 1).await;
    let (first, mut one) = instance(&stage, "a", Guards::on()).await;
    stage.write(&mut one, "ann", 1).await;
    stage.cluster.catch_up().await.expect("the standby has it");
    until("a lone instance believes its records", LIMIT, || async {
        Ok(reason(&mut one.clone(), "ann").await == Reason::Covered)
    })
    .await
    .expect("it believes them");
    assert_eq!((alarm(&first).await.as_str(), beside(&first).await), ("", 0));
    let mut admin = AdminServiceClient::connect(first.admin_endpoint()).await.expect("it listens");
    let watched = admin.watch_events(WatchEventsRequest::default()).await.expect("events");
    let mut events = watched.into_inner();

    let options = stage.options().await.instance("b");
    let second = Service::launch(options).await.expect("another one starts");
    until_tried(&second).await;
    // It takes its first call only now.
    assert_eq!(reason(&mut one, "ann").await, Reason::StoreLost);
    assert!(alarm(&first).await.contains("tidegate/lab/b/"), "{}", alarm(&first).await);
    assert_eq!((beside(&first).await, beside(&second).await), (1, 1));
    assert!(alarm(&second).await.contains("tidegate/lab/a/"), "{}", alarm(&second).await);
    assert!(alarm(&first).await.contains("redis"), "it says what to do");
    let mut other = connect(&second).await;
    assert_eq!(reason(&mut other, "ann").await, Reason::StoreLost);
    second.stop().await.expect("it ends");

    until("the first believes its records again", LIMIT, || async {
        Ok(reason(&mut one.clone(), "ann").await == Reason::Covered)
    })
    .await
    .expect("it believes them");
    assert_eq!((alarm(&first).await.as_str(), beside(&first).await), ("", 0));
    let mut told = Vec::new();
    while told.len() < 2 {
        let event = events.message().await.expect("events go on").expect("and do not end");
        if let Some(Event::OtherInstances(others)) = event.event {
            told.push(others.connections);
        }
    }
    assert!(told[0][0].starts_with("tidegate/lab/b/") && told[1].is_empty(), "{told:?}");
    first.stop().await.expect("it ends");
}

async fn hidden(major: Major) {
    let stage = Stage::of(major, 1).await;
    let (service, mut client) = instance(&stage, "a", Guards::on()).await;
    let leader = stage.cluster.leader();
    stage.write(&mut client, "ann", 1).await;
    let sees = "create role stranger; set role stranger; \
         select 1 / count(*) from pg_stat_activity where application_name like 'tidegate/lab/a/%'; \
         reset role";
    leader.sql(sees).await.expect("names of other roles' sessions are no secret");
    leader.sql("revoke select on pg_stat_activity from public").await.expect("it is closed");
    until("nothing is believed", LIMIT, || async {
        Ok(reason(&mut client.clone(), "ann").await == Reason::StoreLost)
    })
    .await
    .expect("nothing is");
    until("the service says why", LIMIT, || async {
        let partition = service.partition().await?;
        Ok(partition.nodes.iter().any(|node| node.poll_error.contains("GRANT pg_read_all_stats")))
    })
    .await
    .expect("it does");
    leader.sql("grant select on pg_stat_activity to public").await.expect("it is opened");
    until("records are believed again", LIMIT, || async {
        Ok(reason(&mut client.clone(), "ann").await == Reason::Covered)
    })
    .await
    .expect("they are");
    service.stop().await.expect("it ends");
}
