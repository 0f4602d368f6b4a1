//! Builds the image with buildah, whose images and containers lie in `target/image`, and runs it
//! there: in a chroot, as the user of the image, in the network of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_lab::install::apt_install;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// What stands for the image with Rust that the Dockerfile names.
const BUILDER: &str = "localhost/tidegate-builder";
const IMAGE: &str = "localhost/tidegate:test";

/// A program that must end well; what it wrote to standard output.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    runs(command.args(arguments))
}

fn runs(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?} ended with {}", output.status);
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// The folder of everything that is built here; it is kept.
fn folder() -> PathBuf {
    Path::new(ROOT).join("target/image")
}

fn buildah(command: &str) -> Command {
    let mut buildah = Command::new("buildah");
    buildah.arg("--root").arg(folder().join("storage"));
    buildah.arg("--runroot").arg(folder().join("run"));
    // Needs nothing of the kernel or the file system.
    buildah.args(["--storage-driver", "vfs", command]);
    buildah
}

/// Installs what is missing.
fn install() {
    let missing = |program: &str| Command::new(program).arg("--version").output().is_err();
    for program in ["buildah", "debootstrap"] {
        if missing(program) {
            apt_install(&[program]).expect("Debian has it");
        }
    }
}

/// Makes the base of the build stage, once: Debian with a C compiler.
fn make_builder() {
    if runs(buildah("images").args(["--format", "{{.Name}}"])).lines().any(|name| name == BUILDER) {
        return;
    }
    println!("making the base image of the build stage: two minutes, once");
    let debian = folder().join("debian");
    if debian.exists() {
        fs::remove_dir_all(&debian).expect("a folder of a broken run is removed");
    }
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=gcc,libc6-dev", "bookworm"]);
    runs(debootstrap.arg(&debian));
    let container = runs(buildah("from").arg("scratch"));
    runs(buildah("add").args(["--quiet", &container]).arg(&debian).arg("/"));
    let mut config = buildah("config");
    // Cargo finds everything that this machine has downloaded already.
    for variable in [
        "PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CARGO_HOME=/usr/local/cargo",
        "CARGO_NET_OFFLINE=true",
    ] {
        config.args(["--env", variable]);
    }
    runs(config.arg(&container));
    runs(buildah("commit").args(["--quiet", "--rm", &container, BUILDER]));
    fs::remove_dir_all(&debian).expect("the image has it all");
}

/// The built image.
pub(crate) struct Image;

impl Image {
    /// Builds `deploy/Dockerfile` from this tree.
    pub(crate) fn build() -> Self {
        let cache = folder().join("cargo-target");
        fs::create_dir_all(&cache).expect("a folder");
        install();
        make_builder();
        println!("building the image: minutes the first time");
        let rust = succeeds("rustc", &["--print", "sysroot"]);
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cargo")
        });
        let mut build = buildah("bud");
        // As Docker writes images: others know no health check.
        build.args(["--isolation", "chroot", "--pull-never", "--format", "docker"]);
        build.args(["--build-arg", &format!("BUILDER={BUILDER}")]);
        // In place of the caches that the Dockerfile asks a builder for.
        let registry = home.join("registry");
        build.arg("--volume").arg(format!("{}:/usr/local/cargo/registry", registry.display()));
        build.arg("--volume").arg(format!("{rust}:/usr/local/rust:ro"));
        build.arg("--volume").arg(format!("{}:/src/target", cache.display()));
        build.args(["--tag", IMAGE, "--file"]).arg(Path::new(ROOT).join("deploy/Dockerfile"));
        runs(build.arg(ROOT));
        // What had the name before is of no use to anybody.
        runs(buildah("rmi").arg("--prune"));
        Self
    }

    /// What the image says of itself.
    pub(crate) fn config(&self) -> Value {
        let text = runs(buildah("inspect").args(["--type", "image", IMAGE]));
        let mut all: Value = serde_json::from_str(&text).expect("JSON");
        all["Docker"]["config"].take()
    }

    /// A container of it.
    pub(crate) fn container(&self) -> Container {
        let name = runs(buildah("from").args(["--pull-never", IMAGE]));
        let root = PathBuf::from(runs(buildah("mount").arg(&name)));
        Container { name, root }
    }
}

/// A container; dropping it removes it.
pub(crate) struct Container {
    name: String,
    root: PathBuf,
}

impl Container {
    /// Its file system, as this machine sees it.
    pub(crate) fn root(&self) -> PathBuf {
        self.root.clone()
    }

    /// Runs the program of the image, as its user, with these volumes (`from:to`).
    pub(crate) fn run(&self, volumes: &[String], arguments: &[&str]) -> Command {
        let mut run = buildah("run");
        run.args(["--isolation", "chroot"]);
        for volume in volumes {
            run.args(["--volume", volume]);
        }
        run.args([&self.name, "--", "/usr/bin/tidegate"]).args(arguments);
        run
    }

    /// What it prints; it must end well.
    pub(crate) fn says(&self, arguments: &[&str]) -> String {
        runs(&mut self.run(&[], arguments))
    }

    /// Whether it ends well.
    pub(crate) fn succeeds(&self, arguments: &[&str]) -> bool {
        let output = self.run(&[], arguments).output().expect("buildah starts");
        output.status.success()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // What is left of it lies in `target`.
        drop(buildah("rm").arg(&self.name).output());
    }
}
