//! What `deploy/` says is true: its files have the published shape, bound and harden what they
//! start, hold no secret, and the set they describe comes up and serves.
//!
//! No container engine runs here: `make image` builds and runs the image itself (`tests/image.rs`),
//! and the set runs as processes with the deployed scripts and settings. Every rule is also fed
//! something bad, to see it bite.

#![expect(clippy::expect_used, reason = "a tool that is missing is a failed test")]
#![expect(clippy::print_stdout, reason = "a run shows what the set did")]

#[path = "deploy/compose.rs"]
mod compose;
#[path = "deploy/documents.rs"]
mod documents;
#[path = "deploy/secrets.rs"]
mod secrets;
#[path = "deploy/systemd.rs"]
mod systemd;
#[path = "deploy/up.rs"]
mod up;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The text of a file of the tree.
fn read(path: &str) -> String {
    let file = Path::new(ROOT).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A program that `make tools` installs.
fn tool(name: &str) -> PathBuf {
    let python = std::env::var_os("PYTHON").map(PathBuf::from);
    let python = python.unwrap_or_else(|| Path::new(ROOT).join("target/tools/venv/bin/python"));
    let tool = python.with_file_name(name);
    assert!(tool.exists(), "there is no {}: run `make tools`", tool.display());
    tool
}

/// The whole output of a program, which must start.
fn output(command: &mut Command) -> Output {
    let program = command.get_program().to_owned();
    command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// What a program printed, both streams together.
fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}
