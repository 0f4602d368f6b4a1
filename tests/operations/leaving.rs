//! Connections that die with their waits, and a service that is told to stop.

use std::time::Duration;

use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::{self};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::stage::{Client, Stage, session, until_parked, wait};

const WAITS: u32 = 100;
const BUDGET: Duration = Duration::from_secs(30);
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
const CLOSING: Duration = Duration::from_secs(1);

/// Parks waits on a stream and as many unary ones; returns what keeps them there.
async fn park(
    client: &mut Client,
    carried: &v1::Session,
) -> (
    mpsc::Sender<v1::RouteRequest>,
    tonic::Streaming<v1::RouteResponse>,
    Vec<tokio::task::JoinHandle<Result<(), tonic::Status>>>,
) {
    let (asks, frames) = mpsc::channel(64);
    let answers = client.route(ReceiverStream::new(frames)).await.expect("a stream");
    for correlation in 0..u64::from(WAITS) {
        let frame = Some(Ask::Wait(wait(carried.clone(), BUDGET)));
        asks.send(v1::RouteRequest { correlation, frame }).await.expect("the stream is open");
    }
    let unary = (0..WAITS).map(|_| {
        let (mut client, request) = (client.clone(), wait(carried.clone(), BUDGET));
        tokio::spawn(async move { client.wait_until_fresh(request).await.map(drop) })
    });
    (asks, answers.into_inner(), unary.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_frees_its_waits() {
    let stage = Stage::set(1).await;
    let (service, mut client) = stage.serve().await;
    let proxy = Proxy::start(service.data_address()).await.expect("a proxy");
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let behind = Client::connect(format!("http://{}", proxy.address())).await;
    let mut behind = behind.expect("the service is reached");
    let (_asks, _answers, calls) = park(&mut behind, &carried).await;
    until_parked(&service, 2 * WAITS).await;
    proxy.set(Mode::Cut).await.expect("the connection is cut");
    until_parked(&service, 0).await;
    for call in calls {
        call.await.expect("no panic").expect_err("the connection is gone");
    }
    stage.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_service_told_to_stop_ends_within_its_drain_limit() {
    let stage = Stage::set(1).await;
    let options = stage.options().await.limit("drain_limit", "\"2s\"");
    let service = Service::start(options).await.expect("a service starts");
    let mut client = super::stage::connect(&service).await;
    stage.hold().await;
    let carried = session(&stage.write(&mut client, "", 1).await);
    let (_asks, mut answers, calls) = park(&mut client, &carried).await;
    until_parked(&service, 2 * WAITS).await;
    // One that never says a word, and one that is a client without a call.
    let mut silent = TcpStream::connect(service.data_address()).await.expect("connected");
    let _idle = super::stage::connect(&service).await;
    let address = service.data_address();

    let told_at = stage.clock.now();
    service.stop().await.expect("it ends well");
    // Calls are cut off at the limit; then facts are kept and listeners closed.
    let took = stage.within("the end", told_at, DRAIN_LIMIT + CLOSING);
    println!("drain: ended {took:?} after it was told to, of {DRAIN_LIMIT:?}");

    let mut farewell = None;
    while farewell.is_none() {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(status) => farewell = Some(status),
        }
    }
    let farewell = farewell.expect("a stream is told why it ends");
    assert_eq!(farewell.code(), tonic::Code::Unavailable, "{farewell:?}");
    let started_at = stage.clock.now();
    for call in calls {
        // Answered or refused, but never left hanging.
        _ = call.await.expect("no panic");
    }
    let mut rest = Vec::new();
    _ = silent.read_to_end(&mut rest).await;
    stage.within("the end of every call", started_at, Duration::from_secs(1));
    TcpStream::connect(address).await.expect_err("nobody listens any more");
    stage.release().await;
}
