//! Records that expire while a standby still lacks what they demanded: then the gate alone stands
//! between a session and that standby.
//!
//! Two more instances forget after seconds what the others keep for hours. The clock of the store
//! leaps ahead by the gate's bound, as far as a lifetime of twice the bound allows for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidegate_client::{
    Client, ClientOptions, Guarantee, Observed, Policy, Raise, ReadError, SessionOptions, Stored,
};
use tokio_postgres::Transaction;

use super::fault::Fired;
use super::place::Place;
use super::stage::Stage;
use crate::redis::Server;
use crate::service::{DATABASE, PARTITION};
use crate::wait::{LIMIT, until};

/// The gate's bound, and twice as long a life of records.
const LIMITS: [(&str, &str); 2] = [("d_max", "\"3s\""), ("token_lifetime", "\"6s\"")];
const LEAP: Duration = Duration::from_secs(3);
const LIFE_MILLIS: i64 = 6000;
/// Sessions whose records are stored, and reads of each when its record is gone.
const SESSIONS: usize = 12;
const READS: usize = 4;
/// Sessions that write at most, and the pause after one that was not stored.
const WRITES_MAX: usize = 300;
const PAUSE: Duration = Duration::from_millis(50);

/// Lets the records of some sessions expire, and reads for them.
pub(super) async fn play(stage: &Stage, place: &Place) -> Result<Fired> {
    let (one, other) = tokio::try_join!(stage.another(0, &LIMITS), stage.another(1, &LIMITS))?;
    let clients = [one.endpoint(), other.endpoint()].map(ClientOptions::new).map(Client::lazy);
    let [writer, reader] = clients;
    let (writer, reader) = (writer?, reader?);
    let named = |client: &Client, number: usize| {
        client.session(SessionOptions::new(PARTITION).subject(format!("short-{number}")))
    };
    until("a new instance writes into the store", LIMIT, || async {
        let visitor = writer.session(SessionOptions::new(PARTITION).subject("short-visitor"));
        let stored = visitor.record(Observed::LeaderNow, Raise::All).await?;
        Ok(stored != Stored::Memory)
    })
    .await?;
    let mut rows = Vec::new();
    let mut leader = place.leader().connect("postgres", DATABASE).await?;
    for number in 0..WRITES_MAX {
        if rows.len() == SESSIONS {
            break;
        }
        let row = place.next_row();
        let insert = format!("insert into soak values ({row}, -1)");
        let session = named(&writer, number);
        let written = session.write(&mut leader, async |transaction: &Transaction<'_>| {
            transaction.batch_execute(&insert).await
        });
        let written = written.await.context("a write that is recorded")?;
        // What its instance keeps is not promised through the other one yet: its server has to take
        // writes without a pause for a while.
        if written.stored == Stored::Memory {
            tokio::time::sleep(PAUSE).await;
        } else {
            rows.push((number, row));
        }
    }
    let lost = expired(stage.chain.primary()).await?;
    let (mut judged, mut stale) = (0, Vec::new());
    let policy = Policy::default().raise(Raise::None);
    for (number, row) in &rows {
        let query = format!("select exists (select from soak where id = {row})");
        for _ in 0..READS {
            let session = named(&reader, *number);
            let read = session.read(&place.pool, &policy, async |client| {
                client.query_one(&query, &[]).await?.try_get::<_, bool>(0)
            });
            let read = match read.await {
                Ok(read) => read,
                // Safe, too: nothing is shown.
                Err(ReadError::Refused { .. }) => continue,
                Err(error) => return Err(error).context("a read when the record is gone"),
            };
            let promised = read.stale.is_none() && read.met.contains(&Guarantee::ReadYourWrites);
            judged += u64::from(promised);
            if promised && !read.value {
                let (node, reason) = (&read.node.name, read.reason);
                stale.push(format!(
                    "short-{number} read {node} ({reason:?}) when its record had expired and \
                     lacked {row}"
                ));
            }
        }
    }
    let (_, row) = rows.first().context("a record that was stored")?;
    ensure!(place.late_lacks(*row).await, "the late standby has what it must lack");
    one.stop().await?;
    other.stop().await?;
    Ok(Fired { lost, announce: [false; 2], judged, stale })
}

/// Makes the server's clock leap for the records that live for seconds, and waits until all of
/// them are gone; how many.
async fn expired(server: &Server) -> Result<u64> {
    let mut short = Vec::new();
    for key in server.keys("*").await? {
        let left: i64 = server.ask(&["PTTL", &key]).await?;
        if (0..=LIFE_MILLIS).contains(&left) {
            let left = (left - i64::try_from(LEAP.as_millis())?).max(1);
            server.tell(&["PEXPIRE", &key, &left.to_string()]).await?;
            short.push(key);
        }
    }
    ensure!(!short.is_empty(), "no record lives for seconds");
    let words: Vec<&str> =
        std::iter::once("EXISTS").chain(short.iter().map(String::as_str)).collect();
    let gone = async || anyhow::Ok(server.ask::<u64>(&words).await? == 0);
    until("the records have expired", LIMIT, gone).await?;
    Ok(short.len() as u64)
}
