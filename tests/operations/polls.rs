//! What the servers are asked does not grow with those who ask, who wait, or who are silent.
//!
//! The servers count the queries themselves (`pg_stat_statements`); what the service says of its
//! polls is held against that. What one poll costs is `pace.rs`.

use std::io::{Write, stdout};
use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::wait_until_fresh_request::Target;
use tidegate_proto::v1::{self, Level, Session};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::stage::{Client, Stage, connect, metric, named, read, session, until_parked, wait};

/// How long queries are counted.
const SPAN: Duration = Duration::from_secs(2);
/// Spans after which an idle partition must be asked no more than its pace says.
const SPANS_MAX: usize = 5;
/// Parts of a span over which decisions are spread evenly.
const PARTS: u32 = 20;
const DECISIONS: [u32; 2] = [1_000, 10_000];
const WAITS: [u32; 2] = [1, 10_000];
/// Waits of which every second one is cancelled.
const LEAVING: u32 = 5_000;
/// The pace while somebody waits, and while nobody does.
pub(super) const PER_SECOND_BUSY: f64 = 1000.0 / 2.0;
pub(super) const PER_SECOND_IDLE: f64 = 1000.0 / 250.0;
const NODES: [&str; 3] = ["l", "r1", "r2"];
/// What any of the service's connections asked of a server since it started, but for its looks at
/// who else is connected, which have a pace of their own.
const ASKED: &str = "select coalesce(sum(s.calls), 0)::float8 from pg_stat_statements s \
     join pg_roles r on r.oid = s.userid where r.rolname = 'tidegate' \
     and s.query not like '%pg_stat_activity%'";

/// A cluster whose servers count what they are asked.
pub(super) async fn counting(major: Major, standbys: usize) -> Stage {
    let options = ClusterOptions::new(major).standbys(standbys);
    let options = options.setting("shared_preload_libraries", "pg_stat_statements");
    // The text of a poll is shown whole.
    let options = options.setting("track_activity_query_size", "16384");
    let cluster = Cluster::start(options).await.expect("a cluster starts");
    let leader = cluster.leader();
    leader.sql("create table notes (id bigint primary key)").await.expect("a table");
    leader.sql("create extension pg_stat_statements").await.expect("the extension is there");
    cluster.catch_up().await.expect("standbys have it too");
    let stall = Stall::watch().expect("a thread");
    Stage { cluster, clock: tidegate::clock::Clock::new(), stall }
}

/// What each node was asked up to a moment.
struct Counted {
    at: Instant,
    /// As its server counts, and as the service does.
    asked: [(f64, f64); 3],
}

impl Counted {
    async fn now(stage: &Stage, service: &Service) -> Self {
        let at = stage.clock.now();
        let mut asked = [(0.0, 0.0); 3];
        for (node, asked) in NODES.iter().zip(&mut asked) {
            let server = stage.cluster.server(node).expect("a node of the cluster");
            *asked = (server.value(ASKED).await.expect("it counts"), polls(service, node).await);
        }
        Self { at, asked }
    }

    /// Queries per second of each server since then, by its own count.
    async fn rates_since(&self, stage: &Stage, service: &Service) -> [f64; 3] {
        let now = Self::now(stage, service).await;
        let seconds = now.at.since(self.at).as_secs_f64();
        let mut rates = [0.0; 3];
        for (index, rate) in rates.iter_mut().enumerate() {
            let (server, ours) = now.asked[index];
            let (server, ours) = (server - self.asked[index].0, ours - self.asked[index].1);
            // Between the two counts of one node a few polls pass.
            let slack = 0.1 * server + 20.0;
            assert!(
                (server - ours).abs() <= slack,
                "{}: the server counts {server} queries, the service {ours}",
                NODES[index]
            );
            *rate = server / seconds;
        }
        rates
    }
}

/// Polls of a node that were answered, as the service counts.
pub(super) async fn polls(service: &Service, node: &str) -> f64 {
    let labels = format!("{{partition=\"main\",node=\"{node}\",outcome=\"observed\"}}");
    metric(service, &format!("tidegate_polls_total{labels}")).await
}

async fn until_passed(stage: &Stage, moment: Instant) {
    let over = || async { Ok(stage.clock.now() >= moment) };
    until("time to pass", SPAN * 2, over).await.expect("time passes");
}

/// Queries per second of each server while nothing is asked of the service.
async fn rates(stage: &Stage, service: &Service) -> [f64; 3] {
    let before = Counted::now(stage, service).await;
    until_passed(stage, before.at + SPAN).await;
    before.rates_since(stage, service).await
}

/// As [`rates`] while nobody waits: what began before, such as reading rows or connecting anew, has
/// some spans to end in.
async fn idle_rates(stage: &Stage, service: &Service) -> [f64; 3] {
    let mut seen = rates(stage, service).await;
    for _ in 0..SPANS_MAX {
        if seen.iter().all(|rate| *rate <= 1.5 * PER_SECOND_IDLE) {
            break;
        }
        seen = rates(stage, service).await;
    }
    seen
}

fn say(line: &str) {
    // Past the capture of the test runner: the figures belong to every run.
    writeln!(stdout(), "{line}").expect("standard output is open");
}

fn at_most(what: &str, rates: &[f64], limit: f64) {
    assert!(
        rates.iter().all(|rate| *rate <= limit),
        "{what}: {rates:.1?}, {limit} a second allowed"
    );
}

/// One stream, over which decisions are asked many at a time.
struct Deciding {
    asks: mpsc::Sender<v1::RouteRequest>,
    answers: tonic::Streaming<v1::RouteResponse>,
}

impl Deciding {
    async fn open(client: &mut Client) -> Self {
        let (asks, frames) = mpsc::channel(64);
        let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
        Self { asks, answers: answers.into_inner() }
    }

    /// Asks for so many nodes and awaits every answer; each must name one.
    async fn decide(&mut self, count: u32, carried: &Session) {
        let request = read(carried.clone(), Level::Session);
        let asks = self.asks.clone();
        let asking = async move {
            for correlation in 0..u64::from(count) {
                let frame = Some(Ask::Select(request.clone()));
                let frame = v1::RouteRequest { correlation, frame };
                asks.send(frame).await.expect("an open stream");
            }
        };
        let answering = async {
            for _ in 0..count {
                let answer = self.answers.message().await.expect("an open stream");
                match answer.expect("an answer to each").frame {
                    Some(Answer::Select(answer)) => assert_ne!(named(&answer), "", "{answer:?}"),
                    other => panic!("not a decision: {other:?}"),
                }
            }
        };
        tokio::join!(asking, answering);
    }
}

async fn decisions_ask_nothing(major: Major) {
    let stage = counting(major, 2).await;
    let (service, mut client) = stage.serve().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    stage.cluster.catch_up().await.expect("every standby has the row");
    let mut deciding = Deciding::open(&mut client).await;
    deciding.decide(PARTS, &carried).await;
    for decisions in DECISIONS {
        let before = Counted::now(&stage, &service).await;
        for part in 1..=PARTS {
            deciding.decide(decisions / PARTS, &carried).await;
            until_passed(&stage, before.at + SPAN * part / PARTS).await;
        }
        let rates = before.rates_since(&stage, &service).await;
        let took = stage.clock.now().since(before.at);
        say(&format!(
            "PostgreSQL {major}: {decisions} decisions in {took:.1?}: queries a second of \
             {NODES:?} {rates:.1?}"
        ));
        at_most("decisions are made from memory", &rates, 1.5 * PER_SECOND_IDLE);
    }
}

async fn waits_ask_the_same(major: Major) {
    let stage = counting(major, 2).await;
    let (service, mut client) = stage.serve().await;
    let idle = idle_rates(&stage, &service).await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let (asks, frames) = mpsc::channel(64);
    let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
    let (mut parked, mut first) = (Vec::new(), 0);
    for waits in WAITS {
        for correlation in first..waits {
            let frame = Some(Ask::Wait(wait(carried.clone(), LIMIT)));
            let correlation = u64::from(correlation);
            asks.send(v1::RouteRequest { correlation, frame }).await.expect("an open stream");
        }
        first = waits;
        until_parked(&service, waits).await;
        parked.push(rates(&stage, &service).await);
    }
    let (one, many) = (parked[0], parked[1]);
    say(&format!(
        "PostgreSQL {major}: queries a second of {NODES:?}: idle {idle:.1?}, {} wait {one:.0?}, \
         {} waits {many:.0?}",
        WAITS[0], WAITS[1]
    ));
    at_most("an idle partition is left alone", &idle, 1.5 * PER_SECOND_IDLE);
    for busy in [one, many] {
        // However busy the machine is: never more than the pace, and more than nobody needs.
        at_most("no faster than the pace", &busy, 1.05 * PER_SECOND_BUSY);
        for (busy, idle) in busy.iter().zip(idle) {
            assert!(*busy > idle * 2.0, "who waits is answered soon: {busy} after {idle}");
        }
    }
    drop((asks, answers));
    until_parked(&service, 0).await;
    stage.release().await;
}

/// Half of the waits are cancelled, the others end: neither changes what servers are asked.
async fn leaving_asks_the_same(major: Major) {
    let stage = counting(major, 2).await;
    let (service, mut client) = stage.serve().await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let (asks, frames) = mpsc::channel(64);
    let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
    let mut answers = answers.into_inner();
    let waits = (0..LEAVING).map(|of| (of, Ask::Wait(wait(carried.clone(), LIMIT))));
    let cancels = (0..LEAVING).step_by(2).map(|of| (of, Ask::Cancel(v1::Cancel {})));
    let mut parked = Vec::new();
    let steps: [(u32, Vec<(u32, Ask)>); 2] =
        [(LEAVING, waits.collect()), (LEAVING / 2, cancels.collect())];
    for (left, frames) in steps {
        for (correlation, frame) in frames {
            let (correlation, frame) = (u64::from(correlation), Some(frame));
            asks.send(v1::RouteRequest { correlation, frame }).await.expect("an open stream");
        }
        until_parked(&service, left).await;
        parked.push(rates(&stage, &service).await);
    }
    stage.release().await;
    for _ in 0..LEAVING / 2 {
        let answer = answers.message().await.expect("it holds").expect("and goes on");
        assert_eq!(answer.correlation % 2, 1, "a cancelled wait is not answered");
    }
    until_parked(&service, 0).await;
    let after = idle_rates(&stage, &service).await;
    say(&format!(
        "PostgreSQL {major}: queries a second of {NODES:?}: {LEAVING} waits {:.0?}, half of them \
         {:.0?}, none {after:.1?}",
        parked[0], parked[1]
    ));
    for busy in parked {
        at_most("no faster than the pace", &busy, 1.05 * PER_SECOND_BUSY);
        assert!(busy.iter().all(|rate| *rate > PER_SECOND_IDLE * 2.0), "{busy:?}");
    }
    at_most("nobody waits any more", &after, 1.5 * PER_SECOND_IDLE);
}

async fn silence_hurries_nobody(major: Major) {
    let stage = counting(major, 2).await;
    let proxy = Proxy::start(stage.cluster.standby(0).address()).await.expect("a proxy");
    let options = stage.options().await.poll_through("r1", proxy.address());
    let options = options.limit("poll_timeout", "\"500ms\"");
    let service = Service::start(options).await.expect("a service starts");
    let mut client = connect(&service).await;
    until("r1 is polled", LIMIT, || async {
        Ok(service.partition().await?.nodes.iter().all(|node| node.poll_error.is_empty()))
    })
    .await
    .expect("every node answers");
    let before = idle_rates(&stage, &service).await;
    proxy.set(Mode::BlackHole).await.expect("a black hole");
    let silent = idle_rates(&stage, &service).await;
    // Somebody waits for r2, which holds still, while r1 is silent.
    stage.cluster.standby(1).pause_replay().await.expect("r2 holds still");
    let carried = session(&stage.write(&mut client, "", 1).await);
    let mut request = wait(carried, LIMIT);
    request.target = Some(Target::Node("r2".to_owned()));
    let waiting = tokio::spawn(async move { client.wait_until_fresh(request).await.map(drop) });
    until_parked(&service, 1).await;
    let waited = rates(&stage, &service).await;
    waiting.abort();
    until_parked(&service, 0).await;
    say(&format!(
        "PostgreSQL {major}: queries a second of {NODES:?}: all answer {before:.1?}, r1 is silent \
         {silent:.1?}, and somebody waits for r2 {waited:.0?}"
    ));
    at_most("nobody waits", &before, 1.5 * PER_SECOND_IDLE);
    at_most("a silent node hurries nobody", &silent, 1.5 * PER_SECOND_IDLE);
    at_most("nor does one that is waited for beside it", &waited, 1.05 * PER_SECOND_BUSY);
    assert!(silent[1] < 1.0 && waited[1] < 1.0, "r1 was to be silent: {silent:?} {waited:?}");
    stage.release().await;
}

macro_rules! on_both_versions {
    ($($test:ident => $pg15:ident, $pg18:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg15() {
            $test(Major::V15).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg18() {
            $test(Major::V18).await;
        }
    )*};
}
pub(super) use on_both_versions;

on_both_versions! {
    decisions_ask_nothing =>
        ten_times_the_decisions_ask_the_servers_no_more_pg15,
        ten_times_the_decisions_ask_the_servers_no_more_pg18;
    waits_ask_the_same =>
        ten_thousand_waits_ask_the_servers_no_more_than_one_pg15,
        ten_thousand_waits_ask_the_servers_no_more_than_one_pg18;
    leaving_asks_the_same =>
        five_thousand_waits_half_of_them_cancelled_leave_nothing_behind_pg15,
        five_thousand_waits_half_of_them_cancelled_leave_nothing_behind_pg18;
    silence_hurries_nobody =>
        a_silent_node_does_not_hurry_the_polls_of_others_pg15,
        a_silent_node_does_not_hurry_the_polls_of_others_pg18;
}
