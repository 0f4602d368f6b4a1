//! Names and servers that do not agree: one address of two servers, two names of one.
//!
//! Where a position was learned is not where the read goes. What a pooler does to that is
//! `pooled`.

#![cfg(feature = "unsafe-guards")]

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_client::{Client, ClientOptions, DirectPool, Policy, SessionOptions};
use tidegate_core::guards::Guards;
use tidegate_lab::flip::Flip;
use tidegate_lab::install::Major;
use tidegate_lab::service::{DATABASE, PARTITION, Service};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::Level;
use tokio_postgres::{Config, NoTls};

use super::servers::naive;
use super::servers_bench::{
    Bench, Desk, either_now, life, named, of_level, replica_now, served, waiting,
};
use super::stage::on_both_majors;

on_both_majors! {
    an_address_of_two_servers => trap_one_address_of_two_servers_pg15,
        trap_one_address_of_two_servers_pg18;
    two_names_of_one_server => trap_two_names_of_one_server_pg15, trap_two_names_of_one_server_pg18;
    a_statistics_reset_of_a_standby => trap_statistics_reset_of_a_standby_pg15,
        trap_statistics_reset_of_a_standby_pg18;
}

/// Whether the server behind an address has a row, and which life it is in.
async fn read_at(address: SocketAddr, id: i64) -> (bool, String) {
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port());
    config.user("postgres").dbname(DATABASE);
    let (client, connection) = config.connect(NoTls).await.expect("somebody answers");
    // Ends by itself with the client.
    drop(tokio::spawn(connection));
    let query = "select exists (select from notes where id = $1), tidegate.incarnation()";
    let row = client.query_one(query, &[&id]).await.expect("a read");
    (row.get(0), row.get(1))
}

/// A session of the Rust client that wrote one row and must see it.
struct Visitor {
    session: tidegate_client::Session,
    pool: DirectPool,
}

impl Visitor {
    async fn arrive(bench: &Bench, desk: &Desk, id: i64) -> Self {
        let options = ClientOptions::new(desk.service.endpoint());
        let client = Client::connect(options).await.expect("the service listens");
        let session = client.session(SessionOptions::new(PARTITION));
        let mut leader = bench.leader().connect("postgres", DATABASE).await.expect("the leader");
        let row = "insert into notes values ($1)";
        let written = session.write(&mut leader, async |tx| tx.execute(row, &[&id]).await).await;
        written.expect("it is written");
        let mut config = Config::new();
        config.user("postgres").dbname(DATABASE);
        Self { session, pool: DirectPool::new(config, 2) }
    }

    /// Reads once; the node that showed the row, which it must.
    async fn sees(&self, id: i64) -> String {
        let policy = Policy::new(tidegate_client::Level::Session);
        let policy = policy.wait_budget(Duration::from_secs(2));
        let query = "select count(*) from notes where id = $1";
        let read = self.session.read(&self.pool, &policy, async |db| {
            db.query_one(query, &[&id]).await?.try_get::<_, i64>(0)
        });
        let read = read.await.expect("somebody serves it");
        assert_eq!(read.value, 1, "{} was called fresh and lacks the row", read.node.name);
        read.node.name
    }
}

/// H3: an address that leads to one standby and then to another.
async fn an_address_of_two_servers(major: Major) {
    let bench = Bench::set(major, 2).await;
    let (r1, r2) = (bench.r1(), bench.cluster.standby(1));
    let flip = Flip::to(r1.address()).await.expect("a port");
    let options = bench.options().await.without("r1").without("r2");
    let options = options.node("r", flip.address(), flip.address());
    let right = Desk::open(options.clone()).await;
    let wrong = Desk::open(naive(options, "incarnation")).await;
    r2.pause_replay().await.expect("it is held");
    let visitor = Visitor::arrive(&bench, &right, 1).await;
    let evidence = bench.leader().value::<String>("select tidegate.capture()").await;
    let evidence = evidence.expect("a capture");
    let tokens = [right.record(&evidence).await, wrong.record(&evidence).await];
    let early = right.until_served_by(&tokens[0], "r").await;
    wrong.until_served_by(&tokens[1], "r").await;
    until("the visitor reads at r", LIMIT, || async { Ok(visitor.sees(1).await == "r") })
        .await
        .expect("it does");

    flip.move_to(r2.address());
    // The address that was named, at once.
    let (found, now) = read_at(flip.address(), 1).await;
    assert!(!found, "r2 was to lack the row");
    assert!(!early.acceptable_incarnations.contains(&now), "{early:?}");
    assert_eq!(visitor.sees(1).await, "l");
    // And later, when the address was polled.
    wrong.record(&evidence).await;
    wrong.until_node("r", |node| node.incarnation == now).await;
    let answer = wrong.select(&tokens[1], replica_now()).await;
    assert_eq!(named(&answer), "r", "{answer:?}");
    assert!(served(&answer).acceptable_incarnations.contains(&now), "a client would miss it");
    right.until_node("r", |node| node.incarnation == now).await;
    assert_eq!(named(&right.select(&tokens[0], replica_now()).await), "");
    assert_eq!(named(&right.select(&tokens[0], either_now()).await), "l");
    assert_eq!(visitor.sees(1).await, "l");

    flip.move_to(r1.address());
    let state = right.until_node("r", |node| !node.quarantine_reason.is_empty()).await;
    assert!(state.quarantine_reason.contains("two servers answer at its address"), "{state:?}");
    assert!(!state.session_eligible, "{state:?}");
    assert_eq!(named(&right.select(&tokens[0], replica_now()).await), "");
    assert_eq!(named(&right.select("", of_level(Level::Eventual)).await), "l");
    assert_eq!(visitor.sees(1).await, "l");
}

/// The poll address of r1 is the one of r2: what r2 has is taken for what r1 has.
async fn two_names_of_one_server(major: Major) {
    let bench = Bench::set(major, 2).await;
    let (r1, r2) = (bench.r1(), bench.cluster.standby(1));
    let sound = bench.options().await;
    let copied = Service::launch(sound.clone().poll_through("r1", r2.address())).await;
    let refused = copied.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(refused.contains("has the same address"), "one address twice: {refused}");
    // Of two names only the server itself can tell.
    let other_name = Flip::to(r2.address()).await.expect("a port");
    let options = sound.clone().poll_through("r1", other_name.address());
    let right = Desk::launch(options.clone()).await;
    let guards = Guards::without("shared_id").expect("a guard");
    let wrong = Desk::open(options.guards(guards)).await;
    r1.pause_replay().await.expect("it is held");
    let evidence = bench.commit(1).await;
    r2.catch_up_with(bench.leader()).await.expect("r2 has the row");
    let tokens = [right.record(&evidence).await, wrong.record(&evidence).await];

    let named_r1 = || async { Ok(named(&wrong.select(&tokens[1], waiting()).await) == "r1") };
    until("r1 is called fresh", LIMIT, named_r1).await.expect("reads are spread");
    assert!(!bench.shows("r1", 1).await, "a client that asks no questions misses the row");

    for node in ["r1", "r2"] {
        let state = right.until_node(node, |node| !node.quarantine_reason.is_empty()).await;
        assert!(state.quarantine_reason.contains("another node answers as the same"), "{state:?}");
        assert_eq!(state.incarnation, life(r2).await, "r2 answers under both names");
    }
    assert_eq!(named(&right.select(&tokens[0], waiting()).await), "");
    assert_eq!(named(&right.select(&tokens[0], either_now()).await), "l");
    assert_eq!(named(&right.select("", of_level(Level::Eventual)).await), "l");

    let mended = Desk::open(sound).await;
    let token = mended.record(&evidence).await;
    mended.until_served_by(&token, "r2").await;
}

/// A standby's statistics are reset: another id, and nothing else happened.
async fn a_statistics_reset_of_a_standby(major: Major) {
    let bench = Bench::set(major, 1).await;
    let desk = Desk::open(bench.options().await).await;
    let visitor = Visitor::arrive(&bench, &desk, 1).await;
    let reads_at_r1 = || async { Ok(visitor.sees(1).await == "r1") };
    until("the visitor reads at r1", LIMIT, reads_at_r1).await.expect("it does");
    // A connection of the naive kind: it asked once, when it was made.
    let held = bench.r1().connect("postgres", DATABASE).await.expect("a connection");
    let asks = "select tidegate.incarnation()";
    let known: String = held.query_one(asks, &[]).await.expect("a life").get(0);
    bench.r1().reset_statistics().await.expect("reset");
    let now = desk.until_lives(bench.r1()).await;
    assert_ne!(known, now);
    let token = desk.record(&bench.commit(2).await).await;
    let again = desk.until_served_by(&token, "r1").await;
    assert!(!again.acceptable_incarnations.contains(&known), "refused for ever, though it works");
    let read: String = held.query_one(asks, &[]).await.expect("it never broke").get(0);
    assert!(again.acceptable_incarnations.contains(&read), "asked anew it is accepted");
    until("the visitor reads at r1 again", LIMIT, reads_at_r1).await.expect("it does");
    assert!(visitor.session.take_notices().is_empty(), "nothing was lost");
    assert_eq!(desk.node("r1").await.quarantine_reason, "");
}
