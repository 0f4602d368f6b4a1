//! Plays one round: sessions live while something befalls the store, then all that was promised is
//! looked for once more while one standby still lacks it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use futures::future::{join_all, try_join_all};
use tidegate_client::{Outcome, Policy, Reason, Role};
use tidegate_core::guards::Guards;
use tokio::task::JoinSet;

use super::fault::Fired;
use super::person::Person;
use super::place::{INSTANCES, Place};
use super::schedule::{Plan, major};
use super::stage::Stage;
use super::tally::Tally;
use crate::redis;
use crate::wait::{LIMIT, until};

/// Sessions that live at the same time in one world.
const PEOPLE: i32 = 56;
/// Turns that sessions have in fair weather, and before and after whatever happens.
const TURNS_FAIR: u64 = 60;
const TURNS: u64 = 30;
/// How long an instance may take to announce a loss.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(20);
/// How late one standby replays in fair weather, in milliseconds.
const LATE_MILLIS: std::ops::Range<u64> = 250..700;

/// What happened in one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) stale: Vec<String>,
    /// Instances that had to announce a loss, and those among them that did not.
    pub(super) losses: u64,
    pub(super) unannounced: Vec<String>,
    pub(super) tally: Tally,
    /// Records that the servers show as lost.
    pub(super) lost: u64,
    /// From the end of the fault until each instance believed its store again.
    pub(super) fenced: Vec<Duration>,
    /// From then until it named a replica for a session known by its name.
    pub(super) normal: Vec<Duration>,
    pub(super) took: Duration,
}

/// One world with its sessions.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) stage: Stage,
    pub(super) place: Arc<Place>,
    people: Vec<Person>,
}

impl Play {
    /// Starts everything; Redis and Valkey, and the versions of PostgreSQL, take turns by world.
    pub(super) async fn open(world: usize, guards: Guards, seed: u64) -> Result<Self> {
        let kind = redis::Kind::ALL[world / 2 % redis::Kind::ALL.len()];
        let stage = Stage::open(major(world), kind, guards).await?;
        let servers = stage.cluster.servers().to_vec();
        let place = Arc::new(Place::new(servers, &stage.endpoints())?);
        let people = (0..PEOPLE).map(|id| Person::new(id, seed, &place)).collect();
        Ok(Self { stage, place, people })
    }

    /// Plays one round to its end.
    pub(super) async fn round(&mut self, plan: &Plan) -> Result<Round> {
        let mut round = Round::default();
        let began_at = Instant::now();
        let happened = self.live(async |stage, place| {
            fair(stage, place, plan.seed).await?;
            let before = announced(stage, place).await?;
            place.storm(true);
            place.late().pause_replay().await?;
            place.await_turns(TURNS).await?;
            let fired = Box::pin(plan.kind.play(stage, place, plan.seed)).await?;
            stage.chain.mend().await?;
            round.announced(plan, &fired, &before, (stage, place)).await?;
            round.back(place).await?;
            place.await_turns(TURNS).await?;
            round.lost = fired.lost;
            round.tally.judged += fired.judged;
            round.stale.extend(fired.stale);
            anyhow::Ok(())
        });
        happened.await.with_context(|| format!("round {}: {}", plan.number, plan.kind.name()))?;
        self.look(&mut round).await?;
        round.took = began_at.elapsed();
        Ok(round)
    }

    /// Lets sessions live while `happening` lasts.
    pub(super) async fn live(
        &mut self,
        happening: impl AsyncFnOnce(&mut Stage, &Arc<Place>) -> Result<()>,
    ) -> Result<()> {
        let place = Arc::clone(&self.place);
        place.goes_on(true);
        let mut lives = JoinSet::new();
        for person in self.people.drain(..) {
            let place = Arc::clone(&place);
            lives.spawn(async move { person.live(&place).await });
        }
        let watches: Vec<_> = (0..INSTANCES)
            .map(|instance| {
                let place = Arc::clone(&place);
                tokio::spawn(async move { place.watch(instance).await })
            })
            .collect();
        let happened = Box::pin(happening(&mut self.stage, &place)).await;
        place.goes_on(false);
        self.people = lives.join_all().await;
        self.people.sort_by_key(|person| person.id);
        try_join_all(watches).await?;
        happened
    }

    /// Settles all that was recorded, and looks for it while the late standby lacks it.
    pub(super) async fn look(&mut self, round: &mut Round) -> Result<()> {
        let place = Arc::clone(&self.place);
        self.stage.await_written().await?;
        place.settles();
        place.hush(false);
        join_all(self.people.iter_mut().map(|person| person.last_look(&place))).await;
        self.stage.catch_up().await?;
        place.storm(false);
        for person in &mut self.people {
            round.tally += std::mem::take(&mut person.tally);
            round.stale.append(&mut person.stale);
        }
        Ok(())
    }

    /// Ends everything.
    pub(super) async fn close(self) -> Result<()> {
        self.stage.close().await
    }
}

impl Round {
    /// Waits until both instances believe their store again and name replicas.
    pub(super) async fn back(&mut self, place: &Place) -> Result<()> {
        let began_at = Instant::now();
        let both = (0..INSTANCES).map(|instance| async move {
            place.await_belief(instance).await?;
            let fenced = began_at.elapsed();
            anyhow::Ok((fenced, normal(place, instance).await?))
        });
        for (fenced, normal) in try_join_all(both).await? {
            self.fenced.push(fenced);
            self.normal.push(normal);
        }
        Ok(())
    }

    /// Counts the losses that had to be announced, and those that were not in time: an instance
    /// hears of one with the next record or the next beat.
    async fn announced(
        &mut self,
        plan: &Plan,
        fired: &Fired,
        before: &[Heard],
        (stage, place): (&Stage, &Place),
    ) -> Result<()> {
        let expected = (0..INSTANCES).filter(|instance| fired.announce[*instance]);
        for instance in expected {
            self.losses += 1;
            let told = until("a loss is announced", ANNOUNCED_WITHIN, || async {
                let losses = stage.announced(instance).await?;
                // One that was started again counts anew.
                let is_same = place.restarts(instance) == before[instance].restarts;
                Ok(losses > if is_same { before[instance].losses } else { 0 })
            });
            if told.await.is_err() {
                let (number, name, shown) =
                    (plan.number, plan.kind.name(), stage.told(instance).await);
                let words = format!("round {number}, {name}: by instance {instance}: {shown}");
                self.unannounced.push(words);
            }
        }
        Ok(())
    }
}

/// Fair weather, in which one standby replays late.
pub(super) async fn fair(stage: &Stage, place: &Place, seed: u64) -> Result<()> {
    let late = Duration::from_millis(Rng::with_seed(seed).u64(LATE_MILLIS));
    stage.cluster.standby(0).apply_delay(late).await?;
    for instance in 0..INSTANCES {
        place.await_belief(instance).await?;
    }
    place.await_turns(TURNS_FAIR).await
}

/// What an instance has announced since its start, and how often it was started again.
struct Heard {
    losses: u64,
    restarts: u64,
}

async fn announced(stage: &Stage, place: &Place) -> Result<Vec<Heard>> {
    try_join_all((0..INSTANCES).map(|instance| async move {
        let losses = stage.announced_and_over(instance).await?;
        anyhow::Ok(Heard { losses, restarts: place.restarts(instance) })
    }))
    .await
}

/// How long an instance takes, from when it believes its store and goes on believing it, until it
/// names a replica for a session that is known by its name, as on any other day.
async fn normal(place: &Place, instance: usize) -> Result<Duration> {
    let what = format!("instance {instance} names replicas again");
    let last = Mutex::new(None);
    let believed = Mutex::new((place.belief(instance), Instant::now()));
    let named = until(&what, LIMIT, || async {
        {
            // What it hears of only now begins the wait anew.
            let (mut believed, now) = (lock(&believed), place.belief(instance));
            if now.is_none() || believed.0 != now {
                *believed = (now, Instant::now());
            }
        }
        let device = place.device(instance, "visitor");
        let selection = device.select(&Policy::default()).await?;
        let is_plain = matches!(selection.reason, Reason::Covered | Reason::Waited);
        let by_replica = match &selection.outcome {
            Outcome::Served(served) => served.node.role == Role::Replica,
            Outcome::Refused(_) => false,
        };
        *lock(&last) = Some(selection);
        Ok(is_plain && by_replica)
    });
    let named = named.await;
    named.with_context(|| format!("the last answer was {last:?}"))?;
    let since = lock(&believed).1;
    Ok(since.elapsed())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What it holds is replaced whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
