//! Laws of marks, components, tokens, their bytes, forks and histories.
//!
//! Joins are idempotent, commutative, associative and never lower anything, also past the bounds of
//! marks and components. Notices are joined within their bound of eight: which of more than eight
//! is forgotten depends on the order. Nothing here judges a mark.

#![expect(clippy::expect_used, reason = "a law that cannot be stated must end the test")]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_core::lineage::{Epoch, Fork, History, Life, LineageRow};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::token::{
    BodyError, BodyLimits, Component, ComponentKey, Mark, Notice, NoticeId, NoticeKind,
    PartitionId, SessionToken,
};

const LIMITS: BodyLimits = BodyLimits { bytes: 64 * 1024, components: 64 };

fn position() -> impl Strategy<Value = Position> {
    let number = prop_oneof![8 => 0..20_u64, 1 => Just(u64::MAX), 1 => any::<u64>()];
    number.prop_map(|value| Lsn::new(value).into())
}

/// Six epochs that meet often, and any other.
fn epoch() -> impl Strategy<Value = Epoch> {
    let near = (1..3_u32, 0..3_i64).prop_map(|(timeline, start)| (timeline, start, start));
    let any = (any::<u32>(), any::<i64>(), any::<i64>());
    prop_oneof![9 => near, 1 => any]
        .prop_map(|(timeline, start, reset)| Epoch::new(timeline, Life { start, reset }))
}

fn mark() -> impl Strategy<Value = Mark> {
    let one = prop_oneof![
        position().prop_map(Mark::demand),
        position().prop_map(Mark::saw),
        position().prop_map(Mark::wrote_past),
        position().prop_map(Mark::saw_applied),
        (position(), position()).prop_map(|(saw, flushed)| Mark::saw(saw).with_flushed(flushed)),
        (option::of(position()), position())
            .prop_map(|(after, upto)| Mark::wrote(after.map(|after| after.meet(upto)), upto)),
    ];
    vec(one, 1..4).prop_map(|marks| marks.into_iter().reduce(Mark::join).expect("not empty"))
}

fn component() -> impl Strategy<Value = Component> {
    (prop::bool::weighted(0.2), vec((epoch(), mark()), 0..7)).prop_map(|(unresolved, marks)| {
        let mut component = Component::default();
        component.unresolved = unresolved;
        for (epoch, mark) in marks {
            component.raise(epoch, mark);
        }
        component
    })
}

fn key() -> impl Strategy<Value = ComponentKey> {
    (0..100_u32, 0..2_u32).prop_map(|(partition, system_tag)| ComponentKey {
        partition: PartitionId::new(partition),
        system_tag,
    })
}

/// One of eight losses, so that no more than eight meet.
fn notice() -> impl Strategy<Value = Notice> {
    let kinds = [NoticeKind::PossiblyLost, NoticeKind::ObservedStateLost, NoticeKind::WriteLost];
    (0..8_u32, prop::sample::select(kinds.to_vec()), 0..3_u64, 0..3_u64).prop_map(
        |(loss, kind, told_seconds, upto)| {
            let upto = Lsn::new(upto).into();
            let start = i64::from(loss) * 3_000_000;
            let lost = Epoch::new(1, Life { start, reset: start });
            let child = Epoch::new(2, Life { start: start + 1, reset: start });
            let partition = PartitionId::new(loss);
            Notice { partition, kind, lost, child, upto, told_seconds }
        },
    )
}

fn token_of(
    components: impl Into<prop::collection::SizeRange>,
) -> impl Strategy<Value = SessionToken> {
    let told = vec(notice(), 0..4);
    let acknowledged = vec(notice(), 0..4);
    (prop::bool::weighted(0.2), vec((key(), component()), components), told, acknowledged).prop_map(
        |(overflow, components, told, acknowledged)| {
            let mut token = SessionToken::new();
            token.overflow = overflow;
            for (key, component) in components {
                token.join_component(key, &component);
            }
            told.into_iter().for_each(|notice| token.tell(notice));
            acknowledged.into_iter().for_each(|notice| token.acknowledge(notice.id()));
            token
        },
    )
}

/// Few components, or so many that a join of two passes the bound.
fn token() -> impl Strategy<Value = SessionToken> {
    prop_oneof![8 => token_of(0..6), 1 => token_of(50..64)]
}

/// The join of two, as a value.
trait Joined: Clone {
    fn joined(&self, other: &Self) -> Self;
    /// Says whether `self` demands and tells at least what `other` does.
    fn is_at_least(&self, other: &Self) -> bool;
}

fn reaches(own: Option<Position>, other: Option<Position>) -> bool {
    match (own, other) {
        (Some(own), Some(other)) => own.covers(other),
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

impl Joined for Mark {
    fn joined(&self, other: &Self) -> Self {
        self.join(*other)
    }

    fn is_at_least(&self, other: &Self) -> bool {
        let write = if other.write_end_is_unknown() {
            self.write_end_is_unknown()
        } else {
            self.write_end_is_unknown() || reaches(self.upto, other.upto)
        };
        self.floor.covers(other.floor)
            && reaches(self.after, other.after)
            && reaches(self.saw, other.saw)
            && reaches(self.led, other.led)
            && reaches(self.flushed, other.flushed)
            && write
    }
}

impl Joined for Component {
    fn joined(&self, other: &Self) -> Self {
        let mut joined = self.clone();
        joined.join(other);
        joined
    }

    fn is_at_least(&self, other: &Self) -> bool {
        let marks = other.marks().all(|(epoch, mark)| match self.mark(epoch) {
            Some(own) => own.is_at_least(&mark),
            None => self.unresolved,
        });
        marks && (self.unresolved || !other.unresolved)
    }
}

impl Joined for SessionToken {
    fn joined(&self, other: &Self) -> Self {
        let mut joined = self.clone();
        joined.join(other);
        joined
    }

    fn is_at_least(&self, other: &Self) -> bool {
        let components = other.components().all(|(key, component)| match self.component(key) {
            Some(own) => own.is_at_least(component),
            None => self.overflow,
        });
        let acknowledged = |id: NoticeId| self.acknowledged().any(|own| own.covers(id));
        let told = other.notices().all(|notice| {
            acknowledged(notice.id())
                || self.notices().any(|own| {
                    own.id().covers(notice.id())
                        && (own.upto != notice.upto || own.kind >= notice.kind)
                })
        });
        components
            && told
            && other.acknowledged().all(acknowledged)
            && (self.overflow || !other.overflow)
    }
}

fn join_laws<T: Joined + PartialEq + std::fmt::Debug>(
    a: &T,
    b: &T,
    c: &T,
) -> Result<(), TestCaseError> {
    let ab = a.joined(b);
    prop_assert_eq!(&a.joined(a), a, "idempotent");
    prop_assert_eq!(&ab.joined(b), &ab, "idempotent");
    prop_assert_eq!(&b.joined(a), &ab, "commutative");
    prop_assert_eq!(ab.joined(c), a.joined(&b.joined(c)), "associative");
    prop_assert!(ab.is_at_least(a) && ab.is_at_least(b), "lowered: {:?}", ab);
    Ok(())
}

/// What is decoded from `bytes` is written as the same bytes.
fn one_form_only(bytes: &[u8]) -> Result<bool, TestCaseError> {
    match SessionToken::decode(bytes, LIMITS) {
        Ok((token, issued)) => {
            prop_assert_eq!(token.encode(issued), bytes);
            Ok(true)
        }
        Err(
            BodyError::Malformed { .. } | BodyError::TooLarge { .. } | BodyError::Version { .. },
        ) => Ok(false),
    }
}

fn fork() -> impl Strategy<Value = Fork> {
    let at = || (0..8_u64).prop_map(|value| Position::from(Lsn::new(value)));
    prop_oneof![
        1 => Just(Fork::Unknown),
        1 => Just(Fork::Unbounded),
        4 => (at(), at()).prop_map(|(a, b)| Fork::between(a.meet(b), a.join(b))),
    ]
}

/// The forks two epochs have in a history that read these rows of them, in this order.
fn read(forks: &[Fork]) -> History {
    let root = Epoch::new(1, Life { start: 1, reset: 1 });
    let child = Epoch::new(2, Life { start: 2, reset: 2 });
    let mut history = History::new();
    history
        .read_row(LineageRow { epoch: root, parent: None, fork: Fork::Unknown, n: 0 })
        .expect("the first row");
    for fork in forks {
        let row = LineageRow { epoch: child, parent: Some(root), fork: *fork, n: 1 };
        // Contradictions are what this is about.
        let _ = history.read_row(row);
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joins_of_marks_keep_the_laws(a in mark(), b in mark(), c in mark()) {
        join_laws(&a, &b, &c)?;
    }

    #[test]
    fn a_mark_demands_what_it_wrote_and_saw(mark in mark()) {
        let within = [mark.after, mark.upto, mark.saw, mark.led, mark.flushed];
        for within in within.into_iter().flatten() {
            prop_assert!(mark.floor.covers(within));
        }
    }

    #[test]
    fn joins_of_components_keep_the_laws_past_four_epochs(
        a in component(), b in component(), c in component(),
    ) {
        join_laws(&a, &b, &c)?;
        let all = a.joined(&b).joined(&c);
        let mut epochs: Vec<Epoch> =
            [&a, &b, &c].iter().flat_map(|one| one.marks().map(|(epoch, _)| epoch)).collect();
        epochs.sort_unstable();
        epochs.dedup();
        let kept: Vec<Epoch> = all.marks().map(|(epoch, _)| epoch).collect();
        prop_assert_eq!(&kept[..], &epochs[epochs.len().saturating_sub(4)..]);
        let flagged = a.unresolved || b.unresolved || c.unresolved || epochs.len() > 4;
        prop_assert_eq!(all.unresolved, flagged);
    }

    #[test]
    fn joins_of_tokens_keep_the_laws_past_sixty_four_components(
        a in token(), b in token(), c in token(),
    ) {
        join_laws(&a, &b, &c)?;
        prop_assert!(a.joined(&b).components().count() <= 64);
    }

    #[test]
    fn a_token_returns_from_its_bytes(token in token(), issued in any::<u64>()) {
        let bytes = token.encode(issued);
        prop_assert_eq!(SessionToken::decode(&bytes, LIMITS), Ok((token, issued)));
    }

    #[test]
    fn no_other_bytes_are_the_same_token(
        token in token_of(0..4),
        at in any::<prop::sample::Index>(),
        change in any::<u8>(),
        bit in 0..8_u8,
    ) {
        let bytes = token.encode(1_764_000_000);
        prop_assert!(one_form_only(&bytes)?);
        let at = at.index(bytes.len());
        let flipped: Vec<u8> =
            bytes.iter().enumerate().map(|(i, b)| b ^ (u8::from(i == at) << bit)).collect();
        one_form_only(&flipped)?;
        let without: Vec<u8> = [&bytes[..at], &bytes[at + 1..]].concat();
        one_form_only(&without)?;
        let inserted: Vec<u8> = [&bytes[..at], &[change], &bytes[at..]].concat();
        one_form_only(&inserted)?;
        prop_assert!(!one_form_only(&bytes[..at])?, "a cut body was accepted");
        prop_assert!(!one_form_only(&[&bytes[..], &[change]].concat())?, "a tail was accepted");
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(mut bytes in vec(any::<u8>(), 0..200), own in any::<bool>()) {
        if own && let [version, flags, ..] = &mut bytes[..] {
            (*version, *flags) = (1, *flags & 1);
        }
        one_form_only(&bytes)?;
    }

    #[test]
    fn what_is_dropped_for_size_is_never_forgotten(token in token(), max_bytes in 0..600_usize) {
        let bytes = token.encode_within(7, max_bytes);
        prop_assert!(bytes.len() <= max_bytes.max(16));
        let (kept, _) = SessionToken::decode(&bytes, LIMITS).expect("own bytes");
        for (key, component) in token.components() {
            match kept.component(key) {
                Some(own) => prop_assert_eq!(own, component),
                None => prop_assert!(kept.overflow),
            }
        }
        prop_assert!(kept.overflow || kept.components().count() == token.components().count());
    }

    #[test]
    fn observers_of_a_fork_agree_in_any_order(a in fork(), b in fork(), c in fork()) {
        prop_assert_eq!(a.intersect(a), Some(a));
        prop_assert_eq!(a.intersect(b), b.intersect(a));
        let left = a.intersect(b).and_then(|ab| ab.intersect(c));
        let right = b.intersect(c).and_then(|bc| a.intersect(bc));
        prop_assert_eq!(left, right);
        if let Some(both) = a.intersect(b) {
            prop_assert!(within(both, a) && within(both, b), "{:?} of {:?} and {:?}", both, a, b);
        }
    }

    #[test]
    fn a_history_is_the_same_in_any_order_and_however_often_read(
        forks in vec(fork(), 1..5), again in any::<prop::sample::Index>(),
    ) {
        let history = read(&forks);
        let mut other: Vec<Fork> = forks.clone();
        other.reverse();
        other.push(forks[again.index(forks.len())]);
        prop_assert_eq!(read(&other), history);
    }
}

/// Says whether `narrow` claims all that `wide` claims.
fn within(narrow: Fork, wide: Fork) -> bool {
    match (narrow, wide) {
        (_, Fork::Unknown) | (Fork::Unbounded, Fork::Unbounded) => true,
        (Fork::Between { .. }, Fork::Between { .. }) => {
            reaches(narrow.at_least(), wide.at_least()) && reaches(wide.at_most(), narrow.at_most())
        }
        (Fork::Unknown | Fork::Between { .. }, Fork::Unbounded)
        | (Fork::Unknown | Fork::Unbounded, Fork::Between { .. }) => false,
    }
}
