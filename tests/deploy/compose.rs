//! The rules of `deploy/compose.yaml` that no schema knows: every service is bounded, watched and
//! without rights, listens on loopback alone, and reads secrets as files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Map, Value};

use super::{ROOT, read, tool};

/// Reads YAML on standard input, writes JSON.
const TO_JSON: &str = "import json, sys\n\
    from ruamel.yaml import YAML\n\
    json.dump(YAML(typ='safe').load(sys.stdin), sys.stdout)";

/// A compose file as a value, with its anchors resolved.
pub(crate) fn parsed(text: &str) -> Value {
    let mut python = Command::new(tool("python"));
    python.args(["-c", TO_JSON]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().expect("Python starts");
    let mut input = child.stdin.take().expect("it reads");
    input.write_all(text.as_bytes()).expect("it reads all");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    serde_json::from_slice(&output.stdout).expect("YAML")
}

fn services(compose: &Value) -> &Map<String, Value> {
    compose["services"].as_object().expect("services")
}

/// Everything that a service lacks, by the words of the rule.
fn breaches(compose: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, service) in services(compose) {
        let mut demand = |holds: bool, rule: &str| {
            if !holds {
                found.push(format!("{name}: {rule}"));
            }
        };
        let limits = &service["deploy"]["resources"]["limits"];
        for limit in ["cpus", "memory", "pids"] {
            demand(limits.get(limit).is_some(), &format!("no limit of {limit}"));
        }
        demand(service["read_only"] == true, "it may write where it likes");
        demand(service["cap_drop"] == serde_json::json!(["ALL"]), "it keeps capabilities");
        let no_new = serde_json::json!(["no-new-privileges:true"]);
        demand(service["security_opt"] == no_new, "it may gain privileges");
        demand(service.get("logging").is_some(), "its log grows for ever");
        demand(service.get("privileged").is_none(), "it is privileged");
        let runs_once = service["restart"] == "no";
        let watched = service["healthcheck"]["test"].is_array();
        demand(watched || runs_once, "nobody asks whether it is well");
        let root = matches!(service["user"].as_str(), Some("root" | "0" | "0:0"));
        demand(!root || runs_once, "it runs as root");
        let built = service.get("build").is_some();
        demand(service["user"].is_string() || built, "it runs as whatever its image says");
        let image = service["image"].as_str().unwrap_or_default();
        let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
        demand(!matches!(tag, "" | "latest"), "its image has no version");
        let ports = service["ports"].as_array().into_iter().flatten();
        for port in ports.map(|port| port.as_str().unwrap_or_default()) {
            demand(port.starts_with("127.0.0.1:"), &format!("port {port} is open to everybody"));
        }
        for (key, value) in variables(service) {
            let secret = ["PASSWORD", "SECRET", "TOKEN_KEY"].iter().any(|word| key.contains(word));
            let is_file = key.ends_with("_FILE") && value.starts_with("/run/secrets/");
            demand(!secret || is_file, &format!("{key} is no file"));
        }
    }
    found
}

fn variables(service: &Value) -> BTreeMap<String, String> {
    let all = service["environment"].as_object().into_iter().flatten();
    all.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

#[test]
fn every_service_is_bounded_watched_and_without_rights() {
    let text = read("deploy/compose.yaml");
    let compose = parsed(&text);
    assert_eq!(breaches(&compose), Vec::<String>::new());
    let names: Vec<&str> = services(&compose).keys().map(String::as_str).collect();
    let wanted = [
        "leader",
        "redis",
        "redis-replica",
        "setup",
        "standby-1",
        "standby-2",
        "tidegate-a",
        "tidegate-b",
    ];
    assert_eq!(names, wanted);
    for (good, bad, rule) in [
        ("memory: 256M, ", "", "setup: no limit of memory"),
        ("read_only: true", "read_only: false", "leader: it may write"),
        ("cap_drop: [ALL]", "cap_drop: [NET_RAW]", "redis: it keeps capabilities"),
        ("restart: \"no\"", "restart: always", "setup: it runs as root"),
        ("user: redis", "init: true", "redis: it runs as whatever"),
        ("postgres:15-bookworm", "postgres:latest", "standby-1: its image has no version"),
        ("127.0.0.1:5432:5432", "5432:5432", "leader: port 5432:5432 is open"),
        (
            "POSTGRES_PASSWORD_FILE: /run/secrets/postgres_password",
            "POSTGRES_PASSWORD: postgres",
            "leader: POSTGRES_PASSWORD is no file",
        ),
    ] {
        let changed = text.replace(good, bad);
        assert_ne!(changed, text, "{good} is gone");
        let found = breaches(&parsed(&changed));
        assert!(found.iter().any(|breach| breach.starts_with(rule)), "{rule}: {found:?}");
    }
}

#[test]
fn every_secret_is_a_file_that_is_made_and_used() {
    let compose = parsed(&read("deploy/compose.yaml"));
    let declared = compose["secrets"].as_object().expect("secrets");
    let made = read("deploy/make-secrets");
    for (name, secret) in declared {
        assert_eq!(secret["file"], format!("secrets/{name}"), "{name}");
        assert!(made.contains(name), "deploy/make-secrets makes no {name}");
    }
    let mut used = BTreeSet::new();
    for service in services(&compose).values() {
        let named = service["secrets"].as_array().into_iter().flatten();
        used.extend(named.map(|name| name.as_str().unwrap_or_default()));
    }
    let declared: BTreeSet<&str> = declared.keys().map(String::as_str).collect();
    assert_eq!(used, declared);
}

#[test]
fn every_file_and_volume_that_a_service_reads_is_there() {
    let compose = parsed(&read("deploy/compose.yaml"));
    let volumes = compose["volumes"].as_object().expect("volumes");
    let mut mounted = BTreeSet::new();
    for (name, service) in services(&compose) {
        let all = service["volumes"].as_array().into_iter().flatten();
        for volume in all.map(|volume| volume.as_str().unwrap_or_default()) {
            let source = volume.split(':').next().unwrap_or_default();
            if source.starts_with('.') {
                assert!(volume.ends_with(":ro"), "{name} may write {source}");
                let path = Path::new(ROOT).join("deploy").join(source);
                assert!(path.exists(), "{name}: there is no {}", path.display());
            } else {
                assert!(volumes.contains_key(source), "{name}: no volume {source}");
                mounted.insert(source.to_owned());
            }
        }
    }
    assert_eq!(mounted, volumes.keys().cloned().collect());
}

/// The two instances differ in name and addresses, and in nothing else.
#[test]
fn both_instances_are_the_same_but_for_name_and_addresses() {
    let compose = parsed(&read("deploy/compose.yaml"));
    let [a, b] = ["a", "b"].map(|name| &services(&compose)[&format!("tidegate-{name}")]);
    let (of_a, of_b) = (variables(a), variables(b));
    assert_eq!(of_a.keys().collect::<Vec<_>>(), of_b.keys().collect::<Vec<_>>());
    for (key, value) in &of_a {
        assert_ne!(Some(value), of_b.get(key), "both have the same {key}");
    }
    for key in ["image", "network_mode", "secrets", "healthcheck", "deploy", "depends_on"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    // The healthcheck asks the admin listener of its own instance.
    for of in [of_a, of_b] {
        assert_eq!(of["TIDEGATE_ADMIN"], format!("http://{}", of["TIDEGATE_LISTEN__ADMIN"]));
    }
}
