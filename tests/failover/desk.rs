//! One service before the servers, with a client of its own, and what it answers.
//!
//! Several may stand before the same servers, one with all its rules and others without one. An
//! answer is taken apart here and judged nowhere: what a server shows decides.

use std::time::Duration;

use tidegate_client::{
    AboveCap, ClientOptions, Guarantee, Level, Notice, NoticeKind, Outcome, Policy, Raise, Reason,
    Selection, Session, SessionOptions, WaitOutcome, WaitTarget,
};
use tidegate_lab::postgres::{Lsn, Server};
use tidegate_lab::service::{PARTITION, Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tonic::transport::Channel;

use super::stage::{Commit, SEEN, life};

/// A service and a client of it.
pub(crate) struct Desk {
    pub(crate) service: Service,
    pub(crate) client: tidegate_client::Client,
}

/// What one select came to.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The node named; empty: it refused.
    pub(crate) node: String,
    pub(crate) reason: Reason,
    pub(crate) met: Vec<Guarantee>,
    /// What it told.
    pub(crate) notices: Vec<Notice>,
    pub(crate) selection: Selection,
}

impl Answer {
    /// The kinds of loss it told.
    pub(crate) fn told(&self) -> Vec<NoticeKind> {
        self.notices.iter().map(|notice| notice.kind).collect()
    }
}

impl Desk {
    /// Starts a service and waits until it knows its nodes.
    pub(crate) async fn open(options: ServiceOptions) -> Self {
        Self::before(Service::start(options).await.expect("a service starts")).await
    }

    /// Starts a service that sees what there is to see, and waits until it takes calls.
    pub(crate) async fn launch(options: ServiceOptions) -> Self {
        Self::before(Service::launch(options).await.expect("a service starts")).await
    }

    async fn before(service: Service) -> Self {
        service.await_ready().await.expect("it takes calls");
        let options = ClientOptions::new(service.endpoint());
        let client = tidegate_client::Client::connect(options).await.expect("it listens");
        Self { service, client }
    }

    /// Starts the service again, with the state it kept, and waits until it takes calls.
    pub(crate) async fn restart(&mut self) {
        self.service.restart_unawaited().await.expect("it starts again");
        self.service.await_ready().await.expect("it takes calls");
        let options = ClientOptions::new(self.service.endpoint());
        self.client = tidegate_client::Client::connect(options).await.expect("it listens");
    }

    /// A session nothing is known of.
    pub(crate) fn session(&self) -> Session {
        self.client.session(SessionOptions::new(PARTITION))
    }

    /// A session that carries tokens, as from a cookie or a message.
    pub(crate) fn carrying(&self, tokens: &[String]) -> Session {
        self.client.session(SessionOptions::new(PARTITION).tokens(tokens))
    }

    /// A session that made this commit and did nothing else.
    pub(crate) async fn wrote(&self, commit: &Commit) -> Session {
        let session = self.session();
        session.record(commit.observed(), Raise::Unspecified).await.expect("it is recorded");
        session
    }

    /// Decides one read.
    pub(crate) async fn select(&self, session: &Session, policy: &Policy) -> Answer {
        let selection = session.select(policy).await.expect("a decision");
        let node = match &selection.outcome {
            Outcome::Served(served) => served.node.name.clone(),
            Outcome::Refused(_) => String::new(),
        };
        let notices = session.take_notices();
        Answer { node, reason: selection.reason, met: selection.met.clone(), notices, selection }
    }

    /// Waits until a node serves a session; the answer that names it.
    pub(crate) async fn until_served_by(&self, session: &Session, node: &str) -> Answer {
        let waited = session.wait(WaitTarget::Node(node.to_owned()), LIMIT).await;
        let waited = waited.expect("an end of the wait");
        assert!(matches!(waited.outcome, WaitOutcome::Fresh(_)), "{node} for it: {waited:?}");
        let what = format!("{node} is named");
        let policy = replica_now();
        let named = || async { Ok(self.select(session, &policy).await.node == node) };
        until(&what, LIMIT, named).await.expect("it is");
        self.select(session, &policy).await
    }

    /// What the service says of the partition.
    pub(crate) async fn partition(&self) -> v1::Partition {
        self.service.partition().await.expect("the service answers")
    }

    /// What the service says of a node.
    pub(crate) async fn node(&self, name: &str) -> v1::NodeState {
        let node = self.partition().await.nodes.into_iter().find(|node| node.name == name);
        node.expect("a configured node")
    }

    /// Waits until what the service says of the partition is as wished; what it says then.
    pub(crate) async fn until_partition(
        &self,
        what: &str,
        wished: impl Fn(&v1::Partition) -> bool,
    ) -> v1::Partition {
        let holds = || async { Ok(wished(&self.partition().await)) };
        if let Err(error) = until(what, LIMIT, holds).await {
            panic!("{error:#}: {:?}", self.partition().await);
        }
        self.partition().await
    }

    /// Waits until this server leads and the row of its epoch is written.
    pub(crate) async fn until_leads(&self, server: &Server) {
        let (name, life) = (server.name(), life(server).await);
        let what = format!("{name} leads");
        let led = self.until_partition(&what, |partition| {
            let seen = |node: &v1::NodeState| {
                node.name == name && node.incarnation == life && node.row_epoch == partition.epoch
            };
            partition.leader_node == name && partition.nodes.iter().any(seen)
        });
        led.await;
    }

    /// Waits until the service has seen the life a server is in now.
    pub(crate) async fn until_lives(&self, server: &Server) {
        let (name, life) = (server.name(), life(server).await);
        let what = format!("{name} is seen in its new life");
        let seen = |node: &v1::NodeState| node.name == name && node.incarnation == life;
        self.until_partition(&what, |partition| partition.nodes.iter().any(seen)).await;
    }

    /// Waits until what was last seen of a node counts no more.
    pub(crate) async fn until_unseen(&self, server: &Server) {
        let name = server.name();
        let what = format!("{name} was not seen for a while");
        let unseen = |node: &v1::NodeState| {
            let age = node.view_age.and_then(|age| Duration::try_from(age).ok());
            node.name == name && age.is_none_or(|age| age > SEEN)
        };
        self.until_partition(&what, |partition| partition.nodes.iter().any(unseen)).await;
    }

    /// The epochs the service knows, the latest first.
    pub(crate) async fn epochs(&self) -> Vec<v1::Epoch> {
        let request = v1::ListEpochsRequest { partition: PARTITION.to_owned(), limit_count: 0 };
        let answer = self.admin().await.list_epochs(request).await;
        answer.expect("the service answers").into_inner().epochs
    }

    /// Waits until a leader was seen to have flushed a commit: then no failover makes it doubtful.
    pub(crate) async fn until_flushed(&self, commit: &Commit) {
        let flushed = || async {
            let seen =
                self.epochs().await.into_iter().filter_map(|epoch| epoch.flush_seen.parse().ok());
            Ok(seen.max().is_some_and(|seen: Lsn| seen >= commit.position()))
        };
        until("the commit was seen to be flushed", LIMIT, flushed).await.expect("it was");
    }

    /// The operator's listener.
    pub(crate) async fn admin(&self) -> AdminServiceClient<Channel> {
        let endpoint = self.service.admin_endpoint();
        AdminServiceClient::connect(endpoint).await.expect("it listens")
    }
}

/// A read that takes a replica or nothing, at once.
pub(crate) fn replica_now() -> Policy {
    replica_within(Duration::ZERO)
}

/// A read that takes a replica or nothing, after this long at most.
pub(crate) fn replica_within(budget: Duration) -> Policy {
    let policy = Policy::new(Level::Session).fallback(false);
    policy.wait_budget(budget).above_cap([AboveCap::Refuse])
}

/// A read that takes a replica now, else the leader.
pub(crate) fn either_now() -> Policy {
    Policy::new(Level::Session).wait_budget(Duration::ZERO)
}

/// A read that takes a replica soon, else the leader.
pub(crate) fn either_soon() -> Policy {
    // What must be judged by a sample of the leader waits for it.
    Policy::new(Level::Session).wait_budget(Duration::from_secs(2))
}
