//! S05: the other device of a user sees what this one wrote, by the user id alone; through one
//! instance, and through two that share their store.

use tidegate_client::{Policy, Session, SessionOptions};
use tidegate_core::position::{Lsn, Position};
use tidegate_lab::install::Major;
use tidegate_lab::service::PARTITION;
use tokio_postgres::Client;

use crate::bench::{Bench, position_in};
use crate::on_both_versions;
use crate::pair::Pair;

on_both_versions! {
    one_instance =>
        s05_cross_device_with_one_instance_pg15,
        s05_cross_device_with_one_instance_pg18;
    both_instances =>
        s05_cross_device_with_two_instances_pg15,
        s05_cross_device_with_two_instances_pg18;
}

const READS: u64 = 100;

async fn one_instance(major: Major) {
    let bench = Bench::start(major).await;
    bench.r1().pause_replay().await.expect("r1 pauses");
    let (tidegate, pool) = bench.client().await;
    // Every request comes from a device that carries nothing and shares nothing but the id.
    let device = |user: &str| tidegate.session(SessionOptions::new(PARTITION).subject(user));
    let mut leader = bench.leader_connection().await;
    let insert = "insert into t values (1, 'written')";
    let a = device("user 1");
    let written = a.write(&mut leader, async |tx| tx.execute(insert, &[]).await);
    let recorded = position_in(&written.await.expect("a recorded row").capture);

    let read = async |session: Session| {
        let read = session.read(&pool, &Policy::default(), shown).await.expect("a read");
        let truth = bench.truth_at(&read.node.addresses[0], 1).await;
        // The row was not there yet if it is not there now.
        assert!(truth.found || !read.value.found, "{read:?}");
        (read.node.name, read.value)
    };
    for _ in 0..READS {
        let (node, shown) = read(device("user 1")).await;
        assert_ne!(node, "r1");
        assert!(shown.found && shown.position.covers(recorded), "{node} shows {shown:?}");
    }

    // Other users are not held up by it. Each asks once: who was on r2 stays off r1. The wrong way:
    // the other device without the user id.
    let (mut others_on_r1, mut missing) = (0_u64, 0_u64);
    for user in 2..2 + READS {
        let (node, shown) = read(device(&format!("user {user}"))).await;
        assert_eq!(shown.position.covers(recorded), node != "r1", "{node} shows {shown:?}");
        others_on_r1 += u64::from(node == "r1");
        let (node, shown) = read(tidegate.session(SessionOptions::new(PARTITION))).await;
        assert_eq!(shown.found, node != "r1", "{node} shows {shown:?}");
        missing += u64::from(!shown.found);
    }
    assert!(others_on_r1 > 0 && missing > 0, "{others_on_r1}, {missing}: r1 may serve them");
    println!(
        "S05 {major:?}: {READS} reads found the row; {others_on_r1} other users of {READS} were on \
         r1; without the id {missing} of {READS} miss it"
    );
}

async fn both_instances(major: Major) {
    let pair = Pair::start(major).await;
    let bench = &pair.bench;
    bench.r1().pause_replay().await.expect("r1 pauses");
    let (first, pool) = bench.client().await;
    let (second, _) = bench.client_of(pair.second.endpoint()).await;
    let options = |user: &str| SessionOptions::new(PARTITION).subject(user);
    let mut leader = bench.leader_connection().await;
    let insert = "insert into t values (1, 'written')";
    let a = first.session(options("user 1"));
    let written = a.write(&mut leader, async |tx| tx.execute(insert, &[]).await);
    let recorded = position_in(&written.await.expect("a recorded row").capture);

    // B asks either instance, on a device that shares nothing but the id.
    let read = async |session: Session| {
        let read = session.read(&pool, &Policy::default(), shown).await.expect("a read");
        (read.node.name, read.value)
    };
    for client in [&first, &second] {
        for _ in 0..READS {
            let (node, shown) = read(client.session(options("user 1"))).await;
            assert_ne!(node, "r1");
            assert!(shown.found && shown.position.covers(recorded), "{node} shows {shown:?}");
        }
    }
    // Other users are not held up by it, and the id is what does it.
    let (mut others_on_r1, mut missing) = (0_u64, 0_u64);
    for user in 2..2 + READS {
        let (node, _) = read(second.session(options(&format!("user {user}")))).await;
        others_on_r1 += u64::from(node == "r1");
        let (_, shown) = read(second.session(SessionOptions::new(PARTITION))).await;
        missing += u64::from(!shown.found);
    }
    assert!(others_on_r1 > 0 && missing > 0, "{others_on_r1}, {missing}: r1 may serve them");
    println!(
        "S05 {major:?}: {READS} reads through each instance found the row; {others_on_r1} other \
         users of {READS} were on r1; without the id {missing} of {READS} miss it"
    );
}

/// What a reader sees on the node it was sent to.
#[derive(Clone, Copy, Debug)]
struct Shown {
    found: bool,
    position: Position,
}

async fn shown(db: &Client) -> Result<Shown, tokio_postgres::Error> {
    let question = "select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() \
                    else pg_current_wal_insert_lsn() end, exists (select from t where id = 1)";
    let row = db.query_one(question, &[]).await?;
    let lsn: tidegate_lab::postgres::Lsn = row.try_get(0)?;
    Ok(Shown { found: row.try_get(1)?, position: Lsn::new(lsn.into()).into() })
}
