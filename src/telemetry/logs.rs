//! Where events go: standard error, for people or for programs. Standard output stays free.

use std::io::IsTerminal;

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::TryInitError;

/// How events are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// A line for people, coloured on a terminal.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Events cannot be written as asked.
#[derive(Debug, Error)]
pub enum LogError {
    /// `RUST_LOG` is not a filter.
    #[error("environment variable RUST_LOG: {0}; write a level as in `info`, or `tidegate=debug`")]
    Filter(String),
    /// Somebody else in this process writes them already.
    #[error("events are already written elsewhere: {0}")]
    Taken(String),
}

/// Starts to write events to standard error: from `info` on, unless `RUST_LOG` says otherwise.
///
/// # Errors
/// [`LogError`], when `RUST_LOG` is no filter or this was done before.
pub fn start_logs(format: LogFormat) -> Result<(), LogError> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let filter = filter.from_env().map_err(|error| LogError::Filter(error.to_string()))?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let started = match format {
        LogFormat::Pretty => try_init(lines.finish()),
        LogFormat::Json => try_init(lines.json().flatten_event(true).finish()),
    };
    started.map_err(|error| LogError::Taken(error.to_string()))
}

fn try_init(
    subscriber: impl tracing_subscriber::util::SubscriberInitExt,
) -> Result<(), TryInitError> {
    subscriber.try_init()
}
