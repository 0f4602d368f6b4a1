//! `tidegate serve`: loads the configuration, starts the events and hands over to the server.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::config::{self, Config, environment};
use crate::telemetry::{LogFormat, span_queue, start_logs};

/// Run the service.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tidegate serve --config tidegate.toml
  RUST_LOG=tidegate=debug TIDEGATE_LISTEN__DATA=127.0.0.1:9000 tidegate serve --config tidegate.toml

Every setting can be overridden by an environment variable TIDEGATE_SECTION__KEY.")]
pub(super) struct Serve {
    /// The configuration file, as docs/tidegate.example.toml shows one.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: PathBuf,
    /// How events are written to standard error, whatever `telemetry.log_format` says; RUST_LOG
    /// says which.
    #[arg(long, value_enum)]
    log_format: Option<Format>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line for people.
    Pretty,
    /// One JSON object a line.
    Json,
}

impl Serve {
    /// Serves until the process is told to stop.
    pub(super) fn run(self) -> Result<()> {
        let config = Config::load(&self.config, environment())?;
        let format = match (self.log_format, config.telemetry.log_format) {
            (Some(Format::Pretty), _) | (None, config::LogFormat::Pretty) => LogFormat::Pretty,
            (Some(Format::Json), _) | (None, config::LogFormat::Json) => LogFormat::Json,
        };
        let sends = config.telemetry.otlp_endpoint.is_some();
        let (source, queue) = match sends.then(|| span_queue(config.telemetry.span_queue)) {
            Some((source, queue)) => (Some(source), Some(queue)),
            None => (None, None),
        };
        start_logs(format, source.as_ref())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("the runtime cannot start")?;
        runtime.block_on(crate::server::run(config, queue))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ran;

    #[test]
    fn without_a_usable_file_nothing_starts() {
        let (code, _, err) = ran(&["serve", "--config", "/nonexistent/t.toml"]);
        assert_eq!(code, 1);
        assert!(
            err.starts_with("error: /nonexistent/t.toml: ") && err.contains("--config"),
            "{err}"
        );
    }
}
