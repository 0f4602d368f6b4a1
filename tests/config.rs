//! A configuration that cannot be used is refused by line, key and what to do; one that can is
//! complete. Starts no service.
#![expect(clippy::expect_used, reason = "a test that cannot go on must fail")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tidegate::config::{AsyncCommits, Config, Limits, OnLost, Password, Raise, Tls};
use tidegate_core::routing::{self, AboveCap, Level};

const SMALLEST: &str = r#"
[cluster]
name = "c"
[store]
kind = "memory"
state_dir = "/tmp/t"
[partition.main]
id = 1
system_id = 7
database = "d"
[[partition.main.node]]
name = "a"
poll = "127.0.0.1:1"
"#;

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let environment = environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    Config::parse("t.toml", text, environment).map_err(|error| error.to_string())
}

/// The smallest configuration with `line` put in after the line `after`.
fn with(after: &str, line: &str) -> String {
    let (before, rest) = SMALLEST.split_once(after).expect("a line of the configuration");
    format!("{before}{after}\n{line}{rest}")
}

// Lines of the smallest configuration, after which the cases below put theirs.
const CLUSTER: &str = "name = \"c\"";
const STORE: &str = "state_dir = \"/tmp/t\"";
const DATABASE: &str = "database = \"d\"";
const POLL: &str = "poll = \"127.0.0.1:1\"";

/// Expects each error to contain the text at its end.
fn refused(cases: &[(&str, &str, &str)]) {
    for (after, line, expected) in cases {
        let error = parse(&with(after, line), &[]).expect_err(line);
        assert!(error.contains(expected), "{line}\nexpected {expected}\nsaid     {error}");
        assert!(!error.contains("hunter2"), "the error shows a password: {error}");
    }
}

#[test]
fn unknown_keys_and_values_of_the_wrong_kind_are_refused_by_line_key_and_what_to_do() {
    refused(&[
        ("", "[x", "t.toml:2: this is not TOML"),
        (
            CLUSTER,
            "instanse = \"a\"",
            "t.toml:4: `cluster.instanse`: unknown field `instanse`, expected",
        ),
        (STORE, "[cash]", "t.toml:7: `cash`: unknown field `cash`"),
        (CLUSTER, "instance = \"A\"", "t.toml:4: `cluster.instance`: `A` is no name; use 1 to 32"),
        (STORE, "[listen]\ndata = \"x\"", "t.toml:8: `listen.data`: "),
        (STORE, "[limits]\nidle_poll = 250", "t.toml:8: `limits.idle_poll`: "),
        (STORE, "[limits]\nidle_poll = \"250\"", "`limits.idle_poll`: `250` is no duration; write"),
        (STORE, "[limits]\nmessage_bytes = \"64k\"", "`limits.message_bytes`: invalid value"),
        (STORE, "[limits]\nparked_waits = -1", "`limits.parked_waits`: invalid value"),
        (
            POLL,
            "reach = \"x\"",
            "t.toml:14: `partition.main.node.a.reach`: `x` is no reach; use `direct`, `pooled` or",
        ),
        (POLL, "advertise = [\"h\"]", "`h` is no address; write `host:port`"),
        (DATABASE, "async_commits = \"maybe\"", "expected `possible` or `never`"),
        (DATABASE, "tls = \"on\"", "expected `off` or `verify-full`"),
        (DATABASE, "upgraded_from = 0", "`partition.main.upgraded_from`: invalid value"),
        (
            DATABASE,
            "patroni = \"http://h:8008\"",
            "t.toml:11: `partition.main.patroni`: invalid type",
        ),
        (
            DATABASE,
            "patroni = [\"h:8008\"]",
            "t.toml:11: `partition.main.patroni`: `h:8008` is no HTTP address; write \
             `http://host:8008`",
        ),
        (
            DATABASE,
            "patroni = [\"http://h:8008\", \"https://h:8008\"]",
            "`https://h:8008` asks for TLS, which is not built yet; use `http://`",
        ),
        (DATABASE, "accepted_majors = 14", "t.toml:11: `partition.main.accepted_majors`: invalid"),
        (DATABASE, "accepted_majors = [\"14\"]", "`partition.main.accepted_majors`: invalid type"),
        (DATABASE, "accepted_majors = [-14]", "`partition.main.accepted_majors`: invalid value"),
        (DATABASE, "accepted_major = [14]", "unknown field `accepted_major`"),
    ]);
}

#[test]
fn open_listeners_and_limits_out_of_range_are_refused() {
    refused(&[
        (
            STORE,
            "[listen]\ndata = \"0.0.0.0:7400\"",
            "t.toml:8: `listen.data`: 0.0.0.0:7400 is open to other machines, and neither TLS",
        ),
        (STORE, "[listen]\nadmin = \"[::]:1\"", "`listen.admin`: [::]:1 is open to other machines"),
        (
            STORE,
            "[listen]\ntls = \"x\"",
            "t.toml:8: `listen.tls`: TLS on listeners is not built yet",
        ),
        (STORE, "[listen]\ntls = { cert = \"x\" }", "`listen.tls`: TLS on listeners is not built"),
        (STORE, "[listen]\nadmin = \"127.0.0.1:7400\"", "`listen.admin`: use another port"),
        (STORE, "[limits]\nd_max = \"13h\"", "`limits.token_lifetime`: raise it to 1day 2h, twice"),
        (
            STORE,
            "[limits]\nclock_drift = 10001",
            "`limits.clock_drift`: set it to between 0 and 10000",
        ),
        (STORE, "[limits]\nd_max = \"0s\"", "`limits.d_max`: set it to between 1s and 30days"),
        (STORE, "[limits]\nconnections = 0", "`limits.connections`: set it to between 1 and"),
        (STORE, "[limits]\nbusy_poll = \"300ms\"", "`limits.busy_poll`: lower it to at most"),
        (
            STORE,
            "[limits]\nidle_poll = \"6s\"",
            "`limits.view_max_age`: raise it above `idle_poll`",
        ),
        (STORE, "[limits]\nmessage_bytes = \"1KiB\"", "`limits.message_bytes`: set it to between"),
        (STORE, "[limits]\nnodes_per_partition = 257", "`limits.nodes_per_partition`: set it to"),
    ]);
}

#[test]
fn a_major_that_is_none_or_too_old_cannot_be_accepted() {
    for majors in ["[13]", "[14, 13]", "[100]", "[0]", "[140019]"] {
        refused(&[(
            DATABASE,
            &format!("accepted_majors = {majors}"),
            "cannot be accepted; name majors of PostgreSQL from 14 to 99, as in [14]",
        )]);
    }
    let many = "accepted_majors = [14, 19, 20, 21, 22, 23, 24, 25, 26]";
    refused(&[(DATABASE, many, "`partition.main.accepted_majors`: name at most 8 majors")]);
    let accepted = |environment: &[(&str, &str)], line: &str| {
        let config = parse(&with(DATABASE, line), environment).expect(line);
        let partition = config.partitions.first().expect("a partition");
        (partition.accepted_majors.clone(), partition.untested_majors().collect::<Vec<_>>())
    };
    let tested = vec![15, 16, 17, 18];
    assert_eq!(accepted(&[], "accepted_majors = []"), (tested.clone(), vec![]));
    // What is tested needs no word, and the word does no harm.
    assert_eq!(accepted(&[], "accepted_majors = [18, 15]"), (tested, vec![]));
    let (all, untested) = accepted(&[], "accepted_majors = [19, 14, 14]");
    assert_eq!((all, untested), (vec![14, 15, 16, 17, 18, 19], vec![14, 19]));
    let variable = [("TIDEGATE_PARTITION__MAIN__ACCEPTED_MAJORS", "[14]")];
    assert_eq!(accepted(&variable, "accepted_majors = [19]").1, [14], "the environment wins");
}

#[test]
fn partitions_that_contradict_themselves_or_each_other_are_refused() {
    refused(&[
        (DATABASE, "password = \"hunter2\"", "TIDEGATE_PARTITION__MAIN__PASSWORD"),
        (DATABASE, "upgraded_from = 7", "`partition.main.upgraded_from`: it is the same as"),
        (DATABASE, "user = \"\"", "`partition.main.user`: use 1 to 63 bytes"),
        (
            DATABASE,
            "patroni = [\"http://a:1\", \"http://a:1/\"]",
            "t.toml:11: `partition.main.patroni`: `http://a:1` is named twice; name each address",
        ),
        (DATABASE, "tls = \"verify-full\"", "`partition.main.tls`: set `tls_ca_file` too"),
        (DATABASE, "tls_ca_file = \"x\"", "`partition.main.tls`: set it to \"verify-full\""),
        (
            POLL,
            "[[partition.main.node]]\nname = \"a\"\npoll = \"127.0.0.1:2\"",
            "`partition.main.node.a.name`: two nodes have this name",
        ),
        (
            POLL,
            "[[partition.main.node]]\nname = \"b\"\npoll = \"127.0.0.1:1\"",
            "t.toml:16: `partition.main.node.b.poll`: node `a` has the same address",
        ),
        (
            POLL,
            "[[partition.main.node]]\nname = \"b\"\npoll = \"10.0.0.1:1\"",
            "`partition.main.tls`: a node is on another machine; set \"verify-full\", or \"off\"",
        ),
        (
            POLL,
            "[partition.other]\nid = 1\nsystem_id = 8\ndatabase = \"d\"\n\
             [[partition.other.node]]\nname = \"a\"\npoll = \"127.0.0.1:2\"",
            "t.toml:15: `partition.other.id`: partition `main` has the same id",
        ),
        (
            POLL,
            "[partition.other]\nid = 2\nsystem_id = 7\ndatabase = \"d\"\n\
             [[partition.other.node]]\nname = \"a\"\npoll = \"127.0.0.1:2\"",
            "t.toml:16: `partition.other.system_id`: partition `main` is the same server",
        ),
        (
            POLL,
            "[partition.other]\nid = 2\nsystem_id = 8\ndatabase = \"d\"",
            "t.toml:14: `partition.other.node`: add a [[partition.NAME.node]]",
        ),
        (POLL, "[partition.Other]\nid = 2", "t.toml:14: `partition.Other`: `Other` is no name"),
    ]);
}

#[test]
fn a_policy_that_cannot_be_is_refused_by_line_key_and_range() {
    // Each below `[policy.fast]`, which stands in line 7.
    let cases = [
        (
            "level = \"strong\"",
            "t.toml:8: `policy.fast.level`: `strong` is none of `eventual`, `se",
        ),
        ("level = \"bounded\"", "t.toml:7: `policy.fast.bound`: set it: level `bounded` needs"),
        (
            "level = \"global\"\nbound = \"1s\"",
            "t.toml:9: `policy.fast.bound`: remove it: a bound goes with the levels `bounded` and",
        ),
        (
            "bound = \"0s\"",
            "t.toml:8: `policy.fast.bound`: `0s` is out of range; set it to between 1ms",
        ),
        ("bound = \"25h\"", "`25h` is out of range; set it to between 1ms and 1day"),
        (
            "\nwait_budget = \"31s\"",
            "t.toml:9: `policy.fast.wait_budget`: `31s` is out of range; set it to between 0s and",
        ),
        (
            "wait_budget = \"50\"",
            "`50` is no duration; write one between 0s and 30s, as in `250ms`",
        ),
        ("wait_budget = 50", "t.toml:8: `policy.fast.wait_budget`: invalid type: integer `50`"),
        ("fallback = \"yes\"", "t.toml:8: `policy.fast.fallback`: invalid type"),
        (
            "above_cap = [\"wait\", \"retry\"]",
            "t.toml:8: `policy.fast.above_cap`: `retry` is no step; use \"wait\", \"wait 200ms\"",
        ),
        ("above_cap = [\"wait 0s\"]", "`0s` is out of range; set it to between 1ms and 30s"),
        ("above_cap = [\"wait  1s\", \"stale now\"]", "`stale now` is no step"),
        ("above_cap = [\"refuse\", \"stale\"]", "`policy.fast.above_cap`: put `refuse` last"),
        (
            "above_cap = [\"wait\", \"wait\", \"wait\", \"stale\", \"refuse\"]",
            "t.toml:8: `policy.fast.above_cap`: name at most 4 steps",
        ),
        ("zone = \"EU\"", "t.toml:8: `policy.fast.zone`: `EU` is no name; use 1 to 32"),
        ("raise = \"both\"", "`both` is none of `token-or-record`, `all`, `none`"),
        (
            "on_lost = \"panic\"",
            "t.toml:8: `policy.fast.on_lost`: `panic` is none of `notice`, `er",
        ),
        ("budget = \"1s\"", "t.toml:8: `policy.fast.budget`: unknown field `budget`, expected"),
    ];
    let below = cases.map(|(lines, expected)| (format!("[policy.fast]\n{lines}"), expected));
    for (lines, expected) in &below {
        refused(&[(STORE, lines, expected)]);
    }
    refused(&[(STORE, "[policy.Fast]", "t.toml:7: `policy.Fast`: `Fast` is no name; use 1 to 32")]);
    let many: String = (0..65).map(|n| format!("[policy.p{n}]\n")).collect();
    refused(&[(STORE, &many, "`policy`: 65 policies are more than 64")]);
}

#[test]
fn everything_wrong_with_all_policies_is_told_at_once() {
    let lines = "[policy.a]\nlevel = \"x\"\nzone = \"X\"\nbound = \"x\"\n\
                 [policy.b]\nraise = \"x\"\nabove_cap = [\"x\", \"y\"]\n";
    let error = parse(&with(STORE, lines), &[]).expect_err("six problems");
    let places: Vec<_> = error.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    let b = ["`policy.b.above_cap`", "`policy.b.above_cap`", "`policy.b.raise`"];
    let all = [&["`policy.a.level`", "`policy.a.bound`", "`policy.a.zone`"][..], &b].concat();
    assert_eq!(places, all, "{error}");
}

#[test]
fn a_policy_has_the_defaults_of_a_request_and_its_settings_can_be_overridden() {
    let lines = "[policy.plain]\n[policy.rich]\nlevel = \"bounded\"\nbound = \"10s\"\n\
                 above_cap = [\"wait\", \"wait 1s\", \"stale\", \"refuse\"]\n";
    let environment = [
        ("TIDEGATE_POLICY__RICH__WAIT_BUDGET", "0s"),
        ("TIDEGATE_POLICY__RICH__FALLBACK", "false"),
        ("TIDEGATE_POLICY__RICH__RAISE", "all"),
    ];
    let config = parse(&with(STORE, lines), &environment).expect("two policies");
    let [plain, rich] = config.policies.as_slice() else { panic!("{:?}", config.policies) };
    let default = routing::Policy {
        level: Level::Session,
        bound: None,
        wait_budget: Duration::from_millis(50),
        may_fall_back: true,
        above_cap: vec![],
        zone: None,
    };
    assert_eq!((plain.name.as_str(), &plain.rule), ("plain", &default));
    assert_eq!((plain.raise, plain.on_lost), (Raise::TokenOrRecord, OnLost::Notice));
    let wait = |millis| AboveCap::Wait(Duration::from_millis(millis));
    assert_eq!(rich.rule.above_cap, [wait(200), wait(1000), AboveCap::Stale, AboveCap::Refuse]);
    assert_eq!((rich.rule.wait_budget, rich.rule.may_fall_back), (Duration::ZERO, false));
    assert_eq!((rich.rule.bound, rich.raise), (Some(Duration::from_secs(10)), Raise::All));
    // A limit below the defaults cuts those, and refuses what is said in so many words.
    let cut = format!("{lines}[limits]\nwait_budget_max = \"20ms\"\n");
    let error = parse(&with(STORE, &cut), &[]).expect_err("a step of 1 s");
    assert!(error.contains("`1s` is out of range; set it to between 1ms and 20ms"), "{error}");
    let config = parse(&with(STORE, &cut.replace("\"wait 1s\", ", "")), &[]).expect("cut");
    let budgets: Vec<_> = config.policies.iter().map(|p| p.rule.wait_budget.as_millis()).collect();
    assert_eq!(budgets, [20, 20]);
}

#[test]
fn what_is_missing_or_zero_is_named() {
    for (line, expected) in [
        ("name = \"c\"", "t.toml:2: `cluster`: missing field `name`"),
        ("kind = \"memory\"", "t.toml:4: `store`: missing field `kind`"),
        (
            "state_dir = \"/tmp/t\"",
            "missing field `state_dir`; docs/tidegate.example.toml explains",
        ),
        ("id = 1", "t.toml:7: `partition.main`: missing field `id`"),
        ("system_id = 7", "SELECT system_identifier FROM pg_control_system()"),
        ("poll = \"127.0.0.1:1\"", "t.toml:11: `partition.main.node.a`: missing field `poll`"),
    ] {
        let error = parse(&SMALLEST.replace(line, ""), &[]).expect_err(line);
        assert!(error.contains(expected), "{line}\nexpected {expected}\nsaid     {error}");
    }
    for (line, wrong, expected) in [
        ("id = 1", "id = 0", "t.toml:8: `partition.main.id`: invalid value: integer `0`"),
        ("id = 1", "id = 4294967296", "`partition.main.id`: 4294967296 is too large"),
        ("system_id = 7", "system_id = -7", "t.toml:9: `partition.main.system_id`: invalid value"),
        ("kind = \"memory\"", "kind = \"redis\"", "`store.urls`: name the servers of the store"),
        ("kind = \"memory\"", "kind = \"disk\"", "`store.kind`: `disk` is no kind of store"),
    ] {
        let error = parse(&SMALLEST.replace(line, wrong), &[]).expect_err(wrong);
        assert!(error.contains(expected), "{wrong}\nexpected {expected}\nsaid     {error}");
    }
    let no_partition = SMALLEST.split("[partition").next().expect("a start");
    let error = parse(no_partition, &[]).expect_err("no partition");
    assert!(error.contains("add a section [partition.NAME]"), "{error}");
}

#[test]
fn more_than_a_limit_allows_is_refused() {
    let mut nodes = String::new();
    for n in 0..33 {
        write!(
            nodes,
            "\n[[partition.main.node]]\nname = \"n{n}\"\npoll = \"127.0.0.1:{}\"\n",
            n + 2
        )
        .expect("a string grows");
    }
    let error = parse(&format!("{SMALLEST}{nodes}"), &[]).expect_err("34 nodes");
    assert!(error.contains("34 nodes are more than `limits.nodes_per_partition` = 32"), "{error}");
    let keys = format!("[token]\nkeys = {:?}", vec!["k"; 17]);
    let error = parse(&format!("{SMALLEST}{keys}"), &[]).expect_err("17 keys");
    assert!(error.contains("`token.keys`: name at most 16 files"), "{error}");
    let addresses = format!("advertise = {:?}", vec!["h:1"; 9]);
    let error = parse(&format!("{SMALLEST}{addresses}"), &[]).expect_err("9 addresses");
    assert!(error.contains("`partition.main.node.a.advertise`: name at most 8"), "{error}");
    let many: Vec<String> = (1..=33).map(|n| format!("http://h:{n}")).collect();
    let error = parse(&with(DATABASE, &format!("patroni = {many:?}")), &[]).expect_err("33");
    assert!(error.contains("`partition.main.patroni`: name at most 32 addresses"), "{error}");
    let error = parse(&format!("{SMALLEST}[limits]\npartitions = 1"), &[]);
    assert!(error.is_ok(), "{error:?}");
}

#[test]
fn every_problem_is_told_at_once() {
    let text = with("database = \"d\"", "user = \"\"\ntls = \"verify-full\"");
    let error = parse(&format!("{text}[listen]\ndata = \"10.0.0.1:1\""), &[]);
    let error = error.expect_err("three problems");
    assert_eq!(error.lines().count(), 3, "{error}");
}

#[test]
fn an_override_wins_and_its_error_names_the_variable() {
    let text = with("database = \"d\"", "password_file = \"/f\"");
    let environment = [
        ("TIDEGATE_PARTITION__MAIN__DATABASE", "shop"),
        ("TIDEGATE_PARTITION__MAIN__PASSWORD", "1234"),
        ("TIDEGATE_PARTITION__MAIN__SYSTEM_ID", "18446744073709551615"),
        ("TIDEGATE_PARTITION__MAIN__NODE__A__POLL", "[::1]:5432"),
        ("TIDEGATE_CLUSTER__INSTANCE", "0"),
        ("TIDEGATE_TOKEN__KEYS", "[\"/a\", \"/b\"]"),
        ("TIDEGATE_LIMITS__D_MAX", "30m"),
        ("TIDEGATE_LIMITS__CONNECTIONS", "7"),
    ];
    let config = parse(&text, &environment).expect("a configuration");
    let partition = config.partitions.first().expect("a partition");
    assert_eq!(partition.database, "shop");
    assert!(matches!(&partition.password, Password::Text(secret) if secret.reveal() == "1234"));
    assert_eq!(partition.system_id.value(), u64::MAX);
    let node = partition.nodes.first().expect("a node");
    assert_eq!(node.poll.to_string(), "[::1]:5432");
    assert_eq!(config.cluster.instance.as_str(), "0");
    assert_eq!(config.token.keys, [Path::new("/a"), Path::new("/b")]);
    assert_eq!(config.limits.d_max, Duration::from_secs(1800));
    assert_eq!(config.limits.connections, 7);
    assert!(!format!("{config:?}").contains("1234"), "the password is printed");

    for (name, value, expected) in [
        ("TIDEGATE_LISTEN__DATA", "0.0.0.0:1", "`listen.data`: 0.0.0.0:1 is open"),
        ("TIDEGATE_LIMITS__D_MAX", "soon", "`limits.d_max`: `soon` is no duration"),
        ("TIDEGATE_LIMITS__D_MIN", "1s", "`limits.d_min`: unknown field"),
        ("TIDEGATE_PARTITION__EU__ID", "1", "`partition.eu.id`: the file sets no `eu` there"),
        ("TIDEGATE_POLICY__FAST__LEVEL", "x", "`policy.fast.level`: the file sets no `fast`"),
    ] {
        let error = parse(&text, &[(name, value)]).expect_err(name);
        let expected = format!("environment variable {name}: {expected}");
        assert!(error.starts_with(&expected), "expected {expected}\nsaid     {error}");
    }
}

#[test]
fn the_smallest_configuration_has_every_default() {
    let config = parse(SMALLEST, &[]).expect("a configuration");
    let partition = config.partitions.first().expect("a partition");
    assert_eq!(config.listen.data.to_string(), "127.0.0.1:7400");
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:7401");
    assert!(!config.listen.reflection);
    assert_eq!(config.limits, Limits::default());
    assert_eq!((partition.id.value(), partition.user.as_str()), (1, "tidegate"));
    assert_eq!((&partition.tls, &partition.password), (&Tls::Off, &Password::None));
    assert_eq!(partition.async_commits, AsyncCommits::Possible);
    assert_eq!(partition.accepted_majors, [15, 16, 17, 18]);
    let node = partition.nodes.first().expect("a node");
    assert_eq!(node.addresses(), std::slice::from_ref(&node.poll));
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("/nonexistent/tidegate.toml"), []).expect_err("no file");
    let text = error.to_string();
    assert!(
        text.starts_with("/nonexistent/tidegate.toml: ") && text.contains("--config"),
        "{text}"
    );
}

#[test]
fn the_annotated_example_loads_from_its_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tidegate.example.toml");
    let config = Config::load(&file, []).map_err(|error| error.to_string());
    assert_eq!(config.map(|config| config.cluster.name.to_string()), Ok("shop".to_owned()));
}
