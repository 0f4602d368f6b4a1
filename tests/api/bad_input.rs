//! Bad input: each row of `tests/data/bad_input` gets its exact error, and harms nothing.
//!
//! An error says code, reason and what to do; the next good call on the same connection is
//! answered; the record of a subject named by broken calls stays as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde::Deserialize;
use tidegate_core::token::SessionToken;
use tidegate_proto::{ERROR_DOMAIN, v1};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::ask::Case;
use super::facts::{Facts, bytes_of, flipped, of_unknown_key, opened};
use super::limits::of_frame;
use super::stage::{Routing, beside, carrying, of_subject, record, select};
use super::stream::Stream;

const TABLES: [&str; 3] = [
    include_str!("../data/bad_input/tokens.toml"),
    include_str!("../data/bad_input/evidence.toml"),
    include_str!("../data/bad_input/requests.toml"),
];

/// Reasons no table reaches, each with the test that does or why none can yet.
const ELSEWHERE: [(v1::ErrorReason, &str); 10] = [
    (v1::ErrorReason::LostWrite, "needs a failover that loses a write: the failover issue"),
    (v1::ErrorReason::WaitsFull, "a_wait_beyond_the_limit_is_refused_with_a_time_to_retry"),
    (v1::ErrorReason::StreamsFull, "a_stream_beyond_the_limit_is_refused_with_a_time_to_retry"),
    (v1::ErrorReason::QuotaExceeded, "a_frame_beyond_the_limit_is_refused_and_the_stream_goes_on"),
    (v1::ErrorReason::StoreUnavailable, "the memory store is never unreachable: the store issue"),
    (v1::ErrorReason::Unauthenticated, "callers have no keys yet"),
    (v1::ErrorReason::Forbidden, "callers have no keys yet"),
    (v1::ErrorReason::Draining, "a_stream_is_told_when_the_instance_shuts_down"),
    (v1::ErrorReason::NotReady, "nothing_is_served_before_each_node_was_tried"),
    (v1::ErrorReason::Internal, "only where the service breaks a rule of its own"),
];

#[derive(Deserialize)]
struct Table {
    case: Vec<Case>,
}

fn cases() -> Vec<Case> {
    let table = |text: &&str| toml::from_str::<Table>(text).expect("a table").case;
    TABLES.iter().flat_map(table).collect()
}

/// The reason of an error, as its one `ErrorInfo` says it.
pub(crate) fn reason_of(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().expect("every error has an ErrorInfo");
    assert_eq!(info.domain, ERROR_DOMAIN);
    info.reason.clone()
}

/// Whether an error says when to try again.
pub(crate) fn says_when_to_retry(status: &Status) -> bool {
    let details = status.get_error_details();
    details.retry_info().is_some_and(|info| info.retry_delay.is_some_and(|delay| !delay.is_zero()))
}

/// The code a table names.
fn code_of(name: &str) -> Code {
    match name {
        "INVALID_ARGUMENT" => Code::InvalidArgument,
        "NOT_FOUND" => Code::NotFound,
        "FAILED_PRECONDITION" => Code::FailedPrecondition,
        other => panic!("no bad input is answered with {other}"),
    }
}

/// The metadata of an error, which have no order.
fn metadata_of(status: &Status) -> BTreeMap<String, String> {
    let details = status.get_error_details();
    let info = details.error_info().expect("every error has one");
    info.metadata.clone().into_iter().collect()
}

/// What the metadata of an error should say and do not.
fn lacks(status: &Status) -> Option<&'static str> {
    let metadata = metadata_of(status);
    let facts: &[&str] = match reason_of(status).as_str() {
        "PARTITION_UNKNOWN" => &["partition"],
        "NODE_UNKNOWN" => &["partition", "node"],
        "POLICY_UNKNOWN" => &["policy"],
        "EVIDENCE_FOREIGN" => &["system_id"],
        _ => &["problem"],
    };
    facts.iter().copied().find(|fact| !metadata.contains_key(*fact))
}

/// What is wrong with an error; `None` if it is as the row says.
fn differs(case: &Case, status: Option<&Status>) -> Option<String> {
    let Some(status) = status else { return Some(format!("{}: was answered", case.name)) };
    if status.get_error_details().error_info().is_none() {
        return Some(format!("{}: has no reason: {status:?}", case.name));
    }
    if let Some(fact) = lacks(status) {
        return Some(format!("{}: its metadata lack `{fact}`: {status:?}", case.name));
    }
    let found = (status.code(), reason_of(status));
    let right = found == (code_of(&case.code), case.reason.clone())
        && status.message().contains(&case.advice)
        && !says_when_to_retry(status);
    (!right).then(|| format!("{}: {found:?} {:?}", case.name, status.message()))
}

async fn answered(routing: &mut Routing) -> bool {
    let request = select(of_subject(""), v1::Level::Eventual);
    routing.select_replica(request).await.is_ok()
}

/// All that is known of a subject.
async fn known_of(routing: &mut Routing, subject: &str) -> SessionToken {
    let request = v1::ResolveSessionRequest { session: Some(of_subject(subject)) };
    let known = routing.resolve_session(request).await.expect("a lookup").into_inner();
    assert_eq!(known.state(), v1::resolve_session_response::State::Known);
    opened(&known.token)
}

#[test]
fn bad_input_gets_its_exact_error_and_harms_nothing() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let facts = Facts::of(stage, &mut routing).await;
        stage.written(&mut routing, of_subject("witness")).await;
        let before = known_of(&mut routing, "witness").await;

        let cases = cases();
        let mut wrong = Vec::new();
        for case in &cases {
            let status = case.refused(stage, &mut routing, &facts).await;
            wrong.extend(differs(case, status.as_ref()));
            if !answered(&mut routing).await {
                wrong.push(format!("{}: the next good call failed", case.name));
            }
        }
        let after = known_of(&mut routing, "witness").await;
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(before, after);
        // Past the capture of test output: the figure belongs to the run.
        writeln!(std::io::stderr(), "bad input: {} cases", cases.len()).expect("stderr");
        assert!(cases.len() >= 60);
    });
}

#[test]
fn a_stream_answers_bad_input_as_a_call_does_and_goes_on() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let facts = Facts::of(stage, &mut routing).await;
        let mut stream = Stream::open(&mut routing.clone()).await;
        let mut asked = 0;
        for case in cases() {
            let (Some(frame), false) = (case.frame(&facts), case.name.contains("message")) else {
                continue;
            };
            asked += 1;
            let unary = case.refused(stage, &mut routing, &facts).await.expect(&case.name);
            let v1::route_response::Frame::Error(error) = stream.asked(frame).await else {
                panic!("{}: the stream answers", case.name);
            };
            let same = (error.code, error.message.as_str());
            assert_eq!(same, (unary.code() as i32, unary.message()), "{}", case.name);
            let framed = of_frame(v1::route_response::Frame::Error(error));
            assert_eq!(reason_of(&framed), reason_of(&unary), "{}", case.name);
            assert_eq!(metadata_of(&framed), metadata_of(&unary), "{}", case.name);
        }
        assert!(asked > 60, "only {asked} of the table fit a stream");
    });
}

#[test]
fn every_reason_is_reached_by_a_test_or_listed_as_not_yet_reachable() {
    let reached: BTreeSet<String> = cases().into_iter().map(|case| case.reason).collect();
    let mut unreached = Vec::new();
    for reason in (1..).map_while(|number| v1::ErrorReason::try_from(number).ok()) {
        let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
        let listed = ELSEWHERE.iter().any(|(other, _)| *other == reason);
        assert!(!(listed && reached.contains(name)), "{name} is reached: take it off the list");
        if !listed && !reached.contains(name) {
            unreached.push(name);
        }
    }
    assert!(unreached.is_empty(), "{unreached:?}");
}

#[test]
fn a_token_with_any_bit_flipped_is_refused_or_makes_its_session_unknown() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let token = Facts::of(stage, &mut routing).await.token;
        for at in 0..bytes_of(&token).len() {
            let session = Some(carrying(&[&flipped(&token, at)]));
            let answer = routing.resolve_session(v1::ResolveSessionRequest { session }).await;
            match (at, answer) {
                (0..8, Err(status)) => assert_eq!(reason_of(&status), "TOKEN_FOREIGN"),
                (8, Ok(answer)) => {
                    let unknown = v1::resolve_session_response::State::Unknown;
                    assert_eq!(answer.into_inner().state(), unknown);
                }
                (9.., Err(status)) => assert_eq!(reason_of(&status), "TOKEN_MALFORMED"),
                (_, answer) => panic!("byte {at}: {answer:?}"),
            }
        }
    });
}

#[test]
fn a_token_of_an_unknown_key_is_no_error_and_demands_a_fresh_read() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let token = of_unknown_key(&Facts::of(stage, &mut routing).await.token);
        let request = select(carrying(&[&token]), v1::Level::Session);
        let answer = routing.select_replica(request).await.expect("answered").into_inner();
        // The token the answer brings replaces the one that cannot be read.
        let component = opened(&answer.token).components().next().map(|(_, own)| own.clone());
        assert!(component.is_some_and(|own| !own.unresolved && own.marks().count() == 1));
    });
}

#[test]
fn a_broken_call_does_not_record_what_it_carries() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        stage.written(&mut routing, of_subject("careful")).await;
        let before = known_of(&mut routing, "careful").await;
        let (_, capture) = stage.write().await;
        let session = v1::Session { tokens: vec!["tg1.x".into()], ..of_subject("careful") };
        let refused = routing.record(record(session, &capture)).await.expect_err("a bad token");
        assert_eq!(reason_of(&refused), "TOKEN_MALFORMED");
        assert_eq!(known_of(&mut routing, "careful").await, before);
        // The same without the bad token is recorded: what did not happen above could have.
        routing.record(record(of_subject("careful"), &capture)).await.expect("recorded");
        assert_ne!(known_of(&mut routing, "careful").await, before);
    });
}
