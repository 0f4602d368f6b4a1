//! Waiting for a condition, with a limit.
//!
//! Never sleeps for a fixed time in the hope that something has happened by then.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The limit of waits whose caller named none.
pub const LIMIT: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Asks again and again until the condition holds; returns how long that took.
///
/// ```no_run
/// # async fn example(server: &tidegate_lab::postgres::Server) -> anyhow::Result<()> {
/// use tidegate_lab::wait::{LIMIT, until};
/// until("r1 is writable", LIMIT, || async { Ok(!server.is_in_recovery().await?) }).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// When the condition still does not hold after `limit`, naming `what`; or the question failed.
pub async fn until<F, Answer>(what: &str, limit: Duration, mut holds: F) -> Result<Duration>
where
    F: FnMut() -> Answer,
    Answer: Future<Output = Result<bool>>,
{
    let started_at = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if holds().await? {
            return Ok(started_at.elapsed());
        }
        if started_at.elapsed() >= limit {
            bail!("waited {limit:?} in vain until {what}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_at_its_limit_and_names_what_it_waited_for() {
        let limit = Duration::from_millis(20);
        let outcome = until("pigs fly", limit, || async { Ok(false) }).await;
        assert!(outcome.is_err_and(|error| error.to_string().contains("pigs fly")));
    }
}
