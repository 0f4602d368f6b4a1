//! Measures what Redis and Valkey do to a token store, and prints the tables of
//! `docs/redis-measured.md`.
//!
//! Takes two to three minutes; decides nothing.

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use tidegate_lab::redis::Kind;
use tidegate_lab::store_spike::{Check, Fault, Outcome, Shape, Split, costs, ids, sights};

/// Enough for tens of milliseconds of the server's time in each cell.
const COST_ROUNDS: usize = 150;

#[tokio::main]
async fn main() -> Result<()> {
    for kind in Kind::ALL {
        say(&format!("\n## {kind}\n"))?;
        splits(kind).await?;
        histories(kind).await?;
        lookups(kind).await?;
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(stdout(), "{line}")?)
}

/// The splits to play: what they are called, and what they are.
fn played(kind: Kind) -> Vec<(&'static str, Split)> {
    let base = Split {
        kind,
        replicas: 1,
        min_replicas: None,
        fault: Fault::Silent,
        check: Check::Acknowledged,
        fence: Duration::from_secs(4),
        watched: Duration::from_secs(6),
    };
    let fenced = |replicas, max_lag: u32| Split {
        min_replicas: Some((replicas, max_lag)),
        fence: Duration::from_secs(u64::from(max_lag) * 2 + 2),
        watched: Duration::from_secs(u64::from(max_lag) * 2 + 4),
        ..base
    };
    let frozen = |answers| Split {
        fault: Fault::Frozen {
            answers: Duration::from_secs(answers),
            time: Duration::from_secs(5),
        },
        watched: Duration::from_secs(10),
        ..fenced(1, 1)
    };
    vec![
        ("no `min-replicas`", base),
        ("1, lag 1", fenced(1, 1)),
        ("1, lag 2", fenced(1, 2)),
        ("1, lag 10", fenced(1, 10)),
        ("1, lag 1, two replicas", Split { replicas: 2, ..fenced(1, 1) }),
        ("2, lag 1, two replicas", Split { replicas: 2, ..fenced(2, 1) }),
        ("1, lag 1, frozen for 5 s", frozen(0)),
        ("the same, live lag checked", Split { check: Check::LiveLag, ..frozen(0) }),
        ("frozen, 2 s of answers unread", frozen(2)),
        ("the same, live lag checked", Split { check: Check::LiveLag, ..frozen(2) }),
        ("the same, chain checked", Split { check: Check::Chain, ..frozen(2) }),
        ("1, lag 1, silent, chain checked", Split { check: Check::Chain, ..fenced(1, 1) }),
    ]
}

async fn splits(kind: Kind) -> Result<()> {
    let cases = played(kind);
    let outcomes = try_join_all(cases.iter().map(|(_, split)| split.play())).await?;
    say("| old primary | stores until | refuses from | stored | missed at once | after a fence |")?;
    say("|---|---|---|---|---|---|")?;
    for ((name, split), outcome) in cases.iter().zip(outcomes) {
        let Outcome { stored, missed_at_once, missed_after_fence, .. } = outcome;
        let (until, from) = (seconds(outcome.stored_for), seconds(outcome.refused_after));
        let fence = split.fence.as_secs();
        say(&format!(
            "| {name} | {until} | {from} | {stored} | {missed_at_once} | \
             {missed_after_fence} ({fence} s) |"
        ))?;
    }
    Ok(())
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()))
}

async fn histories(kind: Kind) -> Result<()> {
    say("\n| event | `master_replid` | records lost |\n|---|---|---|")?;
    for event in ids(kind).await? {
        let (id, lost) = (if event.is_new { "new" } else { "same" }, event.lost);
        say(&format!("| {} | {id} | {} |", event.name, if lost { "yes" } else { "no" }))?;
    }
    say("\n| asked | of a replica | of a deposed primary |\n|---|---|---|")?;
    let [replica, deposed] = sights(kind).await?;
    for (one, other) in replica.iter().zip(&deposed) {
        say(&format!("| {} | {} | {} |", one.name, one.answer, other.answer))?;
    }
    Ok(())
}

async fn lookups(kind: Kind) -> Result<()> {
    let costs = costs(kind, COST_ROUNDS).await?;
    say("\n| lookup | 1 key | 8 keys | 32 keys |\n|---|---|---|---|")?;
    for shape in Shape::ALL {
        let cells = costs.iter().filter(|cost| cost.shape == shape).map(|cost| {
            let plain = costs.iter().find(|o| o.shape == Shape::Mget && o.keys == cost.keys);
            let plain = plain.map_or(f64::NAN, |plain| plain.micros);
            format!("{:.1} µs ({:.1})", cost.micros, cost.micros / plain)
        });
        say(&format!("| {shape} | {} |", cells.collect::<Vec<_>>().join(" | ")))?;
    }
    Ok(())
}
