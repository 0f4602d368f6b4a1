//! The real `tidegate serve` with a file that changes, and the three ways to have it read again.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use tidegate_lab::metrics;
use tidegate_lab::ports::Port;
use tidegate_lab::service::PARTITION;
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::{self, ListPartitionsRequest, ReloadRequest};

/// The program, its folder and its ports; dropping it ends it.
pub(crate) struct Program {
    child: Child,
    folder: TempDir,
    ports: (Port, Port),
}

/// How the service is asked to read its file again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Signal,
    Command,
    Call,
}

/// What came of it, as far as the way tells.
pub(crate) type Answer = Result<String, String>;

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended by itself is told nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Program {
    /// Serves what `text` gives for its folder and the addresses of its listeners.
    pub(crate) async fn start(text: impl FnOnce(&Path, SocketAddr, SocketAddr) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ports = (Port::reserve().expect("a port"), Port::reserve().expect("a port"));
        let file = folder.path().join("tidegate.toml");
        let text = text(folder.path(), ports.0.address(), ports.1.address());
        std::fs::write(&file, text).expect("written");
        let log = File::create(folder.path().join("log")).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(file)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let program = Self { child, folder, ports };
        let ready = || async { Ok(metrics::is_ready(program.admin()).await.unwrap_or(false)) };
        let ready = until("the program admits calls", LIMIT, ready).await;
        ready.unwrap_or_else(|error| panic!("{error}\n{}", program.log()));
        program
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("tidegate.toml")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    /// Where applications ask, for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.ports.0.address())
    }

    /// Where operators ask.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.ports.1.address()
    }

    /// What it knows of its partition.
    pub(crate) async fn partition(&self) -> v1::Partition {
        let admin = AdminServiceClient::connect(format!("http://{}", self.admin())).await;
        let request = ListPartitionsRequest { partition: PARTITION.to_owned() };
        let shown = admin.expect("it listens").list_partitions(request).await;
        shown.expect("it answers").into_inner().partitions.pop().expect("it has a partition")
    }

    /// Waits until exactly these nodes are shown and may serve sessions, or lead.
    pub(crate) async fn until_serving(&self, nodes: &[&str]) {
        let serving = || async {
            let partition = self.partition().await;
            let names: Vec<&str> = partition.nodes.iter().map(|node| node.name.as_str()).collect();
            let serves =
                |node: &v1::NodeState| node.session_eligible || node.name == partition.leader_node;
            Ok(names == nodes && partition.nodes.iter().all(serves))
        };
        let serving = until("all its nodes serve", LIMIT, serving).await;
        serving.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    /// How often the file was read again, with success or not.
    pub(crate) async fn reloads(&self, outcome: &str) -> u64 {
        let labels = [("outcome", outcome)];
        let count = metrics::counter(self.admin(), "config_reloads", &labels);
        count.await.expect("it shows its metrics")
    }

    /// Puts `text` into its file and has it read; returns when it was.
    pub(crate) async fn reload(&self, text: &str, way: Way) -> Answer {
        std::fs::write(self.file(), text).expect("written");
        self.ask(way).await
    }

    /// Has its file read, whatever it is now.
    pub(crate) async fn ask(&self, way: Way) -> Answer {
        match way {
            Way::Signal => self.hang_up().await,
            Way::Command => {
                let output = self.command().await;
                let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                match output.status.code() {
                    Some(0) => Ok(said(&output.stdout)),
                    Some(1) => Err(said(&output.stderr)),
                    other => panic!("exit code {other:?}: {output:?}"),
                }
            }
            Way::Call => {
                let admin = AdminServiceClient::connect(format!("http://{}", self.admin())).await;
                let answer = admin.expect("it listens").reload(ReloadRequest {}).await;
                match answer {
                    Ok(answer) => Ok(answer.into_inner().changed.join("\n")),
                    Err(status) if status.code() == tonic::Code::FailedPrecondition => {
                        Err(status.message().to_owned())
                    }
                    Err(status) => panic!("{status:?}"),
                }
            }
        }
    }

    /// A signal has no answer: the count says which it was, and the log what it says of it.
    async fn hang_up(&self) -> Answer {
        let before = (self.reloads("applied").await, self.reloads("refused").await);
        let logged = self.log().len();
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &pid]).status().expect("kill runs");
        assert!(sent.success(), "{sent:?}");
        let read = || async {
            Ok((self.reloads("applied").await, self.reloads("refused").await) != before)
        };
        until("the signal is heeded", LIMIT, read).await.expect("it is");
        let is_applied = self.reloads("applied").await > before.0;
        let words = if is_applied { "was reloaded" } else { "was not reloaded" };
        let new = || self.log().get(logged..).unwrap_or_default().to_owned();
        until("the log tells", LIMIT, || async { Ok(new().contains(words)) })
            .await
            .expect("it does");
        if is_applied { Ok(new()) } else { Err(new()) }
    }

    async fn command(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["reload", "--admin", &format!("http://{}", self.admin())]);
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        ran.expect("no panic").expect("the program runs")
    }
}
