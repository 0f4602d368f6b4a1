//! `Partitions`: the partitions of this instance by name and by system id. Fixed while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::lineage::SystemId;
use tidegate_core::token::PartitionId;

use super::PartitionHandle;

/// The partitions of this instance.
#[derive(Clone, Debug, Default)]
pub struct Partitions {
    by_name: BTreeMap<String, Arc<PartitionHandle>>,
}

impl Partitions {
    /// The partitions given, by their names.
    pub fn new(handles: impl IntoIterator<Item = Arc<PartitionHandle>>) -> Self {
        let named = handles.into_iter().map(|handle| (handle.info().name.clone(), handle));
        Self { by_name: named.collect() }
    }

    /// The partition of this name. The empty name is the only partition, if there is only one.
    pub fn named(&self, name: &str) -> Option<&Arc<PartitionHandle>> {
        if name.is_empty() && self.by_name.len() == 1 {
            return self.by_name.values().next();
        }
        self.by_name.get(name)
    }

    /// The partition with this number.
    pub fn numbered(&self, id: PartitionId) -> Option<&Arc<PartitionHandle>> {
        self.by_name.values().find(|handle| handle.info().id == id)
    }

    /// The partition this database cluster is.
    pub fn of_system(&self, system: SystemId) -> Option<&Arc<PartitionHandle>> {
        self.by_name.values().find(|handle| handle.info().system == system)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<PartitionHandle>> {
        self.by_name.values()
    }
}
