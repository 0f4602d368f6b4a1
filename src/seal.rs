//! Tokens as they travel, and subjects as they are stored: the only place with keys.
//!
//! Seals the bytes of a token body into one string and opens it again (`contracts.md` 4), and turns
//! a subject into the key its record is found by. It does not know what a body means, who asks, or
//! where a record lies; it hides nothing but the subject: tokens are signed, not secret.

mod held;
mod key;
mod succession;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::ports::SubjectKey;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use constant_time_eq::constant_time_eq;
use held::HeldKey;
use thiserror::Error;
use tidegate_core::instant::Instant;

pub use key::{Key, KeyError};
pub use succession::KeysRefused;

/// What every token starts with.
const PREFIX: &str = "tg1.";
/// Bytes of the tag, which names cluster and tenant.
const TAG_BYTES: usize = 8;
/// Bytes of the signature at the end.
const MAC_BYTES: usize = 16;
/// Bytes before the body: tag and key id.
const HEAD_BYTES: usize = TAG_BYTES + 1;

/// Bytes of a token that are decoded in place: those of a few partitions.
const TOKEN_BLOCK_BYTES: usize = 256;
/// Bytes of tenant and subject that are put together in place.
const SUBJECT_BLOCK_BYTES: usize = 128;

/// What the tag is derived in; changing it makes every token foreign.
const TAG_CONTEXT: &str = "tidegate.v1 token tag";
/// What the subject key is derived in; changing it loses every record.
const SUBJECT_CONTEXT: &str = "tidegate.v1 subject key";

/// Why a string could not be opened as a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OpenError {
    /// It was never sealed by anybody, or was changed since.
    #[error("the token {problem}; drop it and ask without, the session is then unknown")]
    Malformed {
        /// What is wrong, as the end of "the token ...".
        problem: &'static str,
    },
    /// Another cluster or tenant sealed it.
    #[error(
        "the token is of another cluster or tenant; send it there, or give both the same [cluster] \
         name if they are one"
    )]
    Foreign,
    /// It names a key this instance does not have: its session is unknown, never new.
    #[error("the token names key {key_id:#04x}, which is none of [token] keys")]
    Unreadable {
        /// The id of the key that sealed it.
        key_id: u8,
    },
    /// It is longer than any token accepted.
    #[error("the token has {chars} characters; at most {limit_chars} are accepted")]
    TooLarge {
        /// Its length.
        chars: usize,
        /// The longest accepted.
        limit_chars: usize,
    },
}

/// The keys tokens are sealed and opened with, for one cluster and tenant.
///
/// Invariant: no two keys have the same id.
#[derive(Clone, Debug)]
pub struct Keyring {
    tag: [u8; TAG_BYTES],
    limit_chars: usize,
    sealing: Arc<HeldKey>,
    /// Those that open but do not seal.
    older: Vec<Arc<HeldKey>>,
}

impl Keyring {
    /// Loads the keys of `files`: the first seals, all are accepted.
    ///
    /// `limit_chars` is the longest token accepted.
    ///
    /// # Errors
    /// [`KeyError`], naming the file.
    pub fn load(
        cluster: &str,
        tenant: &str,
        files: &[PathBuf],
        limit_chars: usize,
    ) -> Result<Self, KeyError> {
        let mut keys: Vec<Arc<HeldKey>> = Vec::with_capacity(files.len());
        for file in files {
            let held = HeldKey::new(Key::load(file)?, Instant::default());
            if let Some(earlier) = keys.iter().position(|key| key.id == held.id) {
                let first = files.get(earlier).unwrap_or(file).clone();
                return Err(KeyError::EqualIds { first, second: file.clone(), key_id: held.id });
            }
            keys.push(Arc::new(held));
        }
        let mut keys = keys.into_iter();
        let sealing = keys.next().ok_or(KeyError::NoKey)?;
        Ok(Self { tag: tag(cluster, tenant), limit_chars, sealing, older: keys.collect() })
    }

    /// A keyring of the one `key`, for a process that needs no other to read its tokens.
    pub fn of_one(cluster: &str, tenant: &str, key: Key, limit_chars: usize) -> Self {
        let sealing = Arc::new(HeldKey::new(key, Instant::default()));
        Self { tag: tag(cluster, tenant), limit_chars, sealing, older: Vec::new() }
    }

    /// A keyring of one fresh key: after a restart every older token is unreadable, and its session
    /// unknown.
    ///
    /// # Errors
    /// What the system said when it gave no randomness.
    pub fn generated(cluster: &str, tenant: &str, limit_chars: usize) -> std::io::Result<Self> {
        Ok(Self::of_one(cluster, tenant, Key::generate()?, limit_chars))
    }

    /// Seals `body` with the first key.
    pub fn seal(&self, body: &[u8]) -> String {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + MAC_BYTES);
        bytes.extend_from_slice(&self.tag);
        bytes.push(self.sealing.id);
        bytes.extend_from_slice(body);
        let mac = self.sealing.key.mac(&bytes);
        bytes.extend_from_slice(&mac);
        let mut token = PREFIX.to_owned();
        URL_SAFE_NO_PAD.encode_string(bytes, &mut token);
        token
    }

    /// As [`Self::seal`], at `now`: the key is in use then.
    pub fn seal_at(&self, body: &[u8], now: Instant) -> String {
        self.sealing.note_use(now);
        self.seal(body)
    }

    /// The characters a token with a body of `body_bytes` has.
    pub const fn sealed_chars(body_bytes: usize) -> usize {
        let bytes = HEAD_BYTES + body_bytes + MAC_BYTES;
        PREFIX.len() + (bytes * 4).div_ceil(3)
    }

    /// Bytes of the longest body whose token has at most so many characters; 0 if none fits.
    pub const fn body_bytes(chars: usize) -> usize {
        let bytes = chars.saturating_sub(PREFIX.len()) * 3 / 4;
        bytes.saturating_sub(HEAD_BYTES + MAC_BYTES)
    }

    /// Opens a token and returns its body, exactly the bytes that were sealed.
    ///
    /// # Errors
    /// [`OpenError`]: whatever is not provably this cluster's and tenant's is never opened.
    pub fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
        self.open_held(token, |_, body| body.to_vec())
    }

    /// As [`Self::open`] at `now`, for who only reads the body: nothing is kept of it, but that its
    /// key is in use.
    ///
    /// # Errors
    /// As [`Self::open`]; then nothing was read.
    pub fn open_at<R>(
        &self,
        token: &str,
        now: Instant,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, OpenError> {
        self.open_held(token, |held, body| {
            held.note_use(now);
            read(body)
        })
    }

    fn open_held<R>(
        &self,
        token: &str,
        read: impl FnOnce(&HeldKey, &[u8]) -> R,
    ) -> Result<R, OpenError> {
        let malformed = |problem| OpenError::Malformed { problem };
        if token.len() > self.limit_chars {
            let (chars, limit_chars) = (token.len(), self.limit_chars);
            return Err(OpenError::TooLarge { chars, limit_chars });
        }
        let Some(text) = token.strip_prefix(PREFIX) else {
            return Err(malformed("does not start with `tg1.`"));
        };
        let (mut block, mut large) = ([0; TOKEN_BLOCK_BYTES], Vec::new());
        let room = match block.get_mut(..base64::decoded_len_estimate(text.len())) {
            Some(room) => room,
            None => {
                large.resize(base64::decoded_len_estimate(text.len()), 0);
                &mut large
            }
        };
        let decoded = URL_SAFE_NO_PAD.decode_slice(text, room);
        let length = decoded.map_err(|_| malformed("is not unpadded base64url after `tg1.`"))?;
        let bytes = room.get(..length).unwrap_or_default();
        let Some((signed, mac)) = bytes.split_last_chunk::<MAC_BYTES>() else {
            return Err(malformed("is cut off"));
        };
        let Some((&[ref tag @ .., key_id], body)) = signed.split_first_chunk::<HEAD_BYTES>() else {
            return Err(malformed("is cut off"));
        };
        if *tag != self.tag {
            return Err(OpenError::Foreign);
        }
        let Some(held) = self.keys().find(|held| held.id == key_id) else {
            return Err(OpenError::Unreadable { key_id });
        };
        if !constant_time_eq(&held.key.mac(signed), mac) {
            return Err(malformed("was changed since it was sealed"));
        }
        Ok(read(held, body))
    }

    /// The ids of its keys: of the one that seals, then of those that only open.
    pub fn key_ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.keys().map(|held| held.id)
    }

    /// The key that seals, and then those that only open.
    fn keys(&self) -> impl Iterator<Item = &Arc<HeldKey>> {
        std::iter::once(&self.sealing).chain(&self.older)
    }
}

/// Turns subjects into the keys of their records, under the store's own secret.
#[derive(Clone)]
pub struct SubjectHash([u8; 32]);

impl SubjectHash {
    /// Derives the hash from the store's secret. Another secret finds no record of this one.
    pub fn new(secret: &Key) -> Self {
        Self(secret.derive(SUBJECT_CONTEXT))
    }

    /// The key of `subject` of `tenant`.
    pub fn key(&self, tenant: &str, subject: &str) -> SubjectKey {
        // A tenant has no NUL, so no two pairs give the same bytes.
        let parts = [tenant.as_bytes(), &[0], subject.as_bytes()];
        let mut block = [0; SUBJECT_BLOCK_BYTES];
        let length = parts.iter().map(|part| part.len()).sum();
        let hash = match block.get_mut(..length) {
            // Hashed as one piece, which is several times faster than bit by bit.
            Some(whole) => {
                let mut rest = &mut *whole;
                for part in parts {
                    let (to, behind) = rest.split_at_mut(part.len());
                    to.copy_from_slice(part);
                    rest = behind;
                }
                blake3::keyed_hash(&self.0, whole)
            }
            None => blake3::keyed_hash(&self.0, &parts.concat()),
        };
        SubjectKey::new(first(hash.as_bytes()))
    }
}

impl fmt::Debug for SubjectHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectHash(..)")
    }
}

/// Eight bytes that name cluster and tenant; neither has a NUL.
fn tag(cluster: &str, tenant: &str) -> [u8; TAG_BYTES] {
    let material = [cluster.as_bytes(), &[0], tenant.as_bytes()].concat();
    first(&blake3::derive_key(TAG_CONTEXT, &material))
}

/// The first `N` of 32 bytes.
fn first<const N: usize>(bytes: &[u8; 32]) -> [u8; N] {
    const { assert!(N <= 32) };
    let mut cut = [0; N];
    for (to, from) in cut.iter_mut().zip(bytes) {
        *to = *from;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 8192;

    fn ring(cluster: &str, tenant: &str) -> Keyring {
        Keyring::generated(cluster, tenant, LIMIT).expect("random")
    }

    fn files(folder: &tempfile::TempDir, keys: &[&Key]) -> Vec<PathBuf> {
        let written = keys.iter().enumerate().map(|(n, key)| {
            let file = folder.path().join(format!("{n}.key"));
            std::fs::write(&file, key.to_hex()).expect("written");
            file
        });
        written.collect()
    }

    fn two_keys_of_different_id() -> (Key, Key) {
        let one = Key::generate().expect("random");
        let other = std::iter::repeat_with(|| Key::generate().expect("random"));
        let other = other.take(1000).find(|key| key.id() != one.id()).expect("not all alike");
        (one, other)
    }

    #[test]
    fn what_is_no_token_is_malformed() {
        let ring = ring("c", "default");
        let sealed = ring.seal(b"body");
        let spaced = format!(" {sealed}");
        let padded = format!("{sealed}=");
        let cases =
            ["", "tg1", "tg1.", "tg2.AAAA", "TG1.AAAA", "tg1.A", "tg1.+/+/", &spaced, &padded];
        for text in cases {
            let opened = ring.open(text);
            assert!(matches!(opened, Err(OpenError::Malformed { .. })), "{text:?}: {opened:?}");
        }
    }

    #[test]
    fn a_token_longer_than_the_limit_is_refused_before_it_is_decoded() {
        let ring = ring("c", "default");
        let long = format!("tg1.{}", "!".repeat(LIMIT));
        let too_large = OpenError::TooLarge { chars: LIMIT + 4, limit_chars: LIMIT };
        assert_eq!(ring.open(&long), Err(too_large));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let ring = ring("c", "default");
        let sealed = ring.seal(b"the body of a token");
        let bytes = URL_SAFE_NO_PAD.decode(&sealed[4..]).expect("sealed");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let opened = ring.open(&format!("tg1.{}", URL_SAFE_NO_PAD.encode(changed)));
            match bit / 8 {
                0..8 => assert_eq!(opened, Err(OpenError::Foreign), "bit {bit}"),
                8 => assert!(matches!(opened, Err(OpenError::Unreadable { .. })), "bit {bit}"),
                9.. => assert!(matches!(opened, Err(OpenError::Malformed { .. })), "bit {bit}"),
            }
        }
    }

    #[test]
    fn no_prefix_of_a_token_opens() {
        let ring = ring("c", "default");
        let sealed = ring.seal(b"the body of a token");
        for end in 0..sealed.len() {
            assert!(ring.open(&sealed[..end]).is_err(), "{end} characters opened");
        }
    }

    #[test]
    fn a_token_of_another_cluster_or_tenant_is_foreign_even_under_the_same_key() {
        let key = Key::generate().expect("random");
        let ours = Keyring::of_one("c", "default", key.clone(), LIMIT);
        for (cluster, tenant) in [("d", "default"), ("c", "other"), ("cd", "efault")] {
            let theirs = Keyring::of_one(cluster, tenant, key.clone(), LIMIT);
            assert_eq!(ours.open(&theirs.seal(b"")), Err(OpenError::Foreign));
        }
    }

    #[test]
    fn an_older_key_still_opens_and_a_retired_one_is_unreadable() {
        let (old, new) = two_keys_of_different_id();
        let folder = tempfile::tempdir().expect("a folder");
        let paths = files(&folder, &[&new, &old]);
        let rotated = Keyring::load("c", "default", &paths, LIMIT).expect("two keys");
        let retired = Keyring::of_one("c", "default", new, LIMIT);
        let token = Keyring::of_one("c", "default", old.clone(), LIMIT).seal(b"body");
        assert_eq!(rotated.open(&token), Ok(b"body".to_vec()));
        assert_eq!(retired.open(&token), Err(OpenError::Unreadable { key_id: old.id() }));
        assert_eq!(retired.open(&rotated.seal(b"body")), Ok(b"body".to_vec()));
    }

    #[test]
    fn keys_that_tokens_could_not_tell_apart_are_refused() {
        let key = Key::generate().expect("random");
        let folder = tempfile::tempdir().expect("a folder");
        let paths = files(&folder, &[&key, &key]);
        let error = Keyring::load("c", "default", &paths, LIMIT).expect_err("equal ids");
        let text = error.to_string();
        assert!(text.contains("0.key") && text.contains("1.key"), "{text}");
        let none = Keyring::load("c", "default", &[], LIMIT);
        assert!(matches!(none, Err(KeyError::NoKey)));
    }

    #[test]
    fn any_body_comes_back_and_the_length_is_foretold() {
        let ring = ring("c", "default");
        for length in 0..300 {
            let body = vec![0xA5; length];
            let token = ring.seal(&body);
            assert_eq!(token.len(), Keyring::sealed_chars(length));
            assert_eq!(ring.open(&token), Ok(body));
        }
    }

    #[test]
    fn the_longest_body_that_fits_is_foretold() {
        for chars in 0..2_000 {
            let fits = |bytes: &usize| Keyring::sealed_chars(*bytes) <= chars;
            let longest = (0..chars).rev().find(fits).unwrap_or(0);
            assert_eq!(Keyring::body_bytes(chars), longest, "{chars} characters");
        }
    }

    #[test]
    fn a_subject_of_any_length_has_the_key_of_its_bytes() {
        let key = Key::generate().expect("random");
        let hash = SubjectHash::new(&key);
        for length in [0, 1, 119, 120, 121, 1_000] {
            let subject = "s".repeat(length);
            let mut hasher = blake3::Hasher::new_keyed(&key.derive(SUBJECT_CONTEXT));
            hasher.update(b"default\0").update(subject.as_bytes());
            let expected = SubjectKey::new(first(hasher.finalize().as_bytes()));
            assert_eq!(hash.key("default", &subject), expected, "{length} characters");
        }
    }

    #[test]
    fn subjects_are_told_apart_by_tenant_and_secret_and_never_printed() {
        let (one, other) = two_keys_of_different_id();
        let hash = SubjectHash::new(&one);
        let key = hash.key("default", "alice");
        assert_eq!(key, SubjectHash::new(&one).key("default", "alice"));
        assert_ne!(key, hash.key("default", "alicE"));
        assert_ne!(key, hash.key("defaul", "talice"));
        assert_ne!(key, SubjectHash::new(&other).key("default", "alice"));
        assert_eq!(format!("{key:?} {hash:?}"), "SubjectKey(..) SubjectHash(..)");
    }
}
