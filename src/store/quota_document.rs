//! The book of a partition's fallback cap as JSON: what is written, and what is accepted back.
//!
//! It names the server that it was written for: one that another server has is older than what was
//! lost with that. It reads and writes no store.

use serde::{Deserialize, Serialize};
use tidegate_core::routing::{BookId, InstanceLife, QuotaBook, QuotaEntry};

const VERSION: u32 = 1;
/// Instances one book names: more than any cluster has, with those that died in the last minute.
const ENTRIES: usize = 1_024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    server: String,
    /// The life that opened it, and its exchange.
    opened: (String, u64),
    is_new: bool,
    entries: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// 16 hexadecimal digits.
    life: String,
    seq: u64,
    share: u32,
    demand: u32,
    cap: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    silent: bool,
}

/// Why a text is no book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// A later version of this program wrote it.
    Later(u32),
    /// It makes no sense.
    Malformed(String),
}

/// The text that a book is kept as on `server`.
pub(super) fn write(book: &QuotaBook, server: &str) -> Result<String, String> {
    let entry = |entry: &QuotaEntry| Entry {
        life: hex(entry.life),
        seq: entry.seq,
        share: entry.share,
        demand: entry.demand,
        cap: entry.cap,
        silent: entry.is_silent,
    };
    let document = Document {
        version: VERSION,
        server: server.to_owned(),
        opened: (hex(book.id.by), book.id.seq),
        is_new: book.is_new,
        entries: book.entries.iter().map(entry).collect(),
    };
    serde_json::to_string(&document).map_err(|error| error.to_string())
}

/// Reads a text back; `None`: it is of another server than this.
pub(super) fn read(text: &[u8], server: &str) -> Result<Option<QuotaBook>, Unread> {
    let malformed = |error: serde_json::Error| Unread::Malformed(error.to_string());
    let value: serde_json::Value = serde_json::from_slice(text).map_err(malformed)?;
    let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if version > u64::from(VERSION) {
        return Err(Unread::Later(u32::try_from(version).unwrap_or(u32::MAX)));
    }
    let document: Document = serde_json::from_value(value).map_err(malformed)?;
    if document.entries.len() > ENTRIES {
        return Err(Unread::Malformed(format!("it has more than {ENTRIES} entries")));
    }
    if document.server != server {
        return Ok(None);
    }
    let id = BookId { by: life(&document.opened.0)?, seq: document.opened.1 };
    let mut book = QuotaBook::new(id);
    book.is_new = document.is_new;
    for entry in document.entries {
        book.put(QuotaEntry {
            life: life(&entry.life)?,
            seq: entry.seq,
            share: entry.share,
            demand: entry.demand,
            cap: entry.cap,
            is_silent: entry.silent,
        });
    }
    Ok(Some(book))
}

fn hex(life: InstanceLife) -> String {
    format!("{:016x}", life.number())
}

fn life(text: &str) -> Result<InstanceLife, Unread> {
    let number = u64::from_str_radix(text, 16);
    number.map(InstanceLife::new).map_err(|_| Unread::Malformed(format!("{text:?} is no life")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> QuotaBook {
        let mut book = QuotaBook::new(BookId { by: InstanceLife::new(u64::MAX), seq: 3 });
        for (life, is_silent) in [(7, false), (u64::MAX, true)] {
            let life = InstanceLife::new(life);
            book.put(QuotaEntry { life, seq: 9, share: 55, demand: 100, cap: 100, is_silent });
        }
        book
    }

    #[test]
    fn a_book_comes_back_as_it_was_and_only_from_its_own_server() {
        let text = write(&book(), "one").expect("it is written");
        assert_eq!(read(text.as_bytes(), "one"), Ok(Some(book())));
        assert_eq!(read(text.as_bytes(), "two"), Ok(None), "{text}");
    }

    #[test]
    fn what_is_no_book_is_said_to_be_none() {
        let text = write(&book(), "one").expect("it is written");
        let later = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(read(later.as_bytes(), "one"), Err(Unread::Later(2)));
        let wrong = [
            String::new(),
            "{}".to_owned(),
            text.replace("\"seq\":9", "\"seq\":-1"),
            text.replace("\"share\"", "\"part\""),
            text.replace("0000000000000007", "seven"),
        ];
        for text in wrong {
            let read = read(text.as_bytes(), "one");
            assert!(matches!(read, Err(Unread::Malformed(_))), "{text}: {read:?}");
        }
    }
}
