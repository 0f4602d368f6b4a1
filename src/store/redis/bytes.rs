//! `KnownBytes`: what records held when they were last seen, for the first guess of a write.
//!
//! A guess only: a write whose guess is wrong writes nothing. Nothing is answered from here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::record::Held;
use crate::ports::SubjectKey;

/// Records remembered: those that were looked up or raised a moment ago.
const RECORDS_MAX: usize = 16 * 1024;
/// Parts, so that calls seldom wait for each other.
const PARTS: usize = 16;

/// What records held when they were last seen.
#[derive(Debug, Default)]
pub(super) struct KnownBytes {
    parts: [Mutex<Part>; PARTS],
}

/// The old half goes when the young one is full.
#[derive(Debug, Default)]
struct Part {
    young: HashMap<SubjectKey, Held>,
    old: HashMap<SubjectKey, Held>,
}

impl KnownBytes {
    fn part(&self, subject: SubjectKey) -> Option<&Mutex<Part>> {
        let [.., last] = *subject.as_bytes();
        self.parts.get(usize::from(last) % PARTS)
    }

    /// Notes what the record of a subject holds.
    pub(super) fn note(&self, subject: SubjectKey, held: Held) {
        let Some(part) = self.part(subject) else { return };
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        part.young.insert(subject, held);
        if part.young.len() >= RECORDS_MAX / PARTS / 2 {
            part.old = std::mem::take(&mut part.young);
        }
    }

    /// What it held, and forgets it: the write that uses it notes what it holds then.
    pub(super) fn take(&self, subject: SubjectKey) -> Option<Held> {
        let mut part = self.part(subject)?.lock().unwrap_or_else(PoisonError::into_inner);
        let old = part.old.remove(&subject);
        part.young.remove(&subject).or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(number: usize) -> SubjectKey {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(number.to_le_bytes()) {
            *to = from;
        }
        SubjectKey::new(bytes)
    }

    #[test]
    fn the_newest_are_known_and_no_more_than_the_bound() {
        let known = KnownBytes::default();
        for number in 0..RECORDS_MAX * 2 {
            known.note(subject(number), Held::Bytes(vec![1]));
        }
        let held = |part: &Mutex<Part>| {
            let part = part.lock().expect("nobody panicked");
            part.young.len() + part.old.len()
        };
        assert!(known.parts.iter().map(held).sum::<usize>() <= RECORDS_MAX);
        let last = subject(RECORDS_MAX * 2 - 1);
        known.note(last, Held::Nothing);
        assert_eq!(known.take(last), Some(Held::Nothing), "the newest");
        assert_eq!(known.take(last), None, "it was taken");
        assert_eq!(known.take(subject(0)), None, "long gone");
    }
}
