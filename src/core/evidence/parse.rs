//! Parses the evidence string, strictly in the fields it knows.
//!
//! Fields appended by a later version are ignored. Nothing is believed here; only the form is
//! checked.

use std::str::Split;

use thiserror::Error;

use super::{Evidence, EvidenceKind, Role};
use crate::guards::Guards;
use crate::lineage::{Epoch, Incarnation, Life, SystemId, decimal, signed};
use crate::position::{Lsn, Position};

/// Bytes an evidence string may have.
pub const EVIDENCE_BYTES_MAX: usize = 512;

/// Why a string is no evidence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EvidenceError {
    /// It is longer than any evidence.
    #[error(
        "evidence has {bytes} bytes, at most {EVIDENCE_BYTES_MAX} are accepted: pass what \
         tidegate.capture(), before() or sample() returned, as it is"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It does not begin as evidence does.
    #[error(
        "evidence must begin with `tge1|`: pass what tidegate.capture(), before() or sample() \
         returned, as it is"
    )]
    NotEvidence,
    /// A field is missing or has the wrong form.
    #[error(
        "field `{field}` of the evidence is missing or malformed: pass what the function \
         returned, as it is"
    )]
    Field {
        /// The name of the field.
        field: &'static str,
    },
    /// A capture was made on a server in recovery.
    #[error(
        "the capture was made on a server in recovery: call tidegate.capture() on the connection \
         that committed"
    )]
    InRecovery,
}

impl Evidence {
    /// Parses one evidence string and normalises its positions.
    ///
    /// # Errors
    /// [`EvidenceError`] names the field that is wrong.
    pub fn parse(text: &str, guards: &Guards) -> Result<Self, EvidenceError> {
        if text.len() > EVIDENCE_BYTES_MAX {
            return Err(EvidenceError::TooLong { bytes: text.len() });
        }
        let mut fields = Fields { rest: text.split('|') };
        if fields.rest.next() != Some("tge1") {
            return Err(EvidenceError::NotEvidence);
        }
        let kind = fields.kind()?;
        let lsn = |text: &str| Lsn::parse(text).ok();
        let server_version_num = fields.required("server_version_num", decimal)?;
        let system = SystemId::new(fields.required("system_id", decimal)?);
        let timeline = fields.optional("timeline", decimal)?;
        let start = fields.required("start_us", signed)?;
        let life = Life { start, reset: fields.required("reset_us", signed)? };
        let in_recovery = fields.flag("in_recovery")?;
        let (insert, flush) = (fields.optional("insert", lsn)?, fields.optional("flush", lsn)?);
        let replay = fields.optional("replay", lsn)?;
        let received_timeline = fields.optional("received_tli", decimal)?;
        let row = fields.optional("row", |text| Epoch::parse(text).ok())?;
        let segment_bytes = fields.required("segment_size", decimal)?;
        let synchronous_commit = fields.text("synchronous_commit")?;

        let normal = |lsn: Lsn| -> Position {
            if guards.page_header() { lsn.normalised(segment_bytes).into() } else { lsn.into() }
        };
        let role = if in_recovery {
            if kind == EvidenceKind::Capture {
                return Err(EvidenceError::InRecovery);
            }
            Role::Standby { received_timeline }
        } else {
            let flush = flush.ok_or(EvidenceError::Field { field: "flush" })?;
            Role::Writable {
                timeline: timeline.ok_or(EvidenceError::Field { field: "timeline" })?,
                insert: insert.map(normal).ok_or(EvidenceError::Field { field: "insert" })?,
                flush: normal(flush),
                flush_starts_page: flush.starts_page(),
            }
        };
        Ok(Self {
            kind,
            server_version_num,
            incarnation: Incarnation { system, life },
            role,
            replay: replay.map(normal),
            row,
            // What is not known to wait for the flush may not have.
            asynchronous: !matches!(
                synchronous_commit,
                "on" | "local" | "remote_write" | "remote_apply"
            ),
        })
    }
}

/// The fields not read yet.
struct Fields<'a> {
    rest: Split<'a, char>,
}

impl<'a> Fields<'a> {
    fn text(&mut self, field: &'static str) -> Result<&'a str, EvidenceError> {
        self.rest.next().ok_or(EvidenceError::Field { field })
    }

    fn kind(&mut self) -> Result<EvidenceKind, EvidenceError> {
        match self.text("kind")? {
            "capture" => Ok(EvidenceKind::Capture),
            "before" => Ok(EvidenceKind::Before),
            "sample" => Ok(EvidenceKind::Sample),
            "poll" => Ok(EvidenceKind::Poll),
            _ => Err(EvidenceError::Field { field: "kind" }),
        }
    }

    /// A field that may be empty; `None` from `parse` means that it is malformed.
    fn optional<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, EvidenceError> {
        match self.text(field)? {
            "" => Ok(None),
            text => parse(text).map(Some).ok_or(EvidenceError::Field { field }),
        }
    }

    fn required<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, EvidenceError> {
        self.optional(field, parse)?.ok_or(EvidenceError::Field { field })
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, EvidenceError> {
        match self.text(field)? {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(EvidenceError::Field { field }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Guards = Guards::on();
    const LEADER: &str = "tge1|capture|150018|7321987654321098765|1|1730000000123456|\
        1730000000654321|0|0/5000028|0/5000000|||1.1730000000123456.1730000000654321|16777216|on";
    const STANDBY: &str = "tge1|sample|180006|7321987654321098765||1730000000123456|\
        1730000000654321|1|||0/03034AB8|1|1.1.1|16777216|off";

    #[test]
    fn each_broken_field_is_named() {
        let names = [
            "kind",
            "server_version_num",
            "system_id",
            "timeline",
            "start_us",
            "reset_us",
            "in_recovery",
            "insert",
            "flush",
            "replay",
            "received_tli",
            "row",
            "segment_size",
        ];
        for (index, name) in names.iter().enumerate() {
            let mut fields: Vec<&str> = LEADER.split('|').collect();
            fields[index + 1] = "+1";
            let error = Evidence::parse(&fields.join("|"), &ON);
            assert_eq!(error, Err(EvidenceError::Field { field: name }), "{name}");
        }
    }

    #[test]
    fn a_shorter_string_is_refused_and_a_longer_one_is_not() {
        let fields: Vec<&str> = LEADER.split('|').collect();
        for length in 1..fields.len() {
            assert!(Evidence::parse(&fields[..length].join("|"), &ON).is_err(), "{length}");
        }
        assert_eq!(Evidence::parse(&format!("{LEADER}|later"), &ON), Evidence::parse(LEADER, &ON));
    }

    #[test]
    fn what_is_no_evidence_is_refused() {
        assert_eq!(Evidence::parse("", &ON), Err(EvidenceError::NotEvidence));
        assert_eq!(Evidence::parse("0/3034AB8", &ON), Err(EvidenceError::NotEvidence));
        assert_eq!(Evidence::parse("tge2|capture", &ON), Err(EvidenceError::NotEvidence));
        let long = "x".repeat(EVIDENCE_BYTES_MAX + 1);
        let bytes = EVIDENCE_BYTES_MAX + 1;
        assert_eq!(Evidence::parse(&long, &ON), Err(EvidenceError::TooLong { bytes }));
    }

    #[test]
    fn a_capture_in_recovery_is_refused() {
        let text = STANDBY.replace("|sample|", "|capture|");
        assert_eq!(Evidence::parse(&text, &ON), Err(EvidenceError::InRecovery));
    }

    #[test]
    fn a_leader_without_its_positions_is_refused() {
        let text = LEADER.replace("0/5000028", "");
        assert_eq!(Evidence::parse(&text, &ON), Err(EvidenceError::Field { field: "insert" }));
    }

    #[test]
    fn the_page_header_is_taken_off_on_entry() {
        let parsed = Evidence::parse(LEADER, &ON).expect("well formed");
        assert_eq!(parsed.position(), Some(Lsn::new(0x500_0000).into()));
        assert!(matches!(parsed.role, Role::Writable { flush_starts_page: true, .. }));
    }

    #[cfg(feature = "unsafe-guards")]
    #[test]
    fn the_page_header_guard_keeps_an_idle_leader_reachable() {
        let off = Guards::without("page_header").expect("named");
        let raw = Evidence::parse(LEADER, &off).expect("well formed").position();
        let flush: Position = Lsn::new(0x500_0000).into();
        // What replicas of an idle leader can reach covers the normalised position only.
        assert!(!raw.is_some_and(|insert| flush.covers(insert)));
        let normal = Evidence::parse(LEADER, &ON).expect("well formed").position();
        assert!(normal.is_some_and(|insert| flush.covers(insert)));
    }

    #[test]
    fn a_standby_shows_what_it_replayed_and_whom_it_follows() {
        let parsed = Evidence::parse(STANDBY, &ON).expect("well formed");
        assert_eq!(parsed.role, Role::Standby { received_timeline: Some(1) });
        assert_eq!(parsed.position(), Some(Lsn::new(0x303_4AB8).into()));
        assert_eq!(parsed.epoch(), None);
        assert!(parsed.asynchronous);
        assert_eq!(parsed.server_major(), 18);
    }
}
