//! One keyring after another while tokens of both are out: accept, then seal, then retire.
//!
//! Any other order makes sessions unknown: slower, never staler. It is refused all the same, since
//! nobody means it. It knows this instance alone: that every other one accepts a key before the
//! first seals with it is for the operator to see to.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tidegate_core::instant::Instant;

use super::Keyring;
use super::held::HeldKey;

/// Why one keyring may not follow another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeysRefused {
    /// A key would seal that was not even accepted.
    #[error(
        "key {key_id:#04x} would sign tokens that no instance accepts yet: name it last, at every \
         instance, and first with a later reload"
    )]
    SealsUnaccepted {
        /// Which.
        key_id: u8,
    },
    /// A key would go while tokens of it may be out.
    #[error(
        "key {key_id:#04x} is still in use and would be removed: tokens it signed or opened may be \
         good yet. Name it last; if nobody brings one of them, it may go in {left}",
        left = in_words(*left)
    )]
    InUse {
        /// Which.
        key_id: u8,
        /// The time until it may go, if it is not used again.
        left: Duration,
    },
}

/// Whole seconds, rounded up: the reader waits at least so long.
fn in_words(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h {minutes}m {seconds}s"),
    }
}

impl Keyring {
    /// The same keys, all accepted from `now` on.
    pub fn accepted_from(&self, now: Instant) -> Self {
        let fresh = |held: &Arc<HeldKey>| Arc::new(HeldKey::new(held.key.clone(), now));
        Self {
            tag: self.tag,
            limit_chars: self.limit_chars,
            sealing: fresh(&self.sealing),
            older: self.older.iter().map(fresh).collect(),
        }
    }

    /// `next`, with what is known of the use of the keys that both have; `None`: they are the same.
    ///
    /// # Errors
    /// [`KeysRefused`] if `next` may not follow now, where tokens are good for `lifetime`.
    pub fn followed_by(
        &self,
        next: &Self,
        lifetime: Duration,
        now: Instant,
    ) -> Result<Option<Self>, KeysRefused> {
        let same = |held: &HeldKey| self.keys().find(|own| own.key.is(&held.key));
        let gone = self.keys().filter(|own| !next.keys().any(|held| held.key.is(&own.key)));
        for own in gone {
            let left = own.free_at(lifetime).since(now);
            if !left.is_zero() {
                return Err(KeysRefused::InUse { key_id: own.id, left });
            }
        }
        if same(&next.sealing).is_none() {
            return Err(KeysRefused::SealsUnaccepted { key_id: next.sealing.id });
        }
        let kept = |held: &Arc<HeldKey>| match same(held) {
            Some(own) => Arc::clone(own),
            None => Arc::new(HeldKey::new(held.key.clone(), now)),
        };
        let next = Self {
            tag: self.tag,
            limit_chars: self.limit_chars,
            sealing: kept(&next.sealing),
            older: next.older.iter().map(kept).collect(),
        };
        let pairs = |(own, held): (&Arc<HeldKey>, &Arc<HeldKey>)| Arc::ptr_eq(own, held);
        let is_same =
            self.older.len() == next.older.len() && self.keys().zip(next.keys()).all(pairs);
        Ok((!is_same).then_some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Keys of different ids.
    fn keys<const N: usize>() -> [Key; N] {
        let mut found: Vec<Key> = Vec::new();
        while found.len() < N {
            let key = Key::generate().expect("random");
            if found.iter().all(|other| other.id() != key.id()) {
                found.push(key);
            }
        }
        found.try_into().expect("as many as were asked for")
    }

    fn ring(keys: &[&Key]) -> Keyring {
        let held = |key: &&Key| Arc::new(HeldKey::new((*key).clone(), Instant::default()));
        let mut held = keys.iter().map(held);
        let sealing = held.next().expect("a key");
        Keyring { tag: [7; 8], limit_chars: 8192, sealing, older: held.collect() }
    }

    #[test]
    fn accept_seal_retire_is_the_one_order() {
        let [old, new] = keys();
        let running = ring(&[&old]).accepted_from(at(100));
        let follow =
            |from: &Keyring, keys: &[&Key], now| from.followed_by(&ring(keys), LIFETIME, at(now));
        let unaccepted = KeysRefused::SealsUnaccepted { key_id: new.id() };
        assert_eq!(follow(&running, &[&new, &old], 110).expect_err("at once"), unaccepted);
        let in_use =
            |left| KeysRefused::InUse { key_id: old.id(), left: Duration::from_secs(left) };
        assert_eq!(follow(&running, &[&new], 110).expect_err("replaced"), in_use(50));
        // Even where the old one may go: nobody would accept what the new one seals.
        assert_eq!(follow(&running, &[&new], 160).expect_err("replaced"), unaccepted);
        let token = running.seal_at(b"body", at(109));
        let accepted = follow(&running, &[&old, &new], 110).expect("added").expect("a change");
        let sealing = follow(&accepted, &[&new, &old], 111).expect("in order").expect("a change");
        assert_eq!(sealing.open_at(&token, at(120), <[u8]>::to_vec), Ok(b"body".to_vec()));
        // The use is known of a key that was carried over.
        assert_eq!(follow(&sealing, &[&new], 170).expect_err("used at 120"), in_use(11));
        let retired = follow(&sealing, &[&new], 181).expect("unused").expect("a change");
        assert!(retired.open(&token).is_err());
        assert!(retired.open(&sealing.seal(b"")).is_ok());
    }

    #[test]
    fn a_key_that_was_just_accepted_may_not_go_either() {
        let [old, new] = keys();
        let running = ring(&[&old]).accepted_from(at(0));
        let both = running.followed_by(&ring(&[&old, &new]), LIFETIME, at(500));
        let both = both.expect("added").expect("a change");
        let gone = both.followed_by(&ring(&[&old]), LIFETIME, at(530)).expect_err("too early");
        let left = Duration::from_secs(30);
        assert_eq!(gone, KeysRefused::InUse { key_id: new.id(), left });
        assert!(both.followed_by(&ring(&[&old]), LIFETIME, at(560)).is_ok());
    }

    #[test]
    fn the_same_keys_are_no_change_and_another_order_of_the_older_is_one() {
        let [one, two, three] = keys();
        let running = ring(&[&one, &two, &three]);
        let follow = |keys: &[&Key]| running.followed_by(&ring(keys), LIFETIME, at(1));
        assert!(follow(&[&one, &two, &three]).expect("the same").is_none());
        assert!(follow(&[&one, &three, &two]).expect("reordered").is_some());
    }

    #[test]
    fn a_refusal_names_no_secret_and_says_when_to_try_again() {
        let refused = KeysRefused::InUse { key_id: 0x3f, left: Duration::from_millis(86_399_001) };
        let text = refused.to_string();
        assert!(text.contains("key 0x3f") && text.ends_with("it may go in 24h 0m 0s"), "{text}");
        assert_eq!(in_words(Duration::from_millis(61_001)), "1m 2s");
    }
}
