//! The unit of `deploy/systemd` as systemd's own checker reads it: no unknown setting, and exposed
//! as little as a network service can be. Nothing here runs a service manager.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{ROOT, output, printed, read};

const UNIT: &str = "deploy/systemd/tidegate.service";
/// The most exposure that systemd-analyze may find; 10 is everything.
const EXPOSURE_MAX: f64 = 1.5;

/// The checker; machines without systemd have none, and say so.
fn analyzer() -> Option<PathBuf> {
    let found = ["/usr/bin/systemd-analyze", "/bin/systemd-analyze"].map(PathBuf::from);
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("systemd-analyze is not on this machine: the unit is not checked by it");
    }
    found
}

/// A copy of the unit whose program is the one just built.
fn copy(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tidegate.service");
    let text = text.replace("/usr/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
    fs::write(&file, text).expect("written");
    (folder, file)
}

/// Whether the checker finds nothing wrong, and what it says.
fn verified(analyzer: &Path, text: &str) -> (bool, String) {
    let (_folder, file) = copy(text);
    let output = output(Command::new(analyzer).args(["verify", "--man=no"]).arg(file));
    let said = printed(&output);
    // An unknown setting is only said.
    let about_it = said.lines().any(|line| line.contains("tidegate.service"));
    (output.status.success() && !about_it, said)
}

#[test]
fn systemd_understands_every_setting_of_the_unit() {
    let Some(analyzer) = analyzer() else { return };
    let (fine, said) = verified(&analyzer, &read(UNIT));
    assert!(fine, "{said}");
    let (fine, said) = verified(&analyzer, &read(UNIT).replace("ProtectClock", "ProtectClocks"));
    assert!(!fine, "an unknown setting passes: {said}");
    let missing = read(UNIT).replace("ExecStart=/usr/bin/tidegate", "ExecStart=/usr/bin/tidegat");
    let (fine, said) = verified(&analyzer, &missing);
    assert!(!fine, "a missing program passes: {said}");
}

/// How exposed a unit is, from 0 to 10.
fn exposure(analyzer: &Path, text: &str) -> f64 {
    let (_folder, file) = copy(text);
    let mut analyze = Command::new(analyzer);
    let output = output(analyze.args(["security", "--offline=true", "--no-pager"]).arg(file));
    let said = printed(&output);
    let figure = said.split("tidegate.service: ").nth(1).and_then(|rest| rest.split(' ').next());
    figure.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("no figure in {said}"))
}

#[test]
fn the_unit_exposes_as_little_as_a_network_service_can() {
    let Some(analyzer) = analyzer() else { return };
    let found = exposure(&analyzer, &read(UNIT));
    println!("exposure of the unit: {found} of 10");
    assert!(found <= EXPOSURE_MAX, "{found}");
    // Each of these alone is missed.
    for line in
        ["CapabilityBoundingSet=", "RestrictNamespaces=yes", "SystemCallFilter=@system-service"]
    {
        let without = exposure(&analyzer, &read(UNIT).replace(&format!("{line}\n"), ""));
        assert!(without > EXPOSURE_MAX, "without {line} it is {without}");
    }
}

/// The values of one key of the unit.
fn values(key: &str) -> Vec<String> {
    let unit = read(UNIT);
    let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn the_unit_hands_over_each_secret_that_its_configuration_names() {
    let config: toml::Table = read("deploy/systemd/tidegate.toml").parse().expect("TOML");
    let handed: Vec<String> = values("LoadCredential")
        .iter()
        .map(|value| value.split(':').next().unwrap_or_default().to_owned())
        .collect();
    let text = config.to_string();
    let named: Vec<&str> = text
        .split('"')
        .filter_map(|word| word.strip_prefix("/run/credentials/tidegate.service/"))
        .collect();
    assert_eq!(named.len(), 3, "{text}");
    for name in &named {
        assert!(handed.contains(&(*name).to_owned()), "no credential is called {name}");
    }
    assert_eq!(handed.len(), named.len(), "{handed:?}");
    // The one folder that survives is the one the service may write.
    assert_eq!(values("StateDirectory"), ["tidegate"]);
    assert_eq!(config["store"]["state_dir"].as_str(), Some("/var/lib/tidegate"));
    let starts = [values("ExecStartPre"), values("ExecStart")].concat();
    let file = "/etc/tidegate/tidegate.toml";
    assert!(starts.len() == 2 && starts.iter().all(|line| line.contains(file)), "{starts:?}");
    assert!(Path::new(ROOT).join("deploy/systemd/tidegate.toml").exists());
}

#[test]
fn the_unit_waits_longer_for_an_end_than_calls_in_progress_may_take() {
    let stop = values("TimeoutStopSec");
    let seconds: u64 = stop[0].trim_end_matches('s').parse().expect("seconds");
    let drain = tidegate::config::Limits::default().drain_limit;
    assert!(seconds > drain.as_secs(), "{seconds} s, drained for {drain:?}");
}
