//! Where events go: standard error, for people or for programs. Standard output stays free.
//!
//! Spans of followed calls stand before the events within them, with their trace id, and go to
//! their queue when they end; nothing is sent from here.

use std::io::IsTerminal;

use thiserror::Error;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::span_queue::SpanSource;

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

/// Starts to write events to standard error: from `info` on, unless `RUST_LOG` says otherwise. With
/// `spans`, spans are made of followed calls.
///
/// # Errors
/// [`LogError`], when `RUST_LOG` is no filter or this was done before.
pub fn start_logs(format: LogFormat, spans: Option<&SpanSource>) -> Result<(), LogError> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let filter = filter.from_env().map_err(|error| LogError::Filter(error.to_string()))?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let lines = match format {
        LogFormat::Pretty => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry()
        .with(lines.with_filter(filter))
        .with(spans.map(SpanSource::layer))
        .try_init()
        .map_err(|error| LogError::Taken(error.to_string()))
}
