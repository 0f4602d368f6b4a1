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

    /// The nodes of a partition whose item, in the order of the config, satisfies `holds`.
    #[inline]
    pub fn of<T>(items: &[T], mut holds: impl FnMut(&T) -> bool) -> Self {
        let mut bits = |items: &[T]| {
            items.iter().rev().fold(0, |bits, item| bits << 1 | u64::from(holds(item)))
        };
        if items.len() <= BITS {
            return Self([bits(items), 0, 0, 0]);
        }
        let mut words = items.chunks(BITS).map(bits);
        let mut next = || words.next().unwrap_or(0);
        Self([next(), next(), next(), next()])
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
    #[inline]
    pub fn len(&self) -> u32 {
        let held = self.0.iter().filter(|word| **word != 0);
        held.map(|word| word.count_ones()).sum()
    }

    /// Says whether no node is in it.
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, [0, 0, 0, 0])
    }

    /// Its node number `place`, counted from the lowest one.
    #[inline]
    pub fn nth(&self, place: u32) -> Option<NodeId> {
        let mut left = place;
        for (number, word) in (0_u16..).zip(&self.0) {
            let mut rest = *word;
            while rest != 0 {
                if left == 0 {
                    return Some(NodeId::new(number * 64 + low_bit(rest)));
                }
                left -= 1;
                rest &= rest - 1;
            }
        }
        None
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
        fn it_is_the_set_of_items_that_hold(items in prop::collection::vec(any::<bool>(), 0..300)) {
            let set = NodeSet::of(&items, |holds| *holds);
            for (number, holds) in (0..).zip(&items) {
                let within = usize::from(number) < NodeSet::LIMIT;
                prop_assert_eq!(set.contains(NodeId::new(number)), *holds && within);
            }
        }

        #[test]
        fn it_is_the_set_of_what_was_inserted(numbers in prop::collection::vec(0_u16..300, 0..40)) {
            let set: NodeSet = numbers.iter().copied().map(NodeId::new).collect();
            let naive: BTreeSet<u16> = numbers.into_iter().filter(|n| *n < 256).collect();
            prop_assert_eq!(set.len() as usize, naive.len());
            prop_assert_eq!(set.is_empty(), naive.is_empty());
            let nodes: Vec<NodeId> = naive.iter().copied().map(NodeId::new).collect();
            prop_assert_eq!(&set.iter().collect::<Vec<_>>(), &nodes);
            for place in 0..50 {
                let node = nodes.get(place as usize).copied();
                prop_assert_eq!(set.nth(place), node);
            }
            for number in 0..300 {
                prop_assert_eq!(set.contains(NodeId::new(number)), naive.contains(&number));
            }
        }
    }
}
