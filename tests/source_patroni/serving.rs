//! The whole service on real servers, in front of a Patroni that lies about them.

use tidegate_lab::install::Major;
use tidegate_lab::metrics;
use tidegate_lab::postgres::{Cluster, ClusterOptions, Stop};
use tidegate_lab::service::{Service, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};

use crate::liar::{Liar, Says};
use crate::logged::Logged;

#[tokio::test]
async fn a_patroni_that_lies_moves_neither_leader_nor_fork_and_raises_an_alarm_pg15() {
    lied_to(Major::V15).await;
}

#[tokio::test]
async fn a_patroni_that_lies_moves_neither_leader_nor_fork_and_raises_an_alarm_pg18() {
    lied_to(Major::V18).await;
}

async fn lied_to(major: Major) {
    let logged = Logged::watch();
    let alarm = "Patroni's history contradicts the fork";
    let cluster = Cluster::start(ClusterOptions::new(major).standbys(1)).await.expect("a cluster");
    // It names a standby, on a timeline that nobody writes.
    let liar = Liar::start(Says::Leader("r1", 1, vec![])).await;
    let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
    let address = format!("[\"{}\"]", liar.address());
    let options = options.partition("patroni", &address).limit("idle_poll", "\"20ms\"");
    let service = Service::start(options).await.expect("a service");
    liar.say(Says::Leader("r1", 7, vec![(6, 1)]));
    liar.await_asked(10).await;
    let partition = service.partition().await.expect("an answer");
    assert_eq!(partition.leader_node, "l", "who leads is read from the databases");
    assert_eq!(logged.count("Patroni names another leader"), 1, "{}", logged.text());
    assert_eq!(logged.count(alarm), 0, "timeline 6 is on nobody's line: {}", logged.text());

    // A real promotion, of which it tells another switch point than the servers.
    liar.say(Says::Leader("l", 1, vec![]));
    liar.await_asked(3).await;
    let standby = cluster.standby(0);
    cluster.leader().stop(Stop::Fast).await.expect("it stops");
    standby.promote().await.expect("it is promoted");
    liar.say(Says::Leader("r1", 2, vec![(1, 8)]));
    let told = || async { Ok(logged.count(alarm) == 1) };
    until("the contradiction is told", LIMIT, told).await.expect("an alarm");
    let labels = [("agreement", "contradicts")];
    let counted = metrics::counter(service.admin_address(), "timeline_ends", &labels).await;
    assert_eq!(counted.expect("metrics"), 1, "an alert finds it too");
    let leads = || async { Ok(service.partition().await?.leader_node == "r1") };
    until("the promoted standby leads", LIMIT, leads).await.expect("a leader");
    let fork = "select coalesce(at_most > '0/8', false) from tidegate.lineage where timeline = 2";
    let is_its_own = || async { Ok(standby.value::<bool>(fork).await.unwrap_or(false)) };
    until("the row says what the servers showed", LIMIT, is_its_own).await.expect("a fork");
    service.stop().await.expect("it ends");
}
