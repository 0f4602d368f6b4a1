//! Installs the PostgreSQL versions that tests run on, so that no test's time contains it.
//!
//! Says what it installs and nothing when all is there. Starts no server.

use anyhow::Result;
use tidegate_lab::install::{Binaries, Major};

fn main() -> Result<()> {
    [Major::V14, Major::V15, Major::V16, Major::V17, Major::V18]
        .into_iter()
        .try_for_each(|major| Binaries::find(major).map(drop))
}
