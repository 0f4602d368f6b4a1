//! Recorders that race over two instances, and what one record costs in round trips.

use std::sync::Arc;

use anyhow::Result;
use tidegate::ports::{SubjectKey, TokenStore};
use tidegate::store::{RedisStore, StoreCount};
use tidegate_core::position::Lsn;
use tidegate_core::token::{BodyLimits, Change, Mark, SessionToken};
use tidegate_lab::redis::{Kind, Options, Server};
use tokio::task::JoinSet;

use crate::stage::{self, EPOCH, KEY, record_key, saw, say, single, subject};

const ROUNDS: u64 = 100;
const RECORDERS: u64 = 100;
/// From here on doubles do not tell neighbours apart.
const ABOVE_DOUBLES: u64 = 1 << 53;

/// 0 to `RECORDERS` in an order of their own for each seed.
fn shuffled(seed: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut numbers: Vec<u64> = (0..RECORDERS).collect();
    random.shuffle(&mut numbers);
    numbers
}

async fn stored(server: &Server, subject: SubjectKey) -> Result<SessionToken> {
    let bytes: Vec<u8> = server.ask(&["GET", &record_key(subject)]).await?;
    let (token, _) = SessionToken::decode(&bytes, BodyLimits::default())?;
    Ok(token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_recorders_over_two_instances_always_store_their_join() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let stores = [stage::open(single(&server)).await?, stage::open(single(&server)).await?];
    let stores = stores.map(Arc::new);
    let before = trips(&stores);
    for round in 0..ROUNDS {
        let subject = subject(round);
        let mut tasks = JoinSet::new();
        for number in shuffled(round) {
            let half = usize::try_from(number % 2).expect("0 or 1");
            let store = Arc::clone(&stores[half]);
            tasks.spawn(async move {
                let change = saw(ABOVE_DOUBLES + number);
                let kept = store.update(subject, &change).await.expect("it keeps a record");
                let mut joined = kept.record.clone();
                assert!(!change.apply(&mut joined), "what it recorded is in its answer");
            });
        }
        while let Some(done) = tasks.join_next().await {
            done?;
        }
        let highest = saw(ABOVE_DOUBLES + RECORDERS - 1).join;
        assert_eq!(stored(&server, subject).await?, highest, "round {round}");
    }
    let after = trips(&stores);
    let per_record = |count: u64| 1.0 * count as f64 / (ROUNDS * RECORDERS) as f64;
    let retries: u64 = stores.iter().map(|store| store.counters().get(StoreCount::Retries)).sum();
    say(&format!(
        "redis: {RECORDERS} recorders, 2 instances, {ROUNDS} rounds: {:.3} round trips a record, \
         {retries} retries",
        per_record(after - before)
    ));
    assert!(after - before <= 2 * ROUNDS * RECORDERS, "contention is bounded");
    Ok(())
}

fn trips(stores: &[Arc<RedisStore>]) -> u64 {
    stores.iter().map(|store| store.counters().get(StoreCount::RoundTrips)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_that_differ_by_one_above_doubles_are_ordered_right() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let stores = [stage::open(single(&server)).await?, stage::open(single(&server)).await?];
    for (number, base) in (0..).zip([ABOVE_DOUBLES, u64::MAX - 9]) {
        for step in [1, 0, 2, 1] {
            let store = &stores[step % 2];
            store.update(subject(number), &saw(base + step as u64)).await?;
        }
        assert_eq!(stored(&server, subject(number)).await?, saw(base + 2).join);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_takes_two_round_trips_where_its_bytes_are_unknown_else_one() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(single(&server)).await?;
    // From here on nothing but these calls counts: the generation is written.
    stage::believed(&store, 100).await?;
    let count = |what| store.counters().get(what);
    let mut costs = Vec::new();
    let fresh = subject(1);
    let steps: [(&str, SubjectKey, Change, u64); 5] = [
        ("cold", fresh, saw(5), 2),
        ("known", fresh, saw(6), 1),
        ("known again", fresh, saw(7), 1),
        ("a change of nothing", fresh, saw(6), 1),
        ("known after a change of nothing", fresh, saw(8), 1),
    ];
    for (what, subject, change, expected) in steps {
        let before = count(StoreCount::RoundTrips);
        store.update(subject, &change).await?;
        let cost = count(StoreCount::RoundTrips) - before;
        assert_eq!(cost, expected, "{what}");
        costs.push(format!("{what} {cost}"));
    }
    // Whoever records has looked the subject up just before.
    store.lookup(subject(2)).await?;
    let before = count(StoreCount::RoundTrips);
    store.update(subject(2), &saw(5)).await?;
    assert_eq!(count(StoreCount::RoundTrips) - before, 1, "after a lookup");
    say(&format!("redis: round trips of a record: {}, after a lookup 1", costs.join(", ")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_that_wait_share_calls() -> Result<()> {
    const LOOKUPS: u64 = 1_000;
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = Arc::new(stage::open(single(&server)).await?);
    for number in 0..LOOKUPS {
        store.update(subject(number), &saw(number + 1)).await?;
    }
    let before = store.counters().get(StoreCount::Batches);
    let looks = (0..LOOKUPS).map(|number| {
        let store = Arc::clone(&store);
        async move { store.lookup(subject(number)).await }
    });
    let looked = futures::future::try_join_all(looks).await?;
    for (number, looked) in (0..).zip(&looked) {
        assert_eq!(looked.record, Some(saw(number + 1).join), "each gets its own");
    }
    let batches = store.counters().get(StoreCount::Batches) - before;
    say(&format!("redis: {LOOKUPS} lookups at once took {batches} calls"));
    assert!(batches <= LOOKUPS / 8, "{batches} calls");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_mark_says_survives_the_store() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let store = stage::open(single(&server)).await?;
    let mark = Mark::wrote(Some(Lsn::new(3).into()), Lsn::new(9).into());
    let component = tidegate_core::token::Component::of(EPOCH, mark);
    let change = Change::joining(SessionToken::of(KEY, component));
    store.update(subject(1), &change).await?;
    assert_eq!(stored(&server, subject(1)).await?, change.join);
    Ok(())
}
