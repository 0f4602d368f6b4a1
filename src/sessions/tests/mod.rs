//! Who is asking and who is raised, over a real memory store and over one that fails.

mod carried;
mod known;
mod raised;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Epoch, Life, SystemId};
use tidegate_core::position::Lsn;
use tidegate_core::token::{
    BodyLimits, Change, Component, ComponentKey, Mark, Notice, NoticeKind, PartitionId,
    SessionToken,
};
use tidegate_core::trail::Sample;

use super::*;
use crate::clock::Clock;
use crate::ports::{Kept, Looked, SubjectKey};
use crate::seal::{Key, Keyring, SubjectHash};
use crate::store::{Lives, MemoryStore};

const P1: PartitionId = PartitionId::new(1);
const P2: PartitionId = PartitionId::new(2);
const KEY1: ComponentKey = ComponentKey::new(P1, SystemId::new(71));
const KEY2: ComponentKey = ComponentKey::new(P2, SystemId::new(72));
const GATE: Duration = Duration::from_secs(3600);
const CHARS: usize = 8 * 1024;
const LIMITS: SessionLimits = SessionLimits {
    subject_bytes: 256,
    tokens_per_request: 16,
    tokens_chars: 32 * 1024,
    token_chars_written: 1024,
    token_chars: CHARS,
};

/// A memory store that can be told to fail, and counts what it is asked.
#[derive(Clone)]
struct Store(Arc<Inner>);

struct Inner {
    kept: MemoryStore,
    fails: AtomicBool,
    updates: AtomicUsize,
}

impl Store {
    fn fails(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::Relaxed);
    }

    fn updates(&self) -> usize {
        self.0.updates.load(Ordering::Relaxed)
    }

    fn answers(&self) -> Result<(), StoreError> {
        if self.0.fails.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable("it was told to fail".to_owned()));
        }
        Ok(())
    }
}

impl TokenStore for Store {
    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        self.answers()?;
        self.0.kept.lookup(key).await
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        self.0.updates.fetch_add(1, Ordering::Relaxed);
        self.answers()?;
        self.0.kept.update(key, change).await
    }

    fn sampled(&self, key: ComponentKey, sample: Sample) {
        self.0.kept.sampled(key, sample);
    }
}

/// An instance, with the store under it and the key its tokens are sealed with.
struct World {
    sessions: Sessions<Store>,
    store: Store,
    key: Key,
    started_at: Instant,
}

fn ring(key: &Key) -> Keyring {
    Keyring::of_one("c", "default", key.clone(), CHARS)
}

/// An instance whose store started just now, and has no barrier yet.
fn starting() -> World {
    let clock = Clock::new();
    let lives = Lives { records: Duration::from_secs(86_400), barriers: GATE };
    let kept = MemoryStore::new(1000, lives, None, clock);
    let (fails, updates) = (AtomicBool::new(false), AtomicUsize::new(0));
    let store = Store(Arc::new(Inner { kept, fails, updates }));
    let key = Key::generate().expect("random");
    let sessions = Sessions::new(
        store.clone(),
        &ring(&key),
        SubjectHash::new(&key),
        "default",
        vec![KEY1, KEY2],
        LIMITS,
        Guards::on(),
        clock,
    );
    World { sessions, store, key, started_at: clock.now() }
}

/// An instance that has the barriers of both partitions.
fn world() -> World {
    let world = starting();
    for key in [KEY1, KEY2] {
        world.sessions.sampled(key, sample(world.started_at + Duration::from_nanos(1)));
    }
    world
}

impl World {
    async fn asks(&self, subject: &str, tokens: &[String]) -> Result<Holder, SessionError> {
        self.sessions.identify(Asked { subject, tokens, max_token_chars: 0 }).await
    }

    async fn holder(&self, subject: &str, tokens: &[String]) -> Holder {
        self.asks(subject, tokens).await.expect("within all limits")
    }

    fn sealed(&self, token: &SessionToken) -> String {
        ring(&self.key).seal(&token.encode(7))
    }

    fn opened(&self, sealed: &str) -> SessionToken {
        let body = ring(&self.key).open(sealed).expect("sealed by us");
        SessionToken::decode(&body, BodyLimits::default()).expect("own bytes").0
    }

    async fn record(&self, subject: &str) -> Option<SessionToken> {
        let key = SubjectHash::new(&self.key).key("default", subject);
        self.store.0.kept.lookup(key).await.expect("it is memory").record
    }

    async fn writes(&self, subject: &str, tokens: &[String], join: SessionToken) -> Committed {
        let holder = self.holder(subject, tokens).await;
        let committed = self.sessions.commit(&holder, Change::joining(join), Whom::Write).await;
        committed.expect("the store answers")
    }
}

fn epoch(timeline: u32) -> Epoch {
    let start = 1_764_000_000_000_000 + i64::from(timeline);
    Epoch::new(timeline, Life { start, reset: start })
}

/// What the leader had when it was asked at `sent_at`.
fn sample(sent_at: Instant) -> Sample {
    Sample { sent_at, epoch: epoch(1), position: lsn(sent_at.as_nanos()) }
}

fn lsn(value: u64) -> tidegate_core::position::Position {
    Lsn::new(value).into()
}

fn marked(key: ComponentKey, timeline: u32, mark: Mark) -> SessionToken {
    SessionToken::of(key, Component::of(epoch(timeline), mark))
}

fn wrote(key: ComponentKey, upto: u64) -> SessionToken {
    marked(key, 1, Mark::wrote(Some(lsn(upto - 1)), lsn(upto)))
}

fn saw(key: ComponentKey, position: u64) -> SessionToken {
    marked(key, 1, Mark::saw(lsn(position)))
}

fn joined(tokens: &[SessionToken]) -> SessionToken {
    let mut all = SessionToken::new();
    tokens.iter().for_each(|token| all.join(token));
    all
}

fn lost_in(partition: PartitionId) -> Notice {
    let (kind, lost, child) = (NoticeKind::WriteLost, epoch(1), epoch(2));
    Notice { partition, kind, lost, child, upto: lsn(0), told_seconds: 9 }
}
