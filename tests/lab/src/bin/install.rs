//! Installs the servers, the stores, the pooler and the Patroni that tests run on, so that no
//! test's time contains it.
//!
//! Says what it installs and nothing when all is there. Starts no server.

use anyhow::Result;
use tidegate_lab::install::{self, Binaries, Major};
use tidegate_lab::{patroni, redis};

fn main() -> Result<()> {
    install::pgbouncer()?;
    patroni::install()?;
    redis::install()?;
    [Major::V14, Major::V15, Major::V16, Major::V17, Major::V18]
        .into_iter()
        .try_for_each(|major| Binaries::find(major).map(drop))
}
