//! A replica whose network swallows everything: it costs nobody time, leaves, and comes back.

use std::time::Duration;

use tidegate_core::instant::Instant;
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::service::Service;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::{Level, Session};

use super::stage::{Client, Stage, connect, named, read, select, session};

const VIEW_MAX_AGE: Duration = Duration::from_secs(1);
const SELECTS: usize = 600;

/// Reads in a row: when each was sent, how long it took, whom it named.
struct Reads(Vec<(Instant, Duration, String)>);

impl Reads {
    async fn make(stage: &Stage, client: &mut Client, session: &Session, count: usize) -> Self {
        let mut reads = Vec::with_capacity(count);
        for _ in 0..count {
            let sent_at = stage.clock.now();
            let answer = select(client, read(session.clone(), Level::Session)).await;
            let took = stage.clock.now().since(sent_at);
            reads.push((sent_at, took, named(&answer).to_owned()));
        }
        Self(reads)
    }

    /// The time that so many in a hundred did not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let mut all: Vec<Duration> = self.0.iter().map(|(_, took, _)| *took).collect();
        all.sort_unstable();
        all[all.len() * percent / 100]
    }

    fn naming(&self, node: &str) -> usize {
        self.0.iter().filter(|(.., named)| named == node).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn a_black_holed_replica_delays_nothing_leaves_and_comes_back() {
    let stage = Stage::set(2).await;
    let proxy = Proxy::start(stage.cluster.standby(0).address()).await.expect("a proxy");
    let through = stage.options().await.poll_through("r1", proxy.address());
    let usual = through.clone().limit("view_max_age", "\"1s\"").limit("poll_timeout", "\"500ms\"");
    let service = Service::start(usual).await.expect("a service starts");
    // The wrong way: a service that believes a view however old it is.
    let believing = through.limit("view_max_age", "\"1h\"").limit("poll_timeout", "\"500ms\"");
    let believing = Service::start(believing).await.expect("a service starts");
    let (mut client, mut wrong) = (connect(&service).await, connect(&believing).await);
    let carried = session(&stage.write(&mut client, "", 1).await);
    stage.cluster.catch_up().await.expect("both have it");
    let names_r1 = async |client: &mut Client, session: Session| {
        named(&select(client, read(session, Level::Session)).await) == "r1"
    };
    until("r1 serves it", LIMIT, || async {
        Ok(names_r1(&mut client.clone(), carried.clone()).await)
    })
    .await
    .expect("r1 is fresh");

    // What the same reads take at the same time where no node is silent.
    let (_control, mut control) = stage.serve().await;
    let carried_there = session(&stage.write(&mut control, "", 2).await);
    let before = Reads::make(&stage, &mut client, &carried, SELECTS).await;
    assert!(before.naming("r1") > SELECTS / 4, "r1 took part before");

    proxy.set(Mode::BlackHole).await.expect("a black hole");
    let holed_at = stage.clock.now();
    let (mut after, mut usual) = (Reads(Vec::new()), Reads(Vec::new()));
    while stage.clock.now().since(holed_at) < VIEW_MAX_AGE * 2 {
        after.0.extend(Reads::make(&stage, &mut client, &carried, 20).await.0);
        usual.0.extend(Reads::make(&stage, &mut control, &carried_there, 20).await.0);
    }
    after.0.extend(Reads::make(&stage, &mut client, &carried, SELECTS / 4).await.0);
    for percent in [50, 99] {
        let (usual, now) = (usual.percentile(percent), after.percentile(percent));
        let limit = usual * 2 + Duration::from_millis(2);
        // The median of hundreds needs no allowance for the machine.
        let limit = if percent == 50 { limit } else { stage.stall.allow(limit) };
        println!("black hole: p{percent} {now:?}, elsewhere {usual:?}, {limit:?} allowed");
        assert!(now <= limit, "the silent replica delays others");
    }
    let late = |sent_at: Instant| sent_at.since(holed_at) > VIEW_MAX_AGE;
    let late: Vec<_> = after.0.iter().filter(|(sent_at, ..)| late(*sent_at)).collect();
    assert!(late.len() >= SELECTS / 4, "only {} reads came after view_max_age", late.len());
    assert!(late.iter().all(|(.., named)| named == "r2"), "a view too old still serves");

    let answers = Reads::make(&stage, &mut wrong, &Session::default(), 64).await;
    assert!(answers.naming("r1") > 0, "without the limit on age r1 would still be named");

    proxy.set(Mode::Pass).await.expect("mended");
    let mended_at = stage.clock.now();
    until("r1 serves again", LIMIT, || async {
        Ok(names_r1(&mut client.clone(), carried.clone()).await)
    })
    .await
    .expect("it comes back by itself");
    println!("black hole: back {:?} after it was mended", stage.clock.now().since(mended_at));
}
