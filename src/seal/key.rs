//! `Key`: one secret and the file it comes from. It signs; what for, it is not told.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use constant_time_eq::constant_time_eq;
use thiserror::Error;

use super::{MAC_BYTES, first};

/// Bytes of a key file that are read: 64 digits and more white space than anybody writes.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Why a file does not give a key, or a set of files no keyring.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error(
        "key file {}: {cause}; write one with `tidegate token keygen --out FILE`", .file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file holds something else than a key.
    #[error(
        "key file {}: {problem}; it must hold 32 bytes as 64 hex digits, as \
         `tidegate token keygen` writes them", .file.display()
    )]
    NotAKey {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Two files give keys that tokens could not tell apart.
    #[error(
        "key files {} and {} have the same key id {key_id:#04x}; replace the newer one by a fresh \
         key", .first.display(), .second.display()
    )]
    EqualIds {
        /// The file named first.
        first: PathBuf,
        /// The file named later.
        second: PathBuf,
        /// The id both have.
        key_id: u8,
    },
    /// No file was named.
    #[error("no key file is named; name one in [token] keys")]
    NoKey,
}

/// One secret of 32 bytes. Never printed.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Reads a key from a file of 64 hex digits; white space anywhere is skipped.
    ///
    /// Warns when other users may read the file.
    ///
    /// # Errors
    /// [`KeyError::Unreadable`] and [`KeyError::NotAKey`].
    pub fn load(file: &Path) -> Result<Self, KeyError> {
        let unreadable = |cause| KeyError::Unreadable { file: file.to_owned(), cause };
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        let mode = opened.metadata().map_err(unreadable)?.permissions().mode();
        if mode & 0o007 != 0 {
            tracing::warn!(
                file = %file.display(),
                "every user of this machine may read this key file; run `chmod o-rwx` on it"
            );
        }
        let mut bytes = Vec::new();
        opened.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(&bytes).map_err(|problem| KeyError::NotAKey { file: file.to_owned(), problem })
    }

    /// Makes a fresh key from the system's randomness.
    ///
    /// # Errors
    /// What the system said when it gave none.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The key as the 64 hex digits a key file holds.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The number tokens name this key by.
    pub fn id(&self) -> u8 {
        let [id, ..] = *blake3::hash(&self.0).as_bytes();
        id
    }

    /// Says whether both are the same secret.
    pub(super) fn is(&self, other: &Self) -> bool {
        constant_time_eq(&self.0, &other.0)
    }

    /// The key `context` derives from this one.
    pub(super) fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.0)
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        if u64::try_from(bytes.len()).is_ok_and(|len| len > KEY_FILE_BYTES_MAX) {
            return Err(format!("it is longer than {KEY_FILE_BYTES_MAX} bytes"));
        }
        let digits: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
        if let Some(at) = digits.iter().position(|b| !b.is_ascii_hexdigit()) {
            return Err(format!("character {} is no hex digit", at + 1));
        }
        let mut key = [0; 32];
        hex::decode_to_slice(&digits, &mut key)
            .map_err(|_| format!("it has {} hex digits", digits.len()))?;
        Ok(Self(key))
    }

    /// The signature of `message`.
    pub(super) fn mac(&self, message: &[u8]) -> [u8; MAC_BYTES] {
        first(blake3::keyed_hash(&self.0, message).as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(content: &str) -> Result<Key, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token.key");
        std::fs::write(&file, content).expect("written");
        Key::load(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_that_holds_no_key_is_refused_by_name_and_reason() {
        let digits = "0123456789abcdef".repeat(4);
        let long = format!("{digits}{}", " ".repeat(5000));
        let cases = [
            ("", "it has 0 hex digits"),
            (digits.get(..63).expect("ASCII"), "it has 63 hex digits"),
            (&format!("{digits}0"), "it has 65 hex digits"),
            (&format!("x{digits}"), "character 1 is no hex digit"),
            (&format!("0x{digits}"), "character 2 is no hex digit"),
            (&digits.replace('9', "\u{e9}"), "character 10 is no hex digit"),
            (&long, "it is longer than 4096 bytes"),
        ];
        for (content, problem) in cases {
            let error = loaded(content).expect_err("no key");
            assert!(error.contains(problem), "{content:?}: {error}");
            assert!(error.contains("token.key") && error.contains("keygen"), "{error}");
            assert!(!error.contains("0123456789abcdef"), "the error shows the key: {error}");
        }
    }

    #[test]
    fn a_missing_file_says_how_to_write_one() {
        let error = Key::load(Path::new("/nonexistent/token.key")).expect_err("no file");
        let text = error.to_string();
        assert!(text.contains("/nonexistent/token.key") && text.contains("keygen"), "{text}");
    }

    #[test]
    fn white_space_and_case_do_not_matter() {
        let digits = "0123456789abcdef".repeat(4);
        let spaced: String = digits.to_uppercase().chars().flat_map(|c| [' ', c, '\n']).collect();
        let (plain, spaced) = (loaded(&digits).expect("a key"), loaded(&spaced).expect("a key"));
        assert_eq!(plain.to_hex(), spaced.to_hex());
        assert_eq!(plain.to_hex(), digits);
    }

    #[test]
    fn fresh_keys_differ_and_are_never_printed() {
        let (one, other) = (Key::generate().expect("random"), Key::generate().expect("random"));
        assert_ne!(one.to_hex(), other.to_hex());
        assert_eq!(format!("{one:?}"), "Key(..)");
    }
}
