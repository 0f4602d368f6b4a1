//! What an operator or a network may do by accident: a server frozen while it is fenced, another
//! one behind its address, a full memory, a promotion undone, a replica waited for in vain, an
//! instance of yesterday's rules. None may make anybody believe what was never promised.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tidegate::config::{Redundancy, Topology};
use tidegate::ports::{Stored, SubjectKey, TokenStore};
use tidegate::store::{RedisSettings, RedisStore, StoreCount, StoreEvent};
use tidegate_core::guards::Guards;
use tidegate_core::store_guard::Belief;
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::redis::{Group, Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::Receiver;
use tokio::task::{JoinHandle, JoinSet};

use crate::stage::{self, belief, position, saw, settings, single, subject};

/// Positions in the order in which things happen.
const SAMPLED_EARLY: u64 = 160;
const RECORDED_LATE: u64 = 170;
const LEADER_AT_LAST: u64 = 200;

fn fenced(lag: u32) -> Options {
    Options::new(Kind::Redis).min_replicas(1, lag)
}

/// Asks all the time, beside a leader at `leader`, for so long; returns each belief in the answers.
async fn asked(store: &RedisStore, leader: u64, how_long: Duration) -> Vec<Belief> {
    let (since, mut beliefs) = (stage::now(), Vec::new());
    while stage::now().since(since) < how_long {
        store.sampled(stage::KEY, stage::sample(leader));
        let looked = store.lookup(subject(9_999)).await;
        beliefs.push(looked.map_or(Belief::Unknown, |looked| belief(&looked)));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    beliefs
}

async fn told_of_a_loss(events: &mut Receiver<StoreEvent>) -> Result<()> {
    let told = async {
        while !matches!(events.recv().await?, StoreEvent::Lost(_)) {}
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, told).await?
}

fn all(events: &mut Receiver<StoreEvent>) -> Vec<StoreEvent> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

/// Updates until the answer is that the primary has it.
async fn stored(store: &RedisStore, who: SubjectKey, at: u64) -> Result<()> {
    until("a record is promised", LIMIT, || async {
        Ok(store.update(who, &saw(at)).await?.stored == Stored::PrimaryOnly)
    })
    .await
    .map(drop)
}

/// An address that others stand behind, as that of a virtual IP.
struct Virtual {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Virtual {
    async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let target = Arc::new(Mutex::new(target));
        let now = Arc::clone(&target);
        let task = tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let at = *now.lock().unwrap_or_else(PoisonError::into_inner);
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(at).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                });
            }
        });
        Ok(Self { address, target, task })
    }

    fn moves(&self, to: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

impl Drop for Virtual {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deposed_primary_that_is_lost_and_wakes_promises_nothing() -> Result<()> {
    let group = Group::start(fenced(1), 1).await?;
    let (primary, replica) = (group.primary(), group.replica(0));
    let old = RedisSettings { timeout: LIMIT, ..single(primary) };
    let old = Arc::new(stage::open(old).await?);
    stage::believed(&old, 100).await?;
    stored(&old, subject(9), 90).await?;
    let mut events = old.events();
    primary.flush().await?;
    told_of_a_loss(&mut events).await?;
    group.await_caught_up().await?;
    group.cut(0).await?;
    primary.freeze().await?;
    replica.promote().await?;
    replica.set("min-replicas-to-write", "0").await?;
    let fence = Some(Duration::from_secs(4));
    let new = RedisSettings { fence, ..stage::with(Redundancy::Single, single(replica)) };
    let new = stage::open(new).await?;
    assert_eq!(stage::believed(&new, SAMPLED_EARLY).await?, stage::barrier(SAMPLED_EARLY));

    // It waits in the socket of the old one, which takes it before it has counted its replicas.
    let round_trips = old.counters().get(StoreCount::RoundTrips);
    let (store, change) = (Arc::clone(&old), saw(RECORDED_LATE));
    let first = tokio::spawn(async move { store.update(subject(1), &change).await });
    until("it is on its way", LIMIT, || async {
        Ok(old.counters().get(StoreCount::RoundTrips) > round_trips)
    })
    .await?;
    primary.thaw().await?;
    let mut kept = vec![first.await??.stored];
    for _ in 0..5 {
        kept.push(old.update(subject(1), &saw(RECORDED_LATE)).await?.stored);
    }
    assert_eq!(kept, [Stored::Memory; 6], "the fence is over, and 170 is not covered");
    assert_eq!(old.counters().get(StoreCount::Pending), 1, "it is kept until it is safe");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_switchover_behind_one_address_is_followed() -> Result<()> {
    let group = Group::start(fenced(1), 1).await?;
    let (primary, replica) = (group.primary(), group.replica(0));
    let at = Virtual::start(primary.address()).await?;
    let store = settings(vec![primary.url_at(at.address)], Topology::Single);
    let store = stage::open(store).await?;
    stage::believed(&store, 100).await?;
    at.moves(replica.address());
    replica.promote().await?;
    // Its clients stay connected to it.
    group.heal(0).await?;
    assert_eq!(stage::believed(&store, LEADER_AT_LAST).await?, stage::barrier(LEADER_AT_LAST));
    stored(&store, subject(1), 190).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_primary_at_its_limit_of_memory_goes_on_being_believed() -> Result<()> {
    let group = Group::start(fenced(1), 1).await?;
    let store = stage::open(single(group.primary())).await?;
    stage::believed(&store, 100).await?;
    stored(&store, subject(1), 90).await?;
    let mut events = store.events();
    group.primary().set("maxmemory", "1").await?;
    assert_eq!(store.update(subject(2), &saw(95)).await?.stored, Stored::Memory);
    let beliefs = asked(&store, LEADER_AT_LAST, Duration::from_secs(4)).await;
    let told = all(&mut events);
    assert_eq!(told.first(), Some(&StoreEvent::Refuses), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, StoreEvent::Lost(_))), "{told:?}");
    assert_eq!(beliefs.last(), Some(&stage::barrier(100)));
    group.primary().set("maxmemory", "0").await?;
    until("what waited is written", LIMIT, || async {
        Ok(store.counters().get(StoreCount::Pending) == 0)
    })
    .await
    .map(drop)
}

/// A replica is promoted, takes a record of 170, and follows its old primary again.
async fn promotion_is_undone(group: &Group) -> Result<()> {
    group.split(0).await?;
    group.replica(0).set("min-replicas-to-write", "0").await?;
    let new = stage::open(stage::with(Redundancy::Single, single(group.replica(0)))).await?;
    assert_eq!(stage::believed(&new, SAMPLED_EARLY).await?, stage::barrier(SAMPLED_EARLY));
    let kept = new.update(subject(1), &saw(RECORDED_LATE)).await?.stored;
    assert_eq!(kept, Stored::PrimaryOnly);
    drop(new);
    group.undo(0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_undone_promotion_is_a_loss_also_if_nobody_who_saw_it_runs() -> Result<()> {
    let group = Group::start(fenced(1), 1).await?;
    let before = stage::open(single(group.primary())).await?;
    stage::believed(&before, 100).await?;
    drop(before);
    promotion_is_undone(&group).await?;
    let after = stage::open(single(group.primary())).await?;
    let believed = stage::believed(&after, LEADER_AT_LAST).await?;
    assert_eq!(position(&after.lookup(subject(1)).await?), None, "it is gone");
    assert_eq!(believed, stage::barrier(LEADER_AT_LAST), "170 was recorded");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_undone_promotion_is_a_loss_also_to_whoever_was_cut_off_meanwhile() -> Result<()> {
    let group = Group::start(fenced(1), 1).await?;
    let line = Proxy::start(group.primary().address()).await?;
    let url = group.primary().url_at(line.address());
    let old = stage::open(settings(vec![url], Topology::Single)).await?;
    stage::believed(&old, 100).await?;
    stored(&old, subject(9), 90).await?;
    line.set(Mode::BlackHole).await?;
    promotion_is_undone(&group).await?;
    line.set(Mode::Pass).await?;
    let believed = stage::believed(&old, LEADER_AT_LAST).await?;
    assert_eq!(position(&old.lookup(subject(1)).await?), None, "it is gone");
    assert_eq!(believed, stage::barrier(LEADER_AT_LAST), "170 was recorded");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_that_wait_for_a_replica_in_vain_keep_nobody_from_reading() -> Result<()> {
    let group = Group::start(Options::new(Kind::Redis), 1).await?;
    let store = RedisSettings {
        wait_replicas: 1,
        fence: Some(Duration::from_millis(100)),
        ..stage::with(Redundancy::Async, single(group.primary()))
    };
    let store = Arc::new(stage::open(store).await?);
    stage::believed(&store, 100).await?;
    group.cut(0).await?;
    let mut events = store.events();
    let mut writes = JoinSet::new();
    for number in 0..200 {
        let store = Arc::clone(&store);
        writes.spawn(async move { store.update(subject(number), &saw(150)).await });
    }
    let beliefs = asked(&store, 100, Duration::from_secs(6)).await;
    while let Some(answer) = writes.join_next().await {
        answer??;
    }
    assert_eq!(all(&mut events), [], "the server answers");
    assert!(!beliefs.contains(&Belief::Unknown), "of {} lookups", beliefs.len());
    Ok(())
}

/// A primary and a replica that was added to it, with the settings of a fenced store; an instance
/// opened before that, beside which the others were restarted.
struct Grown {
    primary: Server,
    replica: Server,
    link: Proxy,
    before: RedisStore,
}

impl Grown {
    async fn start() -> Result<Self> {
        let plain = || Server::start(Options::new(Kind::Redis));
        let (primary, replica) = (plain().await?, plain().await?);
        let link = Proxy::start(primary.address()).await?;
        let urls = vec![primary.url(), replica.url()];
        let before = stage::open(settings(urls, Topology::Single)).await?;
        stage::believed(&before, 100).await?;
        for server in [&primary, &replica] {
            server.set("min-replicas-max-lag", "3").await?;
            server.set("min-replicas-to-write", "1").await?;
        }
        replica.follow(link.address()).await?;
        replica.await_attached().await?;
        primary.await_writable().await?;
        Ok(Self { primary, replica, link, before })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_instance_from_before_a_replica_came_ends_nobodys_fence() -> Result<()> {
    let Grown { primary, replica, link, before } = Grown::start().await?;
    let urls = vec![primary.url(), replica.url()];
    let after = stage::open(settings(urls, Topology::Single)).await?;
    let deposed = stage::open(single(&primary)).await?;
    stage::believed(&after, 110).await?;
    stored(&deposed, subject(9), 90).await?;
    replica.await_caught_up(&primary).await?;
    let mut moved = after.events();
    link.set(Mode::BlackHole).await?;
    replica.promote().await?;
    // It looks for another primary once a second, while the old one takes records for three.
    asked(&before, SAMPLED_EARLY, Duration::from_millis(2_700)).await;
    let kept = deposed.update(subject(1), &saw(RECORDED_LATE)).await?.stored;
    assert_eq!(kept, Stored::PrimaryOnly, "the old primary takes it for a moment");
    let second = Server::start(Options::new(Kind::Redis)).await?;
    second.follow(replica.address()).await?;
    told_of_a_loss(&mut moved).await?;
    until("it has moved", LIMIT, || async {
        let looked = after.lookup(subject(1)).await;
        Ok(looked.is_ok_and(|looked| position(&looked).is_none()))
    })
    .await?;
    let believed = stage::believed(&after, LEADER_AT_LAST).await?;
    assert_eq!(believed, stage::barrier(LEADER_AT_LAST), "170 was promised, and is gone");
    Ok(())
}

/// What an instance is told of a subject that starts with all servers of a store of three, after
/// the second was promoted, has the third as its replica, and took 170: the first answers still.
async fn started_on_a_deposed_primary(guards: Guards) -> Result<Vec<(Option<u64>, Belief)>> {
    let group = Group::start(fenced(1), 2).await?;
    let (third, primary, promoted) = (group.primary(), group.replica(0), group.replica(1));
    // It was promoted itself, and so has copied nothing to its replica: a lost count shows nothing.
    primary.promote().await?;
    promoted.follow(primary.address()).await?;
    promoted.await_attached().await?;
    primary.await_writable().await?;
    assert_eq!(primary.info().await?.number("sync_full")?, 0, "it had a replica of before");
    let before = stage::open(single(primary)).await?;
    stage::believed(&before, 100).await?;
    stored(&before, subject(1), 150).await?;
    promoted.await_caught_up(primary).await?;
    drop(before);
    promoted.promote().await?;
    third.follow(promoted.address()).await?;
    third.await_attached().await?;
    promoted.await_writable().await?;
    let beside = stage::open(single(promoted)).await?;
    assert_eq!(stage::believed(&beside, SAMPLED_EARLY).await?, stage::barrier(SAMPLED_EARLY));
    stored(&beside, subject(1), RECORDED_LATE).await?;

    let urls = vec![primary.url(), promoted.url(), third.url()];
    let started = stage::open_with(settings(urls, Topology::Single), guards).await?;
    let (answers, at) = (Mutex::new(Vec::new()), subject(1));
    until("it has found the new primary", LIMIT, || async {
        started.sampled(stage::KEY, stage::sample(LEADER_AT_LAST));
        let Ok(looked) = started.lookup(at).await else { return Ok(false) };
        let answer = (position(&looked), belief(&looked));
        answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        Ok(answer.1 != Belief::Unknown)
    })
    .await?;
    Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_instance_that_starts_on_a_deposed_primary_believes_none_but_the_new_one() -> Result<()>
{
    let answers = started_on_a_deposed_primary(Guards::on()).await?;
    // That a server refused may count as a loss of the next one.
    let new = [SAMPLED_EARLY, LEADER_AT_LAST].map(|at| (Some(RECORDED_LATE), stage::barrier(at)));
    assert!(answers.last().is_some_and(|last| new.contains(last)), "170 was recorded: {answers:?}");
    assert_eq!(answers.first(), Some(&(Some(150), Belief::Unknown)), "it asked the old one first");
    #[cfg(feature = "unsafe-guards")]
    {
        let off = started_on_a_deposed_primary(stage::without("believed_lookup")?).await?;
        assert_eq!(off, [(Some(150), stage::barrier(100))], "a deposed primary would be believed");
    }
    Ok(())
}
