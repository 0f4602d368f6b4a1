//! S13: the store is killed under load and comes back. Carried tokens work all the time; who is
//! known by a name alone is told that he is unknown, and reads what he wrote all the same.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tidegate::clock::Clock;
use tidegate_client::{
    Client, DirectPool, Guarantee, Policy, ReadError, Reason, Session, SessionOptions, Stored,
};
use tidegate_lab::install::Major;
use tidegate_lab::service::PARTITION;
use tidegate_lab::stall::Stall;
use tidegate_lab::wait::{LIMIT, until};

use crate::on_both_versions;
use crate::pair::Pair;

on_both_versions! {
    killed =>
        s13_redis_killed_with_two_instances_pg15,
        s13_redis_killed_with_two_instances_pg18;
}

/// How long the store is gone; `TIDEGATE_LONG=1` makes it what the scenario says.
fn gone() -> Duration {
    let is_long = std::env::var_os("TIDEGATE_LONG").is_some();
    Duration::from_secs(if is_long { 20 } else { 3 })
}

const SELECT_P99: Duration = Duration::from_millis(250);
/// Sessions of each kind.
const SESSIONS: usize = 8;
/// Between two requests of one session.
const PAUSE: Duration = Duration::from_millis(40);

/// What one session saw.
#[derive(Default)]
struct Seen {
    reads: u64,
    /// Reads as on any other day while the store was gone.
    plain: u64,
    in_memory: u64,
    /// Reads through the other instance of what was kept in the memory of one.
    elsewhere: u64,
    took: Vec<Duration>,
    rows: Vec<i64>,
}

/// What all sessions share.
struct Load {
    clients: [Client; 2],
    pool: DirectPool,
    row: AtomicI64,
    gone: AtomicBool,
    over: AtomicBool,
}

async fn killed(major: Major) {
    let pair = Pair::start(major).await;
    let bench = &pair.bench;
    bench.r1().pause_replay().await.expect("r1 pauses");
    let (first, pool) = bench.client().await;
    let (second, _) = bench.client_of(pair.second.endpoint()).await;
    let (gone_now, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let clients = [first, second];
    let load = Load { clients, pool, row: AtomicI64::new(0), gone: gone_now, over };
    let all = &load;
    let people = (0..SESSIONS * 2)
        .map(|number| async move { live(all, number, bench.leader_connection().await).await });
    let (seen, ()) = tokio::join!(join_all(people), async {
        tokio::time::sleep(PAUSE * 10).await;
        pair.store.primary().kill().await.expect("it is gone");
        load.gone.store(true, Ordering::SeqCst);
        tokio::time::sleep(gone()).await;
        load.gone.store(false, Ordering::SeqCst);
        pair.store.primary().start_again().await.expect("it is back");
        pair.await_belief().await;
        pair.await_written().await;
        tokio::time::sleep(PAUSE * 10).await;
        load.over.store(true, Ordering::SeqCst);
    });
    let named: Vec<&Seen> = seen.iter().skip(1).step_by(2).collect();
    let plain: u64 = named.iter().map(|seen| seen.plain).sum();
    assert_eq!(plain, 0, "whoever is known by the name alone was told that he is unknown");
    let in_memory: u64 = named.iter().map(|seen| seen.in_memory).sum();
    let elsewhere: u64 = named.iter().map(|seen| seen.elsewhere).sum();
    assert!(elsewhere > 0, "records were kept meanwhile, and read through the other instance");
    // What was recorded meanwhile is known to the other instance now, and r1 lacks it still.
    for (number, seen) in named.iter().enumerate() {
        let name = format!("user {}", number * 2 + 1);
        for client in &load.clients {
            let session = client.session(SessionOptions::new(PARTITION).subject(&name));
            let answered = || async { Ok(read(&load, &session, &seen.rows).await.0) };
            until("a read is promised", LIMIT, answered).await.expect("it is");
            let (promised, _, rows) = read(&load, &session, &seen.rows).await;
            let all = seen.rows.len();
            assert!(!promised || rows == all, "{name} finds {rows} of {all}");
        }
    }
    report(major, &seen, (in_memory, elsewhere), &bench.stall);
}

fn report(major: Major, seen: &[Seen], (in_memory, elsewhere): (u64, u64), stall: &Stall) {
    let p99 = |kind: usize| {
        let mut took: Vec<Duration> =
            seen.iter().skip(kind).step_by(2).flat_map(|seen| seen.took.clone()).collect();
        took.sort_unstable();
        took[took.len() * 99 / 100]
    };
    let reads: u64 = seen.iter().map(|seen| seen.reads).sum();
    println!(
        "S13 {major:?}: the store was gone for {:?}; {reads} reads found their rows; p99 with \
         tokens {:?}, by name {:?}; {in_memory} records were kept meanwhile, {elsewhere} of them \
         read through the other instance at once",
        gone(),
        p99(0),
        p99(1),
    );
    for kind in [0, 1] {
        assert!(p99(kind) < stall.allow(SELECT_P99), "{:?}", p99(kind));
    }
}

/// Writes and reads until it is over: even numbers carry tokens, odd ones are known by a name.
async fn live(load: &Load, number: usize, mut leader: tokio_postgres::Client) -> Seen {
    let clock = Clock::new();
    let mut seen = Seen::default();
    let at = |turn: usize| &load.clients[(number / 2 + turn) % 2];
    let carried = at(0).session(SessionOptions::new(PARTITION));
    let device = |turn: usize| match number % 2 {
        0 => carried.clone(),
        _ => at(turn).session(SessionOptions::new(PARTITION).subject(format!("user {number}"))),
    };
    for turn in 0.. {
        if load.over.load(Ordering::SeqCst) {
            break;
        }
        let gone = load.gone.load(Ordering::SeqCst);
        let row = load.row.fetch_add(1, Ordering::SeqCst);
        let insert = format!("insert into t values ({row}, 'written')");
        let writer = device(turn);
        let written = writer.write(&mut leader, async |tx| tx.execute(&insert, &[]).await);
        let written = written.await.expect("it is written and recorded");
        let in_memory = written.stored == Stored::Memory;
        seen.in_memory += u64::from(in_memory);
        // While the store is gone the other instance knows that it knows nothing, so it is asked
        // all the same: what comes back was emptied, and the barrier of that covers this record.
        // Only what an instance keeps once the store is back, because it does not trust it yet, is
        // promised to nobody but whoever carries the token: the other one may trust it already.
        let next = if in_memory && !gone { turn } else { turn + 1 };
        seen.elsewhere += u64::from(in_memory && gone);
        seen.rows.push(row);
        let reader = device(next);
        let began_at = clock.now();
        drop(reader.select(&Policy::default()).await.expect("an answer"));
        seen.took.push(clock.now().since(began_at));
        let (promised, is_plain, found) = read(load, &reader, &[row]).await;
        seen.reads += 1;
        assert!(found == 1 || !promised, "session {number} misses row {row}");
        assert!(promised || number % 2 == 1, "a carried token is as good as ever");
        seen.plain += u64::from(gone && is_plain && load.gone.load(Ordering::SeqCst));
        tokio::time::sleep(PAUSE).await;
    }
    seen
}

/// Reads rows where the service says: whether it promised to show them, whether it answered as on
/// any other day, and how many were there.
async fn read(load: &Load, session: &Session, rows: &[i64]) -> (bool, bool, usize) {
    let (query, policy) = ("select count(*) from t where id = any($1)", Policy::default());
    let read = session.read(&load.pool, &policy, async |db| {
        db.query_one(query, &[&rows]).await?.try_get::<_, i64>(0)
    });
    let read = match read.await {
        Ok(read) => read,
        // A safe answer too; carried tokens never get it.
        Err(ReadError::Refused { .. }) => return (false, false, 0),
        Err(error) => panic!("{error:?}"),
    };
    let promised = read.stale.is_none() && read.met.contains(&Guarantee::ReadYourWrites);
    let is_plain = matches!(read.reason, Reason::Covered | Reason::Waited);
    (promised, is_plain, usize::try_from(read.value).unwrap_or(0))
}
