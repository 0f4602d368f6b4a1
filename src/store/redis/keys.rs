//! `Layout`: the keys of a store, and in which bucket each lies.
//!
//! All keys of a bucket lie in one slot of a Redis Cluster, so one server holds them at any time
//! and answers for them at once: records, and the generation that vouches for them. It reads and
//! writes nothing.

use std::fmt::Write as _;

use redis::cluster_routing::Slot;
use tidegate_core::token::PartitionId;

use super::settings::RedisSettings;
use crate::config::Topology;
use crate::ports::SubjectKey;

/// Buckets of a cluster: enough to spread over its servers, few enough to keep each believed.
const BUCKETS_OF_A_CLUSTER: u16 = 64;

/// Records whose keys lie together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Bucket(u16);

impl Bucket {
    /// The bucket of what belongs to no subject.
    pub(super) const FIRST: Self = Self(0);

    pub(super) fn nth(index: usize) -> Self {
        Self(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Its place among the buckets of its store.
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The keys of a store.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// What the keys of each bucket begin with.
    prefixes: Vec<String>,
    slots: Vec<Slot>,
}

impl Layout {
    /// The keys that `settings` ask for.
    pub(super) fn of(settings: &RedisSettings) -> Self {
        let buckets = match settings.topology {
            Topology::Single | Topology::Sentinel { .. } => 1,
            Topology::Cluster => BUCKETS_OF_A_CLUSTER,
        };
        let prefixes: Vec<String> = (0..buckets).map(|bucket| settings.prefix(bucket)).collect();
        let slots = prefixes.iter().map(Slot::for_key).collect();
        Self { prefixes, slots }
    }

    /// Every bucket.
    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> + use<> {
        let count = u16::try_from(self.prefixes.len()).unwrap_or(u16::MAX);
        (0..count).map(Bucket)
    }

    /// Where the record of a subject lies.
    pub(super) fn bucket(&self, subject: SubjectKey) -> Bucket {
        let [first, second, ..] = *subject.as_bytes();
        let count = u16::try_from(self.prefixes.len()).unwrap_or(u16::MAX).max(1);
        Bucket(u16::from_be_bytes([first, second]) % count)
    }

    /// The slot of a bucket.
    pub(super) fn slot(&self, bucket: Bucket) -> Slot {
        let known = self.slots.get(bucket.index()).copied();
        known.unwrap_or_else(|| Slot::for_key(self.generation(bucket)))
    }

    /// The key of a subject's record.
    pub(super) fn record(&self, subject: SubjectKey) -> String {
        let mut key = self.key(self.bucket(subject), "r:");
        for byte in subject.as_bytes() {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
        key
    }

    /// The key of a bucket's generation.
    pub(super) fn generation(&self, bucket: Bucket) -> String {
        self.key(bucket, "g")
    }

    /// The key of the facts of a partition.
    pub(super) fn facts(&self, partition: PartitionId) -> String {
        self.key(Bucket::FIRST, &format!("f:{}", partition.value()))
    }

    /// The key of the shares of a partition's fallback cap.
    pub(super) fn quota(&self, partition: PartitionId) -> String {
        self.key(Bucket::FIRST, &format!("q:{}", partition.value()))
    }

    /// A key that never exists: removing it is a write that changes nothing.
    pub(super) fn nothing(&self, bucket: Bucket) -> String {
        self.key(bucket, "n")
    }

    fn key(&self, bucket: Bucket, rest: &str) -> String {
        let prefix = self.prefixes.get(bucket.index()).map_or("", String::as_str);
        let mut key = String::with_capacity(prefix.len() + rest.len() + 32);
        key.push_str(prefix);
        key.push_str(rest);
        key
    }
}
