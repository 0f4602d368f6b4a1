//! What a document with overrides says of errors: line, key, or variable.

use super::*;
use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
struct Root {
    listen: Listen,
    partition: BTreeMap<String, Partition>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
struct Listen {
    data: String,
    count: u32,
    keys: Vec<String>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Partition {
    id: u32,
    #[serde(default)]
    node: Vec<Node>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Node {
    name: String,
    poll: String,
}

const TEXT: &str = r#"
[listen]
data = "a"

[partition.main-eu]
id = 1

[[partition.main-eu.node]]
name = "pg-1"
poll = "x"
"#;

fn read(text: &str, environment: &[(&str, &str)]) -> Result<Root, String> {
    let owned = environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    let owned: Vec<_> = owned.collect();
    let read = Document::read::<Root>("t.toml", text, &owned);
    read.map(|(_, root)| root).map_err(|problem| problem.to_string())
}

#[test]
fn an_error_names_line_and_key() {
    let cases = [
        ("[listen", "t.toml:1: this is not TOML"),
        ("\n[listen]\ndata = 1", "t.toml:3: `listen.data`: invalid type: integer"),
        ("\n[listen]\n\ndatum = 1", "t.toml:4: `listen.datum`: unknown field `datum`"),
        ("[lisson]", "t.toml:1: `lisson`: unknown field"),
        ("[partition.a]\n", "t.toml:1: `partition.a`: missing field `id`"),
        ("partition.a.id = -1", "t.toml:1: `partition.a.id`: invalid value"),
        (
            "[partition.a]\nid = 1\n[[partition.a.node]]\nname = 'x'\npoll = 7",
            "t.toml:5: `partition.a.node.x.poll`: invalid type",
        ),
        (
            "[partition.a]\nid = 1\n[[partition.a.node]]\nname = 'x'",
            "t.toml:3: `partition.a.node.x`: missing field `poll`",
        ),
    ];
    for (text, expected) in cases {
        let error = read(text, &[]).expect_err(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn an_error_in_an_override_names_the_variable() {
    let cases = [
        ("TIDEGATE_LISTEN__COUNT", "many", "`listen.count`: invalid type: string"),
        ("TIDEGATE_LISTEN__COUNT", "-1", "`listen.count`: invalid"),
        ("TIDEGATE_LISTEN__DATUM", "x", "`listen.datum`: unknown field"),
        ("TIDEGATE_LISSEN__DATA", "x", "`lissen`: unknown field"),
        ("TIDEGATE_LISTEN__KEYS", "[1]", "`listen.keys`: invalid type"),
        ("TIDEGATE_LISTEN__DATA__X", "x", "`listen.data.x`: this names no setting"),
        ("TIDEGATE_PARTITION__EU__ID", "1", "`partition.eu.id`: the file sets no `eu`"),
        ("TIDEGATE_PARTITION__MAIN_EU__NODE__PG_2__POLL", "x", "`partition.main-eu.node.pg-2"),
        ("TIDEGATE_PARTITION__MAIN_EU", "x", "`partition.main_eu`: invalid type"),
        ("TIDEGATE___", "x", "unknown field ``"),
    ];
    for (name, value, expected) in cases {
        let error = read(TEXT, &[(name, value)]).expect_err(name);
        let expected = format!("environment variable {name}: {expected}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn overrides_win_and_take_the_type_of_their_setting() {
    let environment = [
        ("TIDEGATE_LISTEN__DATA", "7"),
        ("TIDEGATE_LISTEN__COUNT", "7"),
        ("TIDEGATE_LISTEN__KEYS", "['a', 'b']"),
        ("TIDEGATE_PARTITION__MAIN_EU__ID", "3"),
        ("TIDEGATE_PARTITION__MAIN_EU__NODE__PG_1__POLL", "[::1]:5432"),
        ("TIDEGATE_PORT", "tcp://ignored"),
        ("PATH", "/ignored__too"),
    ];
    let root = read(TEXT, &environment).expect("a configuration");
    assert_eq!((root.listen.data.as_str(), root.listen.count), ("7", 7));
    assert_eq!(root.listen.keys, ["a", "b"]);
    let partition = &root.partition["main-eu"];
    assert_eq!(partition.id, 3);
    let node = &partition.node[0];
    assert_eq!((node.name.as_str(), node.poll.as_str()), ("pg-1", "[::1]:5432"));
}

#[test]
fn an_override_may_add_a_section_the_file_lacks() {
    let root = read("", &[("TIDEGATE_LISTEN__DATA", "b")]).expect("a configuration");
    assert_eq!(root.listen.data, "b");
}

#[test]
fn a_problem_found_later_stands_where_the_setting_does() {
    let environment = [("TIDEGATE_LISTEN__COUNT".to_owned(), "1".to_owned())];
    let read = Document::read::<Root>("t.toml", TEXT, &environment);
    let (document, _) = read.expect("a configuration");
    let place = |path: &[&str]| document.problem(path, "wrong").to_string();
    let node = ["partition", "main-eu", "node", "pg-1", "poll"];
    assert_eq!(place(&node), "t.toml:10: `partition.main-eu.node.pg-1.poll`: wrong");
    assert_eq!(place(&["partition", "main-eu", "tls"]), "t.toml:5: `partition.main-eu.tls`: wrong");
    let variable = "environment variable TIDEGATE_LISTEN__COUNT: `listen.count`: wrong";
    assert_eq!(place(&["listen", "count"]), variable);
    assert!(document.is_overridden(&["listen", "count"]));
    assert!(!document.is_overridden(&["listen", "data"]));
    assert_eq!(place(&["limits", "x"]), "t.toml:1: `limits.x`: wrong");
}
