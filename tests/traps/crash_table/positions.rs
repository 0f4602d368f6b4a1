//! What positions, timelines and fields of the evidence look like on one major.
//!
//! The numbers are the server's own; how they are compared is the core's, tested beside it.

use std::io::{Write, stdout};

use tidegate_core::evidence::Role;
use tidegate_core::position::Lsn;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, Server};
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::measured::{self, VISITOR};

const PAGE_BYTES: u64 = 8192;
const SEGMENT_BYTES: u64 = 16 << 20;
/// Tries at ending a record where a page ends: a server may write something of its own between.
const TRIES: usize = 50;

/// The fields of a sample that the parsed evidence does not keep as they were.
struct Raw {
    version: u32,
    timeline: String,
    received: String,
    segment: String,
    insert: Lsn,
}

async fn raw(server: &Server) -> Raw {
    let client = server.connect(VISITOR, "postgres").await.expect("a connection");
    let row = client.query_one("select tidegate.sample()", &[]).await.expect("a sample");
    let text: String = row.get(0);
    let fields: Vec<&str> = text.split('|').collect();
    assert_eq!(fields.len(), 15, "{text}");
    Raw {
        version: fields[2].parse().expect("a number"),
        timeline: fields[4].to_owned(),
        received: fields[11].to_owned(),
        segment: fields[13].to_owned(),
        insert: Lsn::parse(fields[8]).unwrap_or_default(),
    }
}

/// Version, segment size and timelines stand in their fields, the receiver's for those who may.
pub(super) async fn fields(cluster: &Cluster, major: Major) {
    let leader = raw(cluster.leader()).await;
    assert_eq!(leader.version / 10_000, major.number());
    assert_eq!((leader.timeline.as_str(), leader.received.as_str()), ("1", ""));
    let shown: String = cluster.leader().value("show wal_segment_size").await.expect("a setting");
    assert_eq!((leader.segment, shown), (SEGMENT_BYTES.to_string(), "16MB".to_owned()));
    for standby in cluster.standbys() {
        names_receiver(standby, 1).await;
        assert_eq!(raw(standby).await.timeline, "", "a standby writes none");
    }
}

/// The timeline of the receiver appears in the sample of any role, and in the poll of ours alone.
async fn names_receiver(standby: &Server, timeline: u32) {
    let named = || async { Ok(raw(standby).await.received == timeline.to_string()) };
    until("the receiver names its timeline", LIMIT, named).await.expect("it does");
    let follows = |received_timeline| Role::Standby { received_timeline };
    assert_eq!(measured::poll(standby, "tidegate").await.0.role, follows(Some(timeline)));
    assert_eq!(measured::poll(standby, VISITOR).await.0.role, follows(None));
}

/// An idle leader whose last record fills a page, then a segment, names a position that no standby
/// reaches; without the page header it is the one they all reach.
pub(super) async fn page_headers(cluster: &Cluster) {
    let leader = cluster.leader();
    let client = leader.connect("postgres", "postgres").await.expect("a connection");
    let switch = "select pg_switch_wal()";
    for (header, within) in [(24, PAGE_BYTES), (40, SEGMENT_BYTES)] {
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries <= TRIES, "{TRIES} tries, and no position {header} bytes into {within}");
            if within == PAGE_BYTES {
                fill_page(&client).await;
            } else {
                client.query_one(switch, &[]).await.expect("another segment");
            }
            let inside = raw(leader).await.insert;
            if inside.value() % within != header {
                continue;
            }
            cluster.catch_up().await.expect("the standbys have all of it");
            let normal = measured::insert(&measured::read(leader).await);
            let mut reached = Vec::new();
            for standby in cluster.standbys() {
                reached.push(measured::read(standby).await.replay.expect("a position"));
            }
            // Whatever it wrote meanwhile moved it on, and the standbys too.
            if raw(leader).await.insert != inside {
                continue;
            }
            assert_eq!(normal, Lsn::new(inside.value() - header).into(), "{inside:?}");
            for standby in reached {
                assert!(standby.covers(normal), "{standby} is short of {normal}");
                assert!(!standby.covers(inside.into()), "{standby} is past {inside:?}");
            }
            break;
        }
    }
}

/// Commits once, so that its last record ends where a page ends.
async fn fill_page(client: &Client) {
    // Two bytes of length more or less would spoil the sum: always a long message.
    const SHORTEST: u64 = 512;
    let (before, after) = commit(client, SHORTEST).await;
    // The header of a page that began within it does not belong to it.
    let header = if before / PAGE_BYTES == after / PAGE_BYTES { 0 } else { 24 };
    let overhead = after - before - SHORTEST - header;
    let left = PAGE_BYTES - after % PAGE_BYTES;
    let on_this_page = left.checked_sub(overhead).filter(|payload| *payload >= SHORTEST);
    let payload = on_this_page.unwrap_or(left + PAGE_BYTES - 24 - overhead);
    commit(client, payload).await;
}

/// Commits a message of so many bytes; the insert positions before and after.
async fn commit(client: &Client, payload: u64) -> (u64, u64) {
    let at = async || {
        let row = client.query_one("select pg_current_wal_insert_lsn()", &[]).await;
        u64::from(row.expect("a position").get::<_, tidegate_lab::postgres::Lsn>(0))
    };
    let before = at().await;
    let message = format!("select pg_logical_emit_message(true, 'lab', repeat('x', {payload}))");
    client.query_one(&message, &[]).await.expect("a message");
    (before, at().await)
}

/// After a promotion: whose timeline is named by whom.
pub(super) async fn timelines(cluster: &Cluster, major: Major) {
    let (promoted, follower) = (cluster.standby(0), cluster.standby(1));
    let seen = raw(promoted).await;
    assert_eq!((seen.timeline.as_str(), seen.received.as_str()), ("2", ""));
    names_receiver(follower, 2).await;
    // A file name has the timeline that is written now, whatever position it is asked for: it says
    // nothing about where an older position comes from. At a boundary majors differ, in the number
    // of the segment alone.
    let of = async |lsn: &str| -> String {
        let query = format!("select pg_walfile_name('{lsn}')");
        promoted.value(&query).await.expect("a file name")
    };
    let boundary = of("0/2000000").await;
    for name in [&of("0/1000028").await, &boundary] {
        assert!(name.starts_with("00000002"), "{name}");
    }
    let number = if major.number() >= 17 { "02" } else { "01" };
    assert!(boundary.ends_with(number), "{boundary}");
    let text = format!("{major} pg_walfile_name('0/2000000') on timeline 2: {boundary}");
    writeln!(stdout(), "{text}").expect("standard output is open");

    let client = follower.connect(VISITOR, "postgres").await.expect("a connection");
    let refused = client.query_one("select pg_walfile_name('0/2000000')", &[]).await;
    let refused = refused.expect_err("a standby has no file to write");
    assert_eq!(refused.code(), Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE));
}
