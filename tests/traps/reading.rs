//! Where a position is checked, and why the check must be over before the read's snapshot is taken.
//!
//! A snapshot is taken when a statement begins, or when a REPEATABLE READ transaction does its
//! first; a position is read whenever its function is called. What is recorded after the read is
//! for `reading_raise`, standbys that stand still for `reading_held`.

#![expect(clippy::print_stdout, reason = "how often the wrong way was wrong is of interest")]

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_client::{Checked, DirectPool, Level, NodeAddress, NodePool, ReadError};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Lsn;
use tidegate_lab::service::DATABASE;
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::watch;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};

use crate::stage::{
    Stage, await_fresh, connection, on_both_majors, position_in, shows, standby_only, text,
};

on_both_majors! {
    one_statement => trap_check_inside_the_reading_statement_pg15,
        trap_check_inside_the_reading_statement_pg18;
    under_writes => trap_check_and_read_while_others_write_pg15,
        trap_check_and_read_while_others_write_pg18;
    open_snapshot => trap_check_inside_an_open_snapshot_pg15,
        trap_check_inside_an_open_snapshot_pg18;
}

/// Commits that are checked for, and how many of them the wrong way must miss.
const CHECKS: u32 = 100;
const MISSED: u32 = 5;

/// How late r1 is, at least: a row often comes between a snapshot and what is asked in it.
const DELAY: Duration = Duration::from_millis(10);

/// Writes and reads of one session through the client meanwhile.
const ROUNDS: i64 = 25;

/// The check and the read in one statement, which waits between its snapshot and its check.
async fn one_statement(major: Major) {
    let stage = Stage::set(major, 1).await;
    stage.r1().pause_replay().await.expect("r1 pauses");
    let evidence = stage.write(1).await;
    let session = stage.ruled.recorded(&evidence).await;
    let door = connection(stage.r1()).await;
    door.batch_execute("select pg_advisory_lock(1)").await.expect("a door that is shut");
    let reader = connection(stage.r1()).await;
    let statement = format!("select pg_advisory_lock(1)::text, {}", check_and_read(&evidence, 1));
    let reading = tokio::spawn(async move {
        let row = reader.query_one(&statement, &[]).await.expect("an answer");
        (row.get::<_, bool>(1), row.get::<_, bool>(2))
    });
    until("the statement waits at the door", LIMIT, || async {
        let waits = "select exists (select from pg_locks where not granted)";
        stage.r1().value(waits).await
    })
    .await
    .expect("it does");
    stage.r1().resume_replay().await.expect("r1 goes on");
    await_fresh(&session, "r1").await;
    door.batch_execute("select pg_advisory_unlock(1)").await.expect("it opens");
    let (covered, found) = reading.await.expect("the statement ends");
    assert!(covered && !found, "covered {covered}, found {found}");

    // The check is over, and the statement that reads is a new one.
    assert!(shows(stage.r1(), 1).await, "fresh and missing there");
}

/// Both ways side by side, after each of many commits.
async fn under_writes(major: Major) {
    let stage = Stage::set(major, 1).await;
    let writer = stage.writer().await;
    let (told, mut heard) = watch::channel((0_i64, String::new()));
    let writing = tokio::spawn(async move {
        for id in 1.. {
            let row = format!("insert into t values ({id})");
            writer.batch_execute(&row).await.expect("a row");
            let captured = text(&writer, "select tidegate.capture()").await;
            if told.send((id, captured)).is_err() {
                return;
            }
        }
    });
    stage.r1().apply_delay(DELAY).await.expect("replay is delayed");
    let (reader, clock) = (connection(stage.r1()).await, Clock::new());
    let started_at = clock.now();
    let (mut checks, mut missed, mut lost) = (0, 0, 0);
    while checks < CHECKS || missed < MISSED {
        assert!(clock.now().since(started_at) < LIMIT, "{missed} missed of {checks}");
        heard.changed().await.expect("the writer goes on");
        let (id, evidence) = heard.borrow_and_update().clone();
        // The snapshot is taken before the pause and the check.
        let once = format!("select pg_sleep(0.02), {}", check_and_read(&evidence, id));
        missed += u32::from(answer(&reader, &once).await == (true, false));

        let position = position_in(&evidence);
        stage.r1().wait_until_replayed(position).await.expect("r1 follows");
        lost += u32::from(!shows(stage.r1(), id).await);
        checks += 1;
    }
    let found = rounds(&stage).await;
    drop(heard);
    writing.await.expect("the writer ends");
    println!(
        "{major:?}: checked in the reading statement {missed} of {checks} rows were missed, \
         checked before it {lost}; through the client {found} of {ROUNDS} were found"
    );
    assert_eq!((lost, found), (0, ROUNDS));
}

/// Rows of one session that it found on r1 right after it wrote them.
async fn rounds(stage: &Stage) -> i64 {
    let (session, mut writer) = (stage.ruled.session(), stage.writer().await);
    let mut config = Config::new();
    config.user("postgres").dbname(DATABASE);
    let (pool, policy) = (DirectPool::new(config, 1), standby_only(Level::Session, LIMIT));
    let mut found = 0;
    for id in 1..=ROUNDS {
        let id = -id;
        let written = session.write(&mut writer, async |transaction| {
            transaction.execute("insert into t values ($1)", &[&id]).await
        });
        written.await.expect("it is written");
        let read = session.read(&pool, &policy, async |client| exists(client, id).await);
        let read = read.await.expect("it is read");
        assert_eq!(read.node.name, "r1");
        found += i64::from(read.value);
    }
    found
}

/// A snapshot from before the check, kept open by REPEATABLE READ.
async fn open_snapshot(major: Major) {
    let stage = Stage::set(major, 1).await;
    let reader = connection(stage.r1()).await;
    let begin = "begin isolation level repeatable read; select from t";
    reader.batch_execute(begin).await.expect("a snapshot");
    let evidence = stage.write(1).await;
    let session = stage.ruled.recorded(&evidence).await;
    await_fresh(&session, "r1").await;
    let row = reader.query_one(&format!("select {}", check_and_read(&evidence, 1)), &[]).await;
    let row = row.expect("an answer");
    let (covered, found): (bool, bool) = (row.get(0), row.get(1));
    assert!(covered && !found, "covered {covered}, found {found}");

    // The client hands out nothing that was read so.
    let policy = standby_only(Level::Session, LIMIT);
    let lender = Lender::of(reader);
    let read = session.read(&lender, &policy, async |client| exists(client, 1).await).await;
    assert!(matches!(read, Err(ReadError::OpenTransaction)), "{read:?}");

    let reader = connection(stage.r1()).await;
    reader.batch_execute(begin).await.expect("a snapshot");
    let lender = Lender::of(reader);
    let read = session.read_transaction(&lender, &policy, async |transaction| {
        exists(transaction.client(), 1).await
    });
    let read = read.await;
    assert!(matches!(read, Err(ReadError::OpenTransaction)), "{read:?}");

    // A transaction that begins after the check, REPEATABLE READ or not.
    let lender = Lender::of(connection(stage.r1()).await);
    let read = session.read_transaction(&lender, &policy, async |transaction| {
        exists(transaction.client(), 1).await
    });
    assert!(read.await.expect("it is read").value, "fresh and missing there");
}

/// Whether a position is covered and a row there, for one statement.
fn check_and_read(evidence: &str, id: i64) -> String {
    let position: Lsn = position_in(evidence);
    format!(
        "pg_last_wal_replay_lsn() >= '{position}'::pg_lsn, exists (select from t where id = {id})"
    )
}

/// What a statement of three columns says in the last two; sent at once, without preparing it.
async fn answer(client: &Client, statement: &str) -> (bool, bool) {
    let messages = client.simple_query(statement).await.expect("an answer");
    let row = messages.iter().find_map(|message| {
        if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None }
    });
    let row = row.expect("a row");
    (row.get(1) == Some("t"), row.get(2) == Some("t"))
}

async fn exists(client: &Client, id: i64) -> Result<bool, Error> {
    let row = client.query_one("select exists (select from t where id = $1)", &[&id]).await?;
    row.try_get(0)
}

/// A pool that hands out one connection as it is, inside a transaction for example.
struct Lender {
    connection: Mutex<Option<Checked<Client>>>,
}

impl Lender {
    fn of(connection: Client) -> Self {
        Self { connection: Mutex::new(Some(Checked::new(connection))) }
    }
}

impl NodePool for Lender {
    type Connection = Checked<Client>;
    type Error = io::Error;

    async fn checkout(&self, _: &NodeAddress) -> Result<Self::Connection, Self::Error> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.take().ok_or_else(|| io::Error::other("it is lent already"))
    }

    fn discard(&self, _: &mut Self::Connection) {}
}
