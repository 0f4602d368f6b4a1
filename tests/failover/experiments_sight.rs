//! A service whose sight of the servers can be taken: what happens meanwhile is a polling gap.
//!
//! Polls go through proxies of its own; applications reach the servers as always. Of two services,
//! one with all its rules and one without one of them, each has its own sight, so that the first
//! may write a lineage row before the other sees anything: what one writes, the other believes.

use std::cell::RefCell;

use tidegate_client::{Level, Policy, Session};
use tidegate_lab::postgres::{Lsn, Server};
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::{PARTITION, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::ResumeNodeRequest;

use super::desk::{Answer, Desk};
use super::stage::{Stage, rule_off};

/// Lets no service write a row: each judges by itself alone.
pub(crate) async fn refuse_rows(leader: &Server) {
    leader.sql("revoke insert on tidegate.lineage from tidegate").await.expect("revoked");
}

/// Lets services write rows again.
pub(crate) async fn allow_rows(leader: &Server) {
    leader.sql("grant insert on tidegate.lineage to tidegate").await.expect("granted");
}

/// A service and the proxies its polls go through.
pub(crate) struct Sight {
    pub(crate) desk: Desk,
    proxies: Vec<(String, Proxy)>,
}

impl Sight {
    /// An operator vouches for a node.
    pub(crate) async fn resume(&self, node: &str) {
        let request = ResumeNodeRequest { partition: PARTITION.to_owned(), node: node.to_owned() };
        self.desk.admin().await.resume_node(request).await.expect("it is resumed");
    }

    /// A service with every rule in force, which sees everything.
    pub(crate) async fn open(stage: &Stage) -> Self {
        Self::of(stage, stage.options.clone()).await
    }

    /// A service that lacks one rule, which sees everything.
    pub(crate) async fn without(stage: &Stage, guard: &str) -> Self {
        Self::of(stage, stage.options.clone().guards(rule_off(guard))).await
    }

    /// The same; it looks at nobody twice by itself, or another rule would put right what is wrong
    /// at the next poll. A record has every node asked once.
    pub(crate) async fn slow_without(stage: &Stage, guard: &str) -> Self {
        let options = stage.options.clone().guards(rule_off(guard));
        let options = options.limit("idle_poll", "\"20s\"").limit("view_max_age", "\"10m\"");
        Self::of(stage, options).await
    }

    async fn of(stage: &Stage, mut options: ServiceOptions) -> Self {
        let mut proxies = Vec::new();
        for server in stage.cluster.servers() {
            let proxy = Proxy::start(server.address()).await.expect("a proxy");
            options = options.poll_through(server.name(), proxy.address());
            proxies.push((server.name().to_owned(), proxy));
        }
        Self { desk: Desk::open(options).await, proxies }
    }

    /// Sees no server any more.
    pub(crate) async fn lose(&self) {
        self.turn(Mode::Cut, |_| true).await;
    }

    /// Does not see this one any more.
    pub(crate) async fn lose_one(&self, server: &Server) {
        self.turn(Mode::Cut, |name| name == server.name()).await;
    }

    /// Sees all servers again.
    pub(crate) async fn regain(&self) {
        self.turn(Mode::Pass, |_| true).await;
    }

    async fn turn(&self, mode: Mode, which: impl Fn(&str) -> bool) {
        for (_, proxy) in self.proxies.iter().filter(|(name, _)| which(name)) {
            proxy.set(mode).await.expect("the network obeys");
        }
    }

    /// Decides one read; asks again as long as it can name nobody yet and has nothing to tell.
    pub(crate) async fn answer(&self, session: &Session) -> Answer {
        let last = RefCell::new(None);
        let decided = || async {
            let answer = self.desk.select(session, &Policy::new(Level::Session)).await;
            let decided = !answer.node.is_empty() || !answer.notices.is_empty();
            last.replace(Some(answer));
            Ok(decided)
        };
        until("somebody is named", LIMIT, decided).await.expect("the leader can be read");
        last.take().expect("it was asked")
    }

    /// Waits until the service has seen a node at or past a position.
    pub(crate) async fn until_applied(&self, server: &Server, position: Lsn) {
        let what = format!("{} is seen at {position}", server.name());
        let reached = || async {
            let applied = self.desk.node(server.name()).await.applied;
            Ok(applied.parse::<Lsn>().is_ok_and(|applied| applied >= position))
        };
        until(&what, LIMIT, reached).await.expect("it is");
    }

    /// The epoch that leads, as the service knows it.
    pub(crate) async fn leading_epoch(&self) -> tidegate_proto::v1::Epoch {
        let epoch = self.desk.partition().await.epoch;
        let known = self.desk.epochs().await.into_iter().find(|known| known.epoch == epoch);
        known.expect("the leading epoch is known")
    }
}
