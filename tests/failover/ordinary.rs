//! Ordinary failovers: one crash or stop, one promotion, and the old leader rejoins by a rewind, as
//! a clone or as it is. No operator is asked. The soak plays the same fifty times.

use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Server, Stop};

use super::desk::Desk;
use super::stage::{Stage, commit, on_both_majors, shows};

on_both_majors! {
    no_operator =>
        an_ordinary_failover_needs_no_operator_pg15,
        an_ordinary_failover_needs_no_operator_pg18;
}

/// How the old leader comes back.
#[derive(Clone, Copy, Debug)]
enum Rejoin {
    Rewound,
    Cloned,
    AsItIs,
}

async fn no_operator(major: Major) {
    let stage = Stage::set(major, 2).await;
    let desk = stage.desk().await;
    let (l, r1, r2) = (stage.l(), stage.r1(), stage.r2());
    let failovers = [
        (l, r1, r2, Stop::Immediate, Rejoin::Rewound),
        (r1, l, r2, Stop::Immediate, Rejoin::Cloned),
        (l, r2, r1, Stop::Fast, Rejoin::AsItIs),
    ];
    for (id, (old, new, other, stop, rejoin)) in (1..).zip(failovers) {
        commit(old, id).await;
        for standby in [new, other] {
            standby.catch_up_with(old).await.expect("standbys follow");
        }
        old.stop(stop).await.expect("the leader stops");
        new.promote().await.expect("a promotion");
        other.repoint(new).await.expect("the other standby follows");
        match rejoin {
            Rejoin::Rewound => old.rewind_from(new).await.expect("it is rewound"),
            Rejoin::Cloned => old.clone_from(new).await.expect("it is cloned"),
            Rejoin::AsItIs => {
                old.repoint(new).await.expect("it is a standby now");
                old.start().await.expect("it starts");
            }
        }
        all_well(&desk, new, [old, other], 100 + id).await;
        println!("ordinary {major:?}: {} -> {}, {rejoin:?}: all well", old.name(), new.name());
    }
}

/// A fresh write is found on every node, nothing is told, and nobody is left out.
async fn all_well(desk: &Desk, leader: &Server, replicas: [&Server; 2], id: i64) {
    desk.until_leads(leader).await;
    let written = commit(leader, id).await;
    let session = desk.wrote(&written).await;
    for replica in replicas {
        let answer = desk.until_served_by(&session, replica.name()).await;
        assert!(shows(replica, id).await, "{answer:?}");
        assert_eq!(answer.told(), [], "{answer:?}");
    }
    let partition = desk.partition().await;
    assert!(partition.alarms.is_empty(), "{partition:?}");
    let is_well = |node: &tidegate_proto::v1::NodeState| {
        node.session_eligible && node.quarantine_reason.is_empty()
    };
    assert!(partition.nodes.iter().all(is_well), "{partition:?}");
}
