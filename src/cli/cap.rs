//! `tidegate cap`: how many freshness fallbacks the leader of a partition is asked to bear.

use tidegate_proto::v1::CapChanged;

/// What an operator changed, in words.
pub(super) fn changed(now: &CapChanged) -> String {
    let word =
        |cap: Option<u32>| cap.map_or_else(|| "the configured".to_owned(), |n| format!("{n}/s"));
    let (cap, before) = (word(now.reads_per_second), word(now.previous_reads_per_second));
    format!("an operator set the fallback cap to {cap}, it was {before}")
}
