//! Makes sure of Patroni and etcd: finds them, or installs them once and says so.
//!
//! Neither is installed as a service: Patroni lies in a folder of its own that every user may read,
//! etcd is unpacked from its package. Starts nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{apt_install, need_pip};
use crate::machine;

/// Debian's own: any other may lie in somebody's home, where the server user cannot read.
const PYTHON: &str = "/usr/bin/python3";

/// Debian's package with the server of etcd.
const ETCD_PACKAGE: &str = "etcd-server";

/// What is asked of PyPI.
const PATRONI: [&str; 2] = ["patroni[etcd3]>=4.1,<4.2", "psycopg2-binary>=2.9,<3"];

/// The programs a cluster is made of.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// The folder of Python packages.
    packages: PathBuf,
    /// The program of etcd.
    pub(super) etcd: PathBuf,
}

impl Programs {
    /// Finds the programs, installing them first where they are missing. Blocks.
    ///
    /// # Errors
    /// When they are missing and cannot be installed.
    pub(super) fn find() -> Result<Self> {
        let lab = machine::lab_dir()?;
        let (packages, unpacked) = (lab.join("patroni"), lab.join("etcd"));
        let etcd = unpacked.join("usr/bin/etcd");
        if !(packages.exists() && etcd.exists()) {
            let _lock = machine::lock("install.lock")?;
            if !packages.exists() {
                install_patroni(&packages)?;
            }
            if !etcd.exists() {
                install_etcd(&unpacked)?;
            }
        }
        if !etcd.exists() {
            bail!("{ETCD_PACKAGE} was unpacked but holds no {}", etcd.display());
        }
        Ok(Self { packages, etcd })
    }

    /// The program and first arguments that run Patroni.
    pub(super) fn patroni(&self) -> (PathBuf, Vec<PathBuf>) {
        let path = format!("PYTHONPATH={}", self.packages.display());
        let words = [path.as_str(), PYTHON, "-m", "patroni"];
        (PathBuf::from("/usr/bin/env"), words.map(PathBuf::from).to_vec())
    }
}

fn install_patroni(place: &Path) -> Result<()> {
    machine::say("installing Patroni from PyPI, once");
    if !Path::new(PYTHON).exists() {
        apt_install(&["python3"])?;
    }
    need_pip()?;
    let fresh = empty(place)?;
    let mut pip = Command::new("python3");
    // Wheels must fit the Python that will run them.
    pip.args(["-m", "pip", "--python", PYTHON, "install", "-q", "--disable-pip-version-check"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(&fresh);
    machine::run(pip.args(PATRONI))?;
    put_in_place(&fresh, place)
}

fn install_etcd(place: &Path) -> Result<()> {
    machine::say("unpacking etcd from its Debian package, once");
    let fresh = empty(place)?;
    let download = || {
        let mut apt = Command::new("apt-get");
        machine::run(apt.args(["download", "-q", ETCD_PACKAGE]).current_dir(&fresh))
    };
    if download().is_err() {
        // The usual reason is a list of packages that is old or was never fetched.
        machine::run(Command::new("apt-get").args(["update", "-q"]))
            .with_context(|| format!("{ETCD_PACKAGE} is missing: run `apt-get update` as root"))?;
        download()?;
    }
    let package = fs::read_dir(&fresh)?.next().context("apt-get left no package")??.path();
    machine::run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&fresh))?;
    fs::remove_file(package)?;
    put_in_place(&fresh, place)
}

fn empty(place: &Path) -> Result<PathBuf> {
    let fresh = place.with_extension("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    machine::open_dir(&fresh)?;
    Ok(fresh)
}

/// Shows a complete installation all at once, so that a broken one is never taken for whole.
fn put_in_place(fresh: &Path, place: &Path) -> Result<()> {
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    fs::rename(fresh, place).with_context(|| format!("cannot fill {}", place.display()))
}
