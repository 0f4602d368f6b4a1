//! The table as it was measured: what one server showed before and after each event.
//!
//! Every reading comes by three ways that must agree: the product's own poll, the functions of the
//! schema, and the bare functions of PostgreSQL, each as a role with LOGIN alone.

use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::config::{Password, Tls};
use tidegate::ports::{Demand, Fault, PositionSource, Reading};
use tidegate::sources::postgres::{Address, PostgresSource, Target, Timeouts};
use tidegate_core::evidence::{Evidence, Role};
use tidegate_core::guards::Guards;
use tidegate_core::lineage::{Incarnation, Life};
use tidegate_core::position::Position;
use tidegate_core::views::NodeId;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Server;
use tidegate_lab::wait::LIMIT;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A role with LOGIN and nothing else.
pub(super) const VISITOR: &str = "visitor";

/// What an event does to the server's memory, on which all it showed of its position rests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// The processes ended: what was replayed may have to be replayed again.
    Lost,
    /// The server went on.
    Kept,
}

/// What becomes of the replay position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Replay {
    /// It is a standby, whose position moves anyway.
    Standby,
    /// A leader shows none.
    Null,
    /// A leader shows the one it showed before.
    Kept,
    /// A leader shows another one, at or past all that it had flushed.
    New,
}

/// Which of the two times change, and what becomes of the replay position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Expected {
    pub(super) start: bool,
    pub(super) reset: bool,
    pub(super) replay: Replay,
}

struct Line {
    server: String,
    what: &'static str,
    memory: Memory,
    seen: Expected,
}

/// The lines of one major.
pub(super) struct Table {
    major: Major,
    lines: Vec<Line>,
}

impl Table {
    pub(super) fn new(major: Major) -> Self {
        Self { major, lines: Vec::new() }
    }

    /// Lets something happen to a server and holds what it then shows against what is expected.
    pub(super) async fn line(
        &mut self,
        server: &Server,
        what: &'static str,
        event: impl Future<Output = anyhow::Result<()>>,
        memory: Memory,
        expected: Expected,
    ) {
        let before = settled(server).await;
        event.await.unwrap_or_else(|error| panic!("{what} on {}: {error:#}", server.name()));
        let after = read(server).await;
        let seen = Expected {
            start: life(&before).start != life(&after).start,
            reset: life(&before).reset != life(&after).reset,
            replay: replay(&before, &after),
        };
        let (major, server) = (self.major, server.name().to_owned());
        assert_eq!(seen, expected, "{what} on {server} of {major}: {before:?}, then {after:?}");
        self.lines.push(Line { server, what, memory, seen });
    }

    /// Shows the table, past the capture of the test runner.
    pub(super) fn print(&self) {
        let major = self.major;
        let mut text = format!("\ncrash table of PostgreSQL {major}, as measured\n");
        for Line { server, what, seen, .. } in &self.lines {
            let change = |changed| if changed { "CHANGED" } else { "kept" };
            let replay = match seen.replay {
                Replay::Standby => "-",
                Replay::Null => "null",
                Replay::Kept => "kept",
                Replay::New => "new",
            };
            let (start, reset) = (change(seen.start), change(seen.reset));
            let line = format!("{server:<2} {what:<30} start {start:<7} reset {reset:<7}");
            writeln!(text, "{major} {line} replay {replay}").expect("a string grows");
        }
        writeln!(stdout(), "{text}").expect("standard output is open");
    }

    /// Holds the key of an incarnation against its halves: both are wrong on these servers.
    pub(super) fn needs_both_times(&self) {
        let lost = |line: &&Line| line.memory == Memory::Lost;
        let unseen = |by: fn(&Expected) -> bool| {
            self.lines.iter().filter(lost).filter(|line| !by(&line.seen)).count()
        };
        assert!(unseen(|seen| seen.start) > 0, "by its start alone, a lost life goes unnoticed");
        assert!(unseen(|seen| seen.reset) > 0, "by its reset alone, a restart goes unnoticed");
        assert_eq!(unseen(|seen| seen.start || seen.reset), 0, "by both, none does");
        let mut harmless = self.lines.iter().filter(|line| line.memory == Memory::Kept);
        assert!(harmless.any(|line| line.seen.reset), "a changed reset alone is no crash");
    }
}

fn life(evidence: &Evidence) -> Life {
    evidence.incarnation.life
}

fn replay(before: &Evidence, after: &Evidence) -> Replay {
    match (after.role, before.replay, after.replay) {
        (Role::Standby { .. }, _, _) => Replay::Standby,
        (Role::Writable { .. }, _, None) => Replay::Null,
        (Role::Writable { .. }, known, shown) if known == shown => Replay::Kept,
        (Role::Writable { insert, .. }, _, Some(shown)) => {
            let Role::Writable { flush, .. } = before.role else {
                panic!("a promotion moved the replay position: {before:?}, then {after:?}");
            };
            assert!(shown.covers(flush), "recovery ended at {shown}, before the flushed {flush}");
            assert!(insert.covers(shown), "recovery ended at {shown}, past the insert {insert}");
            Replay::New
        }
    }
}

/// A reading of a server at rest: a leader has flushed all that it has written. At any other time
/// its flush position may lie inside a record, past the end of a recovery.
async fn settled(server: &Server) -> Evidence {
    let asked = tokio::time::timeout(LIMIT, async {
        loop {
            let seen = read(server).await;
            match seen.role {
                Role::Writable { insert, flush, .. } if insert != flush => {}
                Role::Writable { .. } | Role::Standby { .. } => return seen,
            }
        }
    });
    asked.await.expect("all is flushed")
}

/// What a server shows to a role with LOGIN alone.
pub(super) async fn read(server: &Server) -> Evidence {
    const START: &str = "(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint";
    const RESET: &str =
        "(extract(epoch from pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint";
    let (polled, faults) = poll(server, VISITOR).await;
    assert!(faults.contains(&Fault::GrantMissing), "{VISITOR} has no grant: {faults:?}");
    let client = server.connect(VISITOR, "postgres").await.expect("a connection");
    let query = format!("select tidegate.incarnation(), tidegate.sample(), {START}, {RESET}");
    let row = client.query_one(&query, &[]).await.expect("a role with LOGIN alone may ask");
    let (incarnation, sample): (String, String) = (row.get(0), row.get(1));
    let sample = Evidence::parse(&sample, &Guards::on()).expect("evidence");
    assert_eq!(Incarnation::parse(&incarnation), Ok(polled.incarnation));
    assert_eq!(sample.incarnation, polled.incarnation);
    assert_eq!(Life { start: row.get(2), reset: row.get(3) }, polled.incarnation.life);
    polled
}

/// One poll of the product's own source, as a role of the test's choice.
pub(super) async fn poll(server: &Server, user: &str) -> (Evidence, Vec<Fault>) {
    let address = server.address();
    let target = Target {
        node: NodeId::new(0),
        address: Address::Tcp { host: address.ip().to_string(), port: address.port() },
        database: "postgres".to_owned(),
        user: user.to_owned(),
        password: Password::None,
        tls: Tls::Off,
        cluster: "lab".to_owned(),
        instance: "traps".to_owned(),
        tag: None,
        system: None,
        accepted_majors: Vec::new(),
        timeouts: Timeouts::new(Duration::from_secs(5)),
        guards: Guards::on(),
    };
    let demand = Demand { interval: Duration::from_millis(250), sample_after: None };
    let (_demand_in, demand) = watch::channel(demand);
    let (_commands_in, commands) = mpsc::channel(1);
    let (told, mut readings) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let source = PostgresSource::new(target, Clock::new());
    let running = tokio::spawn(source.run(demand, commands, told, stop.clone()));
    let observed = async {
        while let Some((_, reading)) = readings.recv().await {
            if let Reading::Observed { observation, faults } = reading {
                return Some((observation.evidence, faults));
            }
        }
        None
    };
    let observed = tokio::time::timeout(LIMIT, observed).await.expect("an answer in time");
    stop.cancel();
    running.await.expect("it stops");
    observed.expect("the source lives")
}

/// The position a writable server writes at.
pub(super) fn insert(evidence: &Evidence) -> Position {
    match evidence.role {
        Role::Writable { insert, .. } => insert,
        Role::Standby { .. } => panic!("{evidence:?} is of a standby"),
    }
}
