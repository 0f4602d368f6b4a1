//! What a barrier misses when it is taken too early, and which settings and checks mend that.
//!
//! All splits of one test are played side by side: each waits for the clock of a server.

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use tidegate_lab::redis::Kind;
use tidegate_lab::store_spike::{Check, Fault, Split};

use super::on_both;

on_both! {
    barriers_and_fences => a_barrier_of_redis_needs_a_fence, a_barrier_of_valkey_needs_a_fence;
}

async fn barriers_and_fences(kind: Kind) -> Result<()> {
    let fenced = Split {
        kind,
        replicas: 1,
        min_replicas: Some((1, 1)),
        fault: Fault::Silent,
        check: Check::Acknowledged,
        // A deposed primary refuses after three seconds; the rest is for a loaded machine.
        fence: Duration::from_secs(9),
        watched: Duration::from_secs(12),
    };
    // Its replica answers for a while, unread, as it does until it is promoted.
    let frozen = |answers| Split {
        fault: Fault::Frozen {
            answers: Duration::from_secs(answers),
            time: Duration::from_secs(10),
        },
        watched: Duration::from_secs(16),
        ..fenced
    };
    let chained = Split { check: Check::Chain, ..frozen(2) };
    let splits = [
        Split { min_replicas: None, ..fenced },
        fenced,
        Split { replicas: 2, ..fenced },
        Split { replicas: 2, min_replicas: Some((2, 1)), ..fenced },
        frozen(0),
        frozen(2),
        Split { check: Check::LiveLag, ..frozen(2) },
        chained,
        chained,
        Split { check: Check::Chain, ..fenced },
    ];
    let outcomes = try_join_all(splits.iter().map(|split| split.play())).await?;
    let [unfenced, alone, of_two, both, thawed @ .., one, other, silent] = outcomes.as_slice()
    else {
        anyhow::bail!("as many outcomes as splits")
    };
    assert!(unfenced.missed_after_fence > 0, "nobody refuses A, ever: {unfenced:?}");
    assert!(alone.missed_at_once > 0, "the early barrier misses what came after it: {alone:?}");
    assert!(alone.refused_after.is_some());
    assert_eq!(alone.missed_after_fence, 0, "{alone:?}");
    assert!(of_two.missed_after_fence > 0, "the second replica keeps the old one: {of_two:?}");
    assert_eq!(both.missed_after_fence, 0, "{both:?}");
    // A single server may count its replicas anew before it reads a word.
    let past_the_fence = thawed.iter().filter(|thawed| thawed.missed_after_fence > 0).count();
    assert!(past_the_fence > 0, "stored after the thaw, past the fence: {thawed:?}");
    for chained in [one, other, silent] {
        assert_eq!(chained.missed_after_fence, 0, "{chained:?}");
    }
    Ok(())
}
