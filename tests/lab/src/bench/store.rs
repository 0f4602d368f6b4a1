//! Sessions whose records lie in Redis: what a read of one costs through Tidegate, beside what the
//! server itself can do, and what one takes there.
//!
//! Figures alone: no bar is set yet.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_service_client::AdminServiceClient;

use super::load::{self, Client, Done, Requests};
use super::spread::Spread;
use super::stage::{Stage, fill, subject};
use super::{Options, line};
use crate::claims::Claims;
use crate::demo::process::ServiceProcess;
use crate::machine;
use crate::redis::{self, Server};
use crate::service::{PARTITION, ServiceOptions};
use crate::wait::{LIMIT, until};

/// Sessions whose records are in the store.
const SESSIONS: u32 = 20_000;
/// Streams, and calls at once on each.
const STREAMS: (usize, usize) = (4, 64);
/// What the server's own benchmark asks for each time, in pipelines of sixteen.
const GETS: &str = "400000";
/// Bytes of a subject's key, by which a record is found.
const KEY_BYTES: f64 = 16.0;

/// A service whose store is a Redis of its own.
struct Shared {
    service: ServiceProcess,
    server: Server,
    bytes: f64,
    payload: f64,
}

/// Measures reads of names alone, in turns with the server's own benchmark.
///
/// # Errors
/// When something does not come up or does not answer as it should.
pub(super) async fn measure(
    options: Options,
    stage: &mut Stage,
    claims: &mut Claims,
) -> Result<()> {
    line(&format!("reads of {SESSIONS} sessions known by name, whose records are in Redis"));
    let shared = Shared::build(stage).await?;
    let (streams, window) = STREAMS;
    let clients = load::connect(&shared.service.endpoint(), streams).await?;
    let (requests, pid) = (by_name(), shared.service.pid());
    let key = shared.server.keys("*:r:*").await?.pop().context("a record")?;
    let (mut reads, mut alone, mut at_best) = (Vec::new(), Vec::new(), Vec::new());
    load::streams(&clients, window, options.span / 4, &requests, pid).await?;
    let before = shared.counts().await?;
    for _ in 0..options.pairs {
        reads.push(load::streams(&clients, window, options.span, &requests, pid).await?);
        at_best.push(benchmark(&shared.server, &key).await?);
    }
    let after = shared.counts().await?;
    for _ in 0..options.pairs.min(3) {
        alone.push(load::unary(&clients[..1], 1, options.span, &requests, pid).await?);
    }
    let of = |done: &[Done], of: fn(&Done) -> f64| Spread::of(done.iter().map(of));
    let per_second = of(&reads, |done| done.per_second);
    let ratio = reads.iter().zip(&at_best).map(|(read, best)| read.per_second / best);
    let asked = (after.0 - before.0) / (after.1 - before.1).max(1.0);
    for (name, value) in [
        ("store: reads by name through Tidegate, a second", per_second),
        ("store: GETs of redis-benchmark -P16, a second", Spread::of(at_best.iter().copied())),
        ("store: the first / the second", Spread::of(ratio)),
        ("store: server CPU of a read by name, us", of(&reads, |done| done.server_us)),
        ("store: one read by name in flight, p50 us", of(&alone, |done| done.p50_us)),
    ] {
        line(&format!("    {name}: {value}"));
        claims.figure(name, value.to_string());
    }
    for (name, value) in [
        ("store: lookups in each call to Redis", asked),
        ("store: bytes of one session", shared.bytes),
        ("store: bytes of its payload, record and key", shared.payload),
        ("store: the bytes / the payload", shared.bytes / shared.payload),
    ] {
        line(&format!("    {name}: {value:.2}"));
        claims.figure(name, value);
    }
    Ok(())
}

/// Reads that say who asks and carry nothing.
fn by_name() -> Requests {
    Arc::new(|| {
        let subject = subject(fastrand::u32(0..SESSIONS));
        let session = v1::Session { subject, ..v1::Session::default() };
        v1::SelectReplicaRequest {
            session: Some(session),
            partition: PARTITION.to_owned(),
            ..v1::SelectReplicaRequest::default()
        }
    })
}

impl Shared {
    /// Starts a service beside the one of the stage, and records a write for each session.
    async fn build(stage: &mut Stage) -> Result<Self> {
        let server = Server::start(redis::Options::new(redis::Kind::Redis)).await?;
        let secret = stage.cluster.folder().join("subjects.secret");
        std::fs::write(&secret, "0123456789abcdef".repeat(4))?;
        let lines = format!(
            "kind = \"redis\"\nurls = [\"redis://{}\"]\nredundancy = \"single\"\n\
             secret_file = \"{}\"",
            server.address(),
            secret.display()
        );
        let options = ServiceOptions::of(&stage.cluster).await?.store(&lines);
        let config =
            |data, admin, state: &std::path::Path| options.clone().listen(data, admin).toml(state);
        let root = stage.cluster.folder().to_owned();
        let service = ServiceProcess::start_as("tidegate-redis", &root, config).await?;
        let captures = stage.captures().await?;
        let mut client = Client::connect(service.endpoint()).await?;
        until("the store is believed", LIMIT, || covered(client.clone(), by_name())).await?;
        let before = server.info().await?.number("used_memory")?;
        fill(&mut client, captures, SESSIONS).await?;
        let after = server.info().await?.number("used_memory")?;
        stage.cluster.catch_up().await?;
        until("reads are covered", LIMIT, || covered(client.clone(), by_name())).await?;
        let records = server.keys("*:r:*").await?;
        ensure!(records.len() >= SESSIONS as usize, "only {} records", records.len());
        let length: f64 = server.ask(&["STRLEN", &records[0]]).await?;
        #[expect(clippy::cast_precision_loss, reason = "no lab has 2^53 bytes")]
        let bytes = (after - before) as f64 / f64::from(SESSIONS);
        Ok(Self { service, server, bytes, payload: length + KEY_BYTES })
    }

    /// Lookups and calls to Redis so far.
    async fn counts(&self) -> Result<(f64, f64)> {
        let mut admin = AdminServiceClient::connect(self.service.admin_endpoint()).await?;
        let answer = admin.get_store(v1::GetStoreRequest {}).await?.into_inner();
        let store = answer.store.context("a service shows its store")?;
        #[expect(clippy::cast_precision_loss, reason = "no lab counts to 2^53")]
        Ok((store.lookup_count as f64, store.round_trip_count as f64))
    }
}

async fn covered(mut client: Client, requests: Requests) -> Result<bool> {
    let answer = client.select_replica(requests()).await?.into_inner();
    Ok(answer.reason() == v1::Reason::Covered)
}

/// What the server's own benchmark reads of one record, a second.
async fn benchmark(server: &Server, key: &str) -> Result<f64> {
    let (port, key) = (server.port().to_string(), key.to_owned());
    let text = machine::blocking(move || {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &port, "-P", "16", "-c", "64", "-n", GETS]);
        machine::run(command.args(["--csv", "GET", &key]))
    });
    let text = text.await.context("redis-benchmark comes with the package redis-tools")?;
    rate_in(&text).with_context(|| format!("redis-benchmark says no rate: {text}"))
}

/// The rate in the last row, which has the command before it.
fn rate_in(text: &str) -> Option<f64> {
    let row = text.lines().rfind(|line| line.starts_with("\"GET"))?;
    row.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stands_behind_the_command() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET key\",\"714285.69\",\"1.2\"\n";
        assert_eq!(rate_in(text), Some(714_285.69));
        assert_eq!(rate_in("\"test\",\"rps\"\n"), None);
    }
}
