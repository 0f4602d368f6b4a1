//! `tidegate token`: makes keys. Never overwrites one.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::seal::Key;

/// What to do with keys.
#[derive(Subcommand, Debug)]
pub(super) enum TokenCommand {
    /// Make a fresh key: 64 hex digits, for [token] keys or [store] secret_file.
    #[command(after_help = "\
Example:
  tidegate token keygen --out /etc/tidegate/token.key")]
    Keygen {
        /// The file to write, readable by its owner alone. Left out: print the key.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

impl TokenCommand {
    /// Does it.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self::Keygen { out: file } = self;
        let key = Key::generate().context("the system gives no randomness")?;
        match file {
            Some(file) => write(&file, &key),
            None => Ok(writeln!(out, "{}", key.to_hex())?),
        }
    }
}

fn write(file: &Path, key: &Key) -> Result<()> {
    let shown = file.display();
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| {
            format!(
                "{shown} cannot be made; an existing key is never overwritten, name another file"
            )
        })?;
    let written = writeln!(opened, "{}", key.to_hex()).and_then(|()| opened.sync_all());
    written.with_context(|| format!("{shown} cannot be written"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::ran;
    use crate::seal::Key;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_existing_key_is_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token.key");
        std::fs::write(&file, "precious").expect("written");
        let (code, _, err) = ran(&["token", "keygen", "--out", file.to_str().expect("text")]);
        assert_eq!(code, 1);
        assert!(err.contains("never overwritten"), "{err}");
        assert_eq!(std::fs::read_to_string(&file).expect("readable"), "precious");
    }

    #[test]
    fn what_is_written_is_a_key_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token.key");
        let (code, out, err) = ran(&["token", "keygen", "--out", file.to_str().expect("text")]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
        let mode = std::fs::metadata(&file).expect("written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Key::load(&file).is_ok());
    }

    #[test]
    fn what_is_printed_is_a_key_and_another_each_time() {
        let (code, one, _) = ran(&["token", "keygen"]);
        let (_, other, _) = ran(&["token", "keygen"]);
        assert_eq!(code, 0);
        assert_eq!(one.trim().len(), 64);
        assert_ne!(one, other);
    }
}
