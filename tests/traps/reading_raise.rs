//! What a session is raised to after a read, and how it goes back in time when that is too low.
//!
//! r2 stands still behind r1: a session that saw a row on r1 must not be sent to r2.

use std::time::Duration;

use tidegate_client::{Client, DirectPool, Level, Observed, Raise, Session, SessionOptions};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Server;
use tidegate_lab::service::{DATABASE, PARTITION, ServiceOptions};
use tidegate_lab::wait::LIMIT;
use tokio_postgres::Config;

use crate::stage::{
    Front, Stage, await_fresh, connection, covers, named, on_both_majors, position_in, select,
    shows, standby_only, text,
};

on_both_majors! {
    router_view => trap_raise_by_the_view_of_the_router_pg15,
        trap_raise_by_the_view_of_the_router_pg18;
    sample_first => trap_sample_before_the_read_pg15, trap_sample_before_the_read_pg18;
    repeatable_read => trap_raise_from_a_repeatable_read_pg15,
        trap_raise_from_a_repeatable_read_pg18;
}

/// Decisions that may each name r2 where it is allowed.
const DECISIONS: u32 = 40;

/// A poll between the write and the record spoils a try.
const TRIES: i64 = 20;

/// The wrong way: what the service had last seen of r1, instead of what it sees after the read.
async fn router_view(major: Major) {
    // The view is old when the read comes.
    let seldom = |options: ServiceOptions| options.limit("idle_poll", "\"1s\"");
    let stage = Stage::without("sample_after", major, 2, seldom).await;
    let mut id = 0;
    if let Some(unruled) = stage.unruled() {
        loop {
            id += 1;
            assert!(id <= TRIES, "raised by the view, and never sent back in time");
            if goes_back(&stage, unruled, id).await {
                break;
            }
        }
    }
    for id in id + 1..=id + 3 {
        assert!(!goes_back(&stage, &stage.ruled, id).await, "sent to r2, which lacks row {id}");
    }
}

/// Reads a row on r1 that r2 lacks and records where it was read; whether r2 is named then.
async fn goes_back(stage: &Stage, front: &Front, id: i64) -> bool {
    hold_r2(stage).await;
    stage.write(id).await;
    stage.r1().catch_up_with(stage.leader()).await.expect("r1 follows");
    assert!(shows(stage.r1(), id).await);
    let incarnation = stage.r1().value("select tidegate.incarnation()").await;
    let session = front.session();
    let observed = Observed::Incarnation(incarnation.expect("an incarnation"));
    session.record(observed, Raise::Unspecified).await.expect("it is recorded");
    let named = is_ever_named(&session, stage.r2()).await;
    assert!(!shows(stage.r2(), id).await, "r2 was to be held before row {id}");
    named
}

/// The wrong way: the client samples before it reads, and the row comes in between.
async fn sample_first(major: Major) {
    let stage = Stage::set(major, 2).await;
    let mut id = 1;
    if let Some(client) = stage.ruled.client_without("snapshot_order").await {
        assert!(goes_back_by_client(&stage, &client, id).await, "r2 has what was sampled");
    }
    while id < 4 {
        id += 1;
        let named = goes_back_by_client(&stage, &stage.ruled.client, id).await;
        assert!(!named, "sent to r2, which lacks row {id}");
    }
}

/// Reads on r1 a row that is written while it reads, and that r2 lacks; whether r2 is named then.
async fn goes_back_by_client(stage: &Stage, client: &Client, id: i64) -> bool {
    hold_r2(stage).await;
    let mut config = Config::new();
    config.user("postgres").dbname(DATABASE);
    let (pool, policy) = (DirectPool::new(config, 1), standby_only(Level::Session, LIMIT));
    let port = stage.r1().port().to_string();
    for _ in 0..DECISIONS {
        let session = client.session(SessionOptions::new(PARTITION));
        let read = session.read(&pool, &policy, async |db| {
            let here = db.query_one("select current_setting('port')", &[]).await?;
            if here.get::<_, String>(0) != port {
                return Ok::<bool, tokio_postgres::Error>(false);
            }
            stage.write(id).await;
            stage.r1().catch_up_with(stage.leader()).await.expect("r1 follows");
            let seen = db.query_one("select exists (select from t where id = $1)", &[&id]).await?;
            seen.try_get(0)
        });
        if read.await.expect("a read").value {
            // As another holder of its token: a session itself stays where it read last.
            let token = session.token().await.expect("a token").expect("the read raised one");
            let options = SessionOptions::new(PARTITION).token(token);
            let named = is_ever_named(&client.session(options), stage.r2()).await;
            assert!(!shows(stage.r2(), id).await, "r2 was to be held before row {id}");
            return named;
        }
    }
    panic!("r1 was never named");
}

/// In REPEATABLE READ a sample says where the server is, not what the snapshot shows: more.
async fn repeatable_read(major: Major) {
    let stage = Stage::set(major, 2).await;
    hold_r2(&stage).await;
    let reader = connection(stage.r1()).await;
    let before = text(&reader, "select tidegate.sample()").await;
    stage.write(1).await;
    stage.r1().catch_up_with(stage.leader()).await.expect("r1 follows");
    let begin = "begin isolation level repeatable read, read only";
    reader.batch_execute(begin).await.expect("a transaction");
    assert_eq!(text(&reader, "select string_agg(id::text, ' ') from t").await, "1");
    let unseen = stage.write(2).await;
    stage.r1().catch_up_with(stage.leader()).await.expect("r1 follows");
    let inside = text(&reader, "select tidegate.sample()").await;
    assert_eq!(text(&reader, "select string_agg(id::text, ' ') from t").await, "1");
    reader.batch_execute("commit").await.expect("its end");

    // The wrong way: a sample from before the snapshot.
    let session = stage.ruled.recorded(&before).await;
    assert!(is_ever_named(&session, stage.r2()).await, "r2 has what was sampled");
    assert!(!shows(stage.r2(), 1).await, "r2 was to be held before row 1");

    // More than was seen is demanded, and nothing that was seen is missed.
    assert!(position_in(&inside) >= position_in(&unseen), "{inside} is below {unseen}");
    let session = stage.ruled.recorded(&inside).await;
    assert!(!is_ever_named(&session, stage.r2()).await, "sent to r2, which lacks row 1");
    await_fresh(&session, "r1").await;
    assert!(covers(stage.r1(), position_in(&inside)).await);
    stage.r2().resume_replay().await.expect("r2 goes on");
    await_fresh(&session, "r2").await;
    assert!(shows(stage.r2(), 1).await && shows(stage.r2(), 2).await);
}

/// Lets r2 catch up and then stand still.
async fn hold_r2(stage: &Stage) {
    stage.r2().resume_replay().await.expect("r2 goes on");
    stage.cluster.catch_up().await.expect("standbys follow");
    stage.r2().pause_replay().await.expect("r2 pauses");
}

/// Whether decisions for this session ever name a standby; they wait for none.
async fn is_ever_named(session: &Session, standby: &Server) -> bool {
    let policy = standby_only(Level::Session, Duration::ZERO);
    for _ in 0..DECISIONS {
        if named(&select(session, &policy).await) == Some(standby.name()) {
            return true;
        }
    }
    false
}
