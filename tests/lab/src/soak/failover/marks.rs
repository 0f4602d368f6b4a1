//! What a token says, for the one claim that is about marks: tokens are signed, not secret.
//!
//! Everything else of the soak is judged by rows alone.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tidegate_client::Notice;
use tidegate_core::position::Position;
use tidegate_core::token::{BodyLimits, Mark, SessionToken};

/// Around the body of a token: the tag with the key id, and the signature.
const HEAD_BYTES: usize = 9;
const MAC_BYTES: usize = 16;

/// A mark that a session carried, by its epoch.
pub(super) type Carried = (String, Mark);

/// A notice with the mark it was about.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    pub(super) lost_epoch: String,
    pub(super) epoch: String,
    mark: Mark,
}

impl Marked {
    /// Says whether all that was written and seen lies at or below a position.
    pub(super) fn lies_within(&self, at_least: Position) -> bool {
        let within = |end: Option<Position>| end.is_none_or(|end| at_least.covers(end));
        !self.mark.write_end_is_unknown() && within(self.mark.upto) && within(self.mark.saw)
    }
}

/// The marks of tokens, as they stand. A token that cannot be opened has none.
pub(super) fn of(tokens: &[String]) -> Vec<Carried> {
    let opened = tokens.iter().filter_map(|token| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token.strip_prefix("tg1.")?).ok()?;
        let body = bytes.get(HEAD_BYTES..bytes.len().checked_sub(MAC_BYTES)?)?;
        SessionToken::decode(body, BodyLimits::default()).ok()
    });
    let marks = opened.flat_map(|(token, _)| {
        let components: Vec<_> = token.components().map(|(_, part)| part.clone()).collect();
        components.into_iter().flat_map(|part| part.marks().collect::<Vec<_>>())
    });
    marks.map(|(epoch, mark)| (epoch.to_string(), mark)).collect()
}

/// The notices about epochs of which exactly one mark was carried.
pub(super) fn marked(notices: &[Notice], carried: &[Carried]) -> Vec<Marked> {
    let marked = notices.iter().filter_map(|notice| {
        let mut own = carried.iter().filter(|(epoch, _)| *epoch == notice.lost_epoch);
        let (Some((_, mark)), None) = (own.next(), own.next()) else { return None };
        let (lost_epoch, epoch) = (notice.lost_epoch.clone(), notice.epoch.clone());
        Some(Marked { lost_epoch, epoch, mark: *mark })
    });
    marked.collect()
}
