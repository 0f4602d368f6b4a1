//! `text`: incarnations and epochs as answers write them, made once while the same few are named.
//!
//! A text follows from its value alone, so none kept here can be out of date. It decides nothing.

use std::cell::RefCell;
use std::fmt::{Display, Write};

use tidegate_core::lineage::{Epoch, Incarnation};

/// Values of each kind whose texts one thread keeps; the oldest makes room for another.
const KEPT_MAX: usize = 8;
/// Room for three numbers of at most 20 digits: a text need not grow while it is written.
const TEXT_BYTES: usize = 64;

thread_local! {
    // Of each thread its own: reads of two threads share nothing that either would write.
    static INCARNATIONS: RefCell<Vec<(Incarnation, String)>> = const { RefCell::new(Vec::new()) };
    static EPOCHS: RefCell<Vec<(Epoch, String)>> = const { RefCell::new(Vec::new()) };
}

/// The text of an incarnation.
pub(super) fn incarnation(incarnation: &Incarnation) -> String {
    INCARNATIONS.with_borrow_mut(|kept| text(kept, *incarnation))
}

/// The text of an epoch; empty without one.
pub(super) fn epoch(epoch: Option<Epoch>) -> String {
    epoch.map_or_else(String::new, |epoch| EPOCHS.with_borrow_mut(|kept| text(kept, epoch)))
}

fn text<T: PartialEq + Display>(kept: &mut Vec<(T, String)>, value: T) -> String {
    if let Some((_, text)) = kept.iter().find(|(own, _)| *own == value) {
        return text.clone();
    }
    let mut text = String::with_capacity(TEXT_BYTES);
    // Writing to a string cannot fail.
    _ = write!(text, "{value}");
    if kept.len() >= KEPT_MAX {
        kept.remove(0);
    }
    kept.push((value, text.clone()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::lineage::Life;

    #[test]
    fn a_text_is_that_of_its_value_however_many_came_before() {
        let mut kept = Vec::new();
        for start in (0..3).chain(0..20).chain(0..3).chain([i64::MIN, i64::MAX]) {
            let value = Epoch::new(u32::MAX, Life { start, reset: -start.max(-1) });
            for _ in 0..2 {
                assert_eq!(text(&mut kept, value), value.to_string());
                assert!(kept.len() <= KEPT_MAX);
            }
        }
        assert_eq!(epoch(None), "");
    }
}
