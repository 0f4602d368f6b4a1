//! `deploy/make-secrets`: fresh, whole, closed to others, and never a second time. What it makes
//! gets neither into the tree nor into the image.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{ROOT, output, printed, read};

const NAMES: [&str; 9] = [
    "postgres_password",
    "replication_password",
    "tidegate_password",
    "redis_password",
    "redis_tidegate_password",
    "redis_acl",
    "redis_masterauth",
    "token_key",
    "store_secret",
];

fn make(folder: &Path) {
    let script = Path::new(ROOT).join("deploy/make-secrets");
    let output = output(Command::new(script).arg(folder));
    assert!(output.status.success(), "{}", printed(&output));
}

fn secrets(folder: &Path) -> Vec<String> {
    let file = |name: &&str| folder.join("secrets").join(name);
    NAMES.iter().map(|name| fs::read_to_string(file(name)).expect(name)).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn secrets_are_fresh_each_time_and_closed_to_others() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    make(one.path());
    make(two.path());
    let (first, second) = (secrets(one.path()), secrets(two.path()));
    for (name, (first, second)) in NAMES.iter().zip(first.iter().zip(&second)) {
        assert_ne!(first, second, "{name} is no secret");
    }
    let distinct: BTreeSet<&String> = first.iter().collect();
    assert_eq!(distinct.len(), NAMES.len());
    for key in ["token_key", "store_secret"] {
        let text = fs::read_to_string(one.path().join("secrets").join(key)).expect("text");
        let digits = text.trim_end().bytes().all(|b| b.is_ascii_hexdigit());
        assert!(text.trim_end().len() == 64 && digits, "{key}: no key is {text:?}");
    }
    assert_eq!(mode(&one.path().join("secrets")), 0o700);
    for name in NAMES {
        assert_eq!(mode(&one.path().join("secrets").join(name)), 0o440, "{name}");
    }
    let variables = fs::read_to_string(one.path().join(".env")).expect("variables");
    let group = variables.trim_end().strip_prefix("SECRETS_GID=").expect("a group");
    assert!(group.parse::<u32>().is_ok(), "{variables}");
}

#[test]
fn a_second_run_changes_no_secret_and_makes_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path());
    let before = secrets(folder.path());
    fs::remove_file(folder.path().join("secrets/redis_acl")).expect("removed");
    make(folder.path());
    assert_eq!(secrets(folder.path()), before);
}

#[test]
fn what_is_made_is_left_out_of_the_tree_and_of_the_image() {
    let ignored = read("deploy/.gitignore");
    for path in ["/secrets", "/.env"] {
        assert!(ignored.lines().any(|line| line == path), "{path} could be committed");
    }
    let tracked = Command::new("git").args(["ls-files", "deploy"]).current_dir(ROOT).output();
    let tracked = tracked.expect("git runs");
    let tracked = String::from_utf8_lossy(&tracked.stdout).into_owned();
    assert!(!tracked.lines().any(|path| path.starts_with("deploy/secrets")), "{tracked}");
}
