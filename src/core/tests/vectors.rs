//! The core against `proto/vectors`: what other programs and old versions may rely on.
//!
//! The bytes in those files were written by another program, from the description alone. A change
//! that makes this fail changes what leaves the process.

#![expect(clippy::expect_used, reason = "a broken vector must end the test")]

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_core::evidence::{Evidence, EvidenceError, EvidenceKind, Role};
use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Epoch, Incarnation};
use tidegate_core::position::{Lsn, Position};
use tidegate_core::store_guard::{Generation, GenerationError, Server};
use tidegate_core::token::{
    BodyError, BodyLimits, Component, ComponentKey, Mark, Notice, NoticeId, NoticeKind,
    PartitionId, SessionToken,
};

#[derive(Deserialize)]
struct Vectors<Accepted, Refused> {
    accepted: Vec<Accepted>,
    refused: Vec<Refused>,
}

fn vectors<A: DeserializeOwned, R: DeserializeOwned>(file: &str) -> Vectors<A, R> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/vectors").join(file);
    let text = std::fs::read_to_string(path).expect("the file is there");
    let vectors: Vectors<A, R> = serde_json::from_str(&text).expect("the file is as described");
    assert!(!vectors.accepted.is_empty() && !vectors.refused.is_empty());
    vectors
}

fn at(text: &str) -> Position {
    Lsn::parse(text).expect("a position").into()
}

fn epoch(text: &str) -> Epoch {
    Epoch::parse(text).expect("an epoch")
}

fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "half a byte");
    let byte = |start| u8::from_str_radix(&hex[start..start + 2], 16).expect("hex digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceCase {
    name: String,
    string: String,
    evidence: EvidenceFields,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceFields {
    kind: String,
    server_version_num: u32,
    incarnation: String,
    epoch: Option<String>,
    role: RoleFields,
    replay: Option<String>,
    row: Option<String>,
    position: Option<String>,
    asynchronous: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum RoleFields {
    Writable { timeline: u32, insert: String, flush: String, flush_starts_page: bool },
    Standby { received_timeline: Option<u32> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceRefused {
    name: String,
    string: String,
    error: String,
}

#[test]
fn evidence_means_what_the_vectors_say() {
    let vectors = vectors::<EvidenceCase, EvidenceRefused>("evidence.json");
    for EvidenceCase { name, string, evidence: told } in vectors.accepted {
        let kind = match told.kind.as_str() {
            "capture" => EvidenceKind::Capture,
            "before" => EvidenceKind::Before,
            "sample" => EvidenceKind::Sample,
            other => {
                assert_eq!(other, "poll", "{name}");
                EvidenceKind::Poll
            }
        };
        let role = match &told.role {
            RoleFields::Writable { timeline, insert, flush, flush_starts_page } => Role::Writable {
                timeline: *timeline,
                insert: at(insert),
                flush: at(flush),
                flush_starts_page: *flush_starts_page,
            },
            RoleFields::Standby { received_timeline } => {
                Role::Standby { received_timeline: *received_timeline }
            }
        };
        let expected = Evidence {
            kind,
            server_version_num: told.server_version_num,
            incarnation: Incarnation::parse(&told.incarnation).expect("an incarnation"),
            role,
            replay: told.replay.as_deref().map(at),
            row: told.row.as_deref().map(epoch),
            asynchronous: told.asynchronous,
        };
        let parsed = Evidence::parse(&string, &Guards::on());
        assert_eq!(parsed.as_ref(), Ok(&expected), "{name}");
        assert_eq!(expected.epoch(), told.epoch.as_deref().map(epoch), "{name}");
        assert_eq!(expected.position(), told.position.as_deref().map(at), "{name}");
    }
    for EvidenceRefused { name, string, error } in vectors.refused {
        let found = match Evidence::parse(&string, &Guards::on()) {
            Ok(_) => "nothing",
            Err(EvidenceError::TooLong { .. }) => "too_long",
            Err(EvidenceError::NotEvidence) => "not_evidence",
            Err(EvidenceError::InRecovery) => "in_recovery",
            Err(EvidenceError::Field { field }) => field,
        };
        assert_eq!(found, error, "{name}");
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyCase {
    name: String,
    issued_seconds: String,
    token: TokenFields,
    body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFields {
    overflow: bool,
    components: Vec<ComponentFields>,
    notices: Vec<NoticeFields>,
    acknowledged: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComponentFields {
    partition: u32,
    system_tag: u32,
    unresolved: bool,
    marks: Vec<MarkFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkFields {
    epoch: String,
    floor: String,
    after: Option<String>,
    upto: Option<String>,
    saw: Option<String>,
    /// All it saw was on standbys.
    #[serde(default)]
    only_applied: bool,
    #[serde(default)]
    flushed: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoticeFields {
    partition: u32,
    kind: String,
    lost: String,
    child: String,
    told_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyRefused {
    name: String,
    body: String,
    error: String,
}

impl ComponentFields {
    fn component(&self) -> Component {
        let mut component = Component::default();
        component.unresolved = self.unresolved;
        for mark in &self.marks {
            let told = |text: &Option<String>| text.as_deref().map(at);
            let (after, upto, saw) = (told(&mark.after), told(&mark.upto), told(&mark.saw));
            let flushed = told(&mark.flushed);
            let led = if mark.only_applied { None } else { saw };
            let floor = at(&mark.floor);
            component.raise(epoch(&mark.epoch), Mark { floor, after, upto, saw, led, flushed });
        }
        component
    }
}

impl TokenFields {
    fn token(&self) -> SessionToken {
        let mut token = SessionToken::new();
        token.overflow = self.overflow;
        for fields in &self.components {
            let partition = PartitionId::new(fields.partition);
            let key = ComponentKey { partition, system_tag: fields.system_tag };
            token.join_component(key, &fields.component());
        }
        for fields in &self.notices {
            let kind = match fields.kind.as_str() {
                "POSSIBLY_LOST" => NoticeKind::PossiblyLost,
                "OBSERVED_STATE_LOST" => NoticeKind::ObservedStateLost,
                other => {
                    assert_eq!(other, "WRITE_LOST");
                    NoticeKind::WriteLost
                }
            };
            token.tell(Notice {
                partition: PartitionId::new(fields.partition),
                kind,
                lost: epoch(&fields.lost),
                child: epoch(&fields.child),
                upto: Position::START,
                told_seconds: fields.told_seconds,
            });
        }
        for id in &self.acknowledged {
            let id = u64::from_str_radix(id, 16).expect("hex digits");
            token.acknowledge(NoticeId::new(id, Position::START));
        }
        token
    }
}

#[test]
fn token_bodies_are_the_bytes_of_the_vectors() {
    let vectors = vectors::<BodyCase, BodyRefused>("token_body.json");
    for case in vectors.accepted {
        let (name, token) = (&case.name, case.token.token());
        let issued = case.issued_seconds.parse().expect("seconds");
        assert_eq!(token.encode(issued), bytes(&case.body), "{name}");
        let decoded = SessionToken::decode(&bytes(&case.body), BodyLimits::default());
        assert_eq!(decoded, Ok((token, issued)), "{name}");
    }
    for BodyRefused { name, body, error } in vectors.refused {
        let found = match SessionToken::decode(&bytes(&body), BodyLimits::default()) {
            Ok(_) => "nothing",
            Err(BodyError::Version { .. }) => "a later version",
            Err(BodyError::TooLarge { .. }) => "too large",
            Err(BodyError::Malformed { part }) => part,
        };
        assert_eq!(found, error, "{name}");
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerationCase {
    name: String,
    server: String,
    number: String,
    evicted: String,
    barriers: Vec<BarrierFields>,
    generation: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BarrierFields {
    partition: u32,
    system_tag: u32,
    epoch: String,
    position: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerationRefused {
    name: String,
    generation: String,
    error: String,
}

#[test]
fn generations_are_the_bytes_of_the_vectors() {
    let vectors = vectors::<GenerationCase, GenerationRefused>("generation.json");
    for case in vectors.accepted {
        let name = &case.name;
        let server = Server::parse(&case.server).expect("an id");
        let number = case.number.parse().expect("a number");
        let evicted = case.evicted.parse().expect("a number");
        let mut told = Generation::new(server, number, evicted);
        for barrier in &case.barriers {
            let partition = PartitionId::new(barrier.partition);
            let key = ComponentKey { partition, system_tag: barrier.system_tag };
            told = told.with(key, epoch(&barrier.epoch), at(&barrier.position));
        }
        assert_eq!(told.encode(), bytes(&case.generation), "{name}");
        assert_eq!(Generation::decode(&bytes(&case.generation)), Ok(told.clone()), "{name}");
        assert_eq!(told.barriers().count(), case.barriers.len(), "{name}");
    }
    for GenerationRefused { name, generation, error } in vectors.refused {
        let found = match Generation::decode(&bytes(&generation)) {
            Ok(_) => "nothing".to_owned(),
            Err(GenerationError::Version(_)) => "a later version".to_owned(),
            Err(GenerationError::Short) => "too short".to_owned(),
            Err(GenerationError::Number(_)) => "too high a number".to_owned(),
            Err(GenerationError::Barriers(BodyError::Version { .. })) => {
                "barriers: a later version".to_owned()
            }
            Err(GenerationError::Barriers(BodyError::TooLarge { .. })) => {
                "barriers: too large".to_owned()
            }
            Err(GenerationError::Barriers(BodyError::Malformed { part })) => {
                format!("barriers: {part}")
            }
        };
        assert_eq!(found, error, "{name}");
    }
}
