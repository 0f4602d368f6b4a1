//! The real `tidegate serve` as a child process, ended with the demo whatever ends the demo.
//!
//! The shell between holds a pipe from this process: when the pipe closes, it ends the service
//! and removes its files. It restarts nothing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_proto::v1::admin_service_client::AdminServiceClient;
use tidegate_proto::v1::{ListPartitionsRequest, NodeState, Partition};

use crate::machine;
use crate::ports::Port;
use crate::service::{PARTITION, ServiceOptions};
use crate::wait::{LIMIT, until};

/// Any word ends the service, and so does the end of input: then the demo has died, and what it
/// wrote is removed too. A service that does not end is killed.
const SCRIPT: &str = r#"
root=$1 log=$2
shift 2
"$@" </dev/null >>"$log" 2>&1 &
pid=$!
echo "$pid"
read -r word
(
    tries=0
    while [ "$tries" -lt 50 ]; do
        kill -TERM "$pid" 2>/dev/null
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -KILL "$pid"
) >/dev/null 2>&1 &
signals=$!
wait "$pid"
kill "$signals"
[ -n "$word" ] || rm -rf "$root"
"#;

const END_LIMIT: Duration = Duration::from_secs(8);
const END_PAUSE: Duration = Duration::from_millis(2);

/// A running `tidegate serve`; dropping it ends it.
#[derive(Debug)]
pub(crate) struct ServiceProcess {
    shell: Child,
    words: Option<ChildStdin>,
    pid: u32,
    folder: PathBuf,
    data: Port,
    admin: Port,
}

impl ServiceProcess {
    /// Writes a configuration into a folder of its own below `root` and serves it.
    ///
    /// # Errors
    /// When the program is missing or cannot start; the message carries the end of its log.
    pub(crate) async fn start(options: ServiceOptions, root: &Path) -> Result<Self> {
        Self::start_as("tidegate", root, |data, admin, state| {
            options.listen(data, admin).toml(state)
        })
        .await
    }

    /// As [`ServiceProcess::start`], in the folder `name` and with any configuration: `config` gets
    /// the addresses of data and admin listener, and the folder of the state.
    ///
    /// # Errors
    /// Those of [`ServiceProcess::start`].
    pub(crate) async fn start_as(
        name: &str,
        root: &Path,
        config: impl FnOnce(SocketAddr, SocketAddr, &Path) -> Result<String>,
    ) -> Result<Self> {
        let program = program()?;
        let (data, admin) = (Port::reserve()?, Port::reserve()?);
        let folder = root.join(name);
        let state = folder.join("state");
        fs::create_dir_all(&state)?;
        let file = folder.join("tidegate.toml");
        fs::write(&file, config(data.address(), admin.address(), &state)?)?;
        let mut command = Command::new("/bin/sh");
        // Variables of this shell must not override the file that the demo has just written.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["-c", SCRIPT, "tidegate-demo-guard"]).arg(root);
        command.arg(folder.join("tidegate.log"));
        command.arg(program).args(["serve", "--config"]).arg(&file);
        // Its own process group: a Ctrl-C in the terminal must end the demo first.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().context("cannot start /bin/sh")?;
        let words = shell.stdin.take();
        let mut line = String::new();
        if let Some(out) = shell.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let pid = line.trim().parse().unwrap_or(0);
        let service = Self { shell, words, pid, folder, data, admin };
        service.await_nodes().await.with_context(|| service.log_tail())?;
        Ok(service)
    }

    /// Where applications ask, for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.data.address())
    }

    /// Where operators look.
    pub(crate) fn admin_endpoint(&self) -> String {
        format!("http://{}", self.admin.address())
    }

    /// The process id of the service.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// The file it was started with.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder.join("tidegate.toml")
    }

    /// The last lines it logged.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.folder.join("tidegate.log")).unwrap_or_default();
        format!("the log of tidegate ends with:\n{}", machine::tail(&text, 15))
    }

    /// What the service knows of its partition.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn partition(&self) -> Result<Partition> {
        let mut admin = AdminServiceClient::connect(self.admin_endpoint()).await?;
        let request = ListPartitionsRequest { partition: PARTITION.to_owned() };
        let answer = admin.list_partitions(request).await?.into_inner();
        answer.partitions.into_iter().next().context("the service has no partition")
    }

    /// What it knows and logged, for whoever looks into a failure.
    pub(crate) async fn state(&self) -> String {
        let nodes = match self.partition().await {
            Ok(partition) => partition.nodes.iter().map(describe).collect::<String>(),
            Err(error) => format!("{error:#}\n"),
        };
        format!("what tidegate knows:\n{nodes}{}", self.log_tail())
    }

    /// Waits until the service sees a leader and knows of every node that runs.
    ///
    /// # Errors
    /// When the service ended, or does not see them in time.
    pub(crate) async fn await_nodes(&self) -> Result<()> {
        let shown = |node: &NodeState| node.session_eligible || !node.poll_error.is_empty();
        until("tidegate sees all servers", LIMIT, || async {
            if !machine::is_alive(self.pid) {
                bail!("tidegate ended by itself");
            }
            let Ok(partition) = self.partition().await else { return Ok(false) };
            Ok(!partition.leader_node.is_empty() && partition.nodes.iter().all(shown))
        })
        .await
        .map(drop)
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        if let Some(mut words) = self.words.take() {
            // A shell that has ended needs no word; its end is seen below.
            drop(writeln!(words, "end"));
        }
        let started_at = Instant::now();
        while started_at.elapsed() < END_LIMIT {
            match self.shell.try_wait() {
                Ok(None) => std::thread::sleep(END_PAUSE),
                Ok(Some(_)) => return,
                Err(error) => return machine::say(&format!("cannot watch tidegate: {error}")),
            }
        }
        machine::say(&format!("tidegate, process {}, did not end", self.pid));
    }
}

fn describe(node: &NodeState) -> String {
    let NodeState { name, applied, row_epoch, poll_error, .. } = node;
    let reasons = node.ineligible_reasons.join("; ");
    format!("{name}: at {applied}, row {row_epoch} {reasons} {poll_error}\n")
}

/// The program, built beside this one.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program does not know where it is")?;
    let program = own.with_file_name("tidegate");
    if !program.exists() {
        bail!(
            "{} is missing: run `make demo`, or `cargo build -p tidegate -p tidegate-lab --bins`",
            program.display()
        );
    }
    Ok(program)
}
