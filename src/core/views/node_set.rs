//! `NodeSet`: some nodes of one partition, held in place.
//!
//! It holds the nodes a partition may have and no others: a node past them is never in it.

use super::NodeId;

const WORDS: usize = 4;
const BITS: usize = 64;

/// Some nodes of one partition.
///
/// Invariant: a node numbered [`NodeSet::LIMIT`] or above is not in it, so it serves nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeSet([u64; WORDS]);

impl NodeSet {
    /// Nodes it can hold: as many as the largest partition has.
    pub const LIMIT: usize = WORDS * BITS;

    /// The set of no node.
    pub const fn new() -> Self {
        Self([0; WORDS])
    }

    /// Takes a node in.
    pub fn insert(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(node.index() / BITS) {
            *word |= 1 << (node.index() % BITS);
        }
    }

    /// Says whether a node is in it.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.get(node.index() / BITS).is_some_and(|word| word >> (node.index() % BITS) & 1 == 1)
    }

    /// The number of nodes in it.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Says whether no node is in it.
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, [0, 0, 0, 0])
    }

    /// Its nodes, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + use<> {
        let words = self.0;
        (0_u16..).zip(words).flat_map(|(place, word)| {
            let lowest = |left: &u64| Some(left & (left - 1)).filter(|rest| *rest != 0);
            let lefts = std::iter::successors(Some(word).filter(|word| *word != 0), lowest);
            lefts.map(move |left| NodeId::new(place * 64 + low_bit(left)))
        })
    }
}

/// The place of the lowest bit that is set.
const fn low_bit(word: u64) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "it is at most 64")]
    let place = word.trailing_zeros() as u16;
    place
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = Self::new();
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_node_past_the_limit_is_never_in_it() {
        for number in [256, 257, 320, u16::MAX] {
            let set = NodeSet::from_iter([NodeId::new(number)]);
            assert!(set.is_empty() && !set.contains(NodeId::new(number)), "{number}");
        }
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_inserted(numbers in prop::collection::vec(0_u16..300, 0..40)) {
            let set: NodeSet = numbers.iter().copied().map(NodeId::new).collect();
            let naive: BTreeSet<u16> = numbers.into_iter().filter(|n| *n < 256).collect();
            prop_assert_eq!(set.len() as usize, naive.len());
            prop_assert_eq!(set.is_empty(), naive.is_empty());
            let nodes: Vec<NodeId> = naive.iter().copied().map(NodeId::new).collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), nodes);
            for number in 0..300 {
                prop_assert_eq!(set.contains(NodeId::new(number)), naive.contains(&number));
            }
        }
    }
}
