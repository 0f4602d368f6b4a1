//! `FactFiles`: the facts of each partition in a file of its own, which survives a restart.
//!
//! A file is replaced whole or not at all. It is never repaired: one that cannot be read is shown
//! to the operator, because facts that are wrong are worse than none.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::leader::Facts;
use tidegate_core::token::PartitionId;

use super::fact_document;
use crate::ports::{FactError, FactStore};

/// Bytes of a file that are read: the core keeps 256 epochs, which take a tenth of it.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Keeps facts in the files `partition-ID.json` of one folder.
///
/// Invariant: of two saves of a partition the one called later stands, whichever is written first.
#[derive(Debug)]
pub struct FactFiles {
    folder: PathBuf,
    calls: AtomicU64,
    written: Arc<Mutex<BTreeMap<PartitionId, u64>>>,
}

impl FactFiles {
    /// Keeps facts in `folder`, which is made, for its owner alone, if it is missing.
    ///
    /// Blocks: it is for the start.
    ///
    /// # Errors
    /// [`FactError`] if it is not there and cannot be made.
    pub fn open(folder: &Path) -> Result<Self, FactError> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            let advice = "make the folder, owned by the user Tidegate runs as, or name another \
                          one in `store.state_dir`";
            fails(folder, &error, advice)
        })?;
        let written = Arc::default();
        Ok(Self { folder: folder.to_owned(), calls: AtomicU64::new(0), written })
    }

    fn file(&self, partition: PartitionId) -> PathBuf {
        self.folder.join(format!("partition-{}.json", partition.value()))
    }
}

impl FactStore for FactFiles {
    async fn load(&self, partition: PartitionId, nodes: &[String]) -> Result<Facts, FactError> {
        let file = self.file(partition);
        let text = blocking(&file, read_whole).await?;
        let Some(text) = text else { return Ok(Facts::new()) };
        fact_document::read(&text, partition, nodes).map_err(|problem| fails(&file, &problem, AWAY))
    }

    async fn save(
        &self,
        partition: PartitionId,
        nodes: &[String],
        facts: &Facts,
    ) -> Result<(), FactError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let file = self.file(partition);
        let text = fact_document::write(partition, nodes, facts)
            .map_err(|problem| fails(&file, &problem, "report this as a bug"))?;
        let written = Arc::clone(&self.written);
        blocking(&file, move |file| {
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            let last = written.entry(partition).or_default();
            if *last > call {
                return Ok(());
            }
            replace(file, text.as_bytes()).map_err(|error| {
                let advice = "free space there and let the user Tidegate runs as write the folder";
                fails(file, &error, advice)
            })?;
            *last = call;
            Ok(())
        })
        .await
    }
}

/// What to do about a file that cannot be understood.
const AWAY: &str = "restore it, or move it away: without facts a failover since they were last \
                    kept makes answers slower, never staler";

fn fails(place: &Path, problem: &dyn std::fmt::Display, advice: &str) -> FactError {
    FactError { place: place.display().to_string(), text: format!("{problem}; {advice}") }
}

/// Does work that may wait for a disk where nothing else waits for it.
async fn blocking<T: Send + 'static>(
    file: &Path,
    work: impl FnOnce(&Path) -> Result<T, FactError> + Send + 'static,
) -> Result<T, FactError> {
    let own = file.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&own)).await;
    done.unwrap_or_else(|error| Err(fails(file, &error, "report this as a bug")))
}

/// The text of a file; `None` if there is no file, which alone means that there are no facts.
fn read_whole(file: &Path) -> Result<Option<String>, FactError> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(fails(file, &error, "let the user Tidegate runs as read it"));
        }
    };
    let mut text = String::new();
    opened
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| fails(file, &error, AWAY))?;
    if u64::try_from(text.len()).is_ok_and(|bytes| bytes > FILE_BYTES_MAX) {
        let problem = format!("it is larger than {FILE_BYTES_MAX} bytes");
        return Err(fails(file, &problem, AWAY));
    }
    Ok(Some(text))
}

/// Replaces a file such that it holds the old or the new bytes whatever happens, durably.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = file.with_extension("json.new");
    let mut opened =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    opened.write_all(bytes)?;
    opened.sync_all()?;
    fs::rename(&fresh, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
