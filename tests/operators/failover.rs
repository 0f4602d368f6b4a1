//! A failover that loses writes, as operators see it: events, epochs, losses, and who was told.

use tidegate_lab::metrics::counter;
use tidegate_lab::postgres::{Lsn, Stop};
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::notice::Kind;
use tidegate_proto::v1::watch_events_response::Event;

use super::stage::{Stage, Watcher};

/// Three sessions lose something in a failover: a write, what one read, and perhaps a write.
async fn lose(stage: &Stage) -> String {
    for standby in stage.cluster.standbys() {
        standby.cut_reception().await.expect("reception ends");
    }
    let l = stage.l();
    let sure = stage.commit(l, 1).await;
    stage.record("wrote", &sure.capture, &sure.before).await;
    stage.record("perhaps", &sure.capture, "").await;
    stage.record("read", &sample(stage).await, "").await;
    let late = stage.commit(l, 2).await;
    let lost: Lsn = l.insert_lsn().await.expect("a position");
    until("the leader was polled past what is lost", LIMIT, || async {
        let epochs = stage.epochs().await;
        let seen: Lsn = epochs[0].flush_seen.parse().map_err(|_| anyhow::anyhow!("no LSN"))?;
        Ok(seen >= lost)
    })
    .await
    .expect("it is polled");
    l.stop(Stop::Immediate).await.expect("it dies");
    stage.r1().promote().await.expect("a promotion");
    late.capture
}

/// What a reader of the leader samples.
async fn sample(stage: &Stage) -> String {
    stage.l().value("select tidegate.sample()").await.expect("a sample")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_seen_its_losses_listed_and_who_was_told_is_counted() {
    let stage = Stage::set().await;
    let before = stage.service.partition().await.expect("listed").epoch;
    let mut watcher = stage.watch().await;
    let mut follower = stage.follow(&["events", "--follow"]).await;
    let late = lose(&stage).await;

    let hook = ["failover-notify", "--patroni", "--partition", "main", "--node", "r1", "--"];
    let hook = [&hook[..], &["on_role_change", "primary", "demo"]].concat();
    let hurried = stage.shows(&hook).await;
    assert!(hurried.starts_with("main: r1 leads in epoch 2."), "{hurried}");
    let after = stage.service.partition().await.expect("listed").epoch;
    // The followers come back to the new leader's line.
    stage.r2().repoint(stage.r1()).await.expect("it streams");

    seen(&mut watcher, (&before, &after)).await;
    let printed = follower.up_to(&format!("main  r1 leads; epoch {after}")).await;
    assert!(printed[0].contains(&format!("main  now: l leads in epoch {before}")), "{printed:?}");
    let grew = format!("epoch {after} grew from {before}, which survives: ");
    assert!(printed.iter().any(|line| line.contains(&grew)), "{printed:?}");
    stage.forgotten("l").await;
    for _ in 0..2 {
        assert_eq!(stage.told("wrote").await, [Kind::WriteLost]);
        assert_eq!(stage.told("perhaps").await, [Kind::PossiblyLost]);
        assert_eq!(stage.told("read").await, [Kind::ObservedStateLost]);
    }
    let is_all = |event: &Event| matches!(event, Event::LossesTold(loss) if counts(loss) == ALL);
    let told = watcher.up_to(is_all).await;
    let Some(Event::LossesTold(loss)) = told.last() else { panic!("{told:?}") };
    assert_eq!((&loss.lost_epoch, &loss.epoch), (&before, &after));

    let epochs = stage.epochs().await;
    assert_eq!((&epochs[0].epoch, &epochs[0].parent), (&after, &before));
    assert!(epochs[0].losses.is_empty() && epochs[0].first_seen_time.is_some());
    let [loss] = epochs[1].losses.as_slice() else { panic!("{epochs:?}") };
    assert_eq!(counts(loss), ALL, "repeated notices are not counted again");
    let at = |text: &str| text.parse::<Lsn>().expect("a position");
    assert!(at(&loss.from) <= at(&loss.surely_from) && at(&loss.surely_from) < at(&loss.to));
    let bytes = u64::from(at(&loss.to)) - u64::from(at(&loss.from));
    assert_eq!(loss.byte_count, bytes);
    commands_show(&stage, (&before, &after), bytes).await;
    deposed(&stage, &mut watcher, &before, &late).await;
}

/// One session of each kind.
const ALL: (u64, u64, u64) = (1, 1, 1);

fn counts(loss: &v1::Loss) -> (u64, u64, u64) {
    let (writes, reads) = (loss.write_lost_session_count, loss.observed_state_lost_session_count);
    (writes, reads, loss.possibly_lost_session_count)
}

/// A watcher sees the epoch placed, its leader, and who announced it.
async fn seen(watcher: &mut Watcher, (before, after): (&str, &str)) {
    let leads = |event: &Event| {
        let Event::LeadershipChanged(now) = event else { return false };
        now.node == "r1" && now.epoch == after
    };
    let seen = watcher.up_to(leads).await;
    let said = |event: &Event| {
        let Event::FailoverAnnounced(said) = event else { return false };
        let of_r1 = (said.node.as_str(), said.new_leader_node.as_str()) == ("r1", "r1");
        of_r1 && said.source == "patroni on_role_change primary demo"
    };
    let mut all = seen;
    if !all.iter().any(said) {
        all.extend(watcher.up_to(said).await);
    }
    let placed = all.iter().find_map(|event| {
        let Event::EpochPlaced(placed) = event else { return None };
        (placed.epoch == after).then_some(placed)
    });
    let placed = placed.unwrap_or_else(|| panic!("the epoch is placed: {all:?}"));
    let fork = placed.fork.as_ref().expect("it has a parent");
    assert_eq!((placed.parent.as_str(), fork.kind()), (before, v1::fork::Kind::Interval));
}

/// The commands say the same, for people and for programs.
async fn commands_show(stage: &Stage, (before, after): (&str, &str), bytes: u64) {
    let table = stage.shows(&["epochs"]).await;
    assert!(table.starts_with(&format!("main: r1 leads in epoch {after}\n")), "{table}");
    let row = |epoch: &str| {
        let starts = |line: &&str| line.starts_with(epoch);
        table.lines().find(starts).unwrap_or_else(|| panic!("no row of {epoch}: {table}"))
    };
    assert!(row(after).contains("r1") && row(after).contains("leads"), "{table}");
    assert!(row(before).contains(&format!("{bytes} after ")), "{table}");
    assert!(row(before).contains("1 writes, 1 reads, 1 perhaps"), "{table}");

    let epochs = json(&stage.shows(&["epochs", "main", "--json"]).await);
    let listed = &epochs["partitions"][0];
    assert_eq!((&listed["leader_node"], &listed["epoch"]), (&"r1".into(), &after.into()));
    assert_eq!(listed["epochs"][1]["losses"][0]["byte_count"], bytes);

    let lost = stage.shows(&["lost", "--since", "2h"]).await;
    let lines: Vec<&str> = lost.lines().collect();
    let [heading, row] = lines.as_slice() else { panic!("{lost}") };
    assert!(heading.starts_with("PARTITION") && heading.ends_with("PERHAPS"), "{lost}");
    assert!(row.contains(before) && row.contains(after), "{lost}");
    assert!(row.contains(&bytes.to_string()), "{lost}");
    let lost = json(&stage.shows(&["lost", "--since", "2h", "main", "--json"]).await);
    assert_eq!(lost["losses"][0]["write_lost_session_count"], 1);
    assert_eq!(lost["losses"][0]["fork"]["kind"], "INTERVAL");
    let nothing = stage.shows(&["lost", "--since", "2099-01-01T00:00:00Z"]).await;
    assert_eq!(nothing, "nothing was lost since 2099-01-01T00:00:00Z\n");

    let now = stage.shows(&["events"]).await;
    assert!(now.contains(&format!("main  now: r1 leads in epoch {after}")), "{now}");
    assert_eq!(now.lines().count(), 1, "{now}");
    let now = json(&stage.shows(&["events", "main", "--json"]).await);
    assert_eq!((&now["event"], &now["current"]["state"]), (&"current".into(), &"LED".into()));
}

/// A capture of the deposed leader that still arrives raises an alarm, once.
async fn deposed(stage: &Stage, watcher: &mut Watcher, epoch: &str, capture: &str) {
    let partition = stage.service.partition().await.expect("listed");
    assert!(partition.alarms.is_empty(), "{:?}", partition.alarms);
    for _ in 0..2 {
        stage.record("late", capture, "").await;
    }
    let is_alarm = |event: &Event| matches!(event, Event::DeposedWrite(_));
    let seen = watcher.up_to(is_alarm).await;
    let Some(Event::DeposedWrite(write)) = seen.last() else { panic!("{seen:?}") };
    assert_eq!(write.epoch, epoch);
    let partition = stage.service.partition().await.expect("listed");
    let alarm = partition.alarms.first().expect("an alarm");
    assert!(alarm.starts_with("DEPOSED_WRITE: ") && alarm.contains(epoch), "{alarm}");
    let labels = [("partition", PARTITION)];
    let counted = counter(stage.service.admin_address(), "deposed_writes", &labels).await;
    assert_eq!(counted.expect("a page"), 2);
    // Whatever comes next, it is not told again.
    let hint = ["failover-notify", "--patroni", "--", "on_start", "replica", "demo"];
    stage.shows(&hint).await;
    let next = watcher.up_to(|event| matches!(event, Event::FailoverAnnounced(_))).await;
    assert!(!next.iter().any(is_alarm), "{next:?}");
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
