//! The README says what is true today: its commands run, its session reads, its tests exist.
//!
//! It runs each command of each `sh` block in order, in a folder of its own, against a cluster; the
//! configuration is the annotated one, pointed at the cluster by the environment. It does not run
//! `make`, which runs this.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tidegate::config;
use tidegate_lab::install::{Binaries, Major};
use tidegate_lab::ports::Port;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::system_id;
use tidegate_lab::wait::{LIMIT, until};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const README: &str = include_str!("../README.md");
const SESSION: &str = include_str!("../docs/examples/session.py");

/// The bodies of all blocks of one language, in order.
fn blocks(language: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), None::<String>);
    for line in README.lines() {
        match &mut open {
            None if line == format!("```{language}") => open = Some(String::new()),
            None => {}
            Some(_) if line == "```" => found.extend(open.take()),
            Some(body) => {
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    found
}

/// Each thing between backquotes.
fn quoted() -> impl Iterator<Item = &'static str> {
    README.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn the_session_on_the_page_is_the_file() {
    assert_eq!(blocks("python"), [SESSION]);
    let lines = SESSION.lines().filter(|line| !line.is_empty()).count();
    assert!(lines <= 25, "{lines} lines are no short example");
}

#[test]
fn every_test_and_file_named_exists() {
    let mut code = BTreeSet::new();
    for folder in ["tests", "src", "clients", "proto"] {
        words_below(&Path::new(ROOT).join(folder), &mut code);
    }
    let test = |word: &&str| {
        let plain = word.bytes().all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit());
        plain && word.matches('_').count() >= 3
    };
    let named: Vec<&str> = quoted().filter(test).collect();
    assert!(named.len() >= 15, "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|name| !code.contains(**name)).collect();
    assert!(missing.is_empty(), "no test is called {missing:?}");

    let linked = README.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let gone: Vec<&str> = linked.filter(|path| !Path::new(ROOT).join(path).exists()).collect();
    assert!(gone.is_empty(), "links to what there is not: {gone:?}");
}

fn words_below(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            words_below(&path, words);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests/readme.rs")
        {
            let text = fs::read_to_string(&path).expect("text");
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            words.extend(text.split(word).map(str::to_owned));
        }
    }
}

#[test]
fn every_limit_is_the_one_in_the_code() {
    let limits = config::Limits::default();
    let said = [
        format!("At most {} tokens a request", config::TOKENS_PER_REQUEST),
        format!("each at most {} characters", config::TOKEN_CHARS),
        format!("{} together", config::TOKENS_CHARS_PER_REQUEST),
        format!("a token written is at most {}", config::TOKEN_CHARS_WRITTEN),
        format!("A subject is at most {} bytes", config::SUBJECT_BYTES),
        format!("evidence at most {}", tidegate_core::evidence::EVIDENCE_BYTES_MAX),
        format!("{} strings a request", config::EVIDENCE_PER_REQUEST),
        format!("the cap ({} reads a second", limits.fallback_reads),
    ];
    let text = README.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in said {
        assert!(text.contains(&words), "the README should say: {words}");
    }
}

/// What the commands of the page are run in and against.
struct Desk {
    folder: TempDir,
    leader: SocketAddr,
    data: SocketAddr,
    admin: SocketAddr,
    environment: Vec<(String, String)>,
    serving: Option<Child>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(mut child) = self.serving.take() {
            // One that has ended by itself is told nothing.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// The interpreter with grpcio; `make tools` makes one.
fn python() -> PathBuf {
    let named = std::env::var_os("PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| Path::new(ROOT).join("target/tools/venv/bin/python"));
    assert!(python.exists(), "there is no {}: run `make tools`", python.display());
    python
}

impl Desk {
    async fn of(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for shared in ["docs", "proto"] {
            symlink(Path::new(ROOT).join(shared), at(shared)).expect("a link");
        }
        fs::create_dir(at("bin")).expect("a folder");
        // A link would hide from the interpreter which environment it belongs to.
        let shim = format!("#!/bin/sh\nexec '{}' \"$@\"\n", python().display());
        fs::write(at("bin/python"), shim).expect("written");
        let executable = Command::new("chmod").arg("+x").arg(at("bin/python")).status();
        assert!(executable.expect("chmod runs").success());
        symlink(env!("CARGO_BIN_EXE_tidegate"), at("bin/tidegate")).expect("a link");

        let leader = cluster.leader();
        let psql = Binaries::find(Major::V15).and_then(|all| all.tool("psql")).expect("psql");
        let psql = psql.parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").expect("a path");
        let (data, admin) = (Port::reserve().expect("a port"), Port::reserve().expect("a port"));
        let system = system_id(leader).await.expect("a system id");
        let standby = cluster.standby(0).address();
        let set = |key: &str, value: String| (key.to_owned(), value);
        let environment = vec![
            set("PATH", format!("{}:{psql}:{path}", at("bin").display())),
            set("PGHOST", leader.address().ip().to_string()),
            set("PGPORT", leader.port().to_string()),
            set("PGUSER", "postgres".to_owned()),
            set("TIDEGATE_LISTEN__DATA", data.address().to_string()),
            set("TIDEGATE_LISTEN__ADMIN", admin.address().to_string()),
            set("TIDEGATE_TOKEN__KEYS", "[\"token.key\"]".to_owned()),
            set("TIDEGATE_STORE__STATE_DIR", at("state").display().to_string()),
            set("TIDEGATE_PARTITION__MAIN__SYSTEM_ID", system.to_string()),
            set("TIDEGATE_PARTITION__MAIN__NODE__PG_1__POLL", leader.address().to_string()),
            set("TIDEGATE_PARTITION__MAIN__NODE__PG_2__POLL", standby.to_string()),
        ];
        let (leader, data, admin) = (leader.address(), data.address(), admin.address());
        Self { folder, leader, data, admin, environment, serving: None }
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.folder.path());
        command.envs(self.environment.iter().cloned());
        command
    }

    /// Runs one line to its end, which must be good; what it wrote.
    fn runs(&self, line: &str) -> String {
        let line = line
            .replace("127.0.0.1:5432", &self.leader.to_string())
            .replace("127.0.0.1:7400", &self.data.to_string());
        let output = self.shell(&line).output().expect("a shell");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{line}` ended with {}: {errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn serves(&mut self, line: &str) {
        let mut command = self.shell(&format!("exec {line}"));
        self.serving = Some(command.stderr(Stdio::null()).spawn().expect("a shell"));
    }

    /// The status line of a page of the admin listener.
    fn page(&self, path: &str) -> std::io::Result<String> {
        let mut connection = TcpStream::connect(self.admin)?;
        write!(connection, "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        connection.read_to_string(&mut text)?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

/// Says whether the Makefile has a target.
fn makes(target: &str) -> bool {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).expect("a Makefile");
    makefile.lines().any(|line| line.starts_with(&format!("{target}:")))
}

/// The packages of a `pip install` are those that `make tools` installs, and no others.
fn installs(packages: &str) -> bool {
    let pinned = fs::read_to_string(Path::new(ROOT).join(".ci/requirements.txt")).expect("a list");
    let pinned: BTreeSet<&str> = pinned.lines().filter_map(|l| l.split("==").next()).collect();
    packages.split(' ').all(|package| pinned.contains(package))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_runs_and_the_session_reads_its_write() {
    let options = ClusterOptions::new(Major::V15).standbys(1);
    let cluster = Cluster::start(options).await.expect("a cluster");
    cluster.leader().sql("create database shop").await.expect("a database");
    let mut desk = Desk::of(&cluster).await;
    let mut greeted = String::new();
    let lines: Vec<String> = blocks("sh").concat().lines().map(str::to_owned).collect();
    for line in &lines {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("make", target) => assert!(makes(target), "`{line}`: no such target"),
            // What it builds is what runs here.
            ("cargo", arguments) => assert_eq!(arguments, "build --release"),
            ("pip", arguments) => {
                let packages = arguments.strip_prefix("install ").expect("an installation");
                assert!(installs(packages), "`{line}`: not what `make tools` installs");
            }
            ("tidegate", arguments) if arguments.starts_with("serve") => desk.serves(line),
            ("curl", arguments) => {
                let path = arguments.strip_prefix("-f http://127.0.0.1:7401");
                let path = path.expect("a page of the admin listener").to_owned();
                until("the service is ready", LIMIT, || async {
                    Ok(desk.page(&path).is_ok_and(|status| status.contains(" 200 ")))
                })
                .await
                .expect("it gets ready");
            }
            _ => greeted = desk.runs(line),
        }
    }
    assert!(lines.len() >= 10 && desk.serving.is_some(), "{lines:?}");
    assert!(greeted.starts_with("[('hello',)] from pg-"), "the session printed {greeted:?}");
}

#[test]
fn the_annotated_configuration_names_the_nodes_the_test_replaces() {
    let example = fs::read_to_string(Path::new(ROOT).join("docs/tidegate.example.toml"));
    let example = example.expect("the example");
    for name in ["[partition.main]", "name = \"pg-1\"", "name = \"pg-2\""] {
        assert!(example.contains(name), "{name}");
    }
}
