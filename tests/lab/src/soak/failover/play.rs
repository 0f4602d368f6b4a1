//! Plays one round: sessions live while a failover happens, then all is repaired and judged.
//!
//! What a failover is stands in `crate::failover`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use futures::future::{join_all, try_join_all};
use tidegate_client::{SessionOptions, WaitOutcome, WaitTarget};
use tidegate_core::guards::Guards;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tokio::task::JoinSet;
use tokio_postgres::Transaction;

use super::judge::{Verdict, judge};
use super::person::Person;
use super::place::Place;
use super::schedule::{Plan, events, needs_operator};
use super::tally::Tally;
use super::truth::Truth;
use crate::failover::{Repaired, Trio, play};
use crate::install::Major;
use crate::service::{DATABASE, PARTITION};
use crate::soak::say;
use crate::stall::Stall;
use crate::wait::{LIMIT, until};

/// Sessions that live at the same time.
const PEOPLE: i32 = 100;
/// Turns that sessions have before and after whatever happens.
const TURNS_BEFORE: u64 = 250;
const TURNS_AFTER: u64 = 200;
/// Rows that a session goes on to look for in later rounds.
const KEEP: usize = 2;
/// How long a node may stay quarantined before an operator is called.
const QUARANTINED: Duration = Duration::from_secs(4);
/// Longest time after which all nodes must be well again, on a machine that others keep busy.
const WELL_WITHIN: Duration = Duration::from_secs(90);
/// Between two looks at the service.
const PAUSE: Duration = Duration::from_millis(20);
/// Epochs told where an operator is called: those of the last rounds.
const EPOCHS_TOLD: usize = 6;
/// Epochs asked of the service; a round makes a few.
const EPOCHS: u32 = 64;

/// What happened in one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) verdict: Verdict,
    pub(super) tally: Tally,
    pub(super) events: Vec<&'static str>,
    /// Times an operator was called.
    pub(super) operator: u64,
    /// How long after its commit each other node had a fresh write, once all was repaired.
    pub(super) covered: Vec<Duration>,
    pub(super) took: Duration,
    /// What was done to the servers, in order.
    pub(super) steps: Vec<String>,
}

/// Servers of one version with the service and the sessions before them.
#[derive(Debug)]
pub(super) struct Play {
    trio: Trio,
    place: Arc<Place>,
    people: Vec<Person>,
}

impl Play {
    /// Starts everything.
    pub(super) async fn open(
        major: Major,
        guards: Guards,
        seed: u64,
        stall: Arc<Stall>,
    ) -> Result<Self> {
        let mut trio = Trio::start(major).await?;
        let place = Arc::new(Place::open(&trio, guards, stall).await?);
        trio.watched_by(1);
        let people = (0..PEOPLE).map(|id| Person::new(id, seed, &place)).collect();
        Ok(Self { trio, place, people })
    }

    /// Plays one round to its end.
    pub(super) async fn round(&mut self, plan: &Plan) -> Result<Round> {
        let (began_at, place) = (Instant::now(), Arc::clone(&self.place));
        let oldest = self.people.iter().filter_map(|person| person.memory.oldest()).min();
        let mut truth = Truth::since(oldest.unwrap_or_default());
        place.goes_on(true);
        let mut lives = JoinSet::new();
        for person in self.people.drain(..) {
            let place = Arc::clone(&place);
            lives.spawn(async move { person.live(&place).await });
        }
        let mut round = Round::default();
        let happening = async {
            let happened = self.happen(plan, &place, &mut round).await;
            place.goes_on(false);
            happened
        };
        let (happened, ()) = tokio::join!(Box::pin(happening), Box::pin(truth.watch(&place)));
        self.people = lives.join_all().await;
        self.people.sort_by_key(|person| person.id);
        happened.with_context(|| format!("round {}: {}", plan.number, plan.kind.name()))?;
        round.covered = self.dust().await?;
        join_all(self.people.iter_mut().map(|person| person.last_look(&place))).await;
        truth.settle(self.trio.leader()).await?;
        let epochs = self.epochs().await?;
        for person in &mut self.people {
            round.verdict.add(judge(person, plan, &truth, &epochs));
            round.tally += std::mem::take(&mut person.tally);
            person.marked.clear();
            person.memory.settle(KEEP, |row| truth.survives(row));
        }
        round.took = began_at.elapsed();
        Ok(round)
    }

    /// Fair weather, the storm, the repair, fair weather.
    async fn happen(&mut self, plan: &Plan, place: &Place, round: &mut Round) -> Result<()> {
        let mut random = Rng::with_seed(plan.seed);
        let (late, delay) = plan.late;
        self.fair(late, delay, TURNS_BEFORE).await?;
        place.weather.storm(true);
        let played = play(plan.kind, &mut self.trio, &mut random).await;
        round.events.extend(events(plan.kind));
        if needs_operator(plan.kind) {
            self.resolve_split().await?;
            round.operator += 1;
        }
        let repaired = self.trio.repair().await?;
        let Repaired { cloned, .. } = repaired;
        round.steps.extend(played?.steps.into_iter().map(|step| step.what));
        round.events.extend(cloned.iter().map(|_| "new clone"));
        round.operator += self.all_well().await?;
        place.weather.storm(false);
        self.fair(late, delay, TURNS_AFTER).await
    }

    /// Fair weather, in which one standby replays late.
    async fn fair(&self, late: usize, delay: Duration, turns: u64) -> Result<()> {
        let late = self.trio.others()[late].clone();
        late.apply_delay(delay).await?;
        self.place.await_turns(turns).await?;
        late.apply_delay(Duration::ZERO).await
    }

    /// Waits until the service finds all nodes well; calls the operator for those that it has put
    /// in quarantine and leaves there. Returns how often.
    async fn all_well(&self) -> Result<u64> {
        let (mut called, mut quarantined) = (0, BTreeMap::new());
        let began_at = Instant::now();
        while !self.is_well().await? {
            let partition = self.place.service.partition().await?;
            for node in &partition.nodes {
                if node.quarantine_reason.is_empty() {
                    quarantined.remove(&node.name);
                    continue;
                }
                let since = quarantined.entry(node.name.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= self.place.stall.allow(QUARANTINED) {
                    quarantined.remove(&node.name);
                    say(format_args!("    operator: {}: {}", node.name, node.quarantine_reason));
                    for epoch in self.epochs().await?.iter().take(EPOCHS_TOLD) {
                        say(format_args!("      {}", told(epoch)));
                    }
                    self.resume(&node.name).await?;
                    called += 1;
                }
            }
            ensure!(began_at.elapsed() < WELL_WITHIN, "not well: {}", words(&partition));
            tokio::time::sleep(PAUSE).await;
        }
        Ok(called)
    }

    /// The operator says that the leader is right and its twin is not, as soon as both were seen.
    async fn resolve_split(&self) -> Result<()> {
        let admin = AdminServiceClient::connect(self.place.service.admin_endpoint()).await?;
        let leader = self.trio.leader();
        let incarnation: String = leader.value("select tidegate.incarnation()").await?;
        let partition = PARTITION.to_owned();
        let verdict = v1::ResolveSplitRequest { partition, incarnation };
        until("the operator's verdict is taken", LIMIT, || async {
            Ok(admin.clone().resolve_split(verdict.clone()).await.is_ok())
        })
        .await
        .map(drop)
    }

    async fn resume(&self, node: &str) -> Result<()> {
        let mut admin = AdminServiceClient::connect(self.place.service.admin_endpoint()).await?;
        let (partition, node) = (PARTITION.to_owned(), node.to_owned());
        admin.resume_node(v1::ResumeNodeRequest { partition, node }).await?;
        Ok(())
    }

    async fn is_well(&self) -> Result<bool> {
        let partition = self.place.service.partition().await?;
        let leads = partition.leader_node == self.trio.leader().name();
        Ok(leads && partition.nodes.iter().all(|node| is_well(&partition, node)))
    }

    /// Writes a row and measures until each other node has it.
    async fn dust(&self) -> Result<Vec<Duration>> {
        let session = self.place.client.session(SessionOptions::new(PARTITION));
        let mut leader = self.trio.leader().connect("postgres", DATABASE).await?;
        let insert = format!("insert into soak values ({}, -1)", self.place.next_row());
        let written = session.write(&mut leader, async |transaction: &Transaction<'_>| {
            transaction.batch_execute(&insert).await
        });
        written.await.context("a write after the repair")?;
        let written_at = Instant::now();
        let waits = self.trio.others().into_iter().map(|node| {
            let target = WaitTarget::Node(node.name().to_owned());
            let session = session.clone();
            async move {
                let waited = session.wait(target, LIMIT).await?.outcome;
                let fresh = matches!(waited, WaitOutcome::Fresh(_));
                anyhow::ensure!(fresh, "{} never had a write after the repair", node.name());
                Ok(written_at.elapsed())
            }
        });
        try_join_all(waits).await
    }

    async fn epochs(&self) -> Result<Vec<v1::Epoch>> {
        let mut admin = AdminServiceClient::connect(self.place.service.admin_endpoint()).await?;
        let request =
            v1::ListEpochsRequest { partition: PARTITION.to_owned(), limit_count: EPOCHS };
        Ok(admin.list_epochs(request).await?.into_inner().epochs)
    }
}

fn is_well(partition: &v1::Partition, node: &v1::NodeState) -> bool {
    node.name == partition.leader_node || node.session_eligible
}

/// What the service says of an epoch.
fn told(epoch: &v1::Epoch) -> String {
    let flags = [
        (epoch.row_seen, "row"),
        (epoch.ended, "ended"),
        (epoch.on_chain, "on the chain"),
        (epoch.parent.is_empty(), "root"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    let v1::Epoch { epoch, node, parent, flush_seen, .. } = epoch;
    format!("{epoch} of {node:?} from {parent:?} to {flush_seen}: {}", flags.join(", "))
}

/// What the service says of nodes that are not well.
fn words(partition: &v1::Partition) -> String {
    let nodes = partition.nodes.iter().filter(|node| !is_well(partition, node));
    let nodes = nodes.map(|node| {
        let reasons = node.ineligible_reasons.join(", ");
        format!("{}: {reasons} {} {}", node.name, node.quarantine_reason, node.poll_error)
    });
    format!("{:?}, {}", partition.state(), nodes.collect::<Vec<_>>().join("; "))
}
