//! What the service is measured on: real servers, the real program, and sessions in its store.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use tidegate_proto::v1;
use tidegate_proto::v1::record_request::Observed;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::load::{Client, Requests};
use crate::demo::process::ServiceProcess;
use crate::install::Major;
use crate::postgres::{Cluster, ClusterOptions, Server};
use crate::service::{PARTITION, ServiceOptions};
use crate::wait::{LIMIT, until};

/// Writes whose tokens are carried: requests are not all alike.
const WRITES: u32 = 64;
/// Sessions whose records are on their way at once while the store is filled.
const FILL_IN_FLIGHT: usize = 512;
/// The gauge of parked waits.
const PARKED: &str = "tidegate_parked_waits{partition=\"main\"}";

/// A leader with two standbys, and `tidegate serve` before them. Dropping it ends the service
/// first.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) service: ServiceProcess,
    pub(super) cluster: Cluster,
    tokens: Arc<[String]>,
    sessions: u32,
    writes: u32,
}

impl Stage {
    /// Starts everything, and records a write for each of so many subjects.
    ///
    /// # Errors
    /// When something does not come up.
    pub(super) async fn build(sessions: u32) -> Result<Self> {
        let cluster = Cluster::start(ClusterOptions::new(Major::V15).standbys(2)).await?;
        cluster.leader().sql("create table notes (id bigint primary key)").await?;
        let options = ServiceOptions::of(&cluster).await?;
        cluster.catch_up().await?;
        let service = ServiceProcess::start(options, cluster.folder()).await?;
        let mut stage = Self { service, cluster, tokens: Arc::from([]), sessions, writes: 0 };
        stage.fill().await?;
        stage.cluster.catch_up().await?;
        Ok(stage)
    }

    async fn fill(&mut self) -> Result<()> {
        let mut client = self.client().await?;
        let captures = self.captures().await?;
        let mut tokens = Vec::new();
        for capture in &captures {
            tokens.push(record(&mut client, capture).await?);
        }
        self.tokens = tokens.into();
        fill(&mut client, captures, self.sessions).await
    }

    /// Writes some rows; what `capture()` says of them.
    ///
    /// # Errors
    /// When the leader refuses.
    pub(super) async fn captures(&mut self) -> Result<Vec<String>> {
        let mut captures = Vec::new();
        for _ in 0..WRITES {
            captures.push(self.write().await?);
        }
        Ok(captures)
    }

    /// A client of the service, on a connection of its own.
    ///
    /// # Errors
    /// When the service is not reached.
    pub(super) async fn client(&self) -> Result<Client> {
        Client::connect(self.service.endpoint()).await.context("the service is not reached")
    }

    /// Writes a row on the leader; what `capture()` says of it.
    ///
    /// # Errors
    /// When the leader refuses.
    pub(super) async fn write(&mut self) -> Result<String> {
        self.writes += 1;
        let leader = self.cluster.leader();
        leader.sql(&format!("insert into notes values ({})", self.writes)).await?;
        leader.value("select tidegate.capture()").await
    }

    /// The token of a session that has just written.
    ///
    /// # Errors
    /// When it cannot be written or recorded.
    pub(super) async fn written(&mut self) -> Result<String> {
        let capture = self.write().await?;
        record(&mut self.client().await?, &capture).await
    }

    /// Reads of sessions: each names one of the subjects and carries a token, as a web tier does.
    pub(super) fn requests(&self) -> Requests {
        let sessions = self.sessions;
        self.carrying(move || subject(fastrand::u32(0..sessions)))
    }

    /// Reads that carry a token and name nobody.
    pub(super) fn nameless(&self) -> Requests {
        self.carrying(String::new)
    }

    fn carrying(&self, subject: impl Fn() -> String + Send + Sync + 'static) -> Requests {
        let tokens = Arc::clone(&self.tokens);
        Arc::new(move || {
            let token = &tokens[fastrand::usize(0..tokens.len())];
            let session = v1::Session {
                subject: subject(),
                tokens: vec![token.clone()],
                ..v1::Session::default()
            };
            v1::SelectReplicaRequest {
                session: Some(session),
                partition: PARTITION.to_owned(),
                ..v1::SelectReplicaRequest::default()
            }
        })
    }

    /// Waits until a read is answered by a replica that has everything; that answer.
    ///
    /// # Errors
    /// When none is in time.
    pub(super) async fn sample(&self) -> Result<v1::SelectReplicaResponse> {
        let (client, requests) = (self.client().await?, self.requests());
        let answer = std::sync::Mutex::new(None);
        until("reads are covered", LIMIT, || async {
            let selected = client.clone().select_replica(requests()).await?.into_inner();
            let covered = selected.reason() == v1::Reason::Covered;
            *answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(selected);
            Ok(covered)
        })
        .await?;
        let answer = answer.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        answer.context("no answer")
    }

    /// Holds the replay of every standby.
    ///
    /// # Errors
    /// When one does not answer.
    pub(super) async fn hold(&self) -> Result<()> {
        for standby in self.cluster.standbys() {
            standby.pause_replay().await?;
        }
        Ok(())
    }

    /// Lets every standby replay again.
    ///
    /// # Errors
    /// When one does not answer.
    pub(super) async fn release(&self) -> Result<()> {
        let all = self.cluster.standbys().iter().map(Server::resume_replay);
        futures::future::try_join_all(all).await.map(drop)
    }

    /// Waits until so many waits are parked, as the service itself reports it.
    ///
    /// # Errors
    /// When they are not in time.
    pub(super) async fn until_parked(&self, waits: u32) -> Result<()> {
        until(&format!("{waits} waits are parked"), LIMIT, || async {
            let page = self.metrics().await?;
            let value =
                page.lines().find_map(|line| line.strip_prefix(PARKED)?.trim().parse().ok());
            let parked: f64 = value.context("the service does not report its waits")?;
            Ok(parked.round() == f64::from(waits))
        })
        .await
        .map(drop)
    }

    async fn metrics(&self) -> Result<String> {
        let endpoint = self.service.admin_endpoint();
        let address = endpoint.strip_prefix("http://").unwrap_or(&endpoint);
        let mut stream = TcpStream::connect(address).await?;
        let request = "GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

/// The name of a session.
pub(super) fn subject(number: u32) -> String {
    format!("user-{number:08}")
}

/// Records one of these writes for each of so many subjects.
///
/// # Errors
/// When the service does not take them all.
pub(super) async fn fill(client: &mut Client, captures: Vec<String>, sessions: u32) -> Result<()> {
    let asks = (0..sessions).zip(captures.into_iter().cycle()).map(|(number, capture)| {
        let session = v1::Session { subject: subject(number), ..v1::Session::default() };
        let observed = Some(Observed::Evidence(capture));
        let record =
            v1::RecordRequest { session: Some(session), observed, ..v1::RecordRequest::default() };
        let frame = Some(Ask::Record(record));
        v1::RouteRequest { correlation: u64::from(number), frame }
    });
    // A slow reader must not be asked for more than it has room for.
    let room = Arc::new(tokio::sync::Semaphore::new(FILL_IN_FLIGHT));
    let asking = Arc::clone(&room);
    let asks = futures::stream::iter(asks.collect::<Vec<_>>()).then(move |ask| {
        let room = Arc::clone(&asking);
        async move {
            if let Ok(place) = room.acquire().await {
                place.forget();
            }
            ask
        }
    });
    let mut answers = client.route(asks).await?.into_inner();
    let mut recorded = 0;
    while let Some(answer) = answers.message().await? {
        match answer.frame {
            Some(Answer::Record(_)) => recorded += 1,
            other => bail!("a session could not be recorded: {other:?}"),
        }
        room.add_permits(1);
    }
    if recorded != sessions {
        bail!("{recorded} of {sessions} sessions were recorded");
    }
    Ok(())
}

/// Records a capture for nobody in particular; the token of that session.
async fn record(client: &mut Client, capture: &str) -> Result<String> {
    let observed = Some(Observed::Evidence(capture.to_owned()));
    let request = v1::RecordRequest { observed, ..v1::RecordRequest::default() };
    Ok(client.record(request).await?.into_inner().token)
}
