//! The set itself, as `make up` starts it: it serves through either instance, and ends without a
//! trace, whatever ends it. What is checked on it is in `tidegate_lab::up`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_lab::wait::until;

use super::{ROOT, output, printed};

/// Time that a set may take to end: servers write their last words to a busy disk.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The program of `make up`, from the root of the tree.
fn up() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate")).with_file_name("up");
    assert!(program.exists(), "there is no {}: run `make build`", program.display());
    let mut up = Command::new(program);
    up.current_dir(ROOT);
    up
}

#[test]
fn the_set_comes_up_and_serves_through_either_instance() {
    let output = output(up().arg("--check"));
    println!("{}", printed(&output));
    assert!(output.status.success(), "it ended with {}", output.status);
}

/// A running set, and the folder it said everything lies in.
struct Running {
    up: Child,
    folder: PathBuf,
}

impl Running {
    fn start() -> Self {
        let mut up = up().stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(up.stdout.take().expect("it prints")).lines();
        let mut folder = PathBuf::new();
        for line in lines.map_while(Result::ok) {
            if let Some(file) = line.split("PGPASSFILE=").nth(1) {
                let file = Path::new(file.split(' ').next().unwrap_or_default());
                folder = file.parent().expect("a folder").to_owned();
            }
            if line.contains("To end all of it") {
                return Self { up, folder };
            }
        }
        panic!("it ended instead of saying how to end it: {:?}", up.wait());
    }

    /// The processes that name the folder: servers, instances and what watches over them.
    fn processes(&self) -> Vec<String> {
        let folder = self.folder.display().to_string();
        let entries = fs::read_dir("/proc").expect("Linux").flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(&folder)).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended by itself is told nothing; what watches over the rest ends it.
        drop(self.up.kill());
        drop(self.up.wait());
    }
}

/// Starts a set, ends it with a signal, and waits until nothing is left; its exit code.
async fn ends_after(signal: &str) -> Option<i32> {
    let mut running = Running::start();
    assert!(running.folder.join("secrets").is_dir(), "{}", running.folder.display());
    let processes = running.processes();
    // Three servers, two stores and two instances at least.
    assert!(processes.len() >= 7, "{processes:?}");
    let pid = running.up.id().to_string();
    assert!(output(Command::new("kill").args([&format!("-{signal}"), &pid])).status.success());
    until(&format!("nothing is left after {signal}"), END_LIMIT, || async {
        Ok(running.processes().is_empty() && !running.folder.exists())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {:?}", running.processes()));
    running.up.wait().expect("it has ended").code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_set_leaves_nothing_behind() {
    assert_eq!(ends_after("INT").await, Some(0), "asked to end, it ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_set_leaves_nothing_behind() {
    assert_eq!(ends_after("KILL").await, None, "it cannot even say goodbye");
}
