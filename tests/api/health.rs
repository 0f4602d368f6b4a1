//! What a balancer and a curious client ask: health, readiness, reflection.

use std::time::Duration;

use tidegate_lab::service::{Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::bad_input::{reason_of, says_when_to_retry};
use super::stage::{beside, of_subject, select};

const SERVICES: [&str; 2] = ["", "tidegate.v1.RoutingService"];

async fn channel(service: &Service) -> Channel {
    let endpoint = Channel::from_shared(service.endpoint()).expect("an address");
    endpoint.connect().await.expect("it listens")
}

async fn health(service: &Service, name: &str) -> ServingStatus {
    let mut client = HealthClient::new(channel(service).await);
    let request = HealthCheckRequest { service: name.to_owned() };
    let answer = client.check(request).await.expect("a status");
    answer.into_inner().status()
}

#[test]
fn nothing_is_served_before_each_node_was_tried() {
    beside(async |stage| {
        // Connects and then hears nothing: it is tried only when the poll gives up.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = silent.local_addr().expect("an address");
        let options = ServiceOptions::of(&stage.cluster).await.expect("the objects stand");
        let options = options.node("silent", address, address).limit("poll_timeout", "\"2s\"");
        let service = Service::launch(options).await.expect("it starts");
        let connected = RoutingServiceClient::connect(service.endpoint()).await;
        let mut routing = connected.expect("it listens");
        let read = select(of_subject(""), v1::Level::Eventual);

        for name in SERVICES {
            assert_eq!(health(&service, name).await, ServingStatus::NotServing);
        }
        let status = routing.select_replica(read.clone()).await.expect_err("too early");
        assert_eq!((status.code(), reason_of(&status).as_str()), (Code::Unavailable, "NOT_READY"));
        assert!(says_when_to_retry(&status));

        until("it serves", LIMIT, || async {
            Ok(health(&service, SERVICES[1]).await == ServingStatus::Serving)
        })
        .await
        .expect("a node that does not answer holds nothing up for longer");
        assert_eq!(health(&service, SERVICES[0]).await, ServingStatus::Serving);
        routing.select_replica(read).await.expect("served by the others");
        let partition = service.partition().await.expect("listed");
        let silent = partition.nodes.iter().find(|node| node.name == "silent").expect("listed");
        assert!(!silent.poll_error.is_empty() && !silent.session_eligible, "{silent:?}");
        drop(routing);
        service.stop().await.expect("it ends");
    });
}

#[test]
fn reflection_names_the_services_where_it_is_on() {
    beside(async |stage| {
        let mut client = ServerReflectionClient::new(channel(&stage.service).await);
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let request = tokio_stream::once(request);
        let answers = client.server_reflection_info(request).await;
        let answer = answers.expect("a stream").into_inner().message().await.expect("an answer");
        let answer = answer.expect("one answer").message_response;
        let Some(MessageResponse::ListServicesResponse(listed)) = answer else {
            panic!("not a list: {answer:?}");
        };
        let names: Vec<String> = listed.service.into_iter().map(|service| service.name).collect();
        for name in ["tidegate.v1.RoutingService", "grpc.health.v1.Health"] {
            assert!(names.iter().any(|listed| listed == name), "{names:?}");
        }
    });
}

#[test]
fn a_call_is_answered_before_its_own_deadline() {
    super::stage::alone(async |stage| {
        let mut routing = stage.routing().await;
        stage
            .paused(&["r1"], async {
                let (_, recorded) = stage.written(&mut routing, of_subject("")).await;
                let session = super::stage::carrying(&[&recorded.token]);
                let mut request = tonic::Request::new(super::stream::wait(session, "r1", 25_000));
                request.set_timeout(Duration::from_millis(400));
                let answer = routing.wait_until_fresh(request).await.expect("an outcome, no error");
                let timed_out = v1::wait_until_fresh_response::Outcome::TimedOut;
                assert_eq!(answer.into_inner().outcome(), timed_out);
            })
            .await;
    });
}
