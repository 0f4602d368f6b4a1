//! An answer that comes late: of a life that has ended by then.
//!
//! The product asks a node on one connection, so no answer of it overtakes another. The rule is for
//! whoever asks on several, as two sources here do.

#![cfg(feature = "unsafe-guards")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::config::Config;
use tidegate::ports::{Demand, PositionSource, Reading};
use tidegate::sources::postgres::{PostgresSource, Target};
use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::leader::Facts;
use tidegate_core::partition::{Event, Partition};
use tidegate_core::snapshot::{NodeSettings, Settings};
use tidegate_core::token::PartitionId;
use tidegate_core::trail::ClockDrift;
use tidegate_core::views::{NodeId, Observation, Quarantine};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::Stop;
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::ServiceOptions;
use tidegate_lab::wait::{LIMIT, until};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::servers_bench::{Bench, Desk};
use super::stage::on_both_majors;

on_both_majors! {
    a_late_answer => trap_answer_comes_after_the_restart_pg15,
        trap_answer_comes_after_the_restart_pg18;
}

/// Longer than any restart: a poll under way is not given up.
const PATIENT: &str = "\"30s\"";
const R1: NodeId = NodeId::new(1);

/// One source that polls r1, as the service has it.
struct Source {
    readings: mpsc::Receiver<(NodeId, Reading)>,
    _demand: watch::Sender<Demand>,
    _commands: mpsc::Sender<tidegate::ports::Command>,
    _stop: tokio_util::sync::DropGuard,
}

impl Source {
    fn run(options: &ServiceOptions) -> Self {
        let state = tempfile::tempdir().expect("a folder");
        let text = options.toml(state.path()).expect("a configuration");
        let config = Config::parse("lab.toml", &text, []).expect("a configuration");
        let targets = Target::of(&config, &config.partitions[0], None, Guards::on());
        let target = targets.into_iter().find(|target| target.node == R1).expect("r1");
        let (demand, demanded) =
            watch::channel(Demand { interval: Duration::from_millis(5), sample_after: None });
        let (commands, commanded) = mpsc::channel(1);
        let (told, readings) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let source = PostgresSource::new(target, Clock::new());
        drop(tokio::spawn(source.run(demanded, commanded, told, stop.clone())));
        Self { readings, _demand: demand, _commands: commands, _stop: stop.drop_guard() }
    }

    /// The next answer; failures before it are passed over.
    async fn observed(&mut self) -> Observation {
        let search = async {
            loop {
                let (_, reading) = self.readings.recv().await.expect("the source lives");
                if let Reading::Observed { observation, .. } = reading {
                    return observation;
                }
            }
        };
        tokio::time::timeout(LIMIT, search).await.expect("an answer in time")
    }

    /// Passes over everything.
    async fn drain(&mut self) -> Infallible {
        loop {
            self.observed().await;
        }
    }

    /// The next answer received at or after `at`.
    async fn received_since(&mut self, at: Instant) -> Observation {
        loop {
            let seen = self.observed().await;
            if seen.received_at >= at {
                return seen;
            }
        }
    }

    /// The next answer sent at or after `at`.
    async fn observed_since(&mut self, at: Instant) -> Observation {
        loop {
            let seen = self.observed().await;
            if seen.sent_at >= at {
                return seen;
            }
        }
    }
}

fn partition(seen: &Observation, guards: Guards) -> Partition {
    let settings = Settings {
        nodes: vec![NodeSettings::default(), NodeSettings::default()],
        view_max_age: Duration::from_secs(60),
        gate: Duration::from_secs(3600),
        clock_drift: ClockDrift::parts_per_million(500),
        idle_interval: Duration::from_millis(250),
        busy_interval: Duration::from_millis(2),
        store_interval: Duration::from_secs(1),
        waits_max: 10,
        async_commits_never: false,
        accepted_majors: vec![15, 18],
        upgraded_from: None,
        guards,
    };
    let system = seen.evidence.incarnation.system;
    Partition::new(PartitionId::new(1), system, Arc::new(settings), Facts::new())
}

/// What a partition makes of the same answers under these rules.
fn taken(answers: &[&Observation], guards: Guards) -> Partition {
    let mut partition = partition(answers[0], guards);
    for answer in answers {
        partition.handle(Event::Observed((*answer).clone()), answer.received_at);
    }
    partition
}

async fn a_late_answer(major: Major) {
    let bench = Bench::set(major, 1).await;
    let proxy = Proxy::start(bench.r1().address()).await.expect("a proxy");
    let direct = bench.options().await.limit("poll_timeout", PATIENT);
    let through = direct.clone().poll_through("r1", proxy.address());
    let desk = Desk::open(through.clone()).await;
    let (mut slow, mut fast) = (Source::run(&through), Source::run(&direct));
    let early = fast.observed().await;
    slow.observed().await;

    // Polls reach the server, and their answers stay on the way.
    proxy.set(Mode::HalfOpen).await.expect("no answer comes back");
    // Nobody takes what the direct source says, so that it is quiet too.
    let quiet = "select count(*) from pg_stat_activity where usename = 'tidegate' \
                 and state_change < clock_timestamp() - interval '400ms'";
    tokio::select! {
        never = slow.drain() => match never {},
        quiet = until("every poll was answered", LIMIT, || async {
            Ok(bench.r1().value::<i64>(quiet).await? == 3)
        }) => drop(quiet.expect("they were")),
    }

    bench.r1().restart(Stop::Immediate).await.expect("a restart");
    let restarted_at = Clock::new().now();
    let new = fast.observed_since(restarted_at).await;
    assert_ne!(new.evidence.incarnation, early.evidence.incarnation);
    proxy.set(Mode::Pass).await.expect("what was held back arrives");
    let late = slow.received_since(new.received_at).await;
    assert_eq!(late.evidence.incarnation, early.evidence.incarnation, "of the ended life");
    assert!(late.sent_at < new.received_at, "{late:?}");
    let newest = fast.observed_since(Clock::new().now()).await;

    let answers = [&early, &new, &late];
    let without = Guards::without("late_observation").expect("a guard");
    let wrong = taken(&answers, without);
    let view = wrong.snapshot().view(R1).expect("a view");
    assert_eq!(view.incarnation, early.evidence.incarnation, "an ended life is taken for the node");
    let wrong = taken(&[&early, &new, &late, &newest], without);
    let why = wrong.snapshot().quarantine(R1);
    assert_eq!(why, Some(Quarantine::Alternating), "a healthy node is thrown out");

    let right = taken(&answers, Guards::on());
    let view = right.snapshot().view(R1).expect("a view");
    assert_eq!(view.incarnation, new.evidence.incarnation);
    let right = taken(&[&early, &new, &late, &newest], Guards::on());
    assert_eq!(right.snapshot().quarantine(R1), None);

    // One source has one answer under way: the service was never in doubt.
    let now = desk.until_lives(bench.r1()).await;
    let state = desk.until_node("r1", |node| node.session_eligible).await;
    assert_eq!((state.quarantine_reason.as_str(), state.incarnation), ("", now));
}
