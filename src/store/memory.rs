//! `MemoryStore`: the records of one process, gone when it ends.
//!
//! A record is kept as the bytes of a token body, which are a tenth of the decoded maps. It never
//! evicts: a record goes when nobody used it for a lifetime, and a full store refuses. What a
//! start, which forgets everything, means for lookups is for the core's `EmbeddedGuard` to say.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::{DashMap, Entry};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::store_guard::{self, EmbeddedGuard, Worth};
use tidegate_core::token::{BodyLimits, Change, ComponentKey, SessionToken};
use tidegate_core::trail::Sample;

use crate::clock::Clock;
use crate::ports::{Kept, Look, Looked, StoreError, Stored, SubjectKey, TokenStore};

/// Sweeps in one lifetime: a record stays at most a sixteenth of it longer than it counts.
const SWEEPS_PER_LIFETIME: u32 = 16;
/// A full store looks for expired records at most this often: one look visits every record.
const SWEEP_APART_WHEN_FULL: Duration = Duration::from_secs(1);
/// Own bytes are read back whatever their size; the core bounds what one record holds.
const OWN_BYTES: BodyLimits = BodyLimits { bytes: usize::MAX, components: usize::MAX };

/// Bytes of a body that lies in the place of its record: one mark of one partition needs 35.
const IN_PLACE_BYTES: usize = 46;

/// How long a store's memory lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lives {
    /// A record that is neither looked up nor changed for so long vanishes. At least twice
    /// `barriers`, else a session could be forgotten that still needs it.
    pub records: Duration,
    /// `d_max`, the gate's bound: so long a barrier stands after a loss.
    pub barriers: Duration,
}

/// Keeps the records of subjects in this process, for one instance.
///
/// Invariant: at most `limit` records; none is given out that was unused for `lifetime`.
#[derive(Debug)]
pub struct MemoryStore {
    records: Arc<Records>,
    guard: Arc<ArcSwap<EmbeddedGuard>>,
    swept_at: AtomicU64,
    clock: Clock,
}

/// What a [`MemoryStore`] believes of itself, which looks at servers change.
#[derive(Clone, Debug)]
pub struct MemoryBeliefs {
    guard: Arc<ArcSwap<EmbeddedGuard>>,
    clock: Clock,
}

impl MemoryBeliefs {
    /// Takes who else is connected to a server of a partition, `leads` says whether to its leader;
    /// says whether others count as being there.
    pub fn looked(&self, key: ComponentKey, look: &Look, leads: bool, guards: &Guards) -> bool {
        let others = !look.others.is_empty();
        let Look { sent_at, received_at, visible_since, .. } = *look;
        let seen = store_guard::Look { sent_at, visible_since, others };
        self.guard.rcu(|guard| {
            let mut guard = EmbeddedGuard::clone(guard);
            if leads {
                guard.looked(key, seen, received_at, guards);
            } else if others && guards.foreign_instance() {
                guard.saw_others(received_at);
            }
            guard
        });
        self.guard.load().is_beside_others()
    }

    /// Says whether the first call may be taken as far as these partitions go; `waited`: whoever
    /// does not answer was waited for long enough.
    pub fn may_start(&self, mut keys: impl Iterator<Item = ComponentKey>, waited: bool) -> bool {
        let (guard, now) = (self.guard.load(), self.clock.now());
        keys.all(|key| guard.may_start(key, waited, now))
    }

    /// Says whether one of these partitions only lacks a sample of its leader to be believed.
    pub fn wants_sample(&self, mut keys: impl Iterator<Item = ComponentKey>) -> bool {
        let guard = self.guard.load();
        keys.any(|key| guard.wants_sample(key))
    }
}

impl MemoryStore {
    /// An empty store of at most `limit_subjects` records: that it starts is a loss.
    ///
    /// Where others may keep records of their own, nothing is believed before its beliefs were
    /// told, once in `look_interval`, that nobody does; without one nobody does, says the caller.
    pub fn new(
        limit_subjects: usize,
        lives: Lives,
        look_interval: Option<Duration>,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        let guard = EmbeddedGuard::started(now, lives.barriers, look_interval);
        let records = Records {
            by_subject: DashMap::default(),
            held: AtomicUsize::new(0),
            limit: limit_subjects,
            lifetime: lives.records,
        };
        let guard = Arc::new(ArcSwap::from_pointee(guard));
        let swept_at = AtomicU64::new(now.as_nanos());
        Self { records: Arc::new(records), guard, swept_at, clock }
    }

    /// Its belief, to be told of other instances.
    pub fn beliefs(&self) -> MemoryBeliefs {
        MemoryBeliefs { guard: Arc::clone(&self.guard), clock: self.clock }
    }

    /// Records held, those that expired and were not swept yet included.
    pub fn held(&self) -> usize {
        self.records.held.load(Ordering::Relaxed)
    }

    fn worth(&self) -> Worth {
        Worth::Embedded(self.guard.load_full())
    }

    /// Removes what expired, unless somebody did since `apart` ago; says whether it did.
    async fn sweep(&self, now: Instant, apart: Duration) -> bool {
        let swept_at = self.swept_at.load(Ordering::Relaxed);
        let due = now.since(Instant::from_nanos(swept_at)) >= apart;
        let claims = |swept_at| {
            let (ok, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            self.swept_at.compare_exchange(swept_at, now.as_nanos(), ok, failed).is_ok()
        };
        if !due || !claims(swept_at) {
            return false;
        }
        let records = Arc::clone(&self.records);
        let swept = tokio::task::spawn_blocking(move || records.sweep(now)).await;
        swept.is_ok()
    }
}

impl TokenStore for MemoryStore {
    fn lookup_at_once(&self, key: SubjectKey, now: Instant) -> Option<Result<Looked, StoreError>> {
        let record = self.records.lookup(key, now);
        // Read after the lookup: what the store forgot before it is known by then.
        Some(Ok(Looked { record, worth: self.worth() }))
    }

    async fn lookup(&self, key: SubjectKey) -> Result<Looked, StoreError> {
        let record = self.records.lookup(key, self.clock.now());
        Ok(Looked { record, worth: self.worth() })
    }

    async fn update(&self, key: SubjectKey, change: &Change) -> Result<Kept, StoreError> {
        let now = self.clock.now();
        self.sweep(now, self.records.lifetime / SWEEPS_PER_LIFETIME).await;
        let updated = match self.records.update(key, change, now) {
            Err(StoreError::Full { .. }) if self.sweep(now, SWEEP_APART_WHEN_FULL).await => {
                self.records.update(key, change, now)
            }
            updated => updated,
        };
        updated.map(|record| Kept { record, stored: Stored::Memory, worth: self.worth() })
    }

    fn sampled(&self, key: ComponentKey, sample: Sample) {
        if self.guard.load().needs_sample(key) {
            self.guard.rcu(|guard| {
                let mut guard = EmbeddedGuard::clone(guard);
                guard.sampled(key, sample);
                guard
            });
        }
    }
}

/// The records themselves. The time comes in with each call.
struct Records {
    by_subject: DashMap<SubjectKey, Record, BuildHasherDefault<KeyHasher>>,
    /// How many there are: a map of shards cannot be counted while one of them is held.
    held: AtomicUsize,
    limit: usize,
    lifetime: Duration,
}

/// Takes a [`SubjectKey`] for what it is: a keyed hash that needs no second one.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Not what a subject key writes; any hash is right, and this one tells keys apart.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One record, as a token body.
struct Record {
    body: Body,
    /// In nanoseconds, so that a lookup, which shares its shard, can set it.
    used_at: AtomicU64,
}

/// The bytes of one record. A subject of one partition is found with its entry: no store fits the
/// caches, and each place more is another trip to memory.
enum Body {
    InPlace { length: u8, bytes: [u8; IN_PLACE_BYTES] },
    Apart(Box<[u8]>),
}

impl Body {
    fn of(body: &[u8]) -> Self {
        let mut bytes = [0; IN_PLACE_BYTES];
        match (bytes.get_mut(..body.len()), u8::try_from(body.len())) {
            (Some(room), Ok(length)) => {
                room.copy_from_slice(body);
                Self::InPlace { length, bytes }
            }
            // A copy of the right size: shrinking the buffer it was written to would leave holes
            // between records, twice their size.
            _ => Self::Apart(Box::from(body)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            // A length that is too large would read as no token, and so as unknown.
            Self::InPlace { length, bytes } => {
                bytes.get(..usize::from(*length)).unwrap_or_default()
            }
            Self::Apart(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Record {
    fn of(token: &SessionToken, now: Instant) -> Self {
        // When it was issued is for tokens that travel.
        let body = Body::of(&token.encode(0));
        Self { body, used_at: AtomicU64::new(now.as_nanos()) }
    }

    fn token(&self) -> SessionToken {
        match SessionToken::decode(self.body.bytes(), OWN_BYTES) {
            Ok((token, _)) => token,
            Err(error) => {
                // Never "none": a session that may depend on anything is unknown everywhere.
                tracing::error!(%error, "a record cannot be read back; its session is unknown");
                let mut unknown = SessionToken::new();
                unknown.overflow = true;
                unknown
            }
        }
    }

    /// Says whether nobody used it for `lifetime`.
    fn expired(&self, now: Instant, lifetime: Duration) -> bool {
        now.since(Instant::from_nanos(self.used_at.load(Ordering::Relaxed))) >= lifetime
    }
}

impl Records {
    fn lookup(&self, key: SubjectKey, now: Instant) -> Option<SessionToken> {
        let record = self.by_subject.get(&key)?;
        if record.expired(now, self.lifetime) {
            return None;
        }
        record.used_at.fetch_max(now.as_nanos(), Ordering::Relaxed);
        Some(record.token())
    }

    /// Applies a change to the record, which is atomic: its shard is held meanwhile.
    fn update(
        &self,
        key: SubjectKey,
        change: &Change,
        now: Instant,
    ) -> Result<SessionToken, StoreError> {
        match self.by_subject.entry(key) {
            Entry::Occupied(mut entry) => {
                let expired = entry.get().expired(now, self.lifetime);
                let mut token = if expired { SessionToken::new() } else { entry.get().token() };
                let changed = change.apply(&mut token);
                if token.is_empty() {
                    entry.remove();
                    self.held.fetch_sub(1, Ordering::Relaxed);
                } else if changed || expired {
                    entry.insert(Record::of(&token, now));
                } else {
                    entry.get().used_at.fetch_max(now.as_nanos(), Ordering::Relaxed);
                }
                Ok(token)
            }
            Entry::Vacant(entry) => {
                let mut token = SessionToken::new();
                change.apply(&mut token);
                if !token.is_empty() {
                    self.reserve()?;
                    entry.insert(Record::of(&token, now));
                }
                Ok(token)
            }
        }
    }

    fn reserve(&self) -> Result<(), StoreError> {
        let more = |held| if held < self.limit { Some(held + 1) } else { None };
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::Full { limit: self.limit }),
        }
    }

    fn sweep(&self, now: Instant) {
        self.by_subject.retain(|_, record| {
            let expired = record.expired(now, self.lifetime);
            if expired {
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
            !expired
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::{Epoch, Life, SystemId};
    use tidegate_core::position::Lsn;
    use tidegate_core::token::{Component, ComponentKey, Mark, PartitionId};

    const LIFETIME: Duration = Duration::from_nanos(100);

    fn records(limit: usize) -> Records {
        let (by_subject, held) = (DashMap::default(), AtomicUsize::new(0));
        Records { by_subject, held, limit, lifetime: LIFETIME }
    }

    fn subject(number: u32) -> SubjectKey {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(number.to_le_bytes()) {
            *to = from;
        }
        SubjectKey::new(bytes)
    }

    fn written(upto: u64) -> Change {
        let key = ComponentKey::new(PartitionId::new(1), SystemId::new(7_300_000_000_000_000_001));
        let start = 1_764_000_000_123_456;
        let epoch = Epoch::new(1, Life { start, reset: start - 81_237 });
        let mark = Mark::wrote(Some(Lsn::new(upto - 400).into()), Lsn::new(upto).into());
        Change::joining(SessionToken::of(key, Component::of(epoch, mark)))
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_record_vanishes_when_nobody_used_it_for_a_lifetime() {
        let records = records(10);
        records.update(subject(1), &written(500), at(0)).expect("there is room");
        assert!(records.lookup(subject(1), at(99)).is_some(), "used at 99");
        assert!(records.lookup(subject(1), at(198)).is_some(), "used at 198");
        records.update(subject(1), &written(500), at(297)).expect("it is there");
        assert!(records.lookup(subject(1), at(396)).is_some());
        assert_eq!(records.lookup(subject(1), at(496)), None);
        let kept = records.update(subject(1), &written(900), at(497)).expect("it has its place");
        assert_eq!(kept, written(900).join, "what expired is not joined");
        assert_eq!(records.held.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_full_store_refuses_a_new_subject_and_keeps_every_old_one() {
        let records = records(2);
        for number in [1, 2] {
            records.update(subject(number), &written(500), at(0)).expect("there is room");
        }
        let full = Err(StoreError::Full { limit: 2 });
        assert_eq!(records.update(subject(3), &written(500), at(99)), full);
        assert!(records.update(subject(1), &written(900), at(99)).is_ok(), "it has its place");
        assert!(records.lookup(subject(2), at(99)).is_some());
        assert_eq!(records.update(subject(3), &Change::default(), at(99)), Ok(SessionToken::new()));
    }

    #[test]
    fn what_expired_makes_room_and_what_did_not_stays() {
        let records = records(2);
        records.update(subject(1), &written(500), at(0)).expect("there is room");
        records.update(subject(2), &written(500), at(50)).expect("there is room");
        records.sweep(at(100));
        assert_eq!(records.held.load(Ordering::Relaxed), 1);
        assert!(records.update(subject(3), &written(500), at(100)).is_ok());
        assert!(records.lookup(subject(2), at(100)).is_some());
    }

    #[tokio::test]
    async fn a_full_store_sweeps_before_it_refuses() {
        let clock = Clock::new();
        let lives = Lives { records: LIFETIME, barriers: LIFETIME };
        let store = MemoryStore::new(1, lives, None, clock);
        store.update(subject(1), &written(500)).await.expect("there is room");
        // A lifetime of 100 ns has passed by the time the next call reads the clock.
        while clock.now() < at(store.swept_at.load(Ordering::Relaxed)) + LIFETIME {}
        store.update(subject(2), &written(500)).await.expect("the first one expired");
        assert_eq!(store.held(), 1);
    }

    #[test]
    fn a_record_whose_last_mark_goes_gives_its_place_back() {
        let records = records(1);
        let held = records.update(subject(1), &written(500), at(0)).expect("there is room");
        let (key, component) = held.components().next().expect("one component");
        let (epoch, mark) = component.marks().next().expect("one mark");
        let drop = Change { drop: vec![(key, epoch, mark)], ..Change::default() };
        records.update(subject(1), &drop, at(1)).expect("it is there");
        assert_eq!(records.held.load(Ordering::Relaxed), 0);
        assert!(records.update(subject(2), &written(500), at(2)).is_ok());
    }

    #[test]
    fn bytes_that_do_not_decode_are_unknown_and_never_none() {
        let records = records(1);
        for bytes in [&[][..], &[1, 2, 3], &[1; IN_PLACE_BYTES + 1]] {
            let torn = Record { body: Body::of(bytes), used_at: AtomicU64::new(0) };
            records.by_subject.insert(subject(1), torn);
            assert!(records.lookup(subject(1), at(1)).is_some_and(|token| token.overflow));
        }
    }

    #[test]
    fn a_record_comes_back_whether_or_not_it_fits_its_place() {
        for length in [0, 1, IN_PLACE_BYTES, IN_PLACE_BYTES + 1, 300] {
            let bytes: Vec<u8> = (0..=255).cycle().take(length).collect();
            assert_eq!(Body::of(&bytes).bytes(), bytes, "{length} bytes");
        }
        let one = written(100 << 40).join.encode(0);
        assert!(one.len() <= IN_PLACE_BYTES, "{} bytes of one partition", one.len());
    }

    #[test]
    fn a_subject_takes_a_few_hundred_bytes() {
        const SUBJECTS: u32 = 100_000;
        let resident_bytes = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux shows memory");
            let pages = statm.split(' ').nth(1).expect("a second word");
            pages.parse::<u64>().expect("a number") * 4096
        };
        let measured = || {
            let records = records(1_000_000);
            let before = resident_bytes();
            for number in 0..SUBJECTS {
                let upto = (100 << 40) + u64::from(number) * 4096;
                records.update(subject(number), &written(upto), at(0)).expect("there is room");
            }
            resident_bytes().saturating_sub(before) / u64::from(SUBJECTS)
        };
        // Other tests of this process allocate meanwhile; memory that is used again counts as none.
        let kept: Vec<u64> = (0..9).map(|_| measured()).filter(|bytes| *bytes > 100).collect();
        let bytes = kept.into_iter().min().expect("a store takes memory");
        #[expect(clippy::print_stdout, reason = "the figure is what the test is run for")]
        {
            println!("memory store: {bytes} bytes a subject, one partition, {SUBJECTS} subjects");
        }
        // What `limits.subjects` promises.
        assert!(bytes <= 300, "{bytes} bytes a subject");
    }
}
