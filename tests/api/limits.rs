//! Bounds of the service: what is too much is refused at once, says when to try again, and frees
//! its place.

use tidegate_lab::service::{Service, ServiceOptions};
use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tonic::{Code, Status};

use super::bad_input::{reason_of, says_when_to_retry};
use super::stage::{Stage, alone, beside, carrying, of_subject, select};
use super::stream::{Stream, wait};

/// A second service in front of the same servers, with little room.
async fn small(stage: &Stage, limits: &[(&str, &str)]) -> Service {
    let mut options = ServiceOptions::of(&stage.cluster).await.expect("the objects stand");
    for (limit, value) in limits {
        options = options.limit(limit, value);
    }
    Service::start(options).await.expect("it starts")
}

fn refused(status: &Status, reason: &str) {
    assert_eq!((status.code(), reason_of(status).as_str()), (Code::ResourceExhausted, reason));
    assert!(says_when_to_retry(status), "{status:?}");
}

/// The error of a frame, as the unary call would have ended.
pub(crate) fn of_frame(answer: Answer) -> Status {
    let Answer::Error(error) = answer else { panic!("not refused: {answer:?}") };
    let (code, details) = (Code::from_i32(error.code), prost::Message::encode_to_vec(&error));
    Status::with_details(code, error.message, details.into())
}

#[test]
fn a_wait_beyond_the_limit_is_refused_with_a_time_to_retry() {
    alone(async |stage| {
        let service = small(stage, &[("parked_waits", "1"), ("idle_poll", "\"20ms\"")]).await;
        let connected = RoutingServiceClient::connect(service.endpoint()).await;
        let mut routing = connected.expect("it listens");
        stage
            .paused(&["r1"], async {
                let (_, recorded) = stage.written(&mut routing, of_subject("")).await;
                let mut stream = Stream::open(&mut routing).await;
                let parked = wait(carrying(&[&recorded.token]), "r1", 25_000);
                stream.send(1, Some(Ask::Wait(parked.clone()))).await;
                stream.send(2, Some(Ask::Wait(parked.clone()))).await;
                let (first, answer) = stream.next().await;
                refused(&of_frame(answer), "WAITS_FULL");
                let status = routing.wait_until_fresh(parked.clone()).await.expect_err("full");
                refused(&status, "WAITS_FULL");
                // A wait that is withdrawn gives its place back.
                let open = 3 - first;
                stream.send(open, Some(Ask::Cancel(v1::Cancel {}))).await;
                let short = v1::WaitUntilFreshRequest {
                    budget: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
                    ..parked
                };
                tidegate_lab::wait::until("its place", tidegate_lab::wait::LIMIT, || async {
                    Ok(routing.clone().wait_until_fresh(short.clone()).await.is_ok())
                })
                .await
                .expect("a place is free again");
            })
            .await;
        drop(routing);
        service.stop().await.expect("it ends");
    });
}

#[test]
fn a_stream_beyond_the_limit_is_refused_with_a_time_to_retry() {
    beside(async |stage| {
        let service = small(stage, &[("route_streams", "1")]).await;
        let connected = RoutingServiceClient::connect(service.endpoint()).await;
        let mut routing = connected.expect("it listens");
        let stream = Stream::open(&mut routing).await;
        let status = routing.route(tokio_stream::empty()).await.expect_err("full");
        refused(&status, "STREAMS_FULL");
        drop(stream);
        tidegate_lab::wait::until("its place", tidegate_lab::wait::LIMIT, || async {
            Ok(routing.clone().route(tokio_stream::empty()).await.is_ok())
        })
        .await
        .expect("a place is free again");
        drop(routing);
        service.stop().await.expect("it ends");
    });
}

#[test]
fn a_frame_beyond_the_limit_is_refused_and_the_stream_goes_on() {
    alone(async |stage| {
        let service = small(stage, &[("route_in_flight", "1")]).await;
        let connected = RoutingServiceClient::connect(service.endpoint()).await;
        let mut routing = connected.expect("it listens");
        stage
            .paused(&["r1"], async {
                let (_, recorded) = stage.written(&mut routing, of_subject("")).await;
                let mut stream = Stream::open(&mut routing).await;
                let parked = wait(carrying(&[&recorded.token]), "r1", 25_000);
                stream.send(1, Some(Ask::Wait(parked))).await;
                let read = select(of_subject(""), v1::Level::Eventual);
                stream.send(2, Some(Ask::Select(read.clone()))).await;
                let (correlation, answer) = stream.next().await;
                assert_eq!(correlation, 2);
                refused(&of_frame(answer), "QUOTA_EXCEEDED");
                stream.send(1, Some(Ask::Cancel(v1::Cancel {}))).await;
                let mut correlation = 2;
                loop {
                    correlation += 1;
                    stream.send(correlation, Some(Ask::Select(read.clone()))).await;
                    if matches!(stream.next().await, (_, Answer::Select(_))) {
                        break;
                    }
                    assert!(correlation < 1000, "the place of a withdrawn call stays taken");
                }
            })
            .await;
        drop(routing);
        service.stop().await.expect("it ends");
    });
}

#[test]
fn a_stream_is_told_when_the_instance_shuts_down() {
    beside(async |stage| {
        let service = small(stage, &[]).await;
        let connected = RoutingServiceClient::connect(service.endpoint()).await;
        let mut routing = connected.expect("it listens");
        let mut stream = Stream::open(&mut routing).await;
        let told = async { stream.answers.message().await.expect_err("it ends") };
        let (told, stopped) = tokio::join!(told, service.stop());
        assert_eq!((told.code(), reason_of(&told).as_str()), (Code::Unavailable, "DRAINING"));
        assert!(says_when_to_retry(&told));
        stopped.expect("it ends");
    });
}
