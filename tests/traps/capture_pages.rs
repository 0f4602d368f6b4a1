//! Positions behind a page header, which no standby reaches while the leader is idle.
//!
//! The insert position is where the next record would begin: at the start of a page that is behind
//! the page's header. Replay stops where the last record ends. The background writer is stopped
//! here: left alone it writes a record within some 15 seconds of a commit, and never again after a
//! switch of segments by `archive_timeout`.

#![expect(clippy::print_stdout, reason = "how long a wait took is of interest")]

use tidegate::clock::Clock;
use tidegate_client::Session;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Lsn;
use tidegate_lab::wait::{LIMIT, until};
use tokio_postgres::Client;

use crate::stage::{
    IN_VAIN, Stage, await_fresh, covers, fresh_within, on_both_majors, position_in, shows, text,
};

on_both_majors! {
    page_boundary => trap_capture_at_a_page_boundary_pg15, trap_capture_at_a_page_boundary_pg18;
    segment_start => trap_sample_at_a_segment_start_pg15, trap_sample_at_a_segment_start_pg18;
}

const IDLE: &str = "background writer";

const PAGE_BYTES: u64 = 8 << 10;
const PAGE_HEADER_BYTES: u64 = 24;
const SEGMENT_BYTES: u64 = 16 << 20;
const SEGMENT_HEADER_BYTES: u64 = 40;

/// Another record between two of ours spoils a try.
const TRIES: i64 = 20;

/// A commit record that ends with its page: one in a thousand does.
async fn page_boundary(major: Major) {
    let stage = Stage::without("page_header", major, 1, |options| options).await;
    stage.tell_leaders(IDLE, "STOP").await;
    let writer = stage.writer().await;
    let sizes = sizes(&writer).await;
    let mut id = 0;
    let evidence = loop {
        id += 1;
        assert!(id <= TRIES, "no commit ended with its page");
        commit_at_page_end(&writer, id, &sizes).await;
        let evidence = text(&writer, "select tidegate.capture()").await;
        if u64::from(raw_position_in(&evidence)) % PAGE_BYTES == PAGE_HEADER_BYTES {
            break evidence;
        }
    };
    is_reached_at_once(&stage, major, &evidence, PAGE_HEADER_BYTES).await;
    assert!(shows(stage.r1(), id).await, "called fresh without row {id}");
    stage.tell_leaders(IDLE, "CONT").await;
}

/// Who reads on the leader after a switch of segments, whoever asked for it.
async fn segment_start(major: Major) {
    let stage = Stage::without("page_header", major, 1, |options| options).await;
    stage.tell_leaders(IDLE, "STOP").await;
    let reader = stage.writer().await;
    let question = "select pg_current_wal_insert_lsn()";

    stage.write(1).await;
    stage.leader().sql("select pg_switch_wal()").await.expect("a switch");
    let evidence = text(&reader, "select tidegate.sample()").await;
    is_reached_at_once(&stage, major, &evidence, SEGMENT_HEADER_BYTES).await;
    assert!(shows(stage.r1(), 1).await, "called fresh without row 1");

    stage.write(2).await;
    stage.leader().set("archive_timeout", "1s").await.expect("a setting");
    until("the leader switches segments by itself", LIMIT, || async {
        let insert: Lsn = stage.leader().value(question).await?;
        Ok(u64::from(insert) % SEGMENT_BYTES == SEGMENT_HEADER_BYTES)
    })
    .await
    .expect("it does");
    let evidence = text(&reader, "select tidegate.sample()").await;
    is_reached_at_once(&stage, major, &evidence, SEGMENT_HEADER_BYTES).await;
    assert!(shows(stage.r1(), 2).await, "called fresh without row 2");
    stage.tell_leaders(IDLE, "CONT").await;
}

/// r1 has everything there is and stands below the position by a header. Who takes the position as
/// it is waits in vain, until somebody writes; who takes the header off does not wait at all.
async fn is_reached_at_once(stage: &Stage, major: Major, evidence: &str, header_bytes: u64) {
    let (raw, reached) = (raw_position_in(evidence), position_in(evidence));
    assert_eq!(u64::from(raw) - u64::from(reached), header_bytes);
    stage.r1().wait_until_replayed(reached).await.expect("r1 follows");
    let (clock, session) = (Clock::new(), stage.ruled.recorded(evidence).await);
    let asked_at = clock.now();
    await_fresh(&session, "r1").await;
    let took = clock.now().since(asked_at);

    let waiting: Option<Session> = match stage.unruled() {
        Some(unruled) => Some(unruled.recorded(evidence).await),
        None => None,
    };
    if let Some(waiting) = &waiting {
        let in_vain = stage.stall.allow(IN_VAIN.max(took * 5));
        assert!(!fresh_within(waiting, "r1", in_vain).await, "{raw} was to stay unreached");
        println!(
            "{major:?}: {raw} taken as {reached} was reached in {took:?}, and as it is not in \
             {in_vain:?}"
        );
    }
    let stands = stage.r1().replay_lsn().await.expect("a standby that answers");
    assert_eq!(stands, reached, "the leader was to be idle");
    assert!(!covers(stage.r1(), raw).await);
    if let Some(waiting) = &waiting {
        stage.leader().sql("select txid_current()").await.expect("somebody writes");
        await_fresh(waiting, "r1").await;
    }
}

/// What a record takes besides the text in it.
struct Sizes {
    message_overhead: u64,
    commit: u64,
}

/// Long enough for the long form of a record's header, which does not grow any further.
const SAMPLE_BYTES: u64 = 1_000;

async fn sizes(writer: &Client) -> Sizes {
    for id in 1..=TRIES {
        begin(writer, -id).await;
        let row = position(writer).await;
        fill(writer, SAMPLE_BYTES).await;
        let filled = position(writer).await;
        writer.batch_execute("commit").await.expect("a commit");
        let end = position(writer).await;
        // Within one page nothing but records lies between them.
        if row / PAGE_BYTES == end / PAGE_BYTES {
            return Sizes { message_overhead: filled - row - SAMPLE_BYTES, commit: end - filled };
        }
    }
    panic!("no transaction stayed on its page");
}

/// Commits a row behind a message of just that length that the commit record ends with its page.
async fn commit_at_page_end(writer: &Client, id: i64, sizes: &Sizes) {
    let taken = sizes.message_overhead + sizes.commit;
    begin(writer, id).await;
    let mut left = PAGE_BYTES - position(writer).await % PAGE_BYTES;
    if left < taken + SAMPLE_BYTES {
        // It goes on behind the header of the next page.
        left += PAGE_BYTES - PAGE_HEADER_BYTES;
    }
    fill(writer, left - taken).await;
    writer.batch_execute("commit").await.expect("a commit");
}

async fn begin(writer: &Client, id: i64) {
    let row = format!("begin; insert into t values ({id})");
    writer.batch_execute(&row).await.expect("a row");
}

async fn fill(writer: &Client, bytes: u64) {
    let message = format!("select pg_logical_emit_message(false, '', repeat('-', {bytes}))");
    writer.batch_execute(&message).await.expect("a message");
}

async fn position(writer: &Client) -> u64 {
    let row = writer.query_one("select pg_current_wal_insert_lsn()", &[]).await;
    row.expect("a position").get::<_, Lsn>(0).into()
}

/// The insert position as the server printed it.
fn raw_position_in(evidence: &str) -> Lsn {
    let field = evidence.split('|').nth(8).expect("a field for it");
    field.parse().expect("a position")
}
