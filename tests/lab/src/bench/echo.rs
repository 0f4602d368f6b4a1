//! The echo server: the same messages over the same transport, with nothing decided between.
//!
//! It answers every `SelectReplica` with one message given at its start, from a process of its
//! own. What a decision costs on top of a call is measured against it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use prost::Message;
use tidegate::config::Limits;
use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_server::{RoutingService, RoutingServiceServer};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// The word that makes the benchmark's program an echo server.
pub const WORD: &str = "echo-server";

struct Echo(v1::SelectReplicaResponse);

fn only_selects<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("the echo server answers SelectReplica alone"))
}

#[tonic::async_trait]
impl RoutingService for Echo {
    async fn select_replica(
        &self,
        request: Request<v1::SelectReplicaRequest>,
    ) -> Result<Response<v1::SelectReplicaResponse>, Status> {
        drop(request.into_inner());
        Ok(Response::new(self.0.clone()))
    }

    async fn wait_until_fresh(
        &self,
        _: Request<v1::WaitUntilFreshRequest>,
    ) -> Result<Response<v1::WaitUntilFreshResponse>, Status> {
        only_selects()
    }

    async fn record(
        &self,
        _: Request<v1::RecordRequest>,
    ) -> Result<Response<v1::RecordResponse>, Status> {
        only_selects()
    }

    async fn resolve_session(
        &self,
        _: Request<v1::ResolveSessionRequest>,
    ) -> Result<Response<v1::ResolveSessionResponse>, Status> {
        only_selects()
    }

    async fn acknowledge_notices(
        &self,
        _: Request<v1::AcknowledgeNoticesRequest>,
    ) -> Result<Response<v1::AcknowledgeNoticesResponse>, Status> {
        only_selects()
    }

    type RouteStream = futures::stream::Empty<Result<v1::RouteResponse, Status>>;

    async fn route(
        &self,
        _: Request<Streaming<v1::RouteRequest>>,
    ) -> Result<Response<Self::RouteStream>, Status> {
        only_selects()
    }
}

/// Serves until standard input ends; `answer` is the message in hexadecimal digits.
#[must_use]
pub fn serve(answer: &str) -> ExitCode {
    match served(answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::machine::say(&format!("the echo server: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn served(answer: &str) -> Result<()> {
    let bytes = hex::decode(answer).context("the answer is not hexadecimal")?;
    let answer = v1::SelectReplicaResponse::decode(bytes.as_slice())?;
    // As `tidegate serve` starts its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut out = std::io::stdout();
        writeln!(out, "{}", listener.local_addr()?)?;
        out.flush()?;
        let limits = Limits::default();
        let service =
            RoutingServiceServer::new(Echo(answer)).max_decoding_message_size(limits.message_bytes);
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        Server::builder()
            .accept_http1(true)
            .http2_keepalive_interval(Some(limits.keepalive_interval))
            .http2_keepalive_timeout(Some(limits.keepalive_timeout))
            .max_concurrent_streams(limits.streams_per_connection)
            .http2_max_header_list_size(u32::try_from(limits.header_list_bytes)?)
            .add_service(service)
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                async {
                    // However the input ended, nobody asks any more.
                    drop(ended.await);
                },
            )
            .await
            .context("the listener failed")
    })
}

/// A running echo server; dropping it ends it, and so does the end of this process.
#[derive(Debug)]
pub(super) struct EchoProcess {
    child: Child,
    input: Option<ChildStdin>,
    endpoint: String,
}

impl EchoProcess {
    /// Starts this program as an echo server.
    ///
    /// # Errors
    /// When it does not come up.
    pub(super) fn start(answer: &v1::SelectReplicaResponse) -> Result<Self> {
        let program = std::env::current_exe().context("this program does not know where it is")?;
        let mut command = Command::new(program);
        command.arg(WORD).arg(hex::encode(answer.encode_to_vec()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the echo server")?;
        let input = child.stdin.take();
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        Ok(Self { child, input, endpoint: format!("http://{}", line.trim()) })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for EchoProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        // Calls in progress have their answers already; nothing is lost by its end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
