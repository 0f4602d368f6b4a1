//! Holds the annotated example to the sections: each key appears in it, and no default drifts.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};

use super::policy::PolicySection;
use super::sections::{PartitionSection, Sections};
use super::store::StoreSection;
use super::{Cluster, Config, Limits, Listen, Node, Policy, Telemetry, Token};

const EXAMPLE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tidegate.example.toml"));

/// Asks a type for the names of its fields and gives it none of them.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(Self::Error::custom("only the names were wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("a section is a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    let _ = T::deserialize(Fields(&mut fields));
    assert!(!fields.is_empty(), "a section without keys");
    fields
}

/// The example with its commented settings switched on, and the store that has most of them.
fn switched_on() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => setting,
        Some(_) | None => line,
    });
    lines.collect::<Vec<_>>().join("\n").replace("kind = \"memory\"", "kind = \"redis\"")
}

fn parsed(text: &str) -> Config {
    match Config::parse("example", text, []) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// The text of the section with this header line, up to the next header.
fn section<'t>(text: &'t str, header: &str) -> &'t str {
    let (_, rest) = text.split_once(&format!("\n{header}\n")).expect("a header");
    rest.split_once("\n[").map_or(rest, |(section, _)| section)
}

#[test]
fn every_key_is_in_the_example_and_the_example_has_no_other() {
    // Refused in this version, or not allowed in a file.
    let refused = ["tls", "password"];
    let sections: [(&str, &[&str]); 9] = [
        ("[cluster]", fields::<Cluster>()),
        ("[listen]", fields::<Listen>()),
        ("[token]", fields::<Token>()),
        ("[store]", fields::<StoreSection>()),
        ("[partition.main]", fields::<PartitionSection>()),
        ("[[partition.main.node]]", fields::<Node>()),
        ("[policy.account]", fields::<PolicySection>()),
        ("[limits]", fields::<Limits>()),
        ("[telemetry]", fields::<Telemetry>()),
    ];
    let text = switched_on();
    for (header, fields) in sections {
        let section = section(&text, header);
        let documented = |field: &str| {
            section.lines().any(|line| line.split(" = ").next().is_some_and(|key| key == field))
        };
        for field in fields.iter().copied() {
            let elsewhere = field == "node" && header == "[partition.main]";
            let refused = match header {
                "[listen]" => field == refused[0],
                "[partition.main]" | "[store]" => field == refused[1],
                _ => false,
            };
            assert_eq!(documented(field), !elsewhere && !refused, "{header} {field}");
        }
    }
    let known =
        ["cluster", "listen", "token", "store", "partition", "policy", "limits", "telemetry"];
    assert_eq!(fields::<Sections>(), known);
}

#[test]
fn the_example_loads_as_it_is_and_with_every_setting_on() {
    let (plain, full) = (parsed(EXAMPLE), parsed(&switched_on()));
    assert_eq!(plain.partitions.len(), 1);
    assert_eq!(plain.partitions[0].nodes.len(), 2);
    let named: Vec<_> = plain.policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(named, ["account", "catalogue"]);
    assert_eq!(full.partitions[0].nodes[0].zone.as_ref().map(|z| z.as_str()), Some("eu-west-1a"));
}

#[test]
fn the_defaults_the_example_shows_are_those_in_force() {
    let (plain, full) = (parsed(EXAMPLE), parsed(&switched_on()));
    assert_eq!(plain.limits, Limits::default());
    assert_eq!(full.limits, Limits::default());
    assert_eq!(plain.telemetry, Telemetry::default());
    // The two that have no default are shown with an example.
    let shown = Telemetry { otlp_endpoint: None, resource: BTreeMap::new(), ..full.telemetry };
    assert_eq!(shown, Telemetry::default());
    // Two of a policy have no default either.
    let [mut account, ..] = <[Policy; 2]>::try_from(full.policies).expect("two policies");
    (account.rule.bound, account.rule.zone) = (None, None);
    assert_eq!(account, plain.policies[0]);
    assert_eq!(full.listen.data, plain.listen.data);
    assert_eq!(full.listen.admin, plain.listen.admin);
    assert_eq!(full.listen.reflection, plain.listen.reflection);
    assert_eq!(full.cluster.instance, plain.cluster.instance);
    assert_eq!(full.partitions[0].user, plain.partitions[0].user);
    assert_eq!(full.partitions[0].async_commits, plain.partitions[0].async_commits);
    assert_eq!(full.partitions[0].nodes[0].reach, plain.partitions[0].nodes[0].reach);
}
