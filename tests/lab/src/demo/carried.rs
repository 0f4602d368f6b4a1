//! Chapters 3 and 4: what a session wrote follows its user to another device, by the user id, and
//! into a job, by the token in its message.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::at_least;
use super::narrator::{chapter, say, span};
use super::stage::{Stage, Tally};
use super::visitor::{Reading, Whose};
use crate::claims::Claims;

const READS: u64 = 100;
/// Enough that an even spread over two standbys names each of them.
const OTHERS: u64 = 40;
const JOBS: u64 = 5;
const DELAY: Duration = Duration::from_millis(400);

/// Chapter 3: the telephone carries nothing; the user id is enough.
pub(super) async fn device(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("3. The user's other device sees it too");
    let (r1, form) = (stage.cluster.standby(0), 200);
    r1.pause_replay().await?;
    let mut laptop = stage.visitor(Whose::User("ana".to_owned())).await?;
    let mut phone = stage.visitor(Whose::User("ana".to_owned())).await?;
    laptop.save(stage.cluster.leader(), form, "new address").await?;
    let (mut hers, mut theirs) = (Tally::default(), Tally::default());
    for _ in 0..READS {
        hers.count(stage, &phone.read(form, Reading::Usual).await?, form).await?;
    }
    for number in 0..OTHERS {
        let mut other = stage.visitor(Whose::User(format!("user-{number}"))).await?;
        theirs.count(stage, &other.read(form, Reading::Usual).await?, form).await?;
    }
    say(&format!(
        "r1 holds still. Ana saves row {form} on her laptop and looks on her telephone, which \
         knows her user id and carries nothing."
    ));
    say(&format!("{READS} reads on it: {}", hers.words(stage)));
    say(&format!("{OTHERS} reads by other users: {}", theirs.words(stage)));
    claims.count(
        "device: reads of the other device that missed it",
        hers.missing(),
        0,
        hers.reads(),
    );
    at_least(claims, "other users: reads that missed it", 1, theirs.missing(), OTHERS);
    stage.level().await
}

/// What waits in the queue of the application.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    job: String,
    form: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tidegate: Option<String>,
}

/// Chapter 4: the worker has nothing but the message.
pub(super) async fn job(stage: &Stage, claims: &mut Claims) -> Result<()> {
    chapter("4. A job sees what the request before it wrote");
    for standby in stage.cluster.standbys() {
        standby.apply_delay(DELAY).await?;
    }
    let (mut with, mut without, mut longest) = (Tally::default(), Tally::default(), Duration::ZERO);
    let mut example = String::new();
    for number in 0..JOBS {
        let form = 300 + i64::try_from(number)?;
        let mut ana = stage.visitor(Whose::Carried).await?;
        ana.save(stage.cluster.leader(), form, "please confirm").await?;
        let message = |tidegate| Job { job: "confirm".to_owned(), form, tidegate };
        let bare = serde_json::to_string(&message(None))?;
        example = serde_json::to_string(&message(Some(ana.token().await?)))?;
        work(stage, &bare, &mut without).await?;
        longest = longest.max(work(stage, &example, &mut with).await?);
    }
    let shown: String = example.chars().take(64).collect();
    say(&format!(
        "Both standbys apply everything {} late. {JOBS} requests save a row each and queue a job, \
         whose message carries the token:",
        span(DELAY)
    ));
    say(&format!("{shown}...\"}}"));
    say(&format!("{JOBS} jobs with it: {}", with.words(stage)));
    say(&format!(
        "They waited for a standby, {} at most, and left the leader alone.",
        span(longest)
    ));
    say(&format!("{JOBS} jobs without it: {}", without.words(stage)));
    claims.count("job: runs with the token that missed the row", with.missing(), 0, with.reads());
    at_least(claims, "without the token: runs that missed it", 1, without.missing(), JOBS);
    for standby in stage.cluster.standbys() {
        standby.apply_delay(Duration::ZERO).await?;
    }
    stage.cluster.catch_up().await
}

/// Runs one job in a worker that has just started; returns how long its read took.
async fn work(stage: &Stage, message: &str, tally: &mut Tally) -> Result<Duration> {
    let job: Job = serde_json::from_str(message).context("the message of a job")?;
    let whose = job.tidegate.map_or(Whose::Nobody, Whose::Token);
    let mut worker = stage.visitor(whose).await?;
    let seen = worker.read(job.form, Reading::Patient).await?;
    tally.count(stage, &seen, job.form).await?;
    Ok(seen.answered_at - seen.asked_at)
}
