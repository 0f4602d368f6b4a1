//! What a session has seen though its read failed: the body's error may tell of a row.

use tidegate_client::{Level, Policy, ReadError, Session, SessionOptions};
use tidegate_lab::service::PARTITION;

use super::{Place, count};

/// What a body saw, told as its error, as in "that name is taken".
#[derive(Debug)]
struct Seen(i64);

async fn tells(db: &tokio_postgres::Client) -> Result<(), Seen> {
    match count(db).await {
        Ok(0) | Err(_) => Ok(()),
        Ok(rows) => Err(Seen(rows)),
    }
}

/// Begins sessions until an error tells one of the row; the policy names standbys alone.
async fn who_saw(place: &Place, policy: &Policy) -> Session {
    for _ in 0..100 {
        let session = place.session();
        let read = session.read(&place.pool, policy, tells).await;
        if let Err(ReadError::Body(Seen(rows))) = read {
            assert_eq!(rows, 1);
            return session;
        }
    }
    panic!("no read was sent to the standby that has the row");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_told_by_an_error_was_seen_and_stays_seen() {
    let place = Place::open(2).await;
    let held = place.cluster.server("r2").expect("a second standby");
    held.pause_replay().await.expect("it holds still");
    place.cluster.leader().sql("insert into t values (7)").await.expect("written by another");
    let follows = place.cluster.server("r1").expect("a first standby");
    follows.catch_up_with(place.cluster.leader()).await.expect("it follows");
    let policy = Policy::new(Level::Session).fallback(false);
    let session = who_saw(&place, &policy).await;
    // Not because it prefers the node it knows: it is told so by its token.
    let tokens = session.tokens();
    assert!(!tokens.is_empty(), "what was seen is recorded");
    for _ in 0..40 {
        let options = SessionOptions::new(PARTITION);
        let options = tokens.iter().fold(options, |options, token| options.token(token.clone()));
        let again = place.client.session(options);
        let read = again.read(&place.pool, &policy, async |db| count(db).await).await;
        let read = read.expect("the standby that follows serves it");
        assert_eq!((read.value, read.node.name.as_str()), (1, "r1"));
    }
    held.resume_replay().await.expect("it goes on");
    place.close().await;
}
