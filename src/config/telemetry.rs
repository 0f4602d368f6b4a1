//! `[telemetry]`: how events are written, where spans and metrics are sent, and how many.
//!
//! Prometheus needs none of it: `/metrics` of the admin listener shows the same counters always.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::limits::OutOfRange;
use super::values::{HttpAddress, duration};

/// Attributes `resource` may name: a backend keeps them with every span and every series.
pub const RESOURCE_ATTRIBUTES: usize = 32;
/// Characters of the name of an attribute: longer than any of the semantic conventions.
const ATTRIBUTE_NAME_CHARS: usize = 64;
/// Bytes of the value of an attribute: a host name or an image digest, and no document.
const ATTRIBUTE_VALUE_BYTES: usize = 256;

/// `[telemetry]`: what is told of the service, and to whom.
///
/// Invariant of a loaded one: each setting lies in the range `Telemetry::out_of_range` names.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// How events are written to standard error, unless `--log-format` says otherwise.
    pub log_format: LogFormat,
    /// Where a collector takes OTLP over gRPC: `http://host:4317`. None: nothing is sent.
    #[serde(deserialize_with = "endpoint")]
    pub otlp_endpoint: Option<HttpAddress>,
    /// Share of calls that are followed by a span, of those without a trace context of their own;
    /// a call with one is followed if its caller is. 0.01: one in a hundred costs nothing.
    pub sample_ratio: f64,
    /// Time between two exports of metrics. 15 s: as often as Prometheus asks, as a rule.
    #[serde(deserialize_with = "duration")]
    pub export_interval: Duration,
    /// Time one export may take, connecting included. 5 s: a collector that is slower is in
    /// trouble, and nobody waits for it but the queue.
    #[serde(deserialize_with = "duration")]
    pub export_timeout: Duration,
    /// Spans that may wait to be sent; those beyond are dropped and counted. 2,048: some 2 MB, and
    /// a second of two thousand followed calls.
    pub span_queue: usize,
    /// Time a shutdown gives the last spans and metrics. 2 s: what is left of the ten seconds in
    /// which supervisors kill.
    #[serde(deserialize_with = "duration")]
    pub flush_limit: Duration,
    /// Attributes of the OpenTelemetry resource, besides those of the service itself.
    pub resource: BTreeMap<String, String>,
}

/// How events are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log_format: LogFormat::default(),
            otlp_endpoint: None,
            sample_ratio: 0.01,
            export_interval: Duration::from_secs(15),
            export_timeout: Duration::from_secs(5),
            span_queue: 2048,
            flush_limit: Duration::from_secs(2),
            resource: BTreeMap::new(),
        }
    }
}

fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HttpAddress>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = if text.starts_with("https://") {
        "asks for TLS, which is not built yet; send to a collector on this machine with `http://`"
    } else {
        "is no address of a collector; write `http://host:4317`, the port of OTLP over gRPC"
    };
    let address = HttpAddress::try_from(text.clone());
    address.map(Some).map_err(|_| serde::de::Error::custom(format!("`{text}` {wrong}")))
}

impl Telemetry {
    /// The settings that lie outside the range they make sense in.
    pub(super) fn out_of_range(&self) -> Vec<OutOfRange> {
        let mut found = Vec::new();
        // Neither is a NaN.
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            found.push(("sample_ratio", "set it to between 0 and 1".to_owned()));
        }
        let mut span = |key, value: Duration, least: u64, most: u64| {
            let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
            if value < least || value > most {
                let shown = humantime::format_duration;
                let text = format!("set it to between {} and {}", shown(least), shown(most));
                found.push((key, text));
            }
        };
        span("export_interval", self.export_interval, 1_000, 600_000);
        span("export_timeout", self.export_timeout, 10, 60_000);
        span("flush_limit", self.flush_limit, 0, 30_000);
        if !(1..=1_000_000).contains(&self.span_queue) {
            found.push(("span_queue", "set it to between 1 and 1000000".to_owned()));
        }
        found.extend(self.wrong_resource().map(|text| ("resource", text)));
        found
    }

    fn wrong_resource(&self) -> Option<String> {
        if self.resource.len() > RESOURCE_ATTRIBUTES {
            return Some(format!("name at most {RESOURCE_ATTRIBUTES} attributes"));
        }
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let named = |name: &str| {
            (1..=ATTRIBUTE_NAME_CHARS).contains(&name.len()) && name.bytes().all(plain)
        };
        let mut names = self.resource.keys();
        if let Some(name) = names.find(|name| !named(name)) {
            return Some(format!(
                "`{name}` is no name of an attribute; use 1 to {ATTRIBUTE_NAME_CHARS} of a-z, \
                 0-9, `.`, `_` and `-`"
            ));
        }
        let long = self.resource.iter().find(|(_, value)| value.len() > ATTRIBUTE_VALUE_BYTES);
        long.map(|(name, _)| format!("shorten `{name}` to {ATTRIBUTE_VALUE_BYTES} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Telemetry, String> {
        toml::from_str::<Telemetry>(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn what_is_no_collector_is_refused_with_what_to_write() {
        for text in
            ["", "localhost:4317", "http://localhost", "http://h:4317/v1/traces", "grpc://h:1"]
        {
            let refused = read(&format!("otlp_endpoint = \"{text}\"")).expect_err(text);
            assert!(refused.contains("http://host:4317"), "{text}: {refused}");
        }
        let refused = read("otlp_endpoint = \"https://h:4317\"").expect_err("TLS");
        assert!(refused.contains("TLS") && refused.contains("`http://`"), "{refused}");
        assert!(read("otlp_endpoint = \"http://[::1]:4317/\"").is_ok());
    }

    #[test]
    fn what_is_out_of_range_is_named_by_its_key() {
        for (text, key) in [
            ("sample_ratio = nan", "sample_ratio"),
            ("sample_ratio = -0.1", "sample_ratio"),
            ("sample_ratio = 1.1", "sample_ratio"),
            ("export_interval = \"999ms\"", "export_interval"),
            ("export_interval = \"11m\"", "export_interval"),
            ("export_timeout = \"9ms\"", "export_timeout"),
            ("export_timeout = \"61s\"", "export_timeout"),
            ("span_queue = 0", "span_queue"),
            ("span_queue = 1000001", "span_queue"),
            ("flush_limit = \"31s\"", "flush_limit"),
            ("resource = { \"Zone\" = \"a\" }", "resource"),
            ("resource = { \"\" = \"a\" }", "resource"),
        ] {
            let found = read(text).expect(text).out_of_range();
            assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key], "{text}");
        }
        for text in ["", "sample_ratio = 0", "sample_ratio = 1", "sample_ratio = 1.0"] {
            assert!(read(text).expect(text).out_of_range().is_empty(), "{text}");
        }
    }

    #[test]
    fn a_resource_is_bounded() {
        let with = |count: usize, value: &str| Telemetry {
            resource: (0..count).map(|n| (format!("a{n}"), value.to_owned())).collect(),
            ..Telemetry::default()
        };
        let long = "v".repeat(ATTRIBUTE_VALUE_BYTES + 1);
        assert_eq!(with(RESOURCE_ATTRIBUTES + 1, "v").out_of_range().len(), 1);
        assert_eq!(with(1, &long).out_of_range().len(), 1);
        assert!(with(RESOURCE_ATTRIBUTES, &long[1..]).out_of_range().is_empty());
    }
}
