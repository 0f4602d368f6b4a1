//! What an instance of the version before reads and writes: it knows no marks that tell more than
//! where a session is.

use tidegate_core::token::{Component, Mark, SessionToken};

use super::memory::OWN_BYTES;

/// The bit of a body's flags that the version before does not know.
const MORE: u8 = 2;

/// What a record says; one that cannot be read leaves its session unknown.
pub(crate) fn read(body: &[u8], previous: bool) -> SessionToken {
    let mut unknown = SessionToken::new();
    unknown.overflow = true;
    if previous && !is_readable(body) {
        return unknown;
    }
    SessionToken::decode(body, OWN_BYTES).map_or(unknown, |(token, _)| token)
}

/// Says whether the version before reads these bytes.
pub(crate) fn is_readable(body: &[u8]) -> bool {
    body.get(1).is_none_or(|flags| flags & MORE == 0)
}

/// What is written of a token.
pub(crate) fn written(token: &SessionToken, previous: bool) -> SessionToken {
    let mut written = token.clone();
    if !previous {
        return written;
    }
    for (key, component) in token.components() {
        let mut plain = Component::default();
        plain.unresolved = component.unresolved;
        for (epoch, mark) in component.marks() {
            plain.raise(epoch, Mark { led: mark.saw, flushed: None, ..mark });
        }
        written.replace_component(key, plain);
    }
    written
}
