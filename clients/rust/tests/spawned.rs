//! Scopes run inside spawned tasks: their futures can be sent. Compiled, not run.

use std::time::Duration;

use tidegate_client::{
    Client, ClientOptions, DirectPool, Level, Policy, ReadError, Session, SessionOptions,
    WriteError,
};

async fn write(session: Session, mut leader: tokio_postgres::Client, name: String) {
    let written: Result<_, WriteError<u64, tokio_postgres::Error>> = session
        .write(&mut leader, async |tx| {
            tx.execute("SELECT 1", &[]).await?;
            tx.execute("INSERT INTO t VALUES ($1)", &[&name]).await
        })
        .await;
    drop(written);
}

async fn read(session: Session, pool: DirectPool, name: String) {
    let policy = Policy::new(Level::Session).wait_budget(Duration::from_millis(5));
    let rows: Result<_, ReadError<i64, tokio_postgres::Error>> = session
        .read(&pool, &policy, async |db| {
            db.query_one("SELECT count(*) FROM t WHERE n = $1", &[&name]).await?.try_get(0)
        })
        .await;
    drop(rows);
    let rows: Result<_, ReadError<u64, tokio_postgres::Error>> = session
        .read_transaction(&pool, &policy, async |tx| tx.execute("SELECT 1", &[]).await)
        .await;
    drop(rows);
}

#[tokio::test]
async fn a_scope_runs_in_a_spawned_task() {
    let client = Client::lazy(ClientOptions::new("http://127.0.0.1:1")).expect("an endpoint");
    let session = client.session(SessionOptions::new("main"));
    let config = tokio_postgres::Config::new();
    let pool = DirectPool::new(config.clone(), 1);
    let reading = read(session.clone(), pool, "x".to_owned());
    assert!(size_of_val(&reading) < 8 * 1024, "a scope takes {} bytes", size_of_val(&reading));
    let task = tokio::spawn(reading);
    task.await.expect("it ends");
    // Never run: it needs a database.
    let spawn = async move |leader| tokio::spawn(write(session, leader, "x".to_owned())).await;
    drop(spawn);
}
