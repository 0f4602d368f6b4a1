//! Named policies of the configuration as reads find them. Checks nothing: the configuration did.

use crate::config::{self, OnLost, Raise};
use crate::reads::policies::{NamedPolicies, ReadPolicy};
use crate::sessions::RaiseWhom;

/// The policies of a configuration, by their names.
pub(in crate::server) fn named(policies: &[config::Policy]) -> NamedPolicies {
    policies.iter().map(|policy| (policy.name.as_str().to_owned(), read(policy))).collect()
}

fn read(policy: &config::Policy) -> ReadPolicy {
    ReadPolicy {
        policy: policy.rule.clone(),
        raise: match policy.raise {
            Raise::TokenOrRecord => RaiseWhom::TokenOrRecord,
            Raise::All => RaiseWhom::All,
            Raise::None => RaiseWhom::None,
        },
        loss_is_error: match policy.on_lost {
            OnLost::Notice => false,
            OnLost::Error => true,
        },
    }
}
