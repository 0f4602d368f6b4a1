//! `tidegate mode`: how reads of a partition are answered, whatever their policies ask.

use tidegate_proto::v1::ModeChanged;
use tidegate_proto::v1::partition::Mode;

/// A mode as operators write it.
pub(super) const fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Normal => "normal",
        Mode::LeaderOnly => "leader-only",
        Mode::Eventual => "eventual",
        Mode::Unspecified => "unknown to this version",
    }
}

/// What an operator changed, in words.
pub(super) fn changed(now: &ModeChanged) -> String {
    format!("an operator set the mode {}, it was {}", word(now.mode()), word(now.previous_mode()))
}
