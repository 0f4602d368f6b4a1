//! Reads a token body, and refuses whatever `SessionToken::encode` does not write.
//!
//! The form is described in `body`. It allocates only what it has read, never what a count claims,
//! and says nothing of what a token means.

use super::body::{VERSION, tells_how_far};
use super::body_bytes::Reader;
use super::session_token::{COMPONENTS_MAX, MARKS_MAX, NOTICES_MAX};
use super::{
    BodyError, BodyLimits, Component, ComponentKey, Mark, Notice, NoticeId, NoticeKind,
    PartitionId, SessionToken,
};
use crate::few::Few;
use crate::lineage::{Epoch, Life};
use crate::position::{Lsn, Position};

/// Epochs a full token can name.
const EPOCHS_MAX: usize = COMPONENTS_MAX * MARKS_MAX + 2 * NOTICES_MAX;

pub(super) fn read(bytes: &[u8], limits: BodyLimits) -> Result<(SessionToken, u64), BodyError> {
    let mut reader = Reader::new(bytes);
    let version = known(reader.byte(), "version")?;
    if version != VERSION {
        return Err(BodyError::Version { version });
    }
    Body { reader, epochs: Few::none(), more: false, heard: false }.token(limits)
}

fn known<T>(read: Option<T>, part: &'static str) -> Result<T, BodyError> {
    read.ok_or(BodyError::Malformed { part })
}

const fn kind_of(number: u8) -> Option<NoticeKind> {
    match number {
        0 => Some(NoticeKind::PossiblyLost),
        1 => Some(NoticeKind::ObservedStateLost),
        2 => Some(NoticeKind::WriteLost),
        _ => None,
    }
}

fn tells_more(token: &SessionToken) -> bool {
    let mut marks = token.components().flat_map(|(_, component)| component.marks());
    marks.any(|(_, mark)| mark.tells_more())
}

/// A body being read.
struct Body<'a> {
    reader: Reader<'a>,
    /// Each with whether something referred to it.
    epochs: Few<(Epoch, bool)>,
    /// Its marks tell where they were read and what was flushed.
    more: bool,
    /// Its notices tell how far they go.
    heard: bool,
}

impl Body<'_> {
    fn token(mut self, limits: BodyLimits) -> Result<(SessionToken, u64), BodyError> {
        let mut token = SessionToken::new();
        token.overflow = known(self.flags(), "flags")?;
        let issued_seconds = known(self.reader.number(), "issue time")?;
        known(self.read_epochs(), "epochs")?;
        let components = known(self.reader.count(), "components")?;
        let limit = limits.components.min(COMPONENTS_MAX);
        if components > limit {
            return Err(BodyError::TooLarge { what: "components", found: components, limit });
        }
        known(self.read_components(components, &mut token), "components")?;
        if self.more && !tells_more(&token) {
            return Err(BodyError::Malformed { part: "flags" });
        }
        let notices = known(self.read_notices(), "notices")?;
        known(self.read_acknowledged(&mut token), "acknowledged ids")?;
        for notice in &notices {
            if token.acknowledged().any(|id| id.covers(notice.id())) {
                return Err(BodyError::Malformed { part: "notices" });
            }
            token.tell(*notice);
        }
        if self.heard && !tells_how_far(&token) {
            return Err(BodyError::Malformed { part: "flags" });
        }
        if self.epochs.iter().any(|(_, used)| !used) {
            return Err(BodyError::Malformed { part: "epochs" });
        }
        if !self.reader.is_at_end() {
            return Err(BodyError::Malformed { part: "end" });
        }
        Ok((token, issued_seconds))
    }

    /// Says whether something was dropped.
    fn flags(&mut self) -> Option<bool> {
        let flags = self.reader.byte().filter(|flags| flags >> 3 == 0)?;
        self.more = flags & 2 == 2;
        self.heard = flags & 4 == 4;
        Some(flags & 1 == 1)
    }

    fn read_epochs(&mut self) -> Option<()> {
        let count = self.reader.count().filter(|count| *count <= EPOCHS_MAX)?;
        for _ in 0..count {
            let before = self.epochs.last().map(|(epoch, _)| *epoch);
            let start = match before {
                None => self.reader.signed()?,
                Some(epoch) => epoch.life.start.checked_add_unsigned(self.reader.number()?)?,
            };
            let reset = start.wrapping_add(self.reader.signed()?);
            let epoch = Epoch::new(self.reader.small()?, Life { start, reset });
            if before.is_some_and(|before| before >= epoch) {
                return None;
            }
            self.epochs.push((epoch, false));
        }
        Some(())
    }

    fn epoch(&mut self) -> Option<Epoch> {
        let place = self.reader.count()?;
        let (epoch, used) = self.epochs.get_mut(place)?;
        *used = true;
        Some(*epoch)
    }

    fn read_components(&mut self, count: usize, token: &mut SessionToken) -> Option<()> {
        let mut before: Option<ComponentKey> = None;
        for _ in 0..count {
            let partition = PartitionId::new(self.reader.small()?);
            let system_tag = u32::from_le_bytes(self.reader.array()?);
            let key = ComponentKey { partition, system_tag };
            if before.is_some_and(|before| before >= key) {
                return None;
            }
            before = Some(key);
            token.replace_component(key, self.component()?);
        }
        Some(())
    }

    fn component(&mut self) -> Option<Component> {
        let head = self.reader.byte()?;
        let (kind, marks, unresolved) = (head >> 4, usize::from(head >> 1 & 7), head & 1 == 1);
        if kind != 0 || marks > MARKS_MAX || (marks == 0 && !unresolved) {
            return None;
        }
        let mut component = Component::default();
        component.unresolved = unresolved;
        let mut before: Option<Epoch> = None;
        for _ in 0..marks {
            let epoch = self.epoch()?;
            if before.is_some_and(|before| before >= epoch) {
                return None;
            }
            before = Some(epoch);
            component.raise(epoch, self.mark()?);
        }
        Some(component)
    }

    fn mark(&mut self) -> Option<Mark> {
        let floor = self.reader.number()?;
        let mut within: [Option<Position>; 5] = [None; 5];
        for position in within.iter_mut().take(if self.more { 5 } else { 3 }) {
            if let Some(distance) = self.reader.wide()?.checked_sub(1) {
                let value = floor.checked_sub(u64::try_from(distance).ok()?)?;
                *position = Some(Lsn::new(value).into());
            }
        }
        let [after, upto, saw, led, flushed] = within;
        let led = if self.more { led } else { saw };
        let is_possible = match (led, saw) {
            (Some(led), Some(saw)) => saw.covers(led),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let floor = Lsn::new(floor).into();
        is_possible.then_some(Mark { floor, after, upto, saw, led, flushed })
    }

    fn read_notices(&mut self) -> Option<Vec<Notice>> {
        let count = self.reader.count().filter(|count| *count <= NOTICES_MAX)?;
        let mut notices: Vec<Notice> = Vec::new();
        for _ in 0..count {
            let partition = PartitionId::new(self.reader.small()?);
            let kind = kind_of(self.reader.byte()?)?;
            let (lost, child) = (self.epoch()?, self.epoch()?);
            let told_seconds = self.reader.number()?;
            let upto = self.upto()?;
            let notice = Notice { partition, kind, lost, child, upto, told_seconds };
            let loss = notice.id().loss();
            if notices.last().is_some_and(|before| before.id().loss() >= loss) {
                return None;
            }
            notices.push(notice);
        }
        Some(notices)
    }

    fn read_acknowledged(&mut self, token: &mut SessionToken) -> Option<()> {
        let count = self.reader.count().filter(|count| *count <= NOTICES_MAX)?;
        let mut before: Option<u64> = None;
        for _ in 0..count {
            let loss = u64::from_le_bytes(self.reader.array()?);
            if before.is_some_and(|before| before >= loss) {
                return None;
            }
            before = Some(loss);
            let upto = self.upto()?;
            token.acknowledge(NoticeId::new(loss, upto));
        }
        Some(())
    }

    fn upto(&mut self) -> Option<Position> {
        if !self.heard {
            return Some(Position::START);
        }
        self.reader.number().map(|upto| Lsn::new(upto).into())
    }
}
