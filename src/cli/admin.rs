//! The admin listener of a running instance, as commands call it. Waits for nothing long.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use tidegate_core::lineage::History;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::config::Listen;

/// A client of `AdminService`.
pub(super) type Client = AdminServiceClient<Channel>;

/// Time to connect: whoever does not answer by then is not there.
const CONNECT: Duration = Duration::from_secs(1);
/// Time for one answer: several polls that time out fit.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// Which instance is asked.
#[derive(Args, Debug)]
pub(super) struct AdminAt {
    /// Where the admin listener of the instance answers.
    #[arg(
        long = "admin",
        value_name = "URL",
        env = "TIDEGATE_ADMIN",
        default_value_t = default_url()
    )]
    url: String,
}

/// The address of the admin listener where the configuration says nothing.
fn default_url() -> String {
    format!("http://{}", Listen::default().admin)
}

/// Arguments that cannot be used; what is asked for was not done.
#[derive(Debug)]
pub(super) struct WrongArguments(pub(super) String);

impl fmt::Display for WrongArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongArguments {}

/// Wrong arguments, with what is expected.
pub(super) fn wrong(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(WrongArguments(text.into()))
}

/// Whoever answered does not know the calls of operators; with what it said.
#[derive(Debug)]
struct NotAdmin(String);

impl fmt::Display for NotAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAdmin {}

/// What the service said instead of an answer. What it does not know or cannot read was named in
/// the arguments.
pub(super) fn refused(status: &Status) -> anyhow::Error {
    if is_foreign(status) {
        anyhow::Error::new(NotAdmin(status.message().to_owned()))
    } else if matches!(status.code(), Code::NotFound | Code::InvalidArgument) {
        wrong(status.message())
    } else {
        anyhow!("{}", status.message())
    }
}

/// Says whether a refusal is none of tidegate's: its own have words and details, and know the call.
fn is_foreign(status: &Status) -> bool {
    let is_plain = status.details().is_empty();
    let is_transport = is_plain && matches!(status.code(), Code::Unknown | Code::Internal);
    is_transport || status.code() == Code::Unimplemented || status.message().is_empty()
}

/// What ended a stream that had begun.
pub(super) fn broken_off(status: &Status) -> anyhow::Error {
    anyhow!("the stream broke off: {}", status.message())
}

impl AdminAt {
    /// Calls the instance; `limit` bounds all of it.
    pub(super) fn ask<T, Asked>(
        &self,
        limit: Duration,
        ask: impl FnOnce(Client) -> Asked,
    ) -> Result<T>
    where
        Asked: Future<Output = Result<T>>,
    {
        runtime()?.block_on(self.answer(limit, ask))
    }

    async fn answer<T, Asked>(
        &self,
        limit: Duration,
        ask: impl FnOnce(Client) -> Asked,
    ) -> Result<T>
    where
        Asked: Future<Output = Result<T>>,
    {
        let answered = async { ask(self.connect().await?).await };
        let answered = tokio::time::timeout(limit, answered).await;
        let no_answer = |_| Err(anyhow!("no answer from {} in {limit:?}", self.url));
        answered.unwrap_or_else(no_answer).map_err(|error| self.explained(error))
    }

    /// What refused for being no admin listener, named by its address.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(NotAdmin(said)) = error.downcast_ref() else { return error };
        let said = if said.is_empty() { String::new() } else { format!(" (it said: {said})") };
        let default = Listen::default().admin.port();
        anyhow!(
            "what answers at {} is not the admin listener of tidegate: give its `listen.admin` \
             (default port {default}), not `listen.data`{said}",
            self.url
        )
    }

    /// Calls the instance and goes on for as long as it answers; `limit` bounds the first answer.
    pub(super) fn follow<T, Asked, Gone>(
        &self,
        limit: Duration,
        ask: impl FnOnce(Client) -> Asked,
        go_on: impl FnOnce(T) -> Gone,
    ) -> Result<()>
    where
        Asked: Future<Output = Result<T>>,
        Gone: Future<Output = Result<()>>,
    {
        runtime()?.block_on(async { go_on(self.answer(limit, ask).await?).await })
    }

    async fn connect(&self) -> Result<Client> {
        let unusable =
            || wrong(format!("`--admin {}` is no URL: write http://HOST:PORT", self.url));
        let endpoint = Endpoint::from_shared(self.url.clone()).map_err(|_| unusable())?;
        if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().port().is_none() {
            return Err(unusable());
        }
        let endpoint = endpoint.connect_timeout(CONNECT);
        let reached = tokio::time::timeout(CONNECT, endpoint.connect()).await;
        let channel = reached.map_err(|_| anyhow!("no answer in {CONNECT:?}"));
        let channel = channel.and_then(|reached| Ok(reached?)).with_context(|| {
            format!(
                "the admin listener at {} cannot be reached: is the service running, and is this \
                 its `listen.admin`?",
                self.url
            )
        })?;
        Ok(AdminServiceClient::new(channel))
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("the runtime cannot start")
}

/// One partition with its epochs.
pub(super) struct Epochs {
    pub(super) partition: v1::Partition,
    pub(super) epochs: Vec<v1::Epoch>,
}

/// The epochs of one partition, or of all.
pub(super) async fn epochs(mut admin: Client, partition: Option<String>) -> Result<Vec<Epochs>> {
    let request = v1::ListPartitionsRequest { partition: partition.unwrap_or_default() };
    let listed = admin.list_partitions(request).await.map_err(|status| refused(&status))?;
    let mut all = Vec::new();
    // As many as there can be.
    let limit_count = u32::try_from(History::EPOCHS_MAX)?;
    for partition in listed.into_inner().partitions {
        let name = partition.name.clone();
        let request = v1::ListEpochsRequest { partition: name, limit_count };
        let listed = admin.list_epochs(request).await.map_err(|status| refused(&status))?;
        all.push(Epochs { partition, epochs: listed.into_inner().epochs });
    }
    Ok(all)
}
