//! The files as other programs read them: the published schema of compose files, the known mistakes
//! of Dockerfiles and shell scripts, and the configuration that Tidegate itself checks.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{ROOT, output, printed, read, tool};

/// Whether a compose file has the published shape, and what the checker says.
fn has_published_shape(file: &Path) -> (bool, String) {
    let mut check = Command::new(tool("check-jsonschema"));
    let output = output(check.args(["--builtin-schema", "vendor.compose-spec"]).arg(file));
    (output.status.success(), printed(&output))
}

#[test]
fn the_compose_file_has_the_published_shape() {
    let (fits, said) = has_published_shape(&Path::new(ROOT).join("deploy/compose.yaml"));
    assert!(fits, "{said}");

    let folder = tempfile::tempdir().expect("a folder");
    let wrong = folder.path().join("compose.yaml");
    let text = read("deploy/compose.yaml").replace("    stop_signal:", "    stop_sign:");
    fs::write(&wrong, text.replace("  stop_signal:", "  stop_sign:")).expect("written");
    let (fits, said) = has_published_shape(&wrong);
    assert!(!fits && said.contains("stop_sign"), "a misspelt key passes: {said}");
}

/// What hadolint says of a Dockerfile.
fn mistakes(file: &Path) -> (bool, String) {
    let output = output(Command::new(tool("hadolint")).args(["--no-color"]).arg(file));
    (output.status.success(), printed(&output))
}

#[test]
fn the_dockerfile_makes_no_known_mistake() {
    let (clean, said) = mistakes(&Path::new(ROOT).join("deploy/Dockerfile"));
    assert!(clean, "{said}");

    let folder = tempfile::tempdir().expect("a folder");
    let wrong = folder.path().join("Dockerfile");
    let text = read("deploy/Dockerfile").replace("rust:1.95-bookworm", "rust:latest");
    fs::write(&wrong, format!("{text}\nUSER root\n")).expect("written");
    let (clean, said) = mistakes(&wrong);
    assert!(!clean && said.contains("DL3002"), "a last user root passes: {said}");
}

#[test]
fn the_context_of_the_image_is_what_cargo_needs_and_no_secret() {
    let ignore = read(".dockerignore");
    let lines: Vec<&str> =
        ignore.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(lines.first(), Some(&"*"), "nothing is sent unless it is named");
    let sent: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix('!')).collect();
    assert_eq!(sent.len() + 1, lines.len(), "{lines:?}");
    // Every member of the workspace: cargo refuses a workspace with one missing.
    let manifest: toml::Table = read("Cargo.toml").parse().expect("a manifest");
    let members = manifest["workspace"]["members"].as_array().expect("a list");
    for member in members.iter().filter_map(toml::Value::as_str).filter(|member| *member != ".") {
        let covered = sent.iter().any(|sent| Path::new(member).starts_with(sent));
        assert!(covered, "the workspace member {member} is not sent");
    }
    assert!(!sent.iter().any(|sent| Path::new("deploy/secrets").starts_with(sent)), "{sent:?}");
}

#[test]
fn every_script_is_a_program_that_a_plain_shell_can_read() {
    for path in ["deploy/make-secrets", "deploy/postgres/setup.sh", "deploy/postgres/standby.sh"] {
        let file = Path::new(ROOT).join(path);
        assert!(read(path).starts_with("#!/bin/sh\n"), "{path}");
        let output = output(Command::new("sh").arg("-n").arg(&file));
        assert!(output.status.success(), "{path}: {}", printed(&output));
        assert!(read(path).contains("\nset -eu\n"), "{path} goes on after a failure");
    }
}

/// What `tidegate config check` says of a deployed configuration.
fn checked(path: &str) -> (bool, String) {
    let mut check = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let check = check.env_clear().args(["config", "check"]).arg(Path::new(ROOT).join(path));
    let output = output(check);
    (output.status.success(), printed(&output))
}

#[test]
fn tidegate_accepts_each_configuration() {
    for path in ["deploy/tidegate.toml", "deploy/systemd/tidegate.toml"] {
        let (fine, said) = checked(path);
        assert!(fine && said.contains("is fine: cluster shop"), "{path}: {said}");
    }
}
