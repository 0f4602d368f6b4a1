//! One server process and the shell that watches over it.
//!
//! The shell is the parent of the server and holds a pipe from this process: when the pipe
//! closes, whatever closed it (a drop, a panic, SIGKILL), the shell ends the server and removes
//! the cluster's folder. Starting and stopping is all it does; it restarts nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::machine;

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ends sessions, writes a checkpoint, sends standbys everything.
    Fast,
    /// Ends at once without a checkpoint, like a crash; the next start recovers.
    Immediate,
    /// The server process is killed and cannot even say goodbye.
    Kill,
}

impl Stop {
    fn signal(self) -> &'static str {
        match self {
            Self::Fast => "INT",
            Self::Immediate => "QUIT",
            Self::Kill => "KILL",
        }
    }
}

/// Reads HUP to reload or the signal to stop with; an end of input means the test has died.
///
/// A signal is repeated, because a server that is just starting ignores it. The shell itself
/// outlives HUP: the kernel sends one to its group when the test dies while a server is frozen.
const SCRIPT: &str = r#"
root=$1 log=$2 end=$3
shift 3
"$@" </dev/null >>"$log" 2>&1 &
pid=$!
trap "" HUP
echo "$pid"
while read -r word && [ "$word" = HUP ]; do
    kill -HUP "$pid"
done
(
    tries=0
    while [ "$tries" -lt 150 ]; do
        kill "-${word:-$end}" "$pid" 2>/dev/null
        sleep 0.2
        tries=$((tries + 1))
    done
    kill -KILL "$pid"
) >/dev/null &
signals=$!
wait "$pid"
kill "$signals"
[ -n "$word" ] || rm -rf "$root"
"#;

const END_LIMIT: Duration = Duration::from_secs(45);
const END_PAUSE: Duration = Duration::from_millis(2);

/// A running server process.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    words: Option<ChildStdin>,
    pid: u32,
}

impl Guard {
    /// Starts a program as the server user. When the guard dies unasked, the program is sent the
    /// signal `end` and its folder goes.
    pub(crate) fn start(
        root: &Path,
        log: &Path,
        end: &str,
        program: &Path,
        args: &[&Path],
    ) -> Result<Self> {
        let mut command = machine::as_server_user(Path::new("/bin/sh"))?;
        command.args(["-c", SCRIPT, "tidegate-lab-guard"]).arg(root).arg(log);
        command.arg(end).arg(program).args(args);
        // Its own process group: a Ctrl-C in the terminal must end the test first.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().context("cannot start /bin/sh")?;
        let words = shell.stdin.take();
        let mut line = String::new();
        if let Some(out) = shell.stdout.take() {
            BufReader::new(out).read_line(&mut line).context("the guard said nothing")?;
        }
        let pid = line.trim().parse().context("the guard did not start the server")?;
        Ok(Self { shell, words, pid })
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the server read its configuration again.
    pub(crate) fn reload(&mut self) {
        self.tell("HUP");
    }

    /// Stops the server and returns when it and its children are gone.
    pub(crate) fn stop(mut self, how: Stop) -> Result<()> {
        let children = machine::children(self.pid);
        self.tell(how.signal());
        self.words = None;
        self.await_end()?;
        // A killed server leaves its children behind for a moment, in its shared memory.
        let started_at = Instant::now();
        while children.iter().any(|child| machine::is_alive(*child)) {
            if started_at.elapsed() > END_LIMIT {
                bail!("children of the stopped server {} still run", self.pid);
            }
            std::thread::sleep(END_PAUSE);
        }
        Ok(())
    }

    /// Begins the end; [`Guard::await_end`] completes it.
    pub(crate) fn begin_end(&mut self) {
        self.words = None;
    }

    /// Waits until the shell has seen the server's end.
    pub(crate) fn await_end(&mut self) -> Result<()> {
        let started_at = Instant::now();
        while self.shell.try_wait().context("cannot watch the guard")?.is_none() {
            if started_at.elapsed() > END_LIMIT {
                bail!("the server {} did not end within {END_LIMIT:?}", self.pid);
            }
            std::thread::sleep(END_PAUSE);
        }
        Ok(())
    }

    fn tell(&mut self, word: &str) {
        if let Some(words) = &mut self.words {
            // A guard that has ended needs no word; its end is seen by whoever waits.
            drop(writeln!(words, "{word}"));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.begin_end();
        if let Err(error) = self.await_end() {
            machine::say(&format!("{error:#}"));
        }
    }
}
