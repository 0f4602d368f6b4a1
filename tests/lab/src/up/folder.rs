//! The folder of everything that is started: files of `deploy/` as the containers get them, data
//! and secrets.
//!
//! The files are taken as they are; only paths of a container become paths of this folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::machine;

/// The files of `deploy/` that a server or a script reads, by the name they get here.
const FILES: [(&str, &str); 7] = [
    ("make-secrets", include_str!("../../../../deploy/make-secrets")),
    ("postgresql.conf", include_str!("../../../../deploy/postgres/postgresql.conf")),
    ("pg_hba.conf", include_str!("../../../../deploy/postgres/pg_hba.conf")),
    ("setup.sh", include_str!("../../../../deploy/postgres/setup.sh")),
    ("standby.sh", include_str!("../../../../deploy/postgres/standby.sh")),
    ("tidegate.template.toml", include_str!("../../../../deploy/tidegate.toml")),
    ("schema.sql", tidegate::sources::postgres::schema::HOME),
];

/// The folder; dropping it removes it.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes a fresh folder below the lab's, with files and secrets. Blocks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn fill() -> Result<Self> {
        let runs = machine::lab_dir()?.join("run");
        machine::open_dir(&runs)?;
        // The guards, which run as this user, remove folders from it.
        machine::give_to_server_user(&runs)?;
        let prefix = format!("{}-", std::process::id());
        let root = tempfile::Builder::new().prefix(&prefix).tempdir_in(&runs)?.keep();
        let folder = Self(root);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755))?;
        machine::give_to_server_user(&folder.0)?;
        for (name, text) in FILES {
            let text = text.replace("/etc/postgresql/", &format!("{}/", folder.text()));
            folder.write(name, &text, 0o644)?;
        }
        let mut script = machine::as_server_user(Path::new("/bin/sh"))?;
        machine::run(script.arg(folder.at("make-secrets")).arg(&folder.0))?;
        let password = folder.secret("postgres_password")?;
        folder.write("pgpass", &format!("127.0.0.1:*:*:postgres:{password}\n"), 0o600)?;
        Ok(folder)
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// The folder as text: the lab's own paths are plain.
    pub(super) fn text(&self) -> String {
        self.0.display().to_string()
    }

    /// A file or folder in it.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The file of a secret.
    pub(super) fn secret_file(&self, name: &str) -> PathBuf {
        self.0.join("secrets").join(name)
    }

    /// A secret itself.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(super) fn secret(&self, name: &str) -> Result<String> {
        let file = self.secret_file(name);
        let text = fs::read_to_string(&file);
        let text = text.with_context(|| format!("there is no {}", file.display()))?;
        Ok(text.trim_end().to_owned())
    }

    /// Makes a folder of the server user.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn make(&self, name: &str) -> Result<PathBuf> {
        let folder = self.at(name);
        fs::create_dir(&folder)?;
        machine::give_to_server_user(&folder)?;
        Ok(folder)
    }

    /// Writes a file of this user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, name: &str, text: &str, mode: u32) -> Result<()> {
        let file = self.at(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(fs::set_permissions(&file, fs::Permissions::from_mode(mode))?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The guards remove it too, so a part may vanish while it is walked.
        for _ in 0..10 {
            if fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
        }
        machine::say(&format!("cannot remove {}", self.0.display()));
    }
}
