//! From the configuration to what is sent to a collector, and by whom. Sends nothing itself.

use anyhow::Result;

use crate::clock::Clock;
use crate::config::Config;
use crate::telemetry::{ExportSettings, Exports, SpanQueue, Telemetry};

/// Begins the exports the configuration asks for; `None`: it asks for none.
pub(super) fn begin(
    config: &Config,
    spans: Option<SpanQueue>,
    telemetry: &Telemetry,
    clock: Clock,
) -> Result<Option<Exports>> {
    let told = &config.telemetry;
    let Some(endpoint) = &told.otlp_endpoint else { return Ok(None) };
    let settings = ExportSettings {
        endpoint: endpoint.to_string(),
        interval: told.export_interval,
        timeout: told.export_timeout,
        flush_limit: told.flush_limit,
        resource: resource(config),
    };
    let wall = move || clock.wall_nanos();
    Ok(Some(Exports::begin(settings, telemetry, spans, wall)?))
}

/// Who this is; what the operator says of it counts.
fn resource(config: &Config) -> Vec<(String, String)> {
    let own = [
        ("service.name", "tidegate"),
        ("service.namespace", config.cluster.name.as_str()),
        ("service.instance.id", config.cluster.instance.as_str()),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let mut resource = config.telemetry.resource.clone();
    for (name, value) in own {
        resource.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    resource.into_iter().collect()
}
