//! What all visitors share: the nodes, Tidegate in front of them, the client, and who is written
//! to.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate::sources::postgres::schema;
use tidegate_client::{Client, ClientOptions, DirectPool};
use tokio_postgres::Config;

use super::super::{Node, Patroni};
use crate::service::{Service, ServiceOptions};
use crate::wait::until;

/// Client connections to one address.
const CONNECTIONS: usize = 32;
/// What all of it may take until Tidegate sees every node fit again.
const SETTLED_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Place {
    pub(super) patroni: Patroni,
    pub(super) service: Service,
    pub(super) client: Client,
    pub(super) pool: DirectPool,
    /// The number of the node that applications write to.
    leads: AtomicUsize,
    next_row: AtomicI64,
    is_over: AtomicBool,
}

impl Place {
    pub(super) async fn prepare() -> Result<Self> {
        let patroni = Patroni::start().await?;
        let leader = patroni.leader().await?.connect().await?;
        leader.batch_execute(schema::HOME).await.context("the objects are installed")?;
        // As the schema offers: Tidegate may read the history file of a new leader.
        let grants = "grant execute on function pg_catalog.pg_read_file(text) to tidegate; \
                      create table soak (id bigint primary key, session bigint not null)";
        leader.batch_execute(grants).await?;
        let system = "select system_identifier::text from pg_control_system()";
        let system: String = leader.query_one(system, &[]).await?.try_get(0)?;
        let nodes = patroni.nodes().iter().map(|node| (node.name().to_owned(), node.address()));
        let urls: Vec<String> = patroni.nodes().iter().map(Node::url).collect();
        let options = ServiceOptions::at(system.parse()?, nodes);
        let service = Service::start(options.partition("patroni", &format!("{urls:?}"))).await?;
        let client = Client::connect(ClientOptions::new(service.endpoint())).await?;
        let mut config = Config::new();
        config.user("postgres").dbname("postgres").connect_timeout(Duration::from_secs(1));
        Ok(Self {
            patroni,
            service,
            client,
            pool: DirectPool::new(config, CONNECTIONS),
            leads: AtomicUsize::new(0),
            next_row: AtomicI64::new(1),
            is_over: AtomicBool::new(true),
        })
    }

    /// The node that applications write to: they learn of a new leader when it is writable.
    pub(super) fn leads(&self) -> (usize, &Node) {
        let number = self.leads.load(Ordering::Relaxed);
        (number, &self.patroni.nodes()[number])
    }

    pub(super) fn writes_go_to(&self, number: usize) {
        self.leads.store(number, Ordering::Relaxed);
    }

    pub(super) fn next_row(&self) -> i64 {
        self.next_row.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.is_over.store(false, Ordering::Relaxed);
    }

    pub(super) fn end_phase(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits until Patroni has repaired everything and Tidegate lets every replica serve, without
    /// an operator.
    pub(super) async fn settle(&self) -> Result<()> {
        self.patroni.await_settled().await?;
        let leader = self.patroni.leader().await?.name().to_owned();
        let fit = until("every replica may serve sessions again", SETTLED_LIMIT, || async {
            let partition = self.service.partition().await?;
            let is_fit =
                |node: &tidegate_proto::v1::NodeState| node.session_eligible || node.name == leader;
            Ok(partition.leader_node == leader && partition.nodes.iter().all(is_fit))
        });
        fit.await.map(drop)
    }

    /// Some standby lacks a row right now.
    pub(super) async fn some_standby_lacks(&self, row: i64) -> bool {
        let (leader, _) = self.leads();
        let query = "select count(*) from soak where id = $1";
        // The latest first: who shows it already may have shown it only meanwhile.
        for (number, node) in self.patroni.nodes().iter().enumerate().rev() {
            if number == leader {
                continue;
            }
            // One that is down says nothing.
            let Ok(client) = node.connect().await else { continue };
            let found = client.query_one(query, &[&row]).await;
            let found = found.and_then(|found| found.try_get::<_, i64>(0));
            if found.is_ok_and(|found| found == 0) {
                return true;
            }
        }
        false
    }

    pub(super) async fn end(self) -> Result<()> {
        self.service.stop().await
    }
}
