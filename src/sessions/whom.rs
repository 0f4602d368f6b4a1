//! Who is raised by a call, and which part of its change each holder takes.
//!
//! It changes nothing and asks no store.

use tidegate_core::token::{Change, SessionToken};

use super::Holder;

/// What a call did, and so whom it raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whom {
    /// It wrote: every holder named is raised, the record first, and the answer has the token.
    Write,
    /// It read.
    Read(RaiseWhom),
}

/// Whom a read raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RaiseWhom {
    /// The token, or the record where no token was carried.
    #[default]
    TokenOrRecord,
    /// Both: no other device of the subject reads behind this one then.
    All,
    /// Nobody.
    None,
}

/// The holders of one caller that a change raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reach {
    pub(super) token: bool,
    pub(super) record: bool,
    /// The call fails if the record cannot be raised; else the token is raised for it.
    pub(super) record_must: bool,
}

impl Reach {
    /// The holders a call raises; `None` if nothing is to be changed at all.
    ///
    /// Where neither token nor subject is named, the answer's token is all the session there is.
    pub(super) const fn of(whom: Whom, holder: &Holder) -> Option<Self> {
        let (subject, carries) = (holder.has_subject(), holder.carries_token());
        let token = carries || !subject;
        match whom {
            Whom::Write => Some(Self { token: true, record: subject, record_must: true }),
            Whom::Read(RaiseWhom::TokenOrRecord) => {
                Some(Self { token, record: !token, record_must: false })
            }
            Whom::Read(RaiseWhom::All) => Some(Self { token, record: subject, record_must: false }),
            Whom::Read(RaiseWhom::None) => None,
        }
    }

    /// Every holder named.
    pub(super) const fn named(holder: &Holder) -> Self {
        let subject = holder.has_subject();
        Self { token: holder.carries_token() || !subject, record: subject, record_must: true }
    }
}

/// The part of `change` that one holder takes, which holds `held`; `None`: it is left alone.
///
/// A holder that is not `raised` takes it only where it has marks that were replaced or a demand
/// that was met, together with what they were replaced by.
pub(super) fn part_of(change: &Change, held: &SessionToken, raised: bool) -> Option<Change> {
    let component = |key| held.component(key);
    let replaced = change
        .drop
        .iter()
        .any(|(key, epoch, _)| component(*key).is_some_and(|own| own.mark(*epoch).is_some()));
    // What was judged is the join of both holders; each is settled as it was joined.
    let settle: Vec<_> = change
        .settle
        .iter()
        .filter_map(|(key, _)| Some((*key, component(*key)?.clone())))
        .filter(|(_, own)| own.unresolved)
        .collect();
    if !raised && !replaced && settle.is_empty() {
        return None;
    }
    let told = replaced || (raised && change.drop.is_empty());
    Some(Change {
        drop: change.drop.clone(),
        settle,
        join: change.join.clone(),
        tell: if told { change.tell.clone() } else { Vec::new() },
        acknowledge: if raised { change.acknowledge.clone() } else { Vec::new() },
    })
}
