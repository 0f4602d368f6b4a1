//! What is wrong with a configuration, where, and what to do. It does not find it.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// The configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "{}: {cause}; name a configuration file (serve: --config FILE), as \
         docs/tidegate.example.toml shows one",
        .file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// It came from no file, so there is none to read again.
    #[error("this instance was started without a configuration file: there is none to read again")]
    NoFile,
    /// Reading it ended before it came to a result.
    #[error("the configuration was not read to its end: {0}")]
    Unfinished(String),
    /// Settings are wrong; one line each.
    #[error("{}", lines(.0))]
    Wrong(Vec<Problem>),
}

/// One setting that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where it was set.
    pub place: Place,
    /// The setting, as in `partition.main.node.pg1.poll`; empty when the text is not TOML.
    pub key: String,
    /// What is wrong with it and what to do.
    pub text: String,
}

/// Where a setting comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A line of the file, counted from 1.
    Line {
        /// The file, as it was named.
        file: String,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return write!(f, "{}: {}", self.place, self.text);
        }
        write!(f, "{}: `{}`: {}", self.place, self.key, self.text)
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
