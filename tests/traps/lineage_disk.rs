//! A disk that is full under one table, with the log of the server elsewhere: a full disk under
//! that ends the server.
//!
//! Where this process may mount, a small file system in memory holds the tablespace. Where not, the
//! server's processes may write no file beyond the size the table has: the same refusal by another
//! name. Both end with the test, however that ends.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidegate_lab::postgres::Server;

/// Mounts, and unmounts when its input ends: with the test, whatever becomes of it.
const HOLD: &str = "mount -t tmpfs -o size=1m,mode=700,uid=$2,gid=$3 tmpfs \"$1\" && echo ready && \
                    read -r _; umount -l \"$1\"";

/// What keeps the table from growing.
pub(crate) enum Full {
    /// A file system without room.
    Disk(SmallDisk),
    /// No process of this server writes a larger file.
    Limit { server: Server },
}

/// A mounted file system, and a file that fills it.
pub(crate) struct SmallDisk {
    holder: Child,
    ballast: PathBuf,
}

impl Full {
    /// Puts `tidegate.lineage`, which is empty, where it cannot grow.
    pub(crate) async fn under_lineage(leader: &Server) -> Self {
        let client = leader.connect("postgres", "postgres").await.expect("a connection");
        // The folder lies in the data folder of each server, so standbys have one of their own.
        let make = ["set allow_in_place_tablespaces = on", "create tablespace small location ''"];
        for statement in make {
            client.batch_execute(statement).await.expect("a tablespace");
        }
        let oid = "select oid::text from pg_tablespace where spcname = 'small'";
        let oid: String = client.query_one(oid, &[]).await.expect("it is there").get(0);
        let folder = leader.data_dir().join("pg_tblspc").join(oid);
        let full = match SmallDisk::mount(&folder) {
            Some(disk) => Self::Disk(disk),
            None => Self::Limit { server: leader.clone() },
        };
        let moved = client.batch_execute("alter table tidegate.lineage set tablespace small");
        moved.await.expect("an empty table fits");
        match &full {
            Self::Disk(disk) => disk.fill(),
            Self::Limit { server } => limit(server).await,
        }
        full
    }

    /// What the server says when it refuses a row.
    pub(crate) const fn refusal(&self) -> &'static str {
        match self {
            Self::Disk(_) => "No space left on device",
            Self::Limit { .. } => "File too large",
        }
    }

    /// Gives room again.
    pub(crate) async fn make_room(&self) {
        match self {
            Self::Disk(disk) => fs::remove_file(&disk.ballast).expect("the file that fills it"),
            Self::Limit { server } => {
                set_limit(server, "unlimited");
                // Processes that exist keep their limit.
                let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                              where backend_type = 'client backend' and pid <> pg_backend_pid()";
                server.sql(others).await.expect("they end");
            }
        }
    }
}

impl SmallDisk {
    /// A small file system in place of a folder; `None` where this process may not mount.
    fn mount(folder: &Path) -> Option<Self> {
        let owner = fs::metadata(folder).expect("the folder of the tablespace");
        let (uid, gid) = (owner.uid(), owner.gid());
        let inside: Vec<_> = fs::read_dir(folder).expect("it can be read").flatten().collect();
        let mut hold = Command::new("sh");
        hold.args(["-c", HOLD, "sh"]).arg(folder).args([uid.to_string(), gid.to_string()]);
        hold.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = hold.spawn().expect("a shell");
        let mut said = String::new();
        let output = holder.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut said).expect("it says something or ends");
        if said.trim() != "ready" {
            holder.wait().expect("it ends");
            return None;
        }
        for entry in inside {
            let path = folder.join(entry.file_name());
            fs::create_dir(&path).expect("a folder");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("its mode");
            chown(&path, Some(uid), Some(gid)).expect("its owner");
        }
        Some(Self { holder, ballast: folder.join("ballast") })
    }

    fn fill(&self) {
        let mut file = fs::File::create(&self.ballast).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // What it could not unmount stays visible in the folder the lab removes.
        drop(self.holder.wait());
    }
}

/// Lets no new process of the server make the table larger than it is.
async fn limit(server: &Server) {
    // The log is written in files of 16 MiB: the table must be larger than those.
    let fill = "insert into tidegate.lineage \
                (system_id, timeline, start_us, reset_us, n, instance) \
                select 1, 1, i, 1, (select coalesce(max(n), 0) from tidegate.lineage) + i, '' \
                from generate_series($1::bigint, $1::bigint + $2::bigint - 1) i";
    let client = server.connect("postgres", "postgres").await.expect("a connection");
    client.execute(fill, &[&1_i64, &200_000_i64]).await.expect("rows of another database");
    let size: i64 = server.value("select pg_relation_size('tidegate.lineage')").await.expect("it");
    assert!(size > 17 << 20, "{size}");
    client.batch_execute("checkpoint").await.expect("all of it is on disk");
    set_limit(server, &size.to_string());
    // What room the last page has is used up.
    let client = server.connect("postgres", "postgres").await.expect("a process under the limit");
    let more = async |from: i64| client.execute(fill, &[&from, &1_i64]).await.is_ok();
    let mut from = 1_000_000;
    while more(from).await {
        from += 1;
    }
}

fn set_limit(server: &Server, bytes: &str) {
    let pid = server.pid().expect("it runs").to_string();
    let limit = format!("--fsize={bytes}:unlimited");
    // As the user the server runs as: not even root may always limit others.
    let owner = fs::metadata(server.data_dir()).expect("the data folder");
    let mut prlimit = Command::new("prlimit");
    prlimit.uid(owner.uid()).gid(owner.gid()).args(["--pid", &pid, &limit]);
    let status = prlimit.status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit {limit} of {pid}");
}
