//! `Notice`: what a session is told of a loss. It does not know who holds it.

use super::PartitionId;
use crate::lineage::Epoch;
use crate::position::Position;

/// Names one loss, the same at every instance and larger for a later failover, and up to where of
/// the lost epoch it was told: whoever acknowledges it has heard of no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoticeId {
    loss: u64,
    upto: Position,
}

/// What was lost, gravest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoticeKind {
    /// Something the session wrote or read may be gone.
    PossiblyLost,
    /// Something the session read is gone.
    ObservedStateLost,
    /// A write of the session that was acknowledged is gone.
    WriteLost,
}

/// One loss, as told to a holder until it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Where.
    pub partition: PartitionId,
    /// What.
    pub kind: NoticeKind,
    /// The epoch whose end was lost.
    pub lost: Epoch,
    /// The epoch that goes on without it.
    pub child: Epoch,
    /// The end of what the holder knew of the lost epoch; the start, where that is not known.
    pub upto: Position,
    /// When it was first told, in seconds since 1970.
    pub told_seconds: u64,
}

impl NoticeId {
    /// The loss of eight bytes, as tokens and stores keep them, told up to a position.
    pub const fn new(loss: u64, upto: Position) -> Self {
        Self { loss, upto }
    }

    /// The eight bytes of the loss as a number.
    pub const fn loss(self) -> u64 {
        self.loss
    }

    /// Up to where it was told.
    pub const fn upto(self) -> Position {
        self.upto
    }

    /// Says whether who heard of this has heard of `other`.
    pub const fn covers(self, other: Self) -> bool {
        self.loss == other.loss && self.upto.covers(other.upto)
    }
}

impl Notice {
    /// The id of this loss, derived from partition, lost epoch and child epoch alone, as far as it
    /// is told.
    ///
    /// The high half is the second in which the child's leader started, so that the largest ids are
    /// the latest losses; the low half is a hash of all three.
    pub fn id(&self) -> NoticeId {
        let mut hash = Fnv::new();
        hash.eat(&self.partition.value().to_le_bytes());
        for epoch in [self.lost, self.child] {
            hash.eat(&epoch.timeline.to_le_bytes());
            hash.eat(&epoch.life.start.to_le_bytes());
            hash.eat(&epoch.life.reset.to_le_bytes());
        }
        let newest = self.child.life.start.max(self.child.life.reset);
        let seconds = u64::try_from(newest / 1_000_000).unwrap_or(0) & 0xFFFF_FFFF;
        NoticeId::new(seconds << 32 | hash.folded(), self.upto)
    }

    /// The same loss told twice: what reaches further stands; as far as the other, the graver kind,
    /// first told at the earlier time.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        if self.upto != other.upto {
            // Whether the nearer one was acknowledged before or after this makes no difference.
            return if self.upto.covers(other.upto) { self } else { other };
        }
        Self {
            kind: self.kind.max(other.kind),
            told_seconds: self.told_seconds.min(other.told_seconds),
            ..self
        }
    }
}

/// FNV-1a: names must be the same in every build, and need no secrecy.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn eat(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    const fn folded(&self) -> u64 {
        (self.0 ^ (self.0 >> 32)) & 0xFFFF_FFFF
    }
}
