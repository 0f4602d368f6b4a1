//! The image of `deploy/Dockerfile`, really built and really run, without a registry or a daemon.
//!
//! The base image of the build stage is made here, of Debian's packages and this machine's Rust;
//! the Dockerfile itself is taken as it is. What cargo built is kept in `target/image`, so that
//! only the first build takes minutes. Needs root, and belongs to `make image` alone.

#![expect(clippy::expect_used, reason = "a tool that is missing is a failed test")]
#![expect(clippy::print_stdout, reason = "a run shows what the image is")]

#[path = "image/builder.rs"]
mod builder;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;
use tidegate_lab::install::Major;
use tidegate_lab::ports::Port;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::{PARTITION, ServiceOptions};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1;
use tidegate_proto::v1::routing_service_client::RoutingServiceClient;
use tidegate_proto::v1::select_replica_response::Outcome;

use builder::{Container, Image, succeeds};

/// The user of the image; nobody else has this number.
const UID: u32 = 65532;
/// The most that the image may hold: a program of some ten megabytes and a C library.
const BYTES_MAX: u64 = 24_000_000;

/// Where the image looks for its configuration.
const CONFIG: &str = "/etc/tidegate/tidegate.toml";

/// Every file below a folder, by its path from there.
fn files(folder: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("a folder of the image").flatten() {
            let path = entry.path();
            let known = fs::symlink_metadata(&path).expect("an entry of the image");
            if known.is_dir() {
                open.push(path.clone());
            }
            found.push((path.strip_prefix(folder).expect("below it").to_owned(), known));
        }
    }
    found
}

/// What the image is: small, without a shell, of root's files and with one folder of its user.
fn looks_right(image: &Image, container: &Container) {
    let config = image.config();
    assert_eq!(config["User"], format!("{UID}:{UID}"));
    assert_eq!(config["Entrypoint"], serde_json::json!(["/usr/bin/tidegate"]));
    let command = serde_json::json!(["serve", "--config", CONFIG, "--log-format", "json"]);
    assert_eq!(config["Cmd"], command);
    assert_eq!(config["Volumes"], serde_json::json!({"/var/lib/tidegate": {}}));
    let health = serde_json::json!(["CMD", "/usr/bin/tidegate", "epochs"]);
    assert_eq!(config["Healthcheck"]["Test"], health);

    let all = files(&container.root());
    let regular = || all.iter().filter(|(_, known)| known.is_file());
    let bytes: u64 = regular().map(|(_, known)| known.len()).sum();
    let names: BTreeSet<String> = regular().map(|(path, _)| path.display().to_string()).collect();
    println!("the image: {} files, {bytes} bytes: {names:?}", names.len());
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    assert!(names.contains("usr/bin/tidegate"));
    assert!(!names.iter().any(|name| name.ends_with("/sh") || name.ends_with("bash")), "{names:?}");
    assert!(names.len() <= 12, "only what the program needs: {names:?}");
    for (path, known) in &all {
        let own = path == Path::new("var/lib/tidegate");
        let owner = if own { UID } else { 0 };
        assert_eq!(known.uid(), owner, "{}", path.display());
        let mode = known.permissions().mode();
        assert_eq!(mode & 0o6022, 0, "{}: {mode:o}", path.display());
    }
}

/// The image, serving; ended with the test.
struct Serving {
    child: Child,
    /// Its configuration, as an operator mounts one.
    _folder: TempDir,
    data: SocketAddr,
    admin: SocketAddr,
}

impl Serving {
    fn start(container: &Container, options: ServiceOptions) -> Self {
        let [data, admin] = [(); 2].map(|()| Port::reserve().expect("a port").address());
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Path::new("/var/lib/tidegate");
        let text = options.listen(data, admin).toml(kept).expect("a configuration");
        fs::write(folder.path().join("tidegate.toml"), text).expect("written");
        // The user of the image is another than this one.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("permissions");
        let volumes = [format!("{}:/etc/tidegate:ro", folder.path().display())];
        // What the image runs unless told otherwise.
        let mut run =
            container.run(&volumes, &["serve", "--config", CONFIG, "--log-format", "json"]);
        let child = run.stdin(Stdio::null()).spawn().expect("buildah starts");
        Self { child, _folder: folder, data, admin }
    }

    /// The process of the image on this machine.
    fn pid(&self) -> Option<u32> {
        let entries = fs::read_dir("/proc").expect("Linux").flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        pids.find(|pid: &u32| {
            // No other program has this name and works where the image does.
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"/usr/bin/tidegate\0serve\0") && is_below(*pid, self.child.id())
        })
    }

    /// The folder that it keeps its facts in, as it sees it.
    fn kept(&self) -> Option<PathBuf> {
        Some(PathBuf::from(format!("/proc/{}/root/var/lib/tidegate", self.pid()?)))
    }

    fn user(&self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?)).ok()?;
        let line = status.lines().find(|line| line.starts_with("Uid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Ends it as a container engine does; whether it ended well.
    fn ends_well(&mut self) -> bool {
        let pid = self.pid().expect("it runs").to_string();
        succeeds("kill", &["-TERM", &pid]);
        self.child.wait().expect("buildah ends").success()
    }
}

/// Whether a process was started by another, or by one that was.
fn is_below(pid: u32, above: u32) -> bool {
    let mut next = Some(pid);
    while let Some(pid) = next {
        if pid == above {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        next = parent.and_then(|parent| parent.parse().ok()).filter(|parent| *parent > 1);
    }
    false
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // One that has ended meanwhile is told nothing.
            drop(std::process::Command::new("kill").arg(pid.to_string()).status());
        }
        drop(self.child.wait());
    }
}

/// Records a write and reads where the image says; the name of the node, and whether the row is
/// there.
async fn read_own_write(cluster: &Cluster, data: SocketAddr) -> (String, bool) {
    let leader = cluster.leader();
    leader.sql("insert into notes values (1)").await.expect("written");
    let evidence: String = leader.value("select tidegate.capture()").await.expect("evidence");
    let client = RoutingServiceClient::connect(format!("http://{data}")).await;
    let mut client = client.expect("the image answers");
    let session = v1::Session { subject: "ana".to_owned(), ..v1::Session::default() };
    let observed = Some(v1::record_request::Observed::Evidence(evidence));
    let record = v1::RecordRequest {
        session: Some(session.clone()),
        observed,
        ..v1::RecordRequest::default()
    };
    client.record(record).await.expect("recorded");
    let select = v1::SelectReplicaRequest {
        session: Some(session),
        partition: PARTITION.to_owned(),
        ..v1::SelectReplicaRequest::default()
    };
    let answer = client.select_replica(select).await.expect("an answer").into_inner();
    let Some(Outcome::Served(served)) = answer.outcome else { panic!("refused: {answer:?}") };
    let name = served.node.expect("a node").name;
    let server = cluster.server(&name).expect("a server of the cluster");
    let there = server.value("select exists (select from notes where id = 1)").await;
    (name, there.expect("the server answers"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_image_is_small_and_serves_as_a_user_without_rights() {
    let image = tokio::task::spawn_blocking(Image::build).await.expect("it builds");
    let container = image.container();
    looks_right(&image, &container);
    let version = container.says(&["--version"]);
    assert_eq!(version.trim(), format!("tidegate {}", env!("CARGO_PKG_VERSION")));

    let cluster = Cluster::start(ClusterOptions::new(Major::V15).standbys(1)).await;
    let cluster = cluster.expect("a cluster");
    cluster.leader().sql("create table notes (id bigint primary key)").await.expect("a table");
    let options = ServiceOptions::of(&cluster).await.expect("the leader answers");
    cluster.catch_up().await.expect("the standby has it");
    let mut serving = Serving::start(&container, options);
    let admin = format!("http://{}", serving.admin);
    until("the image serves", LIMIT, || async {
        Ok(container.succeeds(&["epochs", "--admin", &admin])
            && container.says(&["epochs", "--admin", &admin]).contains("leads"))
    })
    .await
    .expect("its own health check finds it well");
    assert_eq!(serving.user(), Some(UID));
    let (node, there) = read_own_write(&cluster, serving.data).await;
    println!("the image named {node}, and the row was there: {there}");
    assert!(there, "{node} does not have the row");
    let kept = serving.kept().expect("it runs");
    until("it keeps facts in the one folder that it may write", LIMIT, || async {
        Ok(fs::read_dir(&kept)?.count() > 0)
    })
    .await
    .expect("a file");
    assert!(serving.ends_well(), "told to end, it ends with 0");
}
