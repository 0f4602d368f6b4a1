//! COMMIT and what is asked in one batch with it: what the write scope says when one of them fails.

use tidegate_client::{Policy, SessionOptions, WriteError};
use tidegate_lab::service::{DATABASE, PARTITION};

use super::{Place, count, insert};

#[tokio::test]
async fn what_fails_before_commit_is_not_written_and_what_fails_behind_it_is() {
    let place = Place::open(0).await;
    let role = "create role app login; grant all on t to app; \
                revoke usage on schema tidegate from public";
    place.cluster.leader().sql(role).await.expect("a role that may not ask");
    let mut app = place.cluster.leader().connect("app", DATABASE).await.expect("it may come in");
    let with_before = place.client.session(SessionOptions::new(PARTITION).before(true));

    // The reading before COMMIT fails: all is rolled back, and the connection is clean.
    let written = with_before.write(&mut app, async |tx| insert(tx, 1).await).await;
    assert!(matches!(written, Err(WriteError::NotCommitted(_))), "{written:?}");
    assert_eq!(count(&app).await.expect("outside any transaction"), 0);

    // The capture behind COMMIT fails: it is written, and the session reads what the leader has.
    let session = place.session();
    let written = session.write(&mut app, async |tx| insert(tx, 2).await).await;
    let Err(WriteError::Unrecorded { value: 1, evidence: None, .. }) = written else {
        panic!("{written:?}");
    };
    assert_eq!(count(&app).await.expect("outside any transaction"), 1);
    let read = session.read(&place.pool, &Policy::default(), async |db| count(db).await).await;
    assert_eq!(read.expect("the leader serves").value, 1);

    // Both are answered where the role may ask.
    place.cluster.leader().sql("grant usage on schema tidegate to app").await.expect("a grant");
    let written = with_before.write(&mut app, async |tx| insert(tx, 3).await).await;
    let written = written.expect("it is written and recorded");
    assert!(written.capture.starts_with("tge1|capture|"), "{}", written.capture);
    // The server refuses the commit: nothing is written, and the connection is clean.
    let twice = with_before.write(&mut app, async |tx| insert(tx, 3).await).await;
    assert!(matches!(twice, Err(WriteError::NotCommitted(_))), "{twice:?}");
    assert_eq!(count(&app).await.expect("outside any transaction"), 2);
    place.close().await;
}

#[tokio::test]
async fn an_error_that_is_swallowed_is_never_called_written() {
    let place = Place::open(0).await;
    let mut leader = place.leader().await;
    for before in [false, true] {
        let session = place.client.session(SessionOptions::new(PARTITION).before(before));
        let written = session.write(&mut leader, async |tx| {
            insert(tx, 1).await?;
            drop(tx.batch_execute("select 1 / 0").await);
            Ok::<_, tokio_postgres::Error>(())
        });
        let written = written.await;
        assert!(matches!(written, Err(WriteError::NotCommitted(_))), "{before}: {written:?}");
        assert_eq!(count(&leader).await.expect("outside any transaction"), 0);
    }
    place.close().await;
}
