//! What holds for every `TokenStore`, whatever it keeps records in.
//!
//! Everything is seen through the port: the suite knows no kind of store and waits for nothing but
//! its answers.

use std::sync::Arc;

use tidegate::ports::{SubjectKey, TokenStore};
use tidegate_core::lineage::{Epoch, Life, SystemId};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::token::{
    Change, Component, ComponentKey, Mark, Notice, NoticeKind, PartitionId, SessionToken,
};
use tokio::task::JoinSet;

const ALICE: SubjectKey = SubjectKey::new(*b"alice...........");
const BOB: SubjectKey = SubjectKey::new(*b"bob.............");
const KEY: ComponentKey = ComponentKey::new(PartitionId::new(1), SystemId::new(7));

/// Proves every claim on a store of its own; `make` gives an empty one each time.
pub(crate) async fn conforms<S: TokenStore>(make: impl AsyncFn() -> S) {
    absent_is_none_and_changes_that_do_nothing_leave_it_so(&make().await).await;
    what_is_kept_is_returned_whole(&make().await).await;
    subjects_are_isolated(&make().await).await;
    an_update_repeated_changes_nothing(&make().await).await;
    racing_joins_lose_nothing(Arc::new(make().await)).await;
    a_drop_takes_only_what_was_judged(&make().await).await;
    a_drop_that_races_raises_loses_none_of_them(&make).await;
    a_demand_is_settled_only_as_it_was_judged(&make().await).await;
    what_was_acknowledged_is_never_told_again(&make().await).await;
    a_record_never_gets_weaker(Arc::new(make().await)).await;
}

fn at(value: u64) -> Position {
    Lsn::new(value).into()
}

fn epoch(number: u64) -> Epoch {
    let life = 1_764_000_000_000_000 + number.cast_signed();
    Epoch::new(1, Life { start: life, reset: life })
}

fn marked(key: ComponentKey, number: u64, mark: Mark) -> SessionToken {
    SessionToken::of(key, Component::of(epoch(number), mark))
}

fn notice(number: u64) -> Notice {
    let kind = NoticeKind::PossiblyLost;
    let (lost, child) = (epoch(0), epoch(1 + number * 1_000_000));
    let (upto, told_seconds) = (at(number * 100), 50 + number);
    Notice { partition: KEY.partition, kind, lost, child, upto, told_seconds }
}

async fn kept<S: TokenStore>(store: &S, key: SubjectKey, change: &Change) -> SessionToken {
    store.update(key, change).await.expect("it keeps a record").record
}

async fn found<S: TokenStore>(store: &S, key: SubjectKey) -> Option<SessionToken> {
    store.lookup(key).await.expect("it answers").record
}

async fn absent_is_none_and_changes_that_do_nothing_leave_it_so<S: TokenStore>(store: &S) {
    assert_eq!(found(store, ALICE).await, None);
    let judged = Mark::saw(at(5));
    let idle = Change {
        drop: vec![(KEY, epoch(1), judged)],
        settle: vec![(KEY, Component::unresolved())],
        ..Change::default()
    };
    for change in [Change::default(), idle] {
        assert_eq!(kept(store, ALICE, &change).await, SessionToken::new());
        assert!(found(store, ALICE).await.is_none_or(|record| record.is_empty()));
    }
}

async fn what_is_kept_is_returned_whole<S: TokenStore>(store: &S) {
    let mut token = marked(KEY, 1, Mark::wrote(Some(at(3)), at(9)));
    token.join(&marked(KEY, 2, Mark::wrote_past(at(4)).join(Mark::saw(at(8)))));
    let other = ComponentKey { partition: PartitionId::new(u32::MAX), system_tag: u32::MAX };
    token.join_component(other, &Component::unresolved());
    let largest = Mark::wrote(Some(at(0)), at(u64::MAX));
    token.join(&marked(ComponentKey { system_tag: 0, ..other }, 3, largest));
    token.overflow = true;
    token.tell(notice(1));
    token.acknowledge(notice(2).id());
    assert_eq!(kept(store, ALICE, &Change::joining(token.clone())).await, token);
    assert_eq!(found(store, ALICE).await, Some(token));
    // As large as the core lets a record become.
    let mut full = SessionToken::new();
    for partition in 0..64 {
        let key = ComponentKey { partition: PartitionId::new(partition), system_tag: partition };
        for number in 0..4 {
            let distinct = u64::from(partition) * 4 + number;
            full.join(&marked(key, distinct, Mark::wrote(Some(at(1 << 60)), at(u64::MAX))));
        }
    }
    assert_eq!(kept(store, BOB, &Change::joining(full.clone())).await, full);
    assert_eq!(found(store, BOB).await, Some(full));
}

async fn subjects_are_isolated<S: TokenStore>(store: &S) {
    let alice = marked(KEY, 1, Mark::saw(at(9)));
    kept(store, ALICE, &Change::joining(alice.clone())).await;
    assert_eq!(found(store, BOB).await, None);
    kept(store, BOB, &Change { tell: vec![notice(1)], ..Change::default() }).await;
    assert_eq!(found(store, ALICE).await, Some(alice));
}

async fn an_update_repeated_changes_nothing<S: TokenStore>(store: &S) {
    let first = Change::joining(marked(KEY, 1, Mark::saw(at(5))));
    let second = Change {
        drop: vec![(KEY, epoch(1), Mark::saw(at(5)))],
        join: marked(KEY, 2, Mark::demand(at(9))),
        tell: vec![notice(1)],
        acknowledge: vec![notice(2).id()],
        ..Change::default()
    };
    for change in [first, second] {
        let once = kept(store, ALICE, &change).await;
        assert_eq!(kept(store, ALICE, &change).await, once);
        assert_eq!(found(store, ALICE).await, Some(once));
    }
}

/// A hundred changes of one key, each twice, in an order that chance and the seed give.
fn racing(seed: u64) -> (Vec<Change>, SessionToken) {
    let mut all = SessionToken::new();
    let mut changes = Vec::new();
    for number in 0..100_u64 {
        let key = ComponentKey { system_tag: (number % 3) as u32, ..KEY };
        let mark = match number % 4 {
            0 => Mark::wrote(Some(at(number)), at(number + 7)),
            1 => Mark::saw(at(300 - number)),
            2 => Mark::demand(at(number * 13 % 101)),
            _ => Mark::wrote_past(at(number)),
        };
        let mut token = marked(key, number % 4, mark);
        if number % 10 == 0 {
            token.tell(Notice { told_seconds: 1000 - number, ..notice(number % 7) });
        }
        if number % 25 == 0 {
            token.join_component(key, &Component::unresolved());
        }
        all.join(&token);
        changes.push(Change::joining(token));
    }
    changes.extend(changes.clone());
    changes.sort_by_key(|change| scrambled(change, seed));
    (changes, all)
}

/// A number that differs by seed: the suite needs other orders, not good randomness.
fn scrambled(change: &Change, seed: u64) -> u64 {
    let bytes = change.join.encode(seed);
    bytes.iter().fold(seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(23)
    })
}

async fn racing_joins_lose_nothing<S: TokenStore>(store: Arc<S>) {
    for seed in 0..8_u8 {
        let key = SubjectKey::new([seed; 16]);
        let (changes, all) = racing(u64::from(seed));
        let mut tasks = JoinSet::new();
        for change in changes {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                let record = kept(&*store, key, &change).await;
                assert_eq!(above(&record, &change.join), record, "its own raise is in it");
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no update failed");
        }
        assert_eq!(found(&*store, key).await, Some(all), "seed {seed}");
    }
}

/// The join of both: equal to `high` if `high` holds all that `low` does.
fn above(high: &SessionToken, low: &SessionToken) -> SessionToken {
    let mut joined = low.clone();
    joined.join(high);
    joined
}

async fn a_drop_takes_only_what_was_judged<S: TokenStore>(store: &S) {
    let judged = Mark::saw(at(5));
    let replaced = Change {
        drop: vec![(KEY, epoch(1), judged)],
        join: marked(KEY, 2, Mark::demand(at(9))),
        ..Change::default()
    };
    kept(store, ALICE, &Change::joining(marked(KEY, 1, judged))).await;
    assert_eq!(kept(store, ALICE, &replaced).await, marked(KEY, 2, Mark::demand(at(9))));

    let raised = marked(KEY, 1, Mark::saw(at(6)));
    kept(store, BOB, &Change::joining(raised.clone())).await;
    let both = kept(store, BOB, &replaced).await;
    assert_eq!(above(&both, &raised), both, "it was raised since it was judged");
    assert!(both.component(KEY).is_some_and(|component| component.mark(epoch(2)).is_some()));
}

/// Whichever comes first, a mark that was raised past the judged one stays.
async fn a_drop_that_races_raises_loses_none_of_them<S: TokenStore>(make: &impl AsyncFn() -> S) {
    let store = Arc::new(make().await);
    for round in 0..50_u8 {
        let key = SubjectKey::new([round; 16]);
        let judged = Mark::saw(at(5));
        kept(&*store, key, &Change::joining(marked(KEY, 1, judged))).await;
        let replace = Change {
            drop: vec![(KEY, epoch(1), judged)],
            join: marked(KEY, 2, Mark::demand(at(9))),
            ..Change::default()
        };
        let raise = Change::joining(marked(KEY, 1, Mark::saw(at(6 + u64::from(round)))));
        let mut tasks = JoinSet::new();
        for change in [replace, raise.clone()] {
            let store = Arc::clone(&store);
            tasks.spawn(async move { kept(&*store, key, &change).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no update failed");
        }
        let record = found(&*store, key).await.expect("it is kept");
        assert_eq!(above(&record, &raise.join), record, "round {round}");
    }
}

async fn a_demand_is_settled_only_as_it_was_judged<S: TokenStore>(store: &S) {
    let unresolved = SessionToken::of(KEY, Component::unresolved());
    let settle = Change {
        settle: vec![(KEY, Component::unresolved())],
        join: marked(KEY, 1, Mark::demand(at(9))),
        ..Change::default()
    };
    kept(store, ALICE, &Change::joining(unresolved.clone())).await;
    assert_eq!(kept(store, ALICE, &settle).await, settle.join);

    kept(store, BOB, &Change::joining(unresolved)).await;
    kept(store, BOB, &Change::joining(marked(KEY, 1, Mark::saw(at(6))))).await;
    let both = kept(store, BOB, &settle).await;
    assert!(both.component(KEY).is_some_and(|component| component.unresolved));
}

async fn what_was_acknowledged_is_never_told_again<S: TokenStore>(store: &S) {
    let tell = Change { tell: vec![notice(1), notice(2)], ..Change::default() };
    let told = kept(store, ALICE, &tell).await;
    assert_eq!(told.notices().count(), 2);
    let acknowledge = Change { acknowledge: vec![notice(1).id()], ..Change::default() };
    kept(store, ALICE, &acknowledge).await;
    let after = kept(store, ALICE, &tell).await;
    assert_eq!(after.notices().copied().collect::<Vec<_>>(), [notice(2)]);
    assert_eq!(after.acknowledged().collect::<Vec<_>>(), [notice(1).id()]);
    let graver = Notice { kind: NoticeKind::WriteLost, told_seconds: 900, ..notice(2) };
    let after = kept(store, ALICE, &Change { tell: vec![graver], ..Change::default() }).await;
    let stands = Notice { told_seconds: notice(2).told_seconds, ..graver };
    assert_eq!(after.notices().copied().collect::<Vec<_>>(), [stands]);
}

/// Readers see a record that only goes up while others raise it.
async fn a_record_never_gets_weaker<S: TokenStore>(store: Arc<S>) {
    let (changes, _) = racing(99);
    let mut tasks = JoinSet::new();
    for part in changes.chunks(50) {
        let (store, part) = (Arc::clone(&store), part.to_vec());
        tasks.spawn(async move {
            let mut last = SessionToken::new();
            for change in part {
                let after = kept(&*store, ALICE, &change).await;
                let read = found(&*store, ALICE).await.expect("it is kept");
                for (high, low) in [(&after, &last), (&read, &after)] {
                    assert_eq!(above(high, low), *high, "it lost something");
                }
                last = read;
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no update failed");
    }
}
