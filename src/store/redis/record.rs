//! `Held`: the bytes of a record, and the token they are.
//!
//! Bytes that are no token are a session that may depend on anything: unknown, never new.

use tidegate_core::token::{BodyLimits, SessionToken};

/// As long as the core lets a record become, and more: what is longer was never written by it.
const LIMITS: BodyLimits = BodyLimits { bytes: 64 * 1024, components: usize::MAX };

/// What the key of a record holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Nothing,
    Bytes(Vec<u8>),
}

/// A record as read.
pub(super) enum Read {
    Nothing,
    Token(SessionToken),
    /// Bytes that are none: stands for a session that is unknown everywhere.
    Malformed(SessionToken),
}

impl Held {
    /// What a token is kept as; an empty one is not kept.
    pub(super) fn of(token: &SessionToken) -> Self {
        // When it was issued is for tokens that travel.
        if token.is_empty() { Self::Nothing } else { Self::Bytes(token.encode(0)) }
    }

    /// The bytes; none where there is no key.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn read(&self) -> Read {
        let Self::Bytes(bytes) = self else { return Read::Nothing };
        match SessionToken::decode(bytes, LIMITS) {
            Ok((token, _)) => Read::Token(token),
            Err(error) => {
                tracing::debug!(%error, "a record is no token");
                let mut unknown = SessionToken::new();
                unknown.overflow = true;
                Read::Malformed(unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_token_are_unknown_and_never_none() {
        for bytes in [vec![], vec![1, 2, 3], vec![0; 100_000]] {
            let read = Held::Bytes(bytes).read();
            assert!(matches!(read, Read::Malformed(token) if token.overflow));
        }
        assert!(matches!(Held::Nothing.read(), Read::Nothing));
        assert_eq!(Held::of(&SessionToken::new()), Held::Nothing);
    }
}
