//! The rows of the benchmark: pairs that take turns, and what is claimed of them.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::decision::Measured;
use super::echo::EchoProcess;
use super::load::{self, Client, Done, Requests};
use super::spread::Spread;
use super::stage::Stage;
use super::wake::Woken;
use super::{Options, line};
use crate::claims::{Claims, Op};

const CONNECTIONS: usize = 4;
/// Calls at once: of unary callers over all connections, and of each stream.
const WINDOW: usize = 64;

/// The bars of this version; the goals are 0.95, 15 and 25.
const ECHO_BAR: f64 = 0.47;
const ROUTE_BAR: f64 = 7.5;
const CORE_BAR: f64 = 50.0;

/// How often the core is measured, and how long each time.
const CORE_SAMPLES: &str = "20";
const CORE_MILLIS: &str = "100";

/// What every pair has shown.
#[derive(Debug, Default)]
pub(super) struct Rows {
    echo: Vec<Done>,
    unary: Vec<Done>,
    streams: Vec<Done>,
    stream: Vec<Done>,
    /// Four streams whose requests carry a token and name nobody.
    nameless: Vec<Done>,
}

/// The two servers, with connections that stay open.
struct Sides {
    echo: EchoProcess,
    to_echo: Vec<Client>,
    to_service: Vec<Client>,
    service_pid: u32,
    requests: Requests,
    nameless: Requests,
}

impl Rows {
    /// Lets both servers take turns.
    ///
    /// # Errors
    /// When one fails, or does not answer as it should.
    pub(super) async fn measure(options: Options, stage: &Stage) -> Result<Self> {
        let answer = stage.sample().await?;
        let echo = EchoProcess::start(&answer)?;
        let sides = Sides {
            to_echo: load::connect(echo.endpoint(), CONNECTIONS).await?,
            to_service: load::connect(&stage.service.endpoint(), CONNECTIONS).await?,
            echo,
            service_pid: stage.service.pid(),
            requests: stage.requests(),
            nameless: stage.nameless(),
        };
        let mut rows = Self::default();
        sides.turn(options.span / 4, &mut Self::default()).await?;
        for pair in 1..=options.pairs {
            sides.turn(options.span, &mut rows).await?;
            rows.tell(pair, options.pairs);
        }
        Ok(rows)
    }

    fn tell(&self, pair: u32, pairs: u32) {
        let last = |done: &[Done]| done.last().map_or(f64::NAN, |done| done.per_second);
        let (echo, unary) = (last(&self.echo), last(&self.unary));
        let (streams, stream) = (last(&self.streams), last(&self.stream));
        line(&format!(
            "pair {pair:>2} of {pairs}: echo {echo:.0}/s, unary {unary:.0}/s, \
             4 streams {streams:.0}/s, 1 stream {stream:.0}/s"
        ));
    }

    /// The claims and figures of these pairs. Pairs that were too short count for no claim.
    pub(super) fn claim(&self, claims: &mut Claims, long_enough: bool) {
        line("");
        table("echo, unary, 64 in flight", &self.echo);
        table("SelectReplica, unary, 64 in flight", &self.unary);
        table("Route, 4 streams of 64", &self.streams);
        table("Route, 1 stream of 64", &self.stream);
        table("Route, 4 streams of 64, tokens alone", &self.nameless);
        let speed = |done: &Done| done.per_second;
        let echo = ratio(&self.unary, &self.echo, speed);
        let route = ratio(&self.streams, &self.unary, speed);
        let n = |spread: Spread| if long_enough { spread.n } else { 0 };
        let name = "echo: unary SelectReplica / echo, answers a second";
        claims.claim(name, echo.median, Op::AtLeast, ECHO_BAR, n(echo));
        let name = "route: 4 streams of 64 / unary, answers a second";
        claims.claim(name, route.median, Op::AtLeast, ROUTE_BAR, n(route));
        let mut figure = |name: &str, spread: Spread| claims.figure(name, spread.to_string());
        figure("echo ratio", echo);
        figure("echo ratio, server CPU", ratio(&self.unary, &self.echo, |done| done.server_us));
        figure("route ratio", route);
        figure("route ratio, 64 in flight on 1 stream", ratio(&self.stream, &self.unary, speed));
        figure("route ratio, server CPU", ratio(&self.unary, &self.streams, |done| done.server_us));
        let sides = [
            ("echo", &self.echo),
            ("unary", &self.unary),
            ("route, 4 streams", &self.streams),
            ("route, 1 stream", &self.stream),
            ("route, 4 streams, tokens alone", &self.nameless),
        ];
        for (name, done) in sides {
            let spread = |of: fn(&Done) -> f64| Spread::of(done.iter().map(of));
            figure(&format!("{name}: answers a second"), spread(|done| done.per_second));
            figure(&format!("{name}: server CPU, us"), spread(|done| done.server_us));
            figure(&format!("{name}: client CPU, us"), spread(|done| done.client_us));
            figure(&format!("{name}: p50, us"), spread(|done| done.p50_us));
            figure(&format!("{name}: p99, us"), spread(|done| done.p99_us));
        }
    }
}

impl Sides {
    async fn turn(&self, span: std::time::Duration, rows: &mut Rows) -> Result<()> {
        let (service, requests) = (self.service_pid, &self.requests);
        let echo = load::unary(&self.to_echo, WINDOW, span, requests, self.echo.pid());
        rows.echo.push(echo.await.context("the echo server")?);
        let unary = load::unary(&self.to_service, WINDOW, span, requests, service);
        rows.unary.push(unary.await.context("unary calls")?);
        let streams = load::streams(&self.to_service, WINDOW, span, requests, service);
        rows.streams.push(streams.await.context("four streams")?);
        let stream = load::streams(&self.to_service[..1], WINDOW, span, requests, service);
        rows.stream.push(stream.await.context("one stream")?);
        let nameless = load::streams(&self.to_service, WINDOW, span, &self.nameless, service);
        rows.nameless.push(nameless.await.context("four streams of tokens alone")?);
        Ok(())
    }
}

fn table(name: &str, done: &[Done]) {
    let of = |of: fn(&Done) -> f64| Spread::of(done.iter().map(of)).to_string();
    line(&format!(
        "{name}\n    {} answers/s; CPU us each: server {}, client {}; us: p50 {}, p99 {}",
        of(|done| done.per_second),
        of(|done| done.server_us),
        of(|done| done.client_us),
        of(|done| done.p50_us),
        of(|done| done.p99_us)
    ));
}

/// The quotients of pairs, each of two measurements of one turn.
fn ratio(upper: &[Done], lower: &[Done], of: fn(&Done) -> f64) -> Spread {
    Spread::of(upper.iter().zip(lower).map(|(upper, lower)| of(upper) / of(lower)))
}

/// One decision in the core, measured by the program beside this one.
///
/// # Errors
/// When that program is missing or fails.
pub(super) fn core(claims: &mut Claims) -> Result<()> {
    let own = std::env::current_exe().context("this program does not know where it is")?;
    let program = own.with_file_name("decision");
    let arguments = ["--samples", CORE_SAMPLES, "--millis", CORE_MILLIS];
    let output = Command::new(&program).args(arguments).output();
    let output = output.with_context(|| format!("{}: run `make bench`", program.display()))?;
    if !output.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    let measured: Measured = serde_json::from_slice(&output.stdout)?;
    let one = Spread::of(measured.one_thread.iter().copied());
    let two = Spread::of(measured.two_threads.iter().copied());
    line(&format!("    ns: {one} on one thread, {two} on each of two"));
    let name = "core: one decision with 5 replicas, ns";
    claims.claim(name, one.median, Op::AtMost, CORE_BAR, one.n);
    let name = "core: allocations of decisions";
    claims.count(name, measured.allocations, 0, measured.decisions);
    claims.figure("core: ns on one thread", one.to_string());
    claims.figure("core: ns on each of two threads", two.to_string());
    Ok(())
}

/// Waits that were released at once.
pub(super) fn woken(claims: &mut Claims, what: &str, waits: u64, woken: Woken) {
    let (millis, bytes) = (woken.took.as_secs_f64() * 1e3, woken.bytes_per_wait);
    line(&format!("    {} failed; the last answer came after {millis:.0} ms", woken.failed));
    claims.count(&format!("wake: failed waits {what}"), woken.failed, 0, waits);
    claims.figure(&format!("wake: ms to the last answer {what}"), millis);
    claims.figure(&format!("wake: service bytes per wait {what}"), bytes);
}
