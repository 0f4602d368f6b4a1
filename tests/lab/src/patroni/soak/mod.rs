//! The soak of a real Patroni: switchovers, dead nodes and dead servers while sessions write and
//! read through the Rust client.
//!
//! - `events`: what befalls the nodes, and how long it takes until Tidegate names who leads
//! - `probe`: when a node is first seen writable
//! - `place`: what all visitors share
//! - `visitor`: one session, what it must find and what it was told
//!
//! What was really lost is read on the leader afterwards and held against what sessions were told.

mod events;
mod place;
mod probe;
mod visitor;

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::future::{join_all, try_join_all};

use self::events::{Kind, Took};
use self::place::Place;
use self::visitor::Visitor;
use crate::claims::{Claims, Op};
use crate::metrics;
use crate::soak::{Options, say};

/// Rounds where nobody asks for a number.
const USUAL_ROUNDS: u64 = 3;
/// Sessions.
const VISITORS: i64 = 24;
/// The least share of unflagged reads that replicas answer, in hundredths, and the least rows that
/// a standby truly lacked: with less, nothing was at stake.
const REPLICA_SHARE: f64 = 25.0;
const LACKING_LEAST: f64 = 10.0;

/// Where the last epoch but one ends in the last one.
const FORK: &str = "select case when at_most is null then 'that loses nothing' \
    else format('%s to %s, %s bytes in doubt', at_least, at_most, at_most - at_least) end \
    from tidegate.lineage order by n desc limit 1";

/// What the rounds have shown.
#[derive(Debug, Default)]
struct Sums {
    took: Vec<Took>,
    switchovers: u64,
    /// Rows that a switchover lost, and notices told of one.
    lost_in_switchovers: u64,
    told_of_switchovers: u64,
    lost: u64,
    told: u64,
    untold: Vec<String>,
    stale: Vec<String>,
    writes: u64,
    unwritten: u64,
    unflagged: u64,
    on_replicas: u64,
    flagged: u64,
    unanswered: u64,
    probes: u64,
    lacking: u64,
    /// Ends of timelines in Patroni's history, by what they are to the forks that were placed.
    fitting: u64,
    against: u64,
}

/// Plays rounds and claims what they show.
///
/// # Errors
/// When the lab fails: Patroni or a server does not do what it is told.
pub(crate) async fn soak(options: Options, claims: &mut Claims) -> Result<()> {
    let began_at = Instant::now();
    let place = Place::prepare().await?;
    say(format_args!("patroni: three nodes and Tidegate are up after {:?}", began_at.elapsed()));
    let mut visitors: Vec<Visitor> =
        (1..=VISITORS).map(|id| Visitor::new(id, options.seed, &place)).collect();
    let (mut sums, mut rounds, playing_at) = (Sums::default(), 0, Instant::now());
    while options.length.goes_on(USUAL_ROUNDS, rounds, playing_at) {
        rounds += 1;
        let round_at = Instant::now();
        for kind in Kind::ALL {
            visitors = phase(&place, kind, visitors, &mut sums).await?;
        }
        say(format_args!("patroni: round {rounds} took {:.0} s", round_at.elapsed().as_secs_f64()));
    }
    for (agreement, count) in [("fits", &mut sums.fitting), ("contradicts", &mut sums.against)] {
        let labels = [("agreement", agreement)];
        *count = metrics::counter(place.service.admin_address(), "timeline_ends", &labels).await?;
    }
    place.end().await?;
    sums.claim(claims, rounds);
    Ok(())
}

/// Plays one event under load, waits until all is well, and judges what came of it.
async fn phase(
    place: &Place,
    kind: Kind,
    visitors: Vec<Visitor>,
    sums: &mut Sums,
) -> Result<Vec<Visitor>> {
    place.begin();
    let crowd = join_all(visitors.into_iter().map(|visitor| visitor.live(place)));
    let (mut visitors, took) = tokio::join!(crowd, events::play(place, kind));
    let took = took?;
    say(format_args!("patroni: {}", took.words()));
    sums.took.push(took);
    place.settle().await?;
    let looks = visitors.iter_mut().map(|visitor| visitor.last_look(place));
    try_join_all(looks).await?;
    let leader = place.patroni.leader().await?;
    let leader = leader.connect().await?;
    let fork: String = leader.query_one(FORK, &[]).await?.try_get(0)?;
    say(format_args!("patroni: the last epoch began with the fork {fork}"));
    let rows = leader.query("select id from soak", &[]).await?;
    let truth: Result<BTreeSet<i64>, _> = rows.iter().map(|row| row.try_get(0)).collect();
    let truth = truth.context("the rows are numbered")?;
    for visitor in &mut visitors {
        sums.judge(kind, visitor, &truth);
        visitor.next_phase(&truth).await?;
    }
    sums.switchovers += u64::from(kind == Kind::Switchover);
    Ok(visitors)
}

impl Sums {
    fn judge(&mut self, kind: Kind, visitor: &Visitor, truth: &BTreeSet<i64>) {
        let lost: Vec<i64> = visitor.written().filter(|row| !truth.contains(row)).collect();
        let told = visitor.notices();
        if kind == Kind::Switchover {
            self.lost_in_switchovers += lost.len() as u64;
            self.told_of_switchovers += told.len() as u64;
            for words in told.iter().map(String::as_str) {
                say(format_args!("patroni: {} was told of a switchover: {words}", visitor.words()));
            }
        }
        self.lost += lost.len() as u64;
        self.told += told.len() as u64;
        if let Some(row) = lost.iter().find(|row| !visitor.was_told_of(**row)) {
            self.untold.push(format!("{} lost row {row} and was not told", visitor.words()));
        }
        for missing in visitor.missing() {
            if !missing.told || truth.contains(&missing.row) {
                let (words, row) = (visitor.words(), missing.row);
                self.stale.push(format!("{words} read {} and missed row {row}", missing.node));
            }
        }
        let tally = visitor.tally();
        self.writes += tally.writes;
        self.unwritten += tally.unwritten;
        self.unflagged += tally.unflagged;
        self.on_replicas += tally.on_replicas;
        self.flagged += tally.flagged;
        self.unanswered += tally.unanswered;
        self.probes += tally.probes;
        self.lacking += tally.lacking;
    }

    #[expect(clippy::cast_precision_loss, reason = "no soak counts to 2^53")]
    fn claim(&self, claims: &mut Claims, rounds: u64) {
        for words in self.stale.iter().chain(&self.untold) {
            say(format_args!("patroni: BROKEN: {words}"));
        }
        let lost_or_told = self.lost_in_switchovers + self.told_of_switchovers;
        claims.count("switchover lost or told", lost_or_told, 0, self.switchovers);
        claims.count("stale reads unflagged", self.stale.len() as u64, 0, self.unflagged);
        claims.count("losses never told", self.untold.len() as u64, 0, self.writes);
        let events = Kind::ALL.len() as u64 * rounds;
        claims.count("events after which the new leader was named", events, events, events);
        let compared = self.fitting + self.against;
        claims.count("forks that Patroni's history contradicts", self.against, 0, compared);
        let share = 100.0 * self.on_replicas as f64 / self.unflagged.max(1) as f64;
        let name = "unflagged reads on replicas, percent";
        claims.claim(name, share, Op::AtLeast, REPLICA_SHARE, self.unflagged);
        let name = "rows a standby truly lacked just after their commit";
        claims.claim(name, self.lacking as f64, Op::AtLeast, LACKING_LEAST, self.probes);
        for (name, count) in [
            ("acknowledged writes", self.writes),
            ("writes without an answer", self.unwritten),
            ("flagged reads", self.flagged),
            ("reads refused or broken off", self.unanswered),
            ("acknowledged writes lost", self.lost),
            ("notices told", self.told),
            ("notices told of switchovers", self.told_of_switchovers),
        ] {
            claims.figure(name, count);
        }
        for kind in Kind::ALL {
            let of_kind = || self.took.iter().filter(|took| took.kind == kind);
            let worst = |pick: fn(&Took) -> f64| of_kind().map(pick).fold(0.0, f64::max);
            let name = kind.words();
            claims.figure(&format!("{name}: writable after, worst s"), worst(Took::writable_secs));
            claims.figure(&format!("{name}: named then after, worst ms"), worst(Took::named_ms));
        }
    }
}
