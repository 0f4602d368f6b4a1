//! `Generation`: what a shared store keeps of its own last loss, for all instances.
//!
//! One key holds it. It names the server whose memory it speaks of and how many records that had
//! evicted: a store that shows it under another name, or after more evictions, has lost something
//! since. Each one written has a higher number: a store that shows an earlier one has gone back.
//!
//! ```text
//! generation = version(1) server (20 bytes) number evicted (8 bytes each, little-endian) body
//! body       = a token body whose marks are the barriers
//! ```

use std::fmt;

use thiserror::Error;

use crate::instant::Instant;
use crate::lineage::Epoch;
use crate::position::Position;
use crate::token::{BodyError, BodyLimits, Component, ComponentKey, Mark, SessionToken};

/// The only version there is.
const VERSION: u8 = 1;
const SERVER_BYTES: usize = 20;
/// Beyond it nobody counts: the next one must have a number too.
const NUMBER_MAX: u64 = u64::MAX / 2;
const HEAD_BYTES: usize = 1 + SERVER_BYTES + 8 + 8;

/// The replication id of a server of the store: it changes whenever another history begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Server([u8; SERVER_BYTES]);

impl Server {
    /// Wraps the bytes of an id.
    pub const fn new(id: [u8; SERVER_BYTES]) -> Self {
        Self(id)
    }

    /// Reads the 40 hex digits that Redis prints; `None` if they are none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id = [0; SERVER_BYTES];
        if text.len() != 2 * SERVER_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in id.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(id))
    }
}

impl fmt::Display for Server {
    /// The 40 hex digits that [`Self::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a shared store keeps of its own last loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generation {
    /// The server that had lost nothing since.
    pub server: Server,
    /// Higher than those of all generations before.
    pub number: u64,
    /// How many records it had evicted by then.
    pub evicted: u64,
    /// Per partition a demand that covers all that was lost.
    barriers: SessionToken,
}

/// Why bytes are no generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum GenerationError {
    /// A later version wrote it.
    #[error("the generation has version {0}, this version of Tidegate reads {VERSION}")]
    Version(u8),
    /// It ends too early.
    #[error("the generation ends too early")]
    Short,
    /// Its barriers are no token body.
    #[error("the barriers of the generation: {0}")]
    Barriers(#[from] BodyError),
    /// It is counted higher than anybody counts.
    #[error("the number {0} is none that was ever counted to")]
    Number(u64),
}

impl Generation {
    /// A generation without barriers.
    pub const fn new(server: Server, number: u64, evicted: u64) -> Self {
        Self { server, number, evicted, barriers: SessionToken::new() }
    }

    /// One that vouches for no server, and is like no other: where it is gone, more may be.
    pub fn of_nobody(now: Instant, number: u64, evicted: u64) -> Self {
        let mut server = [0; SERVER_BYTES];
        let place = server.iter_mut().zip(now.as_nanos().to_le_bytes());
        place.for_each(|(byte, value)| *byte = value);
        Self::new(Server(server), number, evicted)
    }

    /// The same with one barrier more.
    #[must_use]
    pub fn with(mut self, key: ComponentKey, epoch: Epoch, position: Position) -> Self {
        self.barriers.join_component(key, &Component::of(epoch, Mark::demand(position)));
        self
    }

    /// Its barriers.
    pub fn barriers(&self) -> impl Iterator<Item = (ComponentKey, Epoch, Position)> + '_ {
        self.barriers.components().filter_map(|(key, component)| {
            let (epoch, mark) = component.marks().next()?;
            Some((key, epoch, mark.floor))
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Server(server) = self.server;
        let mut bytes = vec![VERSION];
        bytes.extend(server);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.evicted.to_le_bytes());
        bytes.extend(self.barriers.encode(0));
        bytes
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`GenerationError`]: then the store counts as having lost everything.
    pub fn decode(bytes: &[u8]) -> Result<Self, GenerationError> {
        let version = *bytes.first().ok_or(GenerationError::Short)?;
        if version != VERSION {
            return Err(GenerationError::Version(version));
        }
        let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or(GenerationError::Short)?;
        let server = head.get(1..=SERVER_BYTES).and_then(|id| id.try_into().ok());
        let mut counts = head.get(1 + SERVER_BYTES..).unwrap_or_default().as_chunks::<8>().0.iter();
        let (Some(server), Some(number), Some(evicted)) = (server, counts.next(), counts.next())
        else {
            return Err(GenerationError::Short);
        };
        let (number, evicted) = (u64::from_le_bytes(*number), u64::from_le_bytes(*evicted));
        if number > NUMBER_MAX {
            return Err(GenerationError::Number(number));
        }
        let (barriers, _) = SessionToken::decode(body, BodyLimits::default())?;
        Ok(Self { server: Server(server), number, evicted, barriers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::Life;
    use crate::position::Lsn;
    use crate::token::PartitionId;

    fn sample() -> Generation {
        let server = Server::parse("0123456789abcdef0123456789abcdef01234567").expect("an id");
        let key = ComponentKey { partition: PartitionId::new(1), system_tag: 7 };
        let epoch = Epoch::new(2, Life { start: 5, reset: 3 });
        Generation::new(server, 4, 9).with(key, epoch, Lsn::new(500).into())
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_shorter_is() {
        let bytes = sample().encode();
        assert_eq!(Generation::decode(&bytes), Ok(sample()));
        for length in 0..bytes.len() {
            assert!(Generation::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_later_version_is_not_read() {
        let mut bytes = sample().encode();
        bytes[0] = 2;
        assert_eq!(Generation::decode(&bytes), Err(GenerationError::Version(2)));
    }

    #[test]
    fn a_number_that_has_no_next_is_not_read() {
        let forged = Generation { number: u64::MAX, ..sample() };
        let refused = Err(GenerationError::Number(u64::MAX));
        assert_eq!(Generation::decode(&forged.encode()), refused);
    }

    #[test]
    fn a_text_that_is_no_replication_id_is_none() {
        for text in ["", "0123", "zz23456789abcdef0123456789abcdef01234567"] {
            assert_eq!(Server::parse(text), None, "{text:?}");
        }
    }
}
