//! What is told to nobody: subjects, tokens, and whatever else a caller sends.
//!
//! A subject and tokens that would be recognised go through every call, well formed and not, with
//! every call followed and every event of Tidegate written; then all that left the program is
//! searched. What must be there is looked for by the same search, so that it would find them.

use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tidegate_lab::postgres::Cluster;
use tidegate_lab::service::PARTITION;
use tidegate_proto::v1;
use tidegate_proto::v1::record_request::Observed;
use tidegate_proto::v1::route_request::Frame;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use crate::collector::{Collector, Mood};
use crate::stage::{Program, Routing, beside, select};

/// In every text of a caller.
const MARK: &str = "zq7-nobody-may-see-this-zq7";

/// Everything that left the program.
struct Told(Vec<(&'static str, Vec<u8>)>);

impl Told {
    /// Where a text was told.
    fn places(&self, text: &str) -> Vec<&'static str> {
        let shows = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        self.0.iter().filter(|(_, bytes)| shows(bytes)).map(|(place, _)| *place).collect()
    }
}

/// A request in whose headers the mark is as well.
fn marked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = |text: String| MetadataValue::try_from(text).expect("ASCII");
    request.metadata_mut().insert("tracestate", value(format!("vendor={MARK}")));
    request.metadata_mut().insert("traceparent", value(format!("00-{MARK}")));
    request.metadata_mut().insert("cookie", value(format!("tidegate={MARK}")));
    request
}

/// The mark, `count` characters long.
fn long(count: usize) -> String {
    MARK.chars().cycle().take(count).collect()
}

fn record(session: v1::Session, evidence: &str) -> v1::RecordRequest {
    let observed = Some(Observed::Evidence(evidence.to_owned()));
    v1::RecordRequest { session: Some(session), observed, ..v1::RecordRequest::default() }
}

fn wait(session: v1::Session, node: &str) -> v1::WaitUntilFreshRequest {
    let target = Some(v1::wait_until_fresh_request::Target::Node(node.to_owned()));
    let partition = PARTITION.to_owned();
    let session = Some(session);
    v1::WaitUntilFreshRequest { session, partition, target, ..Default::default() }
}

/// Sessions with the mark in them: right ones, and one wrong in each way.
fn sessions(token: &str) -> Vec<v1::Session> {
    let of = |subject: &str, tokens: &[&str], evidence: &[&str]| {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let subject = subject.to_owned();
        let (tokens, evidence) = (texts(tokens), texts(evidence));
        v1::Session { subject, tokens, evidence, ..v1::Session::default() }
    };
    // A token whose seal is broken, and one that is none.
    let broken = format!("{}A", &token[..token.len() - 1]);
    let foreign = format!("tg1.{}", MARK.replace('-', "_"));
    let (too_long, huge) = (long(257), format!("tg1.{}", long(9_000)));
    vec![
        of(MARK, &[], &[]),
        of("", &[token], &[]),
        of(MARK, &[token], &[]),
        of(MARK, &[&broken], &[]),
        of(MARK, &[&foreign], &[]),
        of(MARK, &[MARK], &[]),
        of(MARK, &[&huge], &[]),
        of(&too_long, &[token], &[]),
        of(MARK, &[token], &[MARK]),
        of(MARK, &vec![token; 17], &[]),
    ]
}

/// Sends everything through every call, and counts what was answered and what was refused.
async fn sends_everything(routing: &mut Routing, token: &str) -> (usize, usize) {
    let mut ends: Vec<Result<(), Status>> = Vec::new();
    let mut frames = Vec::new();
    for session in sessions(token) {
        for level in [v1::Level::Eventual, v1::Level::Session, v1::Level::Global] {
            let ask = select(session.clone(), level);
            frames.push(Frame::Select(ask.clone()));
            ends.push(routing.select_replica(marked(ask)).await.map(drop));
        }
        let named = select(session.clone(), v1::Level::Session);
        for ask in [
            v1::SelectReplicaRequest { partition: MARK.to_owned(), ..named.clone() },
            v1::SelectReplicaRequest { shadow_node: MARK.to_owned(), ..named.clone() },
            v1::SelectReplicaRequest { previous_node: MARK.to_owned(), ..named.clone() },
            v1::SelectReplicaRequest { zone: MARK.to_owned(), ..named },
        ] {
            ends.push(routing.select_replica(marked(ask)).await.map(drop));
        }
        for ask in [wait(session.clone(), "r1"), wait(session.clone(), MARK)] {
            frames.push(Frame::Wait(ask.clone()));
            ends.push(routing.wait_until_fresh(marked(ask)).await.map(drop));
        }
        let ask = record(session.clone(), MARK);
        frames.push(Frame::Record(ask.clone()));
        ends.push(routing.record(marked(ask)).await.map(drop));
        let ask = v1::ResolveSessionRequest { session: Some(session.clone()) };
        ends.push(routing.resolve_session(marked(ask)).await.map(drop));
        let ids = vec![MARK.to_owned()];
        let ask = v1::AcknowledgeNoticesRequest { session: Some(session), ids };
        ends.push(routing.acknowledge_notices(marked(ask)).await.map(drop));
    }
    let numbered = frames.into_iter().zip(1..);
    let frames: Vec<_> = numbered
        .map(|(frame, correlation)| v1::RouteRequest { correlation, frame: Some(frame) })
        .collect();
    let asked = frames.len();
    let answers = routing.route(marked(tokio_stream::iter(frames))).await.expect("it opens");
    let mut answers = answers.into_inner();
    for _ in 0..asked {
        ends.push(answers.message().await.map(drop));
    }
    let refused = ends.iter().filter(|end| end.is_err()).count();
    (ends.len() - refused, refused)
}

/// A call of a method that does not exist, named with the mark.
async fn calls_nothing(program: &Program) {
    let address = format!("http://{}", program.data());
    let channel = tonic::transport::Endpoint::from_shared(address).expect("an address");
    let mut client = tonic::client::Grpc::new(channel.connect().await.expect("it listens"));
    client.ready().await.expect("it listens");
    let path = format!("/tidegate.v1.RoutingService/{MARK}").parse().expect("a path");
    let codec = tonic_prost::ProstCodec::<v1::Cancel, v1::Cancel>::default();
    let ended = client.unary(marked(v1::Cancel::default()), path, codec).await;
    assert_eq!(ended.map(drop).expect_err("no such method").code(), Code::Unimplemented);
}

/// The token of a write of the marked subject.
async fn written(cluster: &Cluster, routing: &mut Routing) -> String {
    let leader = cluster.leader();
    leader.sql("insert into notes default values").await.expect("the leader writes");
    let capture: String = leader.value("select tidegate.capture()").await.expect("a capture");
    let subject = MARK.to_owned();
    let session = v1::Session { subject, ..v1::Session::default() };
    let recorded = routing.record(marked(record(session, &capture))).await.expect("a record");
    recorded.into_inner().token
}

#[test]
fn no_subject_and_no_token_leaves_the_program() {
    beside(async |cluster| {
        let collector = Collector::start(Mood::Takes).await.expect("a collector");
        let settings = format!(
            "otlp_endpoint = \"{}\"\nsample_ratio = 1\nlog_format = \"json\"\n\
             resource = {{ \"seen.by\" = \"everybody-may-see-this\" }}",
            collector.endpoint()
        );
        let mut program = Program::start(cluster, &settings, "debug,tidegate=trace").await;
        let mut routing = program.routing().await;
        let token = written(cluster, &mut routing).await;
        assert!(token.starts_with("tg1.") && token.len() > 40, "{token}");
        let (answered, refused) = sends_everything(&mut routing, &token).await;
        assert!(answered >= 20 && refused >= 20, "{answered} answered and {refused} refused");
        calls_nothing(&program).await;
        drop(routing);
        let page = program.metrics().await;
        assert!(program.end().await.success(), "{}", program.log());
        let (log, sent) = (program.log(), collector.received().bytes.clone());
        let told = Told(vec![
            ("the log", log.clone().into_bytes()),
            ("OTLP", sent),
            ("/metrics", page.into_bytes()),
        ]);
        // The search finds what is there.
        assert_eq!(told.places("SelectReplica"), ["the log", "OTLP", "/metrics"]);
        assert_eq!(told.places("everybody-may-see-this"), ["OTLP"]);
        let spans = collector.received().spans.clone();
        let nameless = spans.iter().find(|span| span.name == "other").expect("a call of no method");
        let status = nameless.status.as_ref().map(|status| status.code());
        assert_eq!(status, Some(StatusCode::Error), "{nameless:?}");
        assert!(spans.len() >= 100, "{} spans", spans.len());
        // A token's body may be cut, but not shorter than this.
        for secret in [MARK, &MARK.replace('-', "_"), &token, &token[4..28]] {
            let places = told.places(secret);
            let line = log.lines().find(|line| line.contains(secret)).unwrap_or_default();
            assert!(places.is_empty(), "{secret} was told in {places:?}: {line}");
        }
    });
}
