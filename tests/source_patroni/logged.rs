//! What is logged while this value lives, on this thread alone: the tests run on one each.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The lines logged so far.
pub(crate) struct Logged {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Logged {
    pub(crate) fn watch() -> Self {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false);
        let guard = tracing::subscriber::set_default(subscriber.finish());
        Self { lines, _guard: guard }
    }

    /// All that was logged.
    pub(crate) fn text(&self) -> String {
        let bytes = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many lines contain `what`.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.text().lines().filter(|line| line.contains(what)).count()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
