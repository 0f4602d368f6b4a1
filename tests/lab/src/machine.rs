//! What the lab must know of the machine: its folder, the ordinary user that runs servers, and
//! how a foreign program is run.
//!
//! Installs nothing (see `install`) and keeps no process alive (see `postgres::guard`).

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The user that servers run as; a PostgreSQL server refuses to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    uid: u32,
    gid: u32,
}

/// Tells whether this process runs as root.
pub(crate) fn is_root() -> bool {
    own_uid() == 0
}

fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

/// The folder of everything the lab keeps or runs: `TIDEGATE_LAB_DIR`, or one below `/var/tmp`.
///
/// It lies outside every home, because the server user must be able to read it.
pub(crate) fn lab_dir() -> Result<PathBuf> {
    let dir = match std::env::var_os("TIDEGATE_LAB_DIR") {
        Some(dir) => PathBuf::from(dir),
        None if is_root() => PathBuf::from("/var/tmp/tidegate-lab"),
        None => PathBuf::from(format!("/var/tmp/tidegate-lab-{}", own_uid())),
    };
    open_dir(&dir)?;
    Ok(dir)
}

/// Makes a folder that every user may read.
pub(crate) fn open_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)
        .with_context(|| format!("cannot make {}; set TIDEGATE_LAB_DIR", dir.display()))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Holds a lock that other processes of the lab respect; dropping the file releases it.
pub(crate) fn lock(name: &str) -> Result<fs::File> {
    let path = lab_dir()?.join(name);
    let file =
        fs::File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// The account for servers, or nothing when this process may run them itself.
pub(crate) fn server_account() -> Result<Option<Account>> {
    if !is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    match ["postgres", "nobody"].iter().find_map(|name| find_account(&passwd, name)) {
        Some(account) => Ok(Some(account)),
        None => bail!("PostgreSQL does not run as root and neither `postgres` nor `nobody` exists"),
    }
}

fn find_account(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(Account { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

/// Gives a file or folder to the server user.
pub(crate) fn give_to_server_user(path: &Path) -> Result<()> {
    if let Some(account) = server_account()? {
        chown(path, Some(account.uid), Some(account.gid))
            .with_context(|| format!("cannot give {} to the server user", path.display()))?;
    }
    Ok(())
}

/// A command that runs as the server user, with a clean environment.
pub(crate) fn as_server_user(program: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    command.current_dir("/");
    if let Some(account) = server_account()? {
        command.uid(account.uid).gid(account.gid);
    }
    Ok(command)
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot start or fails; the message carries its last output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    bail!("{program} ended with {}: {}", output.status, tail(&format!("{text}{errors}"), 12))
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Copies a folder with owners and modes, sharing blocks where the file system can.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to)).map(drop)
}

/// Sends a signal (`KILL`, `STOP`, ...) to one process.
pub(crate) fn signal(pid: u32, name: &str) -> Result<()> {
    run(Command::new("kill").args([&format!("-{name}"), &pid.to_string()])).map(drop)
}

/// Tells whether a process lives; one that has ended but was not yet collected does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !matches!(stat.rsplit(')').next().map(str::trim_start), Some(rest) if rest.starts_with('Z'))
}

/// The processes that a process started and that still run.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Tells the person at the terminal one thing, past any capture of test output.
pub(crate) fn say(line: &str) {
    // A closed stderr must not fail a test.
    drop(writeln!(std::io::stderr(), "lab: {line}"));
}

/// Runs blocking work beside the async tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("blocking work of the lab panicked")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "postgresq:x:1:1::/:/bin/sh\npostgres:x:101:104::/:/bin/sh\n";
        assert_eq!(find_account(passwd, "postgres"), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(find_account(passwd, "nobody"), None);
    }

    #[test]
    fn an_ended_process_is_not_alive_though_nobody_collected_it() -> Result<()> {
        let mut child = Command::new("true").spawn()?;
        let pid = child.id();
        while is_alive(pid) {
            std::thread::yield_now();
        }
        assert!(child.wait()?.success());
        Ok(())
    }
}
