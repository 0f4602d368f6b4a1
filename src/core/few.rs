//! `Few`: a list that is one item long as a rule, and allocates nothing then.
//!
//! It is read as a slice. It is no set, keeps no order and bounds nothing: whoever adds does.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A list that allocates from its second item on.
#[derive(Clone)]
pub struct Few<T>(Held<T>);

#[derive(Clone)]
enum Held<T> {
    None,
    One([T; 1]),
    More(Vec<T>),
}

impl<T> Few<T> {
    /// The list of nothing.
    pub const fn none() -> Self {
        Self(Held::None)
    }

    /// The list of one item.
    pub const fn one(item: T) -> Self {
        Self(Held::One([item]))
    }

    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        self.0 = match std::mem::replace(&mut self.0, Held::None) {
            Held::None => Held::One([item]),
            Held::One([first]) => Held::More(vec![first, item]),
            Held::More(mut items) => {
                items.push(item);
                Held::More(items)
            }
        };
    }

    /// Adds an item before the one at `place`, or at the end where there is none.
    pub fn insert(&mut self, place: usize, item: T) {
        self.0 = match std::mem::replace(&mut self.0, Held::None) {
            Held::None => Held::One([item]),
            Held::One([own]) if place == 0 => Held::More(vec![item, own]),
            Held::One([own]) => Held::More(vec![own, item]),
            Held::More(mut items) => {
                items.insert(place.min(items.len()), item);
                Held::More(items)
            }
        };
    }

    /// Takes the item at `place` out; `None` if there is none.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        if place >= self.len() {
            return None;
        }
        match std::mem::replace(&mut self.0, Held::None) {
            Held::None => None,
            Held::One([item]) => Some(item),
            Held::More(mut items) => {
                let item = items.remove(place);
                self.0 = Held::More(items);
                Some(item)
            }
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Held::None => &[],
            Held::One(item) => item,
            Held::More(items) => items,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Held::None => &mut [],
            Held::One(item) => item,
            Held::More(items) => items,
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut few = Self::none();
        items.into_iter().for_each(|item| few.push(item));
        few
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq> PartialEq for Few<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_list_that_was_pushed_whatever_its_length() {
        let (mut few, mut list) = (Few::none(), Vec::new());
        for item in 0..5 {
            assert_eq!(*few, *list);
            assert_eq!(few, list.iter().copied().collect());
            assert_eq!(format!("{few:?}"), format!("{list:?}"));
            few.push(item);
            list.push(item);
        }
        few.iter_mut().for_each(|item| *item += 10);
        assert_eq!(*few, [10, 11, 12, 13, 14]);
    }

    #[test]
    fn items_come_and_go_as_in_a_list() {
        for places in [[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 2], [0, 1, 0, 3]] {
            let (mut few, mut list) = (Few::none(), Vec::new());
            for (item, place) in places.into_iter().enumerate() {
                few.insert(place, item);
                list.insert(place, item);
                assert_eq!(*few, *list);
            }
            assert_eq!(few.remove(list.len()), None);
            for place in [3, 1, 0, 0] {
                assert_eq!(few.remove(place), Some(list.remove(place)));
                assert_eq!(*few, *list);
                assert_eq!(few, list.iter().copied().collect());
            }
            assert_eq!((few.remove(0), few.len()), (None, 0));
        }
    }

    #[test]
    fn lists_of_another_length_or_item_are_not_equal() {
        assert_ne!(Few::none(), Few::one(0));
        assert_ne!(Few::one(1), Few::one(0));
        assert_ne!(Few::one(0), [0, 0].into_iter().collect());
    }
}
