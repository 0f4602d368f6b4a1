//! Prepared data folders, made once per machine, because initdb takes most of a second.
//!
//! Clusters that run at the same time in one process get different templates, and therefore
//! different system identifiers. Leader and standbys of one cluster start from the same one:
//! it is the cold backup that a standby may begin with.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use super::conf;
use crate::install::{Binaries, Major};
use crate::machine;

/// Clusters of one version that one process may run at the same time.
const MOST: u16 = 64;

static IN_USE: Mutex<BTreeSet<(Major, u16)>> = Mutex::new(BTreeSet::new());

/// The template of one running cluster.
#[derive(Debug)]
pub(super) struct Template {
    major: Major,
    number: u16,
    path: PathBuf,
}

impl Template {
    /// Takes a template that no other running cluster of this process uses. Blocks.
    pub(super) fn take(binaries: &Binaries) -> Result<Self> {
        let major = binaries.major();
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(number) = (0..MOST).find(|number| !in_use.contains(&(major, *number))) else {
            bail!("{MOST} clusters of PostgreSQL {major} run already in this process");
        };
        in_use.insert((major, number));
        drop(in_use);
        let path = machine::lab_dir()?.join(format!("templates/{major}-{number}"));
        let template = Self { major, number, path };
        if !template.path.exists() {
            template.make(binaries)?;
        }
        Ok(template)
    }

    /// Fills a data folder that does not exist yet.
    pub(super) fn copy_to(&self, data: &Path) -> Result<()> {
        machine::copy_tree(&self.path, data)
    }

    fn make(&self, binaries: &Binaries) -> Result<()> {
        let _lock = machine::lock("templates.lock")?;
        if self.path.exists() {
            return Ok(());
        }
        let folder = self.path.parent().context("a template has a folder")?;
        machine::open_dir(folder)?;
        machine::give_to_server_user(folder)?;
        let fresh = self.path.with_extension("new");
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        let mut initdb = machine::as_server_user(&binaries.tool("initdb")?)?;
        initdb.arg("-D").arg(&fresh).args(["-U", "postgres", "-A", "trust"]);
        initdb.args(["-E", "UTF8", "--locale=C", "--no-sync"]);
        machine::run(&mut initdb)?;
        let main = fresh.join("postgresql.conf");
        let mut main = fs::OpenOptions::new().append(true).open(main)?;
        writeln!(main, "include_if_exists = '{}'", conf::FILE)?;
        fs::rename(&fresh, &self.path).context("cannot put the template in place")
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        IN_USE.lock().unwrap_or_else(PoisonError::into_inner).remove(&(self.major, self.number));
    }
}
