//! Everything that happened, as one number; and as text for whoever asks.

/// A hash of all that happened, in order.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, lines: None }
    }
}

impl Trace {
    /// Keeps the text from now on.
    pub(crate) fn keep(&mut self) {
        self.lines = Some(Vec::new());
    }

    pub(crate) fn mark<const N: usize>(&mut self, tag: u64, numbers: [u64; N]) {
        for number in numbers.into_iter().chain([tag]) {
            self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
        }
    }

    pub(crate) fn say(&mut self, now: u64, text: impl FnOnce() -> String) {
        self.mark(2, [now]);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {}", now as f64 / 1e9, text()));
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}
