//! What the id of a history does on each event, and what a script can read where.
//!
//! Each event is played on servers of its own, and the id is read before and after.

use anyhow::{Context, Result};
use redis::RedisError;

use crate::redis::{Cluster, Group, Kind, Options, Server};

/// One event and what it did to the id.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub name: &'static str,
    /// Whether the server had another id afterwards.
    pub is_new: bool,
    /// Whether records that had been acknowledged were gone afterwards.
    pub lost: bool,
}

/// What a server answered in one state.
#[derive(Clone, Debug)]
pub struct Sight {
    /// What was asked.
    pub name: &'static str,
    /// The answer, or the first words of the refusal.
    pub answer: String,
}

/// Notes the id around each event on one server.
struct Notes<'a> {
    server: &'a Server,
    id: String,
    events: Vec<Event>,
}

impl<'a> Notes<'a> {
    async fn of(server: &'a Server) -> Result<Self> {
        Ok(Self { server, id: server.replid().await?, events: Vec::new() })
    }

    async fn after(&mut self, name: &'static str, lost: bool) -> Result<()> {
        let id = self.server.replid().await?;
        self.events.push(Event { name, is_new: id != self.id, lost });
        self.id = id;
        Ok(())
    }
}

/// Plays every event on one kind of server.
///
/// # Errors
/// When a server does not do what it is told.
pub async fn ids(kind: Kind) -> Result<Vec<Event>> {
    let mut events = alone(kind).await?;
    events.extend(grouped(kind).await?);
    events.extend(clustered(kind).await?);
    Ok(events)
}

async fn write(server: &Server) -> Result<()> {
    server.tell(&["SET", "k", "v"]).await
}

async fn holds(server: &Server) -> Result<bool> {
    Ok(server.ask::<Option<String>>(&["GET", "k"]).await?.is_some())
}

async fn alone(kind: Kind) -> Result<Vec<Event>> {
    let server = Server::start(Options::new(kind)).await?;
    let mut notes = Notes::of(&server).await?;
    write(&server).await?;
    server.stop().await?;
    server.start_again().await?;
    notes.after("restart, nothing saved", !holds(&server).await?).await?;
    write(&server).await?;
    let old = server.snapshot().await?;
    server.tell(&["SET", "later", "v"]).await?;
    server.restore(&old).await?;
    let later: Option<String> = server.ask(&["GET", "later"]).await?;
    notes.after("killed, restart from a snapshot", later.is_none()).await?;
    server.tell(&["DEBUG", "RELOAD"]).await?;
    notes.after("`DEBUG RELOAD`", !holds(&server).await?).await?;
    server.flush_scripts().await?;
    notes.after("`SCRIPT FLUSH`", !holds(&server).await?).await?;
    server.tell(&["PEXPIRE", "k", "600000"]).await?;
    server.evict("volatile-ttl", 1).await?;
    server.end_eviction().await?;
    notes.after("eviction", !holds(&server).await?).await?;
    write(&server).await?;
    server.flush().await?;
    notes.after("`FLUSHALL`", !holds(&server).await?).await?;
    let mut events = notes.events;

    let server = Server::start(Options::new(kind).append_only()).await?;
    let mut notes = Notes::of(&server).await?;
    write(&server).await?;
    server.kill().await?;
    server.start_again().await?;
    notes.after("killed, restart from an append-only file", !holds(&server).await?).await?;
    events.extend(notes.events);
    Ok(events)
}

async fn grouped(kind: Kind) -> Result<Vec<Event>> {
    let group = Group::start(Options::new(kind), 1).await?;
    let (p, r) = (group.primary(), group.replica(0));
    write(p).await?;
    group.await_caught_up().await?;
    let mut of_p = Notes::of(p).await?;
    let mut of_r = Notes::of(r).await?;
    r.kill().await?;
    r.start_again().await?;
    r.await_attached().await?;
    of_p.after("its replica restarts", !holds(p).await?).await?;
    r.promote().await?;
    of_r.after("a replica is promoted", !holds(r).await?).await?;
    r.promote().await?;
    of_r.after("promoted once more, being a primary", !holds(r).await?).await?;
    r.tell(&["SET", "meanwhile", "v"]).await?;
    r.follow(group.link(0).address()).await?;
    r.await_attached().await?;
    let meanwhile: Option<String> = p.ask(&["GET", "meanwhile"]).await?;
    of_r.after("demoted again under its old primary", meanwhile.is_none()).await?;
    of_p.after("the old primary of that one", meanwhile.is_none()).await?;
    r.promote().await?;
    of_r.after("promoted back", !holds(r).await?).await?;
    let mut events = of_p.events;
    events.extend(of_r.events);
    Ok(events)
}

async fn clustered(kind: Kind) -> Result<Vec<Event>> {
    let cluster = Cluster::start(Options::new(kind)).await?;
    let slot = cluster.slot("k").await?;
    let (primary, replica) = {
        let primary = cluster.owner(slot).await?;
        (primary, cluster.replica(primary).await?)
    };
    write(primary).await?;
    replica.await_caught_up(primary).await?;
    let mut notes = Notes::of(replica).await?;
    cluster.switch_over(replica).await?;
    notes.after("`CLUSTER FAILOVER`", !holds(replica).await?).await?;
    cluster.switch_over(primary).await?;
    notes.after("demoted by another", false).await?;
    replica.await_caught_up(primary).await?;
    primary.kill().await?;
    cluster.await_failover(replica).await?;
    notes.after("promoted by the Cluster", !holds(replica).await?).await?;
    Ok(notes.events)
}

/// Reads the id within a script.
const ID: &str = "return string.match(redis.call('INFO', 'replication'), 'master_replid:%x+') \
                  and 'yes'";
/// Reads two sections within a script.
const TWO: &str = "local i = redis.call('INFO', 'replication', 'stats') return \
                   string.match(i, 'master_replid') and string.match(i, 'evicted_keys:%d+')";
const ROLE: &str = "return string.match(redis.call('INFO', 'replication'), 'role:%a+')";
const GOOD: &str =
    "return string.match(redis.call('INFO', 'replication'), 'min_slaves_good_slaves:%d+')";
const READ: &str = "return redis.call('GET', KEYS[1])";
const WRITE: &str = "return redis.call('SET', KEYS[1], 'v')";

/// Asks the same of a replica and of a deposed primary that refuses writes: in that order.
///
/// # Errors
/// When a server does not do what it is told.
pub async fn sights(kind: Kind) -> Result<[Vec<Sight>; 2]> {
    let group = Group::start(Options::new(kind).min_replicas(1, 1), 1).await?;
    let (p, r) = (group.primary(), group.replica(0));
    write(p).await?;
    group.await_caught_up().await?;
    let replica = look(r).await?;
    group.split(0).await?;
    let refuses = || async { Ok(write(p).await.is_err()) };
    crate::wait::until("the deposed primary refuses", crate::wait::LIMIT, refuses).await?;
    Ok([replica, look(p).await?])
}

async fn look(server: &Server) -> Result<Vec<Sight>> {
    let script = |text| vec!["EVAL", text, "1", "k"];
    let questions: [(&'static str, Vec<&str>); 9] = [
        ("`GET`", vec!["GET", "k"]),
        ("`SET`", vec!["SET", "k", "v"]),
        ("`DEL` of nothing", vec!["DEL", "nothing"]),
        ("`GET` in a script", script(READ)),
        ("`SET` in a script", script(WRITE)),
        ("`INFO` in a script has `master_replid`", script(ID)),
        ("two sections of it, `evicted_keys`", script(TWO)),
        ("its role", script(ROLE)),
        ("its good replicas", script(GOOD)),
    ];
    let mut sights = Vec::new();
    for (name, words) in questions {
        let answer = match server.ask::<Option<String>>(&words).await {
            Ok(answer) => answer.unwrap_or_else(|| "nothing".to_owned()),
            Err(error) => {
                let said = error.downcast_ref::<RedisError>().and_then(RedisError::code);
                format!("`{}`", said.with_context(|| format!("{name} is refused, not: {error:#}"))?)
            }
        };
        sights.push(Sight { name, answer });
    }
    Ok(sights)
}
