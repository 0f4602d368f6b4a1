//! A mass wake: waits that are all released at once. A failed call is the worst that can happen.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::StreamExt;
use tidegate_proto::v1;
use tidegate_proto::v1::route_request::Frame as Ask;
use tidegate_proto::v1::route_response::Frame as Answer;
use tidegate_proto::v1::wait_until_fresh_response::Outcome;
use tokio::task::JoinSet;

use super::stage::Stage;
use super::usage;
use crate::service::PARTITION;

/// Longer than any of these takes.
const BUDGET_SECONDS: i64 = 25;

/// What became of waits that were released at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Woken {
    /// Those that did not end fresh.
    pub(super) failed: u64,
    /// From the release to the last answer.
    pub(super) took: Duration,
    /// Memory of the service for each while they were parked.
    pub(super) bytes_per_wait: f64,
}

fn request(token: &str) -> v1::WaitUntilFreshRequest {
    let session = v1::Session { tokens: vec![token.to_owned()], ..v1::Session::default() };
    v1::WaitUntilFreshRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        budget: Some(prost_types::Duration { seconds: BUDGET_SECONDS, nanos: 0 }),
        ..v1::WaitUntilFreshRequest::default()
    }
}

/// Waits of one `Route` stream.
///
/// # Errors
/// When they cannot be parked or released; that one fails is counted.
pub(super) async fn on_route(stage: &mut Stage, waits: u32) -> Result<Woken> {
    stage.hold().await?;
    let token = stage.written().await?;
    let before = usage::memory_bytes(stage.service.pid())?;
    let ask = move |number: u32| v1::RouteRequest {
        correlation: u64::from(number),
        frame: Some(Ask::Wait(request(&token))),
    };
    // The stream stays open for answers after its last call.
    let asks = futures::stream::iter((0..waits).map(ask)).chain(futures::stream::pending());
    let mut answers = stage.client().await?.route(asks).await?.into_inner();
    stage.until_parked(waits).await?;
    let parked = usage::memory_bytes(stage.service.pid())?;
    stage.release().await?;
    let released_at = Instant::now();
    let (mut answered, mut failed) = (0, 0);
    while answered < waits {
        // Whatever ends the stream ends all calls that are left.
        let Ok(Some(answer)) = answers.message().await else { break };
        answered += 1;
        let fresh = matches!(&answer.frame, Some(Answer::Wait(waited)) if is_fresh(waited));
        failed += u64::from(!fresh);
    }
    let failed = failed + u64::from(waits - answered);
    Ok(Woken { failed, took: released_at.elapsed(), bytes_per_wait: each(before, parked, waits) })
}

/// Unary waits, so many on each of some connections of default clients.
///
/// # Errors
/// When they cannot be parked or released; that one fails is counted.
pub(super) async fn unary(stage: &mut Stage, connections: u32, each_one: u32) -> Result<Woken> {
    stage.hold().await?;
    let token = stage.written().await?;
    let before = usage::memory_bytes(stage.service.pid())?;
    let mut calls = JoinSet::new();
    for _ in 0..connections {
        let client = stage.client().await?;
        for _ in 0..each_one {
            let (mut client, request) = (client.clone(), request(&token));
            calls.spawn(async move { client.wait_until_fresh(request).await });
        }
    }
    let waits = connections * each_one;
    stage.until_parked(waits).await?;
    let parked = usage::memory_bytes(stage.service.pid())?;
    stage.release().await?;
    let released_at = Instant::now();
    let mut failed = 0;
    while let Some(ended) = calls.join_next().await {
        let fresh = match ended {
            Ok(Ok(answer)) => is_fresh(answer.get_ref()),
            Ok(Err(_)) => false,
            Err(panicked) => bail!("a caller panicked: {panicked}"),
        };
        failed += u64::from(!fresh);
    }
    Ok(Woken { failed, took: released_at.elapsed(), bytes_per_wait: each(before, parked, waits) })
}

fn is_fresh(waited: &v1::WaitUntilFreshResponse) -> bool {
    waited.outcome() == Outcome::Fresh
}

#[expect(clippy::cast_precision_loss, reason = "no process holds 2^53 bytes")]
fn each(before: u64, after: u64, waits: u32) -> f64 {
    after.saturating_sub(before) as f64 / f64::from(waits)
}
