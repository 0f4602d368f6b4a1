//! What a token body refuses, how large it is, and what it drops for size.

use super::*;
use crate::position::Lsn;
use crate::token::PartitionId;

const ISSUED: u64 = 1_764_000_000;
const LIMITS: BodyLimits = BodyLimits { bytes: 8 * 1024, components: COMPONENTS_MAX };

fn at(value: u64) -> Position {
    Lsn::new(value).into()
}

fn epoch(timeline: u32, start: i64) -> Epoch {
    Epoch::new(timeline, Life { start, reset: start + 81_237 })
}

fn key(partition: u32) -> ComponentKey {
    ComponentKey { partition: PartitionId::new(partition), system_tag: 0xD1CE_0000 + partition }
}

/// The epochs of partition `p`: a leader of last month, and the one promoted since.
fn leaders(p: u32) -> [Epoch; 2] {
    let month = i64::from(p) * 2_592_000_000_000;
    let first = 1_730_000_000_123_456 + month;
    let reset = first - 31_536_000_000_000;
    let promoted = Life { start: first + 1_209_600_654_321, reset };
    [Epoch::new(1, Life { start: first, reset }), Epoch::new(2, promoted)]
}

/// A session that wrote and read around the failover of each of `partitions`, on logs of 100 TB.
fn session(partitions: u32) -> SessionToken {
    let mut token = SessionToken::new();
    for p in 1..=partitions {
        let end = (100 << 40) + u64::from(p) * 0x1234_5678;
        let wrote = Mark::wrote(Some(at(end - 412)), at(end));
        let read_later = Mark::saw(at(end + 9_000));
        let [before, after] = leaders(p);
        let mut component = Component::of(before, wrote.join(read_later));
        component.raise(after, Mark::wrote(Some(at(end + 20_000)), at(end + 20_412)));
        token.join_component(key(p), &component);
    }
    token
}

fn notice(partition: u32, start: i64) -> Notice {
    Notice {
        partition: PartitionId::new(partition),
        kind: NoticeKind::WriteLost,
        lost: epoch(1, start - 5_000_000),
        child: epoch(2, start),
        upto: Position::START,
        told_seconds: ISSUED,
    }
}

fn refused(bytes: &[u8]) -> BodyError {
    SessionToken::decode(bytes, LIMITS).expect_err("it is no token")
}

fn malformed(bytes: &[u8]) -> &'static str {
    let BodyError::Malformed { part } = refused(bytes) else {
        panic!("{bytes:02x?}: {:?}", refused(bytes));
    };
    part
}

/// version, flags, issued, one epoch (start 1, reset 1, timeline 1), then the rest.
fn with_one_epoch(rest: &[u8]) -> Vec<u8> {
    [&[1, 0, 7, 1, 2, 0, 1][..], rest].concat()
}

#[test]
fn bytes_that_are_no_body_are_refused_and_the_part_is_named() {
    let component = [1, 1, 9, 9, 9, 9, 2, 0, 5, 0, 0, 0];
    let ends = [0, 0];
    let good = with_one_epoch(&[&component[..], &ends].concat());
    assert!(SessionToken::decode(&good, LIMITS).is_ok());
    let table: &[(&str, Vec<u8>)] = &[
        ("version", vec![]),
        ("flags", vec![1]),
        ("flags", vec![1, 2, 7, 0, 0, 0, 0]),
        ("issue time", vec![1, 0, 0x80, 0x00, 0, 0, 0, 0]),
        ("epochs", vec![1, 0, 7, 0xFF, 0x7F]),
        ("epochs", [&good[..7], &[0, 0, 0]].concat()), // named by nothing
        ("epochs", vec![1, 0, 7, 2, 2, 0, 1, 0, 0, 1, 0, 0, 0]), // twice
        ("epochs", vec![1, 0, 7, 2, 2, 2, 1, 0, 0, 1, 0, 0, 0]), // not in order
        ("components", with_one_epoch(&[1, 1, 9, 9, 9])),
        ("components", with_one_epoch(&[1, 1, 9, 9, 9, 9, 0, 0, 0])), // an empty one
        ("components", with_one_epoch(&[1, 1, 9, 9, 9, 9, 0x12, 0, 5, 0, 0, 0, 0, 0])), // kind 1
        ("components", with_one_epoch(&[1, 1, 9, 9, 9, 9, 10, 0, 5, 0, 0, 0, 0, 0])), // 5 marks
        ("components", with_one_epoch(&[1, 1, 9, 9, 9, 9, 2, 1, 5, 0, 0, 0, 0, 0])), // which epoch?
        ("components", with_one_epoch(&[1, 1, 9, 9, 9, 9, 2, 0, 5, 7, 0, 0, 0, 0])), // below zero
        (
            "components", // one epoch twice
            with_one_epoch(&[1, 1, 9, 9, 9, 9, 4, 0, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0]),
        ),
        (
            "components", // one key twice
            [&good[..7], &[2], &component[1..], &component[1..], &ends].concat(),
        ),
        ("notices", [&good[..19], &[9]].concat()),
        ("notices", [&good[..19], &[1, 1, 3, 0, 0, 7, 0]].concat()), // kind 3
        ("acknowledged ids", [&good[..20], &[9]].concat()),
        ("acknowledged ids", [&good[..20], &[2], &[7; 16][..]].concat()),
        ("end", [&good[..], &[0]].concat()),
    ];
    for (part, bytes) in table {
        assert_eq!(malformed(bytes), *part, "{bytes:02x?}");
    }
}

#[test]
fn a_later_version_is_told_from_garbage() {
    assert_eq!(refused(&[2, 0, 0]), BodyError::Version { version: 2 });
}

#[test]
fn too_much_is_refused_before_it_is_read() {
    let found = 9_000;
    let limit = LIMITS.bytes;
    assert_eq!(refused(&vec![1; found]), BodyError::TooLarge { what: "bytes", found, limit });
    let limits = BodyLimits { components: 3, ..LIMITS };
    assert!(SessionToken::decode(&session(3).encode(ISSUED), limits).is_ok());
    let error = SessionToken::decode(&session(4).encode(ISSUED), limits);
    let too_many = BodyError::TooLarge { what: "components", found: 4, limit: 3 };
    assert_eq!(error, Err(too_many));
    let huge = [1, 0, 7, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F];
    assert!(matches!(refused(&huge), BodyError::TooLarge { what: "components", .. }));
}

#[test]
fn a_notice_that_was_acknowledged_is_refused() {
    let mut token = SessionToken::new();
    token.tell(notice(1, 1_730_000_000_000_000));
    let told = token.encode(ISSUED);
    let id = notice(1, 1_730_000_000_000_000).id().loss();
    let both = [&told[..told.len() - 1], &[1], &id.to_le_bytes()].concat();
    assert_eq!(malformed(&both), "notices");
}

#[test]
fn how_far_a_loss_was_told_is_kept_where_it_is_known() {
    let mut token = SessionToken::new();
    token.tell(notice(1, 1_730_000_000_000_000));
    let unknown = token.encode(ISSUED);
    let far = Notice { upto: at(500), ..notice(1, 1_730_000_000_000_000) };
    token.tell(far);
    token.acknowledge(NoticeId::new(9, at(7)));
    let known = token.encode(ISSUED);
    assert_eq!((unknown[1], known[1]), (0, 4));
    assert_eq!(SessionToken::decode(&known, LIMITS).expect("a token").0, token);
    token.acknowledge(NoticeId::new(far.id().loss(), at(499)));
    assert_eq!(token.notices().collect::<Vec<_>>(), [&far], "more was told than it heard of");
    token.acknowledge(far.id());
    assert_eq!(token.notices().count(), 0);
    token.tell(Notice { upto: at(400), ..far });
    assert_eq!(token.notices().count(), 0, "it has heard of more");
    let later = Notice { upto: at(501), ..far };
    token.tell(later);
    assert_eq!(token.notices().collect::<Vec<_>>(), [&later]);
    let mut claims = unknown;
    claims[1] = 4;
    claims.insert(claims.len() - 1, 0);
    assert_eq!(malformed(&claims), "flags");
}

#[test]
fn a_token_is_as_small_as_promised() {
    for (partitions, promised_chars) in [(1, 136), (6, 563), (20, 1_758)] {
        let body = session(partitions).encode(ISSUED);
        // `tg1.`, then base64url of tag, key id, body and signature.
        let chars = 4 + ((8 + 1 + body.len() + 16) * 4).div_ceil(3);
        let line = format!("{partitions} partitions: {} bytes, {chars} characters", body.len());
        assert!(chars <= promised_chars, "{line}; promised {promised_chars}");
        #[expect(clippy::print_stdout, reason = "the figure is what the test is run for")]
        {
            println!("token: {line} of {promised_chars}");
        }
    }
}

#[test]
fn a_floor_below_what_was_seen_is_raised_to_it() {
    let mark = Mark {
        floor: at(5),
        after: Some(at(9)),
        upto: None,
        saw: Some(at(7)),
        led: Some(at(7)),
        flushed: None,
    };
    let token = SessionToken::of(key(1), Component::of(epoch(1, 1), mark));
    let (back, _) = SessionToken::decode(&token.encode(ISSUED), LIMITS).expect("own bytes");
    let raised = back.component(key(1)).and_then(|component| component.mark(epoch(1, 1)));
    assert_eq!(raised, Some(Mark { floor: at(9), ..mark }));
}

#[test]
fn the_whole_log_and_all_of_time_fit() {
    let mut component = Component::default();
    for (life, reset) in [(i64::MIN, i64::MAX), (0, i64::MIN), (i64::MAX, i64::MIN)] {
        let ends = Mark { after: Some(at(0)), ..Mark::wrote(None, at(u64::MAX)) };
        component.raise(Epoch::new(u32::MAX, Life { start: life, reset }), ends);
    }
    let token = SessionToken::of(key(1), component);
    assert_eq!(SessionToken::decode(&token.encode(u64::MAX), LIMITS), Ok((token, u64::MAX)));
}

#[test]
fn the_component_of_the_oldest_leader_is_dropped_first() {
    let mut token = session(6);
    token.join_component(key(9), &Component::unresolved());
    let whole = token.encode(ISSUED);
    let kept = |max_bytes| {
        let bytes = token.encode_within(ISSUED, max_bytes);
        assert!(bytes.len() <= max_bytes);
        let (back, _) = SessionToken::decode(&bytes, LIMITS).expect("own bytes");
        let partitions: Vec<u32> =
            back.components().map(|(key, _)| key.partition.value()).collect();
        (back.overflow, partitions)
    };
    assert_eq!(kept(whole.len()), (false, vec![1, 2, 3, 4, 5, 6, 9]));
    assert_eq!(kept(whole.len() - 1), (true, vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(kept(whole.len() - 7), (true, vec![2, 3, 4, 5, 6]));
    assert_eq!(kept(whole.len() / 2), (true, vec![5, 6]));
    assert_eq!(kept(20), (true, vec![]));
}

#[test]
fn notices_outlast_components_and_acknowledged_ids() {
    let mut token = session(2);
    for month in 0..4 {
        token.tell(notice(1, 1_730_000_000_000_000 + month * 2_592_000_000_000));
        token.acknowledge(NoticeId::new(month.cast_unsigned(), Position::START));
    }
    let kept = |max_bytes| {
        let bytes = token.encode_within(ISSUED, max_bytes);
        let (back, _) = SessionToken::decode(&bytes, LIMITS).expect("own bytes");
        assert!(back.overflow);
        let parts =
            (back.components().count(), back.acknowledged().count(), back.notices().count());
        (bytes.len() <= max_bytes, parts)
    };
    let whole = token.encode(ISSUED).len();
    assert_eq!(kept(whole - 1), (true, (1, 4, 4)));
    let mut bare = token.clone();
    bare.shed(key(1));
    bare.shed(key(2));
    let bare = bare.encode(ISSUED).len();
    assert_eq!(kept(bare), (true, (0, 4, 4)));
    assert_eq!(kept(bare - 1), (true, (0, 3, 4)));
    assert_eq!(kept(bare - 4 * 8), (true, (0, 0, 4)));
    assert_eq!(kept(bare - 4 * 8 - 1), (true, (0, 0, 3)));
    assert_eq!(kept(16), (true, (0, 0, 0)));
    assert_eq!(kept(0), (false, (0, 0, 0)));
}
