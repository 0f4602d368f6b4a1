//! `[store]`: what is refused, by line, key and what to do; and what is left out has its default.
//! Starts no service and asks no server.
#![expect(clippy::expect_used, reason = "a test that cannot go on must fail")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::config::{
    Config, Limits, Password, Redis, Redundancy, StoreKind, StoreTls, Topology,
};

/// The store begins in line 4, its `kind` is line 5, and what a case adds begins with line 8.
const REDIS: &str = r#"
[cluster]
name = "c"
[store]
kind = "redis"
secret_file = "/tmp/secret"
state_dir = "/tmp/t"
[partition.main]
id = 1
system_id = 7
database = "d"
[[partition.main.node]]
name = "a"
poll = "127.0.0.1:1"
"#;

const STATE: &str = "state_dir = \"/tmp/t\"";
const URLS: &str = "urls = [\"redis://h:6379\"]";

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let environment = environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    Config::parse("t.toml", text, environment).map_err(|error| error.to_string())
}

/// The configuration with these lines in `[store]`.
fn with(lines: &str) -> String {
    REDIS.replace(STATE, &format!("{STATE}\n{lines}"))
}

fn redis(lines: &str, environment: &[(&str, &str)]) -> Redis {
    let config = parse(&with(lines), environment).unwrap_or_else(|error| panic!("{error}"));
    match config.store.kind {
        StoreKind::Redis(redis) => *redis,
        StoreKind::Memory => panic!("another kind: {:?}", config.store),
    }
}

/// Expects exactly this of each.
fn refused(cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        let error = parse(&with(lines), &[]).expect_err(lines);
        assert_eq!(error, *expected, "{lines}");
        assert!(!error.contains("hunter2"), "the error shows a password: {error}");
    }
}

#[test]
fn what_is_no_server_is_refused_with_what_to_write() {
    let shape = |text: &str| {
        format!(
            "t.toml:8: `store.urls`: `{text}` is no URL of a store; write `redis://host:6379`, or \
             `rediss://host:6379` with TLS"
        )
    };
    for text in [
        "",
        "h:6379",
        "http://h:6379",
        "REDIS://h:6379",
        "redis:h:6379",
        "redis://",
        "redis://h",
        "redis://h:0",
        "redis://h:65536",
        "redis://::1:6379",
        "redis://h:6379?db=1",
        "unix:/run/redis.sock",
    ] {
        let line = format!("urls = [\"{text}\"]");
        assert_eq!(parse(&with(&line), &[]).expect_err(text), shape(text), "{text}");
    }
    refused(&[
        (
            "urls = [\"redis://h:1\", \"redis://:hunter2@h:6379\"]",
            "t.toml:8: `store.urls`: a user or password does not belong into a URL; write \
             `redis://host:6379`, and set `username` and `password_file`",
        ),
        (
            "urls = [\"redis://h:6379/1\"]",
            "t.toml:8: `store.urls`: `redis://h:6379/1` names the database `1`; leave it out: keys \
             carry the name of the cluster, and database 0 is the only one a Redis Cluster has",
        ),
        (
            "urls = \"redis://h:6379\"",
            "t.toml:8: `store.urls`: invalid type: string \
             \"redis://h:6379\", expected a sequence",
        ),
    ]);
}

#[test]
fn servers_are_named_once_and_have_tls_all_or_none() {
    refused(&[
        (
            "",
            "t.toml:4: `store.urls`: name the servers of the store, as in \
             [\"redis://127.0.0.1:6379\"]",
        ),
        (
            "urls = [\"redis://h:1\", \"redis://g:1\", \"redis://h:1/\"]",
            "t.toml:8: `store.urls`: `redis://h:1` is named twice; name each server once",
        ),
        (
            "urls = [\"redis://h:1\", \"rediss://g:1\"]\nca_file = \"/ca\"",
            "t.toml:8: `store.urls`: some have TLS and some do not; write `rediss://` for all or \
             none",
        ),
    ]);
    let many: Vec<String> = (1..=33).map(|n| format!("redis://h:{n}")).collect();
    let error = parse(&with(&format!("urls = {many:?}")), &[]).expect_err("33");
    assert_eq!(error, "t.toml:8: `store.urls`: name at most 32 servers");
}

#[test]
fn words_that_are_none_are_refused_with_those_there_are() {
    refused(&[
        (
            "topology = \"ring\"",
            "t.toml:8: `store.topology`: `ring` is no topology; use `single`, `sentinel` or \
             `cluster`",
        ),
        (
            "redundancy = \"twice\"",
            "t.toml:8: `store.redundancy`: `twice` is no redundancy; use `single`, `fenced` or \
             `async`",
        ),
        (
            "timeout = 100",
            "t.toml:8: `store.timeout`: invalid type: integer `100`, expected a string",
        ),
        (
            "fence = \"long\"",
            "t.toml:8: `store.fence`: `long` is no duration; write a number and a unit, as in \
             `250ms`",
        ),
    ]);
    let unknown = parse(&with("ulrs = []"), &[]).expect_err("unknown");
    assert!(unknown.starts_with("t.toml:8: `store.ulrs`: unknown field `ulrs`, expected"));
    let kind = REDIS.replace("\"redis\"", "\"disk\"");
    assert_eq!(
        parse(&kind, &[]).expect_err("disk"),
        "t.toml:5: `store.kind`: `disk` is no kind of store; use `memory` or `redis`"
    );
}

#[test]
fn what_is_out_of_range_is_refused_with_its_range() {
    for (lines, expected) in [
        ("fence = \"2h\"", "t.toml:9: `store.fence`: set it to between 0s and 1h"),
        ("max_lag = \"0s\"", "t.toml:9: `store.max_lag`: set it to between 1s and 5m"),
        ("max_lag = \"301s\"", "t.toml:9: `store.max_lag`: set it to between 1s and 5m"),
        (
            "max_lag = \"1500ms\"",
            "t.toml:9: `store.max_lag`: use whole seconds, as `min-replicas-max-lag` of the \
             servers",
        ),
        ("timeout = \"4ms\"", "t.toml:9: `store.timeout`: set it to between 5ms and 10s"),
        ("timeout = \"11s\"", "t.toml:9: `store.timeout`: set it to between 5ms and 10s"),
        ("wait = \"0ms\"", "t.toml:9: `store.wait`: set it to between 1ms and 10s"),
        ("wait_replicas = 17", "t.toml:9: `store.wait_replicas`: set it to between 0 and 16"),
        (
            "wait_replicas = 1\nwait = \"100ms\"",
            "t.toml:10: `store.wait`: lower it below `timeout`, which is 100ms",
        ),
        (
            "wait_replicas = 1\ntimeout = \"50ms\"",
            "t.toml:4: `store.wait`: lower it below `timeout`, which is 50ms",
        ),
        (
            "wait_replicas = 1\nredundancy = \"single\"",
            "t.toml:9: `store.wait_replicas`: a store that is `single` has no replica to wait for; \
             set it to 0",
        ),
    ] {
        refused(&[(&format!("{URLS}\n{lines}"), expected)]);
    }
    let negative = parse(&with(&format!("{URLS}\nwait_replicas = -1")), &[]).expect_err("-1");
    assert!(negative.starts_with("t.toml:9: `store.wait_replicas`: invalid value"), "{negative}");
    let limit =
        |value: &str| parse(&format!("{}\n[limits]\npending_records = {value}", with(URLS)), &[]);
    assert_eq!(
        limit("0").expect_err("none"),
        "t.toml:18: `limits.pending_records`: set it to between 1 and 10000000"
    );
    assert_eq!(limit("7").map(|config| config.limits.pending_records), Ok(7));
}

#[test]
fn settings_that_need_or_exclude_another_say_which() {
    for (lines, expected) in [
        (
            "topology = \"sentinel\"",
            "t.toml:4: `store.sentinel_master`: set it to what the sentinels call the primary, as \
             in `sentinel monitor NAME`",
        ),
        (
            "topology = \"sentinel\"\nsentinel_master = \"\"",
            "t.toml:10: `store.sentinel_master`: use 1 to 128 bytes",
        ),
        (
            "topology = \"sentinel\"\nsentinel_master = \"m\"\nredundancy = \"single\"",
            "t.toml:11: `store.redundancy`: sentinels promote a replica; set it to \"fenced\" or \
             \"async\", or remove it",
        ),
        (
            "sentinel_master = \"m\"",
            "t.toml:9: `store.sentinel_master`: remove it, or set `topology` to \"sentinel\"",
        ),
        (
            "topology = \"cluster\"\nsentinel_master = \"m\"",
            "t.toml:10: `store.sentinel_master`: remove it, or set `topology` to \"sentinel\"",
        ),
        ("username = \"\"", "t.toml:9: `store.username`: use 1 to 128 bytes without spaces"),
        ("username = \"a b\"", "t.toml:9: `store.username`: use 1 to 128 bytes without spaces"),
        (
            "ca_file = \"/ca\"",
            "t.toml:9: `store.ca_file`: it is used with TLS alone; remove it, or write \
             `rediss://` in `urls`",
        ),
        (
            "password = \"hunter2\"",
            "t.toml:9: `store.password`: a password does not belong into this file; name a file \
             with `password_file`, or set the environment variable TIDEGATE_STORE__PASSWORD",
        ),
    ] {
        refused(&[(&format!("{URLS}\n{lines}"), expected)]);
    }
    let tls = "urls = [\"rediss://h:6379\"]";
    for (lines, expected) in [
        (
            "",
            "t.toml:4: `store.ca_file`: `rediss://` needs the certificates that sign the \
             servers'; for those the system trusts, /etc/ssl/certs/ca-certificates.crt",
        ),
        (
            "ca_file = \"/ca\"\ncert_file = \"/c\"",
            "t.toml:4: `store.key_file`: set it to the key of `cert_file`",
        ),
        (
            "ca_file = \"/ca\"\nkey_file = \"/k\"",
            "t.toml:4: `store.cert_file`: set it to the certificate of `key_file`",
        ),
    ] {
        refused(&[(&format!("{tls}\n{lines}"), expected)]);
    }
    let without = with(URLS).replace("secret_file = \"/tmp/secret\"\n", "");
    assert_eq!(
        parse(&without, &[]).expect_err("no secret"),
        "t.toml:4: `store.secret_file`: instances that share a store must hash subjects alike; set \
         it to one file for all, as `tidegate token keygen --out FILE` writes one"
    );
}

#[test]
fn a_memory_store_refuses_what_it_would_ignore() {
    let lines = [
        URLS,
        "topology = \"single\"",
        "sentinel_master = \"m\"",
        "username = \"u\"",
        "password_file = \"/p\"",
        "password = \"hunter2\"",
        "ca_file = \"/ca\"",
        "cert_file = \"/c\"",
        "key_file = \"/k\"",
        "redundancy = \"single\"",
        "fence = \"1s\"",
        "max_lag = \"1s\"",
        "timeout = \"1s\"",
        "wait_replicas = 0",
        "wait = \"1s\"",
    ];
    for line in lines {
        let key = line.split(" = ").next().expect("a key");
        let text = with(line).replace("\"redis\"", "\"memory\"");
        assert_eq!(
            parse(&text, &[]).expect_err(line),
            format!(
                "t.toml:8: `store.{key}`: a memory store does not use it; remove it, or set \
                 `kind` to \"redis\""
            )
        );
    }
    let all = with(&lines.join("\n")).replace("\"redis\"", "\"memory\"");
    let told = parse(&all, &[]).expect_err("all of them");
    assert_eq!(told.lines().count(), lines.len(), "every problem is told at once: {told}");
}

#[test]
fn what_is_left_out_has_its_default() {
    let redis = redis(URLS, &[]);
    assert_eq!(redis.urls.iter().map(ToString::to_string).collect::<Vec<_>>(), ["redis://h:6379"]);
    assert_eq!(redis.topology, Topology::Single);
    assert_eq!((redis.username, redis.password, redis.tls), (None, Password::None, None));
    assert_eq!((redis.redundancy, redis.fence, redis.max_lag), (None, None, None));
    assert_eq!(redis.timeout, Duration::from_millis(100));
    assert_eq!((redis.wait_replicas, redis.wait), (0, Duration::from_millis(50)));
    assert_eq!(Limits::default().pending_records, 100_000);
}

#[test]
fn every_setting_can_be_set_by_the_environment_and_wins() {
    let variables = [
        ("TIDEGATE_STORE__URLS", "[\"rediss://[::1]:7\", \"rediss://g:8\"]"),
        ("TIDEGATE_STORE__TOPOLOGY", "sentinel"),
        ("TIDEGATE_STORE__SENTINEL_MASTER", "7"),
        ("TIDEGATE_STORE__USERNAME", "1"),
        ("TIDEGATE_STORE__PASSWORD", "1234"),
        ("TIDEGATE_STORE__CA_FILE", "/ca"),
        ("TIDEGATE_STORE__CERT_FILE", "/cert"),
        ("TIDEGATE_STORE__KEY_FILE", "/key"),
        ("TIDEGATE_STORE__REDUNDANCY", "fenced"),
        ("TIDEGATE_STORE__FENCE", "1m"),
        ("TIDEGATE_STORE__MAX_LAG", "5s"),
        ("TIDEGATE_STORE__TIMEOUT", "1s"),
        ("TIDEGATE_STORE__WAIT_REPLICAS", "2"),
        ("TIDEGATE_STORE__WAIT", "200ms"),
    ];
    let redis = redis("urls = [\"redis://h:1\"]\npassword_file = \"/f\"", &variables);
    let urls: Vec<String> = redis.urls.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["rediss://[::1]:7", "rediss://g:8"]);
    assert_eq!(redis.topology, Topology::Sentinel { master: "7".to_owned() });
    assert_eq!(redis.username.as_deref(), Some("1"));
    assert!(matches!(&redis.password, Password::Text(secret) if secret.reveal() == "1234"));
    let identity = Some((PathBuf::from("/cert"), PathBuf::from("/key")));
    assert_eq!(redis.tls, Some(StoreTls { ca_file: PathBuf::from("/ca"), identity }));
    assert_eq!(redis.redundancy, Some(Redundancy::Fenced));
    let seconds = |count| Some(Duration::from_secs(count));
    assert_eq!((redis.fence, redis.max_lag), (seconds(60), seconds(5)));
    assert_eq!((redis.timeout, redis.wait_replicas), (Duration::from_secs(1), 2));
    assert_eq!(redis.wait, Duration::from_millis(200));
    assert!(!format!("{redis:?}").contains("1234"), "the password is printed");

    for (name, value, expected) in [
        ("TIDEGATE_STORE__TIMEOUT", "1h", "`store.timeout`: set it to between 5ms and 10s"),
        ("TIDEGATE_STORE__URLS", "redis://h:1", "`store.urls`: invalid type: string"),
        ("TIDEGATE_STORE__URL", "redis://h:1", "`store.url`: unknown field `url`"),
        ("TIDEGATE_STORE__KIND", "disk", "`store.kind`: `disk` is no kind of store; use `memory`"),
    ] {
        let error = parse(&with(URLS), &[(name, value)]).expect_err(name);
        let expected = format!("environment variable {name}: {expected}");
        assert!(error.starts_with(&expected), "expected {expected}\nsaid     {error}");
    }
}

#[test]
fn the_deployed_configuration_is_fine() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/tidegate.toml");
    let config = Config::load(&file, []).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(config.store.kind, StoreKind::Redis(_)), "{:?}", config.store);
}
