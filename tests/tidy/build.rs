//! What is built and with what: manifests, lints, and that no release has `unsafe-guards`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use toml::Table;

use super::source::root;

/// The feature that lets tests switch safety rules off.
const UNSAFE: &str = "unsafe-guards";

/// The manifests of the workspace by path, the root's first.
pub(crate) fn manifests() -> Vec<(String, Table)> {
    let read = |folder: &str| {
        let path = PathBuf::from(folder).join("Cargo.toml");
        let text = fs::read_to_string(root().join(&path)).expect("a manifest is readable");
        (path.display().to_string(), text.parse().expect("a manifest is TOML"))
    };
    let (path, top): (String, Table) = read("");
    let members = strings(top["workspace"].get("members"));
    let others = members.into_iter().filter(|member| member != ".").map(|member| read(&member));
    std::iter::once((path, top.clone())).chain(others).collect()
}

fn strings(list: Option<&toml::Value>) -> Vec<String> {
    let list = list.and_then(toml::Value::as_array);
    list.into_iter().flatten().filter_map(|entry| entry.as_str().map(str::to_owned)).collect()
}

/// The tables of a manifest that name dependencies, targets' own included.
fn dependency_tables(manifest: &Table) -> Vec<&Table> {
    let mut found = Vec::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "dev-dependencies" | "build-dependencies" => found.push(table),
            "workspace" | "target" => found.extend(dependency_tables(table)),
            _ if manifest.len() == 1 || key.starts_with("cfg(") => {
                found.extend(dependency_tables(table));
            }
            _ => {}
        }
    }
    found
}

/// Every crate a manifest depends on, as code names it.
pub(crate) fn dependencies(manifests: &[(String, Table)]) -> BTreeSet<String> {
    let tables = manifests.iter().flat_map(|(_, manifest)| dependency_tables(manifest));
    tables.flat_map(Table::keys).map(|name| name.replace('-', "_")).collect()
}

/// Every manifest that opts out of the lints, is left out of plain commands, or brings
/// `unsafe-guards` into a build that did not ask for it.
pub(crate) fn manifest_violations(manifests: &[(String, Table)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, manifest) in manifests {
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        if inherits.and_then(toml::Value::as_bool) != Some(true) {
            found.push(format!("{path}: has no `[lints] workspace = true`"));
        }
        let default = manifest.get("features").and_then(|features| features.get("default"));
        if strings(default).iter().any(|feature| feature.contains(UNSAFE)) {
            found.push(format!("{path}: `{UNSAFE}` is a default feature"));
        }
        for table in dependency_tables(manifest) {
            for (name, dependency) in table {
                if strings(dependency.get("features")).iter().any(|f| f.contains(UNSAFE)) {
                    found.push(format!("{path}: `{name}` is asked for with `{UNSAFE}`"));
                }
            }
        }
        if let Some(workspace) = manifest.get("workspace").filter(|w| w.get("members").is_some()) {
            let all = strings(workspace.get("members"));
            if all != strings(workspace.get("default-members")) {
                found.push(format!("{path}: default-members and members differ"));
            }
        }
    }
    found
}

/// Lines of a script that make a release with `unsafe-guards`.
pub(crate) fn release_violations(path: &str, script: &str) -> Vec<String> {
    let unsafe_words = [UNSAFE, "all-features", "TEST_BUILD"];
    let joined = script.replace("\\\n", " ");
    let bad = joined.lines().filter(|line| {
        let ships = ["--release", "--profile", "cargo install"].iter().any(|w| line.contains(w));
        ships && unsafe_words.iter().any(|word| line.contains(word))
    });
    bad.map(|line| format!("{path}: a release with `{UNSAFE}`: {}", line.trim())).collect()
}

/// The features cargo itself resolves for the shipped binary, asked with more arguments.
pub(crate) fn resolved_features(more: &[&str]) -> String {
    let cargo = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-p", "tidegate", "-e", "normal,build", "-f", "{p} [{f}]"])
        .args(more)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    String::from_utf8_lossy(&cargo.stdout).into_owned()
}

#[test]
fn a_manifest_that_opts_out_is_found() {
    let bad = [
        ("[package]\nname = \"x\"\n", "has no `[lints]"),
        ("[lints]\nworkspace = true\n[features]\ndefault = [\"unsafe-guards\"]\n", "a default"),
        (
            "[lints]\nworkspace = true\n[dependencies]\na = { features = [\"unsafe-guards\"] }\n",
            "a`",
        ),
        (
            "[lints]\nworkspace = true\n[target.'cfg(unix)'.dependencies]\n\
             a = { features = [\"unsafe-guards\"] }\n",
            "`a` is asked for",
        ),
        (
            "[lints]\nworkspace = true\n[workspace]\nmembers = [\"a\"]\ndefault-members = []\n",
            "differ",
        ),
    ];
    for (text, rule) in bad {
        let manifest = text.parse().expect("the sample is TOML");
        let found = manifest_violations(&[("x".to_owned(), manifest)]);
        assert!(matches!(found.as_slice(), [only] if only.contains(rule)), "{rule}: {found:?}");
    }
}

#[test]
fn a_script_that_ships_the_switches_is_found() {
    let bad = "x:\n\tcargo build --release \\\n\t\t--features unsafe-guards\n\
               y:\n\tcargo build $(TEST_BUILD) --release\n\tcargo build --all-features\n";
    assert_eq!(release_violations("Makefile", bad).len(), 2);
}
