//! The watch alone: what hurries, what is logged, what is compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::config::HttpAddress;
use tidegate::ports::{HintTaker, TimelineEnd};
use tidegate::sources::patroni::PatroniWatch;
use tidegate_lab::wait::{LIMIT, until};
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use crate::liar::{Liar, Says};
use crate::logged::Logged;

const INTERVAL: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_millis(50);

/// What the watch said, and what it is told of forks.
#[derive(Clone, Default)]
struct Taker(Arc<Told>);

#[derive(Default)]
struct Told {
    hurries: AtomicU64,
    compared: AtomicU64,
    verdict: AtomicU8,
}

const NOT_PLACED: u8 = 0;
const FITS: u8 = 1;
const CONTRADICTS: u8 = 2;

impl HintTaker for Taker {
    fn hurry(&self) {
        self.0.hurries.fetch_add(1, Ordering::Relaxed);
    }

    fn fits(&self, _: TimelineEnd) -> Option<bool> {
        self.0.compared.fetch_add(1, Ordering::Relaxed);
        let verdict = self.0.verdict.load(Ordering::Relaxed);
        (verdict != NOT_PLACED).then_some(verdict == FITS)
    }
}

impl Taker {
    fn hurries(&self) -> u64 {
        self.0.hurries.load(Ordering::Relaxed)
    }

    fn compared(&self) -> u64 {
        self.0.compared.load(Ordering::Relaxed)
    }

    fn will_say(&self, verdict: u8) {
        self.0.verdict.store(verdict, Ordering::Relaxed);
    }
}

/// Starts a watch that ends with the guard.
fn watch(addresses: Vec<HttpAddress>, taker: &Taker) -> DropGuard {
    let stop = CancellationToken::new();
    let pace = (INTERVAL, TIMEOUT);
    let watch = PatroniWatch::new("main".to_owned(), addresses, pace, taker.clone(), Clock::new());
    drop(tokio::spawn(watch.run(stop.clone())));
    stop.drop_guard()
}

#[tokio::test]
async fn a_new_leader_or_timeline_hurries_polls_once_and_nothing_else_does() {
    let (taker, liar) = (Taker::default(), Liar::start(Says::Leader("p1", 1, vec![])).await);
    let _watch = watch(vec![liar.address()], &taker);
    liar.await_asked(5).await;
    assert_eq!(taker.hurries(), 0, "who leads at first is no change");
    for (says, hurries) in [
        (Says::Leader("p2", 1, vec![]), 1),
        (Says::Leader("p2", 2, vec![]), 2),
        // Nobody leads.
        (Says::Text("{\"members\": []}"), 3),
        (Says::Leader("p2", 2, vec![]), 4),
        (Says::Leader("p2", 2, vec![(1, 7)]), 4),
    ] {
        liar.say(says.clone());
        liar.await_asked(5).await;
        assert_eq!(taker.hurries(), hurries, "{says:?}");
    }
}

#[tokio::test]
async fn a_patroni_that_lies_hangs_or_talks_nonsense_is_logged_once_and_hurries_nothing() {
    let logged = Logged::watch();
    let (taker, liar) = (Taker::default(), Liar::start(Says::Leader("p1", 1, vec![])).await);
    let _watch = watch(vec![liar.address()], &taker);
    liar.await_asked(3).await;
    let trouble = "Patroni gives no hints";
    let cases = [
        (Says::Text("not JSON"), "its answer to /cluster makes no sense"),
        (Says::Text("{\"members\": [{\"name\": 1}]}"), "its answer to /cluster makes no sense"),
        (Says::Status(503), "it answers with status 503"),
        (Says::Endless, "its answer is longer than 1048576 bytes"),
        (Says::EndlessHead, "it answers in no HTTP"),
        (Says::Noise, "it answers in no HTTP"),
        (Says::Nothing, "it does not answer /cluster within 50ms"),
        (Says::Goodbye, "it answers in no HTTP"),
    ];
    for (says, expected) in cases {
        let before = logged.count(trouble);
        liar.say(says.clone());
        liar.await_asked(5).await;
        let lines = logged.count(trouble);
        assert_eq!(lines, before + 1, "{says:?}: {}", logged.text());
        assert!(logged.text().contains(expected), "{says:?}: {}", logged.text());
        liar.say(Says::Leader("p1", 1, vec![]));
        liar.await_asked(5).await;
        assert_eq!(logged.count(trouble), lines, "{says:?}: {}", logged.text());
    }
    assert_eq!(taker.hurries(), 0, "the leader is the same before and after");
    assert_eq!(logged.count("Patroni answers"), 8, "{}", logged.text());
    assert!(logged.text().lines().all(|line| line.len() < 800), "no answer floods the log");
}

#[tokio::test]
async fn an_address_that_is_gone_gives_way_to_the_next_one() {
    let logged = Logged::watch();
    let (taker, first) = (Taker::default(), Liar::start(Says::Leader("p1", 1, vec![])).await);
    let second = Liar::start(Says::Leader("p1", 1, vec![])).await;
    let third = Liar::start(Says::Nothing).await;
    let gone = Liar::start(Says::Goodbye).await;
    let addresses = [&gone, &first, &third, &second].map(Liar::address).to_vec();
    drop(gone);
    let _watch = watch(addresses, &taker);
    first.await_asked(5).await;
    assert_eq!((second.asked(), third.asked()), (0, 0), "one that answers is enough");
    first.say(Says::Status(500));
    second.await_asked(5).await;
    assert!(first.asked() > 0 && third.asked() == 1, "the silent one was tried once");
    second.say(Says::Leader("p2", 2, vec![]));
    second.await_asked(5).await;
    assert_eq!(taker.hurries(), 1, "it is the same cluster, whoever tells");
    assert_eq!(logged.count("Patroni gives no hints"), 3, "{}", logged.text());
}

#[tokio::test]
async fn a_history_is_compared_once_the_fork_is_placed_and_a_contradiction_is_told_once() {
    let logged = Logged::watch();
    let alarm = "Patroni's history contradicts the fork";
    let (taker, liar) = (Taker::default(), Liar::start(Says::Leader("p1", 1, vec![])).await);
    let _watch = watch(vec![liar.address()], &taker);
    liar.await_asked(3).await;

    // Patroni writes it down later than it names the timeline.
    liar.say(Says::Leader("p2", 2, vec![]));
    liar.await_asked(6).await;
    assert_eq!(taker.compared(), 0, "there is nothing to compare yet");
    liar.say(Says::Leader("p2", 2, vec![(1, 100)]));
    liar.await_asked(6).await;
    assert!(taker.compared() > 1, "again and again, until the fork is placed");
    taker.will_say(FITS);
    liar.await_asked(3).await;
    let compared = taker.compared();
    liar.await_asked(3).await;
    assert_eq!((taker.compared(), logged.count(alarm)), (compared, 0), "{}", logged.text());

    taker.will_say(CONTRADICTS);
    liar.say(Says::Leader("p1", 4, vec![(1, 100), (2, 200), (3, 300)]));
    let told = || async { Ok(logged.count(alarm) > 0) };
    until("the contradiction is told", LIMIT, told).await.expect("an alarm");
    liar.await_asked(5).await;
    assert_eq!(taker.compared(), compared + 2, "both timelines that ended, once each");
    assert_eq!(logged.count(alarm), 2, "{}", logged.text());
    assert!(logged.text().contains("timeline=3 at=0/12C"), "{}", logged.text());
}

#[tokio::test]
async fn a_history_that_makes_no_sense_is_told_once_and_asked_for_again() {
    let logged = Logged::watch();
    let (taker, liar) = (Taker::default(), Liar::start(Says::Leader("p1", 1, vec![])).await);
    let _watch = watch(vec![liar.address()], &taker);
    liar.await_asked(3).await;
    // Both questions get the same answer, which is a cluster and no history.
    liar.say(Says::Text(r#"{"members": [{"name": "p2", "role": "leader", "timeline": 2}]}"#));
    liar.await_asked(8).await;
    let trouble = "Patroni's history is not compared";
    assert_eq!(logged.count(trouble), 1, "{}", logged.text());
    assert_eq!((logged.count("gives no hints"), taker.hurries()), (0, 1));
    taker.will_say(FITS);
    liar.say(Says::Leader("p2", 2, vec![(1, 100)]));
    let compared = || async { Ok(taker.compared() > 0) };
    until("it is compared", LIMIT, compared).await.expect("the history makes sense by now");
}
