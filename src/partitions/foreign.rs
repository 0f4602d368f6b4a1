//! Other instances seen beside this one, as an operator is told of them. What they mean for the
//! store is said elsewhere.

use std::sync::{Mutex, PoisonError};

use tracing::warn;

use super::PartitionInfo;
use super::feed::Feed;

/// Logs and tells whoever watches what a look changed: whether others count as being there, and who
/// was `seen`.
pub(super) fn report(info: &PartitionInfo, feed: &Feed, beside_others: bool, seen: &[String]) {
    let partition = info.name.as_str();
    match feed.beside(beside_others, seen) {
        Some(Change::Came(others)) => warn!(
            partition,
            ?others,
            "other instances are connected, and each keeps its records in its own memory: every \
             subject is unknown; set `store.kind` to \"redis\" for all, or stop all but one"
        ),
        Some(Change::Gone) => warn!(
            partition,
            "the other instances are gone: what they had recorded is lost, subjects are judged by \
             the leader's position of now"
        ),
        None => {}
    }
}

/// The others seen last, as servers list them; none while nobody is there.
#[derive(Debug, Default)]
pub(super) struct Foreign(Mutex<Vec<String>>);

/// What a look changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Others are there: these.
    Came(Vec<String>),
    /// They are gone.
    Gone,
}

impl Foreign {
    /// Notes whether others count as being there, and who a look showed; says what that changes.
    pub(super) fn note(&self, beside_others: bool, seen: &[String]) -> Option<Change> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !beside_others {
            let were_there = !known.is_empty();
            known.clear();
            return were_there.then_some(Change::Gone);
        }
        if seen.is_empty() || *known == seen {
            return None;
        }
        let is_news = known.is_empty();
        *known = seen.to_vec();
        is_news.then(|| Change::Came(seen.to_vec()))
    }

    /// Who is there.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_come_once_and_go_once_whatever_single_looks_miss() {
        let foreign = Foreign::default();
        let one = ["b".to_owned()];
        assert_eq!(foreign.note(false, &[]), None);
        assert_eq!(foreign.note(true, &one), Some(Change::Came(one.to_vec())));
        assert_eq!(foreign.note(true, &[]), None, "it may be back");
        assert_eq!(foreign.note(true, &["c".to_owned()]), None);
        assert_eq!(foreign.names(), ["c"]);
        assert_eq!(foreign.note(false, &[]), Some(Change::Gone));
        assert_eq!(foreign.note(false, &[]), None);
        assert!(foreign.names().is_empty());
    }
}
