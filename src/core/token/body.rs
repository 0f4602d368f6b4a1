//! The bytes of a `SessionToken`, as tokens carry them and stores keep them.
//!
//! Each token has one form and each form one token: whatever else is offered is refused. The bytes
//! are not sealed here and say nothing of who holds them.
//!
//! ```text
//! body      = version(1) flags issued epochs components notices acknowledged
//! flags     = 1 byte: bit 0 overflow, bit 1 more, bit 2 heard
//! epochs    = count { start, reset - start, timeline }     each once, in storage order, each used
//!             start: signed at the first, else the distance from the one before
//! components= count { partition, system tag (4 bytes), head, marks }         by partition and tag
//! head      = kind << 4 | marks << 1 | unresolved                       kind 0: positions are LSNs
//! mark      = epoch, floor, after, upto, saw             by epoch; an epoch is its place in epochs
//!             after, upto, saw: floor - x + 1, or 0 if absent
//!             with bit 1 of the flags, led and flushed likewise; it is set if of some mark led is
//!             not saw or flushed is known, and without it that is so of none
//! notices   = count { partition, kind, lost epoch, child epoch, told }      by the loss they name
//! acknowledged = count { loss (8 bytes) }                                   ascending
//!             with bit 2 of the flags, up to where follows each of either; it is set if that is
//!             the start for not all of them
//! ```
//!
//! All numbers are LEB128 in their shortest form, signed ones folded (0, -1, 1, ...); bytes of
//! fixed width are little-endian.

use std::collections::BTreeSet;

use thiserror::Error;

use super::body_bytes::Writer;
use super::body_read::read;
use super::session_token::COMPONENTS_MAX;
use super::{Component, ComponentKey, Mark, Notice, NoticeId, NoticeKind, SessionToken};
use crate::lineage::{Epoch, Life};
use crate::position::Position;

/// The only version there is.
pub(super) const VERSION: u8 = 1;
/// Where an ordinary body ends: a first guess, so that writing it allocates once.
const ORDINARY_BYTES: usize = 256;

/// How much is accepted of somebody else's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Bytes of the whole body.
    pub bytes: usize,
    /// Components; more than 64 are never accepted.
    pub components: usize,
}

impl Default for BodyLimits {
    /// 8 KiB and 64 components, as much as a token may ever have.
    fn default() -> Self {
        Self { bytes: 8 * 1024, components: COMPONENTS_MAX }
    }
}

/// Why bytes are no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BodyError {
    /// A later version wrote it: its session is unknown, never new.
    #[error("the token body has version {version}, this version of Tidegate reads {VERSION}")]
    Version {
        /// The version it names.
        version: u8,
    },
    /// It is larger than accepted.
    #[error("the token body has {found} {what}, at most {limit} are accepted")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much is accepted.
        limit: usize,
    },
    /// It was never written by any version.
    #[error("the token body is malformed in its {part}; drop the token, its session is unknown")]
    Malformed {
        /// The part that is wrong.
        part: &'static str,
    },
}

impl SessionToken {
    /// The bytes of the token, with when it was issued in seconds since 1970.
    ///
    /// A floor below what the mark wrote or saw is raised to it: demanding more is always safe.
    pub fn encode(&self, issued_seconds: u64) -> Vec<u8> {
        encode(self, issued_seconds, &BTreeSet::new())
    }

    /// The bytes of as much of the token as fits in `max_bytes`; what is dropped sets overflow.
    ///
    /// A token holds no time of use, so components go by the age of their newest leader. First go
    /// those without a mark: they demand what an absent one demands under overflow. Then goes the
    /// one whose newest epoch is the first in storage order, and so on. When no component is left,
    /// the oldest acknowledged ids go (their loss is told once more), then the oldest notices (the
    /// answer at hand still tells them). What is left then, at most 16 bytes, is never refused.
    pub fn encode_within(&self, issued_seconds: u64, max_bytes: usize) -> Vec<u8> {
        let whole = self.encode(issued_seconds);
        if whole.len() <= max_bytes {
            return whole;
        }
        let mut order: Vec<(Option<Epoch>, ComponentKey)> = self
            .components()
            .map(|(key, component)| (component.marks().last().map(|(epoch, _)| epoch), key))
            .collect();
        order.sort_unstable();
        let without = |dropped: usize| {
            let keys = order.iter().take(dropped).map(|(_, key)| *key).collect();
            encode(self, issued_seconds, &keys)
        };
        // Dropping more never makes it longer, so the least that fits is found by halving.
        let (mut too_few, mut enough) = (0, order.len());
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if without(middle).len() <= max_bytes {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        let fitting = without(enough);
        if fitting.len() <= max_bytes {
            return fitting;
        }
        self.notices_within(issued_seconds, max_bytes)
    }

    /// The latest notices and acknowledged ids that fit, without any component.
    fn notices_within(&self, issued_seconds: u64, max_bytes: usize) -> Vec<u8> {
        let told: Vec<Notice> = self.notices().copied().collect();
        let acknowledged: Vec<NoticeId> = self.acknowledged().collect();
        let mut bytes = Vec::new();
        for dropped in 0..=told.len() + acknowledged.len() {
            let mut rest = Self::new();
            rest.overflow = self.overflow || self.components().next().is_some();
            acknowledged.iter().skip(dropped).for_each(|id| rest.acknowledge(*id));
            let fewer = dropped.saturating_sub(acknowledged.len());
            told.iter().skip(fewer).for_each(|notice| rest.tell(*notice));
            bytes = rest.encode(issued_seconds);
            if bytes.len() <= max_bytes {
                break;
            }
        }
        bytes
    }

    /// The token of these bytes and when it was issued, in seconds since 1970.
    ///
    /// # Errors
    /// [`BodyError`] for whatever [`SessionToken::encode`] does not write.
    pub fn decode(bytes: &[u8], limits: BodyLimits) -> Result<(Self, u64), BodyError> {
        if bytes.len() > limits.bytes {
            let (found, limit) = (bytes.len(), limits.bytes);
            return Err(BodyError::TooLarge { what: "bytes", found, limit });
        }
        read(bytes, limits)
    }
}

/// Raises the floor to all the mark holds.
fn floor_of(mark: &Mark) -> u64 {
    let within = [mark.after, mark.upto, mark.saw, mark.led, mark.flushed];
    within.into_iter().flatten().fold(mark.floor, Position::join).scalar()
}

fn encode(token: &SessionToken, issued_seconds: u64, dropped: &BTreeSet<ComponentKey>) -> Vec<u8> {
    let kept = || token.components().filter(|(key, _)| !dropped.contains(key));
    let marked = kept().flat_map(|(_, component)| component.marks().map(|(epoch, _)| epoch));
    let noticed = token.notices().flat_map(|notice| [notice.lost, notice.child]);
    let mut epochs: Vec<Epoch> = marked.chain(noticed).collect();
    epochs.sort_unstable();
    epochs.dedup();

    let mut writer = Writer::with_capacity(ORDINARY_BYTES);
    writer.byte(VERSION);
    let more = kept().any(|(_, component)| component.marks().any(|(_, mark)| mark.tells_more()));
    let overflow = token.overflow || !dropped.is_empty();
    let heard = tells_how_far(token);
    writer.byte(u8::from(overflow) | u8::from(more) << 1 | u8::from(heard) << 2);
    writer.number(issued_seconds);
    write_epochs(&mut writer, &epochs);
    writer.count(kept().count());
    for (key, component) in kept() {
        write_component(&mut writer, key, component, &epochs, more);
    }
    writer.count(token.notices().count());
    for notice in token.notices() {
        writer.number(u64::from(notice.partition.value()));
        writer.byte(kind_number(notice.kind));
        writer.count(place(&epochs, notice.lost));
        writer.count(place(&epochs, notice.child));
        writer.number(notice.told_seconds);
        write_upto(&mut writer, notice.upto, heard);
    }
    writer.count(token.acknowledged().count());
    for id in token.acknowledged() {
        writer.bytes(&id.loss().to_le_bytes());
        write_upto(&mut writer, id.upto(), heard);
    }
    writer.finish()
}

/// Says whether of some loss it is known how far it was told.
pub(super) fn tells_how_far(token: &SessionToken) -> bool {
    let told = token.notices().map(Notice::id).chain(token.acknowledged());
    told.map(NoticeId::upto).any(|upto| upto != Position::START)
}

fn write_upto(writer: &mut Writer, upto: Position, heard: bool) {
    if heard {
        writer.number(upto.scalar());
    }
}

fn place(epochs: &[Epoch], epoch: Epoch) -> usize {
    // Every epoch of the token is in the list; were it not, the place past its end is unreadable.
    epochs.binary_search(&epoch).unwrap_or(epochs.len())
}

fn write_epochs(writer: &mut Writer, epochs: &[Epoch]) {
    writer.count(epochs.len());
    let mut before: Option<i64> = None;
    for epoch in epochs {
        let Life { start, reset } = epoch.life;
        match before {
            None => writer.signed(start),
            Some(before) => writer.number(start.wrapping_sub(before).cast_unsigned()),
        }
        writer.signed(reset.wrapping_sub(start));
        writer.number(u64::from(epoch.timeline));
        before = Some(start);
    }
}

fn write_component(
    writer: &mut Writer,
    key: ComponentKey,
    component: &Component,
    epochs: &[Epoch],
    more: bool,
) {
    writer.number(u64::from(key.partition.value()));
    writer.bytes(&key.system_tag.to_le_bytes());
    writer.count(component.marks().count() << 1 | usize::from(component.unresolved));
    for (epoch, mark) in component.marks() {
        let floor = floor_of(&mark);
        writer.count(place(epochs, epoch));
        writer.number(floor);
        let within = [mark.after, mark.upto, mark.saw, mark.led, mark.flushed];
        for within in within.into_iter().take(if more { 5 } else { 3 }) {
            let distance = within.map(|x| u128::from(floor.saturating_sub(x.scalar())) + 1);
            writer.wide(distance.unwrap_or(0));
        }
    }
}

const fn kind_number(kind: NoticeKind) -> u8 {
    match kind {
        NoticeKind::PossiblyLost => 0,
        NoticeKind::ObservedStateLost => 1,
        NoticeKind::WriteLost => 2,
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
