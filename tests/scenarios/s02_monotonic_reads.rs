//! S02: who has read a newer state is not sent back, though it never wrote.

use tidegate::config::{TENANT, TOKEN_CHARS};
use tidegate::seal::{Key, Keyring};
use tidegate_core::position::Position;
use tidegate_core::token::{BodyLimits, SessionToken};
use tidegate_lab::install::Major;
use tidegate_proto::v1;
use tidegate_proto::v1::resolve_session_response::State;

use crate::bench::{Bench, POLL_INTERVAL, name_of, position_in};
use crate::on_both_versions;
use crate::session::Session;

on_both_versions! {
    carried =>
        s02_monotonic_reads_with_a_carried_token_pg15,
        s02_monotonic_reads_with_a_carried_token_pg18;
    subject_only =>
        s02_monotonic_reads_with_the_subject_only_pg15,
        s02_monotonic_reads_with_the_subject_only_pg18;
}

const READS: u64 = 100;

async fn carried(major: Major) {
    monotonic_reads(major, Session::carrying(), Session::carrying()).await;
}

async fn subject_only(major: Major) {
    monotonic_reads(major, Session::of("v"), Session::of("w")).await;
}

/// `v` reports what it reads; `w` reports it too, but asks that nothing be raised.
async fn monotonic_reads(major: Major, mut v: Session, mut w: Session) {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, key) = (folder.path().join("token.key"), Key::generate().expect("randomness"));
    std::fs::write(&file, key.to_hex()).expect("a key file");
    let bench = Bench::with(major, |options| options.token_key(&file)).await;
    let keyring = Keyring::of_one("lab", TENANT, key, TOKEN_CHARS);

    bench.r1().pause_replay().await.expect("r1 pauses");
    bench.commit(1).await;
    bench.r2().catch_up_with(bench.cluster.leader()).await.expect("r2 follows");
    let read_at = read_on_r2(&bench, &mut v, v1::Raise::Unspecified).await;
    read_on_r2(&bench, &mut w, v1::Raise::None).await;

    for _ in 0..READS {
        let served = bench.served(&mut v, v1::Policy::default()).await;
        assert_ne!(name_of(&served), "r1");
        assert!(bench.reads(&served, 1).await, "{served:?}");
    }
    let known = bench.resolve(&v).await;
    assert_eq!(known.state(), State::Known);
    // An answer without a token leaves the one that was carried.
    let known = if known.token.is_empty() { v.token() } else { &known.token };
    assert!(demands(&keyring, known, read_at), "below {read_at:?}");

    // The wrong way: the same read without raising anything goes back in time, and so does one
    // that was not reported.
    let unraised = bench.served_by(&mut w, "r1").await;
    assert!(!bench.reads(&unraised, 1).await, "w had read the row on r2");
    let mut unreported = Session::of("x");
    let newer = bench.served_by(&mut unreported, "r2").await;
    assert!(bench.reads(&newer, 1).await, "r2 has the row");
    let older = bench.served_by(&mut unreported, "r1").await;
    assert!(!bench.reads(&older, 1).await, "x had read the row on r2");

    bench.stall.forget();
    bench.r1().resume_replay().await.expect("r1 resumes");
    bench.r1().catch_up_with(bench.cluster.leader()).await.expect("r1 follows");
    let caught_up_at = bench.clock.now();
    let served = bench.served_by(&mut v, "r1").await;
    let took = bench.clock.now().since(caught_up_at);
    assert!(bench.reads(&served, 1).await, "r1 was named before it had the row");
    assert!(took <= bench.stall.allow(POLL_INTERVAL * 3), "{took:?}");
    println!("S02 {major:?}: r1 was named again {took:?} after it had caught up");
}

/// Reads the row on r2 and reports the read; returns where r2 stood.
async fn read_on_r2(bench: &Bench, session: &mut Session, raise: v1::Raise) -> Position {
    let served = bench.served_by(session, "r2").await;
    assert!(bench.reads(&served, 1).await, "r2 has the row");
    let sample = bench.sample(&served).await;
    bench.record(session, &sample, raise).await;
    position_in(&sample)
}

/// Whether a token demands at least this position.
fn demands(keyring: &Keyring, token: &str, position: Position) -> bool {
    let body = keyring.open(token).expect("a token of this service");
    let (token, _) = SessionToken::decode(&body, BodyLimits::default()).expect("a token");
    let mut marks = token.components().flat_map(|(_, component)| component.marks());
    marks.any(|(_, mark)| mark.floor.covers(position))
}
