//! Configurations that are wrong, or would strand sessions: each is refused whole, by line and
//! reason, while everything goes on as before.

use tidegate_client::{ClientError, Policy};
use tidegate_proto::v1::ErrorReason;

use super::load::Load;
use super::program::Way;
use super::stage::{FEED, Stage};

/// One configuration that is refused: how the good one is spoilt, on which line that shows (the
/// first that holds this), and what is said of it.
struct Spoilt {
    change: (&'static str, &'static str),
    line: &'static str,
    said: &'static str,
}

const fn spoilt(
    from: &'static str,
    to: &'static str,
    line: &'static str,
    said: &'static str,
) -> Spoilt {
    Spoilt { change: (from, to), line, said }
}

/// Of the token keys the first is in use, and the second is accepted; the third nobody knows.
const SPOILT: [Spoilt; 13] = [
    // What cannot be read or understood.
    spoilt("[policy.feed]", "[policy.feed", "[policy.feed", "this is not TOML"),
    spoilt("wait_budget", "wait_budgte", "wait_budgte", "`policy.feed.wait_budgte`: unknown field"),
    spoilt("\"20s\"", "\"20\"", "wait_budget", "`policy.feed.wait_budget`: `20` is no duration"),
    spoilt("\"20s\"", "\"31s\"", "wait_budget", "`policy.feed.wait_budget`: "),
    spoilt(
        "[policy.feed]",
        "[policy.feed]\nlevel = \"bounded\"",
        "[policy.feed]",
        "`policy.feed.bound`: set it: level `bounded` needs",
    ),
    spoilt(
        "fallback_reads = 7",
        "fallback_reads = 10000001",
        "fallback_reads",
        "`limits.fallback_reads`: ",
    ),
    spoilt("/old\"", "/gone\"", "keys =", "`token.keys`: key file "),
    // What a running service cannot take over.
    spoilt("name = \"lab\"", "name = \"lap\"", "name =", "`cluster.name`: this was changed, and"),
    spoilt("[limits]", "[limits]\nparked_waits = 9", "parked_waits", "`limits.parked_waits`: this"),
    spoilt("id = 1", "id = 2", "id = 2", "`partition.main.id`: this was changed, and needs"),
    // What would strand sessions.
    spoilt(
        "partition.main",
        "partition.other",
        "[partition.other]",
        "`partition.main`: this partition is gone: its sessions would be stranded",
    ),
    spoilt("[KEYS]", "[\"FOLDER/new\"]", "keys =", "is still in use and would be removed"),
    spoilt(
        "[KEYS]",
        "[\"FOLDER/third\", \"FOLDER/old\", \"FOLDER/new\"]",
        "keys =",
        "would sign tokens that no instance accepts yet",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn broken_configurations_are_refused_whole_by_line_and_reason_under_load() {
    let stage = Stage::set(1, 0).await;
    let good = stage.text().keys(&["old", "new"]);
    stage.program.reload(&good.toml(), Way::Call).await.expect("it is in force");
    let load = Load::start(&stage, "feed").await;
    // Each spoilt one also asks for what it could have alone: a policy and another cap.
    let sneaking = format!("{FEED}[policy.sneaked]\n");
    let sneaking = good.clone().policies(&sneaking).limit("fallback_reads", "7").toml();
    let folder = stage.program.folder().display().to_string();
    let keys = format!("[\"{folder}/old\", \"{folder}/new\"]");
    let ways = [Way::Signal, Way::Command, Way::Call].into_iter().cycle();
    for (spoilt, way) in SPOILT.iter().zip(ways) {
        let (from, to) = spoilt.change;
        let (from, to) = (from.replace("[KEYS]", &keys), to.replace("FOLDER", &folder));
        assert!(sneaking.contains(&from), "nothing to spoil: {from}");
        let text = sneaking.replace(&from, &to);
        let line = text.lines().position(|line| line.contains(spoilt.line)).expect("a line") + 1;
        let place = format!("{}:{line}: ", stage.program.file().display());
        let refused = stage.program.reload(&text, way).await.expect_err(&to);
        assert!(
            refused.lines().any(|line| line.contains(&place) && line.contains(spoilt.said)),
            "{way:?}: expected {place}{}\nsaid {refused}",
            spoilt.said
        );
        let Err(ClientError::Service(error)) =
            stage.session().select(&Policy::named("sneaked")).await
        else {
            panic!("{to}: half of it was taken over")
        };
        assert_eq!(error.reason, ErrorReason::PolicyUnknown, "{to}");
        load.goes_on(1).await;
    }
    std::fs::remove_file(stage.program.file()).expect("it was there");
    let refused = stage.program.ask(Way::Call).await.expect_err("there is no file");
    assert!(refused.contains("tidegate.toml: No such file"), "{refused}");

    let count = u64::try_from(SPOILT.len()).expect("few") + 1;
    assert_eq!(
        (stage.program.reloads("applied").await, stage.program.reloads("refused").await),
        (1, count)
    );
    // The cap is what it was, and what is right is still taken over.
    let told = stage.program.reload(&sneaking, Way::Command).await.expect("it is in force");
    assert_eq!(told, "policy.sneaked: added\nlimits.fallback_reads: 7, it was 100\n");
    println!("reload: {count} refused under load, {} reads, none stale", load.end().await);
}
