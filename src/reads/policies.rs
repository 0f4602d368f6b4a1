//! `Policies`: what requests may call by a name.
//!
//! Read by every call that names one, without a lock, and replaced as a whole: a read that was
//! parsed keeps the policy it was parsed with. Where names come from it does not know.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::routing::Policy;

use crate::sessions::RaiseWhom;

/// Names an error lists: enough to see which one was meant.
const NAMES_LISTED: usize = 16;

/// What one read asks of its policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadPolicy {
    /// How fresh, and what may be done for it.
    pub policy: Policy,
    /// Whom a read raises.
    pub raise: RaiseWhom,
    /// A lost write is an error.
    pub loss_is_error: bool,
}

/// Policies by their names.
pub type NamedPolicies = BTreeMap<String, ReadPolicy>;

/// The policies of one instance that have a name.
#[derive(Debug, Default)]
pub struct Policies(ArcSwap<NamedPolicies>);

impl Policies {
    /// These policies, until they are replaced.
    pub fn new(named: NamedPolicies) -> Self {
        Self(ArcSwap::from_pointee(named))
    }

    /// The policy of a name.
    pub fn named(&self, name: &str) -> Option<ReadPolicy> {
        self.0.load().get(name).cloned()
    }

    /// The names there are, for people; a bounded list.
    pub fn known(&self) -> String {
        let named = self.0.load();
        let listed: Vec<&str> = named.keys().take(NAMES_LISTED).map(String::as_str).collect();
        match named.len().saturating_sub(listed.len()) {
            0 => listed.join(", "),
            more => format!("{} and {more} more", listed.join(", ")),
        }
    }

    /// From now on calls find these, and no others.
    pub fn replace(&self, named: NamedPolicies) {
        self.0.store(Arc::new(named));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_core::routing::Level;

    fn waiting(millis: u64) -> ReadPolicy {
        let policy = Policy {
            level: Level::Session,
            bound: None,
            wait_budget: Duration::from_millis(millis),
            may_fall_back: true,
            above_cap: vec![],
            zone: None,
        };
        ReadPolicy { policy, raise: RaiseWhom::TokenOrRecord, loss_is_error: false }
    }

    fn of(names: impl IntoIterator<Item = String>) -> NamedPolicies {
        names.into_iter().zip(1..).map(|(name, millis)| (name, waiting(millis))).collect()
    }

    #[test]
    fn a_name_finds_what_it_was_replaced_by_and_nothing_once_it_is_gone() {
        let policies = Policies::new(of(["a".to_owned(), "b".to_owned()]));
        assert_eq!(policies.named("b"), Some(waiting(2)));
        policies.replace(of(["b".to_owned()]));
        assert_eq!((policies.named("a"), policies.named("b")), (None, Some(waiting(1))));
        assert_eq!(Policies::default().named("b"), None);
    }

    #[test]
    fn the_names_told_are_bounded() {
        assert_eq!(Policies::default().known(), "");
        assert_eq!(Policies::new(of(["b", "a"].map(str::to_owned))).known(), "a, b");
        let known = Policies::new(of((10..74).map(|n| format!("p{n}")))).known();
        assert!(known.starts_with("p10, p11,") && known.ends_with("p25 and 48 more"), "{known}");
    }
}
