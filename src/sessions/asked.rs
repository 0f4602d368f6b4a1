//! What a request carries to say whose it is, and what of it is refused.
//!
//! A token that is not provably ours is refused. One that is ours and cannot be read is not: its
//! session is unknown, never new. It looks nothing up.

use std::fmt;

use thiserror::Error;
use tidegate_core::instant::Instant;
use tidegate_core::token::{BodyError, BodyLimits, SessionToken};

use crate::ports::StoreError;
use crate::seal::{Keyring, OpenError};

/// Characters of the smallest token there is room for: one that says only that it dropped things.
pub(super) const LEAST_TOKEN_CHARS: usize = Keyring::sealed_chars(16);

/// Whose request it is, as carried.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The subject; empty: none is named.
    pub subject: &'a str,
    /// The tokens, in any order.
    pub tokens: &'a [String],
    /// The longest token wanted back; 0: the default.
    pub max_token_chars: usize,
}

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("tokens", &self.tokens.len()).finish_non_exhaustive()
    }
}

/// How much of a session is accepted and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Bytes of a subject.
    pub subject_bytes: usize,
    /// Tokens of one request.
    pub tokens_per_request: usize,
    /// Characters of all tokens of one request.
    pub tokens_chars: usize,
    /// Characters of a token that is written when the request names no bound.
    pub token_chars_written: usize,
    /// Characters of a token that is accepted, and so the most that is ever written.
    pub token_chars: usize,
}

/// Why it cannot be said who is asking, or why a session could not be raised.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SessionError {
    /// The subject is too long.
    #[error(
        "the subject has {bytes} bytes, at most {limit_bytes} are accepted: use the id of the user"
    )]
    SubjectTooLong {
        /// Its length.
        bytes: usize,
        /// The longest accepted.
        limit_bytes: usize,
    },
    /// No token fits into what the caller has room for.
    #[error(
        "`max_token_chars` is {chars}, no token is that short: allow {least_chars} or more, or \
         leave it out"
    )]
    TokenRoom {
        /// What there is room for.
        chars: usize,
        /// The least that works.
        least_chars: usize,
    },
    /// Too many tokens.
    #[error(
        "the request carries {found} tokens, at most {limit} are accepted: drop those that an \
         answer replaced, it holds what they held"
    )]
    TooManyTokens {
        /// How many.
        found: usize,
        /// How many are accepted.
        limit: usize,
    },
    /// The tokens are too long together.
    #[error(
        "the tokens have {chars} characters together, at most {limit_chars} are accepted: drop \
         those that an answer replaced, it holds what they held"
    )]
    TokensTooLong {
        /// How long they are.
        chars: usize,
        /// How long they may be.
        limit_chars: usize,
    },
    /// One token is too large.
    #[error("{0}")]
    TokenTooLarge(String),
    /// One token was never sealed by anybody, or was changed since.
    #[error("{0}")]
    TokenMalformed(String),
    /// One token is of another cluster or tenant.
    #[error("{0}")]
    TokenForeign(String),
    /// The record of the subject could not be raised, and had to be.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the tokens of a request hold together.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Their join.
    pub(super) token: SessionToken,
    /// One of them cannot be read.
    pub(super) unreadable: bool,
}

impl Asked<'_> {
    /// Refuses what is larger than accepted, before any of it is decoded.
    pub(super) fn within(&self, limits: &SessionLimits) -> Result<(), SessionError> {
        let (bytes, limit_bytes) = (self.subject.len(), limits.subject_bytes);
        if bytes > limit_bytes {
            return Err(SessionError::SubjectTooLong { bytes, limit_bytes });
        }
        let (chars, least_chars) = (self.max_token_chars, LEAST_TOKEN_CHARS);
        if chars > 0 && chars < least_chars {
            return Err(SessionError::TokenRoom { chars, least_chars });
        }
        let (found, limit) = (self.tokens.len(), limits.tokens_per_request);
        if found > limit {
            return Err(SessionError::TooManyTokens { found, limit });
        }
        let (chars, limit_chars) = (self.tokens.iter().map(String::len).sum(), limits.tokens_chars);
        if chars > limit_chars {
            return Err(SessionError::TokensTooLong { chars, limit_chars });
        }
        Ok(())
    }

    /// Opens the tokens at `now` and joins them.
    pub(super) fn carried(&self, keyring: &Keyring, now: Instant) -> Result<Carried, SessionError> {
        let mut carried = Carried::default();
        for token in self.tokens {
            match read(token, keyring, now)? {
                Some(token) if carried.token.is_empty() => carried.token = token,
                Some(token) => carried.token.join(&token),
                None => carried.unreadable = true,
            }
        }
        if carried.unreadable {
            // It may demand more of every partition, those included that other tokens name.
            carried.token = doubted(&carried.token);
        }
        Ok(carried)
    }

    /// Bytes of the longest body whose token fits into what the caller has room for.
    pub(super) fn body_bytes(&self, limits: &SessionLimits) -> usize {
        let chars = match self.max_token_chars {
            0 => limits.token_chars_written,
            chars => chars.min(limits.token_chars),
        };
        Keyring::body_bytes(chars)
    }
}

/// One token; `None` if it is ours and cannot be read.
fn read(
    token: &str,
    keyring: &Keyring,
    now: Instant,
) -> Result<Option<SessionToken>, SessionError> {
    let read = |body: &[u8]| SessionToken::decode(body, BodyLimits::default());
    let decoded = match keyring.open_at(token, now, read) {
        Ok(decoded) => decoded,
        Err(OpenError::Unreadable { .. }) => return Ok(None),
        Err(error @ OpenError::Malformed { .. }) => {
            return Err(SessionError::TokenMalformed(error.to_string()));
        }
        Err(error @ OpenError::Foreign) => {
            return Err(SessionError::TokenForeign(error.to_string()));
        }
        Err(error @ OpenError::TooLarge { .. }) => {
            return Err(SessionError::TokenTooLarge(error.to_string()));
        }
    };
    match decoded {
        Ok((token, _)) => Ok(Some(token)),
        Err(BodyError::Version { .. }) => Ok(None),
        Err(error @ BodyError::TooLarge { .. }) => {
            Err(SessionError::TokenTooLarge(error.to_string()))
        }
        Err(error @ BodyError::Malformed { .. }) => {
            Err(SessionError::TokenMalformed(error.to_string()))
        }
    }
}

/// The token that demands a leader sample of every partition it names, and of all others.
pub(super) fn doubted(token: &SessionToken) -> SessionToken {
    let mut doubted = token.clone();
    doubted.overflow = true;
    for (key, component) in token.components() {
        let mut component = component.clone();
        component.unresolved = true;
        doubted.replace_component(key, component);
    }
    doubted
}
