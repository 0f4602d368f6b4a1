//! Who may import whom: the table of rooms, for every edge.
//!
//! The table in ARCHITECTURE.md is the plan; this is the same table in a form that fails. Code that
//! only tests compile is free.

use std::collections::BTreeSet;

use super::paths::{Named, named};
use super::source::{Source, tokens, without_tests};

/// One room of the root package: what it may use besides itself and the standard library.
struct Room {
    name: &'static str,
    rooms: &'static [&'static str],
    /// Whether the crates of [`PLAIN`] may be used.
    plain: bool,
    crates: &'static [&'static str],
}

/// Crates that bring no format, driver or border with them.
const PLAIN: &[&str] = &[
    "arc_swap",
    "bytes",
    "fastrand",
    "futures",
    "hex",
    "serde",
    "thiserror",
    "tokio",
    "tokio_stream",
    "tokio_util",
    "tracing",
];

/// The rooms that wire, and so may use everything.
const WIRING: &[&str] = &["lib", "main", "server", "cli"];

const ROOMS: &[Room] = &[
    Room {
        name: "config",
        rooms: &["core"],
        plain: false,
        crates: &["humantime", "humantime_serde", "serde", "thiserror", "toml"],
    },
    Room {
        name: "clock",
        rooms: &["core"],
        plain: false,
        crates: &["libc", "rustix", "serde", "thiserror", "tokio"],
    },
    // A source is driven through channels, and those are the runtime's.
    Room {
        name: "ports",
        rooms: &["core"],
        plain: false,
        crates: &["thiserror", "tokio", "tokio_util"],
    },
    Room {
        name: "seal",
        rooms: &["core", "ports"],
        plain: false,
        crates: &["base64", "blake3", "constant_time_eq", "hex", "thiserror", "tracing"],
    },
    Room {
        name: "telemetry",
        rooms: &["core"],
        plain: true,
        // Spans and metrics leave by gRPC: its client is to this room what a driver is to a store.
        crates: &[
            "opentelemetry",
            "opentelemetry_proto",
            "opentelemetry_sdk",
            "prometheus_client",
            "tonic",
            "tracing_opentelemetry",
            "tracing_subscriber",
        ],
    },
    Room {
        name: "sources",
        rooms: &["core", "ports", "clock", "config", "telemetry"],
        plain: true,
        crates: &[
            "http_body_util",
            "hyper",
            "hyper_util",
            "rustls",
            "rustls_pki_types",
            "serde_json",
            "tokio_postgres",
            "tokio_postgres_rustls",
        ],
    },
    Room {
        name: "store",
        rooms: &["core", "ports", "clock", "config", "telemetry"],
        plain: true,
        crates: &["dashmap", "humantime", "redis", "serde_json"],
    },
    Room {
        name: "partitions",
        rooms: &["core", "ports", "clock", "telemetry"],
        plain: true,
        crates: &[],
    },
    Room {
        name: "sessions",
        rooms: &["core", "ports", "clock", "telemetry", "seal"],
        plain: true,
        crates: &["blake3"],
    },
    Room {
        // It names the ports as bounds of the sessions it is given, and calls none.
        name: "reads",
        rooms: &["core", "ports", "sessions", "partitions", "clock"],
        plain: true,
        crates: &[],
    },
    Room {
        name: "api",
        rooms: &["core", "reads", "sessions", "partitions", "clock", "telemetry"],
        plain: true,
        crates: &["prost", "prost_types", "tidegate_proto", "tonic", "tonic_types"],
    },
    Room {
        name: "admin",
        rooms: &["core", "reads", "sessions", "partitions", "telemetry"],
        plain: true,
        crates: &["axum", "http", "prost_types", "tidegate_proto", "tonic"],
    },
    Room {
        name: "layers",
        rooms: &["clock", "telemetry"],
        plain: true,
        crates: &["http", "tower"],
    },
];

/// The rooms of the core, lowest first; those on one line do not see each other.
const CORE: &[&[&str]] = &[
    &["few", "guards", "instant"],
    &["position"],
    &["lineage"],
    &["token"],
    &["evidence"],
    &["views"],
    &["leader"],
    &["trail"],
    &["snapshot"],
    &["routing", "wait", "store_guard"],
    &["partition"],
];

/// What a rule says of one path in a file of its crate.
type Judge = fn(&str, &Named, &BTreeSet<String>) -> Option<String>;

/// The crates with rules of their own, by the folder of their sources; the first match counts.
const CRATES: &[(&str, Judge)] =
    &[("src/core/", judge_core), ("src/", judge_shell), ("clients/rust/src/", judge_client)];

/// Every import that the plan forbids. `dependencies` are the external crates of the workspace.
pub(crate) fn violations(files: &[Source], dependencies: &BTreeSet<String>) -> Vec<String> {
    let tests: BTreeSet<String> = files.iter().flat_map(test_files).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_test(&file.path, &tests)) {
        let judged =
            |(folder, judge): &(&str, Judge)| Some((file.path.strip_prefix(folder)?, *judge));
        let Some((path, judge)) = CRATES.iter().find_map(judged) else { continue };
        let (code, _) = without_tests(&tokens(&file.text));
        for name in named(path, &code) {
            let what = judge(path, &name, dependencies);
            found.extend(what.map(|what| format!("{}:{}: {what}", file.path, name.line)));
        }
        if file.path.starts_with("src/core/") {
            let awaits = code.iter().filter(|t| matches!(t.text.as_str(), "async" | "await"));
            found
                .extend(awaits.map(|t| format!("{}:{}: the core never awaits", file.path, t.line)));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Where the test modules that `file` declares lie: as a file and as the start of a folder.
fn test_files(file: &Source) -> Vec<String> {
    let (_, modules) = without_tests(&tokens(&file.text));
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let own = name.trim_end_matches(".rs");
    let below = match own {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ => format!("{folder}/{own}"),
    };
    modules.iter().map(|module| format!("{below}/{module}")).collect()
}

/// Whether only tests compile a file: a declared test module, or a crate's folder `tests`.
fn is_test(path: &str, tests: &BTreeSet<String>) -> bool {
    let integration = ["src/core/tests/", "clients/rust/tests/"];
    if integration.iter().any(|folder| path.starts_with(folder)) {
        return true;
    }
    tests.iter().any(|test| {
        path.strip_prefix(test.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    })
}

/// The room a file below `src` belongs to.
fn room_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// The room of the own crate that a path enters.
fn entered(name: &Named) -> Option<&str> {
    match name.segments.as_slice() {
        [first, room, ..] if first == "crate" => Some(room),
        _ => None,
    }
}

fn external<'n>(name: &'n Named, dependencies: &BTreeSet<String>) -> Option<&'n str> {
    let first = name.segments.first()?;
    dependencies.contains(first).then_some(first.as_str())
}

fn judge_shell(path: &str, name: &Named, dependencies: &BTreeSet<String>) -> Option<String> {
    let own = room_of(path);
    if WIRING.contains(&own) {
        return None;
    }
    let Some(room) = ROOMS.iter().find(|room| room.name == own) else {
        return Some(format!("room `{own}` is not in the plan; draw it in ARCHITECTURE.md first"));
    };
    if let Some(other) = entered(name) {
        let known = ROOMS.iter().any(|room| room.name == other) || WIRING.contains(&other);
        let allowed = other == own || room.rooms.contains(&other) || !known;
        return (!allowed).then(|| format!("`{own}` may not use `{other}`"));
    }
    let used = external(name, dependencies)?;
    let allowed = match used {
        "tidegate_core" => room.rooms.contains(&"core"),
        _ => room.crates.contains(&used) || (room.plain && PLAIN.contains(&used)),
    };
    (!allowed).then(|| format!("`{own}` may not use the crate `{used}`"))
}

fn judge_core(path: &str, name: &Named, dependencies: &BTreeSet<String>) -> Option<String> {
    let own = room_of(path);
    if let Some(used) = external(name, dependencies) {
        return (used != "thiserror").then(|| format!("the core may not use the crate `{used}`"));
    }
    if is_impure(name) {
        return Some(format!("the core may not use `{}`", name.segments.join("::")));
    }
    let other = entered(name)?;
    let rank = |room: &str| CORE.iter().position(|level| level.contains(&room));
    if own == "lib" || other == own {
        return None;
    }
    let Some(own_rank) = rank(own) else {
        return Some(format!("room `{own}` is not in the plan; draw it in ARCHITECTURE.md first"));
    };
    let allowed = rank(other).is_some_and(|other_rank| other_rank < own_rank);
    (!allowed).then(|| format!("`{own}` may not use `{other}`: rooms of the core import downwards"))
}

/// Whether a path would let the world, or its time, into the core.
fn is_impure(name: &Named) -> bool {
    let segments: Vec<&str> = name.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["std", "env" | "fs" | "io" | "net" | "os" | "process" | "thread" | "*", ..] => true,
        ["std", "time", item, ..] => *item != "Duration",
        ["std", "time"] => true,
        _ => false,
    }
}

/// Clients carry tokens and decide nothing: of our own crates they see the wire and the guards.
fn judge_client(_: &str, name: &Named, _: &BTreeSet<String>) -> Option<String> {
    let segments: Vec<&str> = name.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["tidegate" | "tidegate_lab", ..] => Some(format!("clients may not use `{}`", segments[0])),
        ["tidegate_core", room, ..] if *room != "guards" => {
            Some(format!("clients may use of the core only `guards`, not `{room}`"))
        }
        _ => None,
    }
}

/// Places where an error is built outside the one file that may: `tonic::Status`, and the
/// `google.rpc.Status` of a `Route` frame.
pub(crate) fn status_born_elsewhere(files: &[Source]) -> Vec<String> {
    let tests: BTreeSet<String> = files.iter().flat_map(test_files).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| {
        file.path.starts_with("src/")
            && file.path != "src/api/status.rs"
            && !is_test(&file.path, &tests)
    }) {
        let (code, _) = without_tests(&tokens(&file.text));
        for (at, token) in code.iter().enumerate() {
            let next = |ahead: usize| code.get(at + ahead).map_or("", |t| t.text.as_str());
            let before = at.checked_sub(1).map_or("", |index| code[index].text.as_str());
            let called = next(1) == "::"
                && next(2).starts_with(|c: char| c.is_ascii_lowercase())
                && matches!(next(3), "(" | "::");
            let written = next(1) == "{" && !matches!(before, ">" | "for" | "impl" | "struct");
            if matches!(token.text.as_str(), "Status" | "RpcStatus") && (called || written) {
                found.push(format!(
                    "{}:{}: errors are built in src/api/status.rs alone",
                    file.path, token.line
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod bites {
    use super::*;

    fn judged(path: &str, text: &str) -> Vec<String> {
        let dependencies = [
            "tidegate_core",
            "tidegate_proto",
            "tonic",
            "tokio",
            "tokio_postgres",
            "dashmap",
            "thiserror",
            "tidegate",
        ]
        .map(str::to_owned);
        violations(&[Source::sample(path, text)], &dependencies.into())
    }

    fn bites(path: &str, text: &str) {
        assert_eq!(judged(path, text).len(), 1, "{path}: {text}: {:?}", judged(path, text));
    }

    fn passes(path: &str, text: &str) {
        assert_eq!(judged(path, text), Vec::<String>::new(), "{path}: {text}");
    }

    #[test]
    fn a_forbidden_edge_between_rooms_is_found_however_it_is_written() {
        bites("src/store/memory.rs", "use crate::sources::postgres;");
        bites("src/api/routing.rs", "use crate::{clock, reads, store::Memory};");
        bites("src/reads/walk.rs", "fn f() { crate::store::Memory::new() }");
        bites("src/sessions/mod.rs", "use super::partitions::Handle;");
        bites("src/sessions/deep/er.rs", "use super::super::super::partitions;");
        bites("src/partitions/task.rs", "use tokio_postgres::Client;");
        bites("src/partitions/task.rs", "#[tonic::async_trait] impl A for B {}");
        bites("src/reads/mod.rs", "use tidegate_proto::v1;");
        bites("src/layers/shed.rs", "use tidegate_core::instant::Instant;");
        bites("src/api/mod.rs", "use dashmap::DashMap;");
        bites("src/attic/mod.rs", "use tokio::time;");
        passes(
            "src/api/routing.rs",
            "use crate::reads::Reads; use tidegate_proto::v1; use tonic::*;",
        );
        passes("src/sources/postgres/poll.rs", "use super::conn; use crate::ports::Demand;");
        passes("src/server.rs", "use crate::store; use crate::sources;");
        passes("src/reads/mod.rs", "#[cfg(test)] mod tests { use crate::store::Memory; }");
        passes("src/reads/mod.rs", "// use crate::store;\nconst A: &str = \"crate::store::X\";");
    }

    #[test]
    fn the_core_stays_pure_and_imports_downwards() {
        bites("src/core/position/lsn.rs", "use crate::lineage::Epoch;");
        bites("src/core/wait/queue.rs", "use crate::routing::Policy;");
        bites("src/core/token/mark.rs", "fn f() -> super::super::views::NodeView {}");
        bites("src/core/views/mod.rs", "use std::time::{Duration, Instant};");
        bites("src/core/views/mod.rs", "use std::time;");
        bites("src/core/views/mod.rs", "use std::time::*;");
        bites("src/core/views/mod.rs", "fn f() { std::fs::read(p) }");
        bites("src/core/views/mod.rs", "use std::net::SocketAddr;");
        bites("src/core/views/mod.rs", "use tokio::sync::Mutex;");
        bites("src/core/views/mod.rs", "async fn f() {}");
        bites("src/core/attic/mod.rs", "use crate::guards::Guards;");
        passes("src/core/views/mod.rs", "use std::time::Duration; use thiserror::Error;");
        passes("src/core/wait/queue.rs", "use crate::token::Mark; use super::Slot;");
        passes("src/core/tests/laws.rs", "use tokio::sync::Mutex;");
        passes("src/core/partition.rs", "use crate::routing::Plan; use std::collections::*;");
    }

    #[test]
    fn a_client_that_decides_is_found() {
        bites("clients/rust/src/read.rs", "use tidegate_core::routing::decide;");
        bites("clients/rust/src/read.rs", "use tidegate::seal::Sealer;");
        passes("clients/rust/src/read.rs", "use tidegate_core::guards::Guards;");
    }

    #[test]
    fn a_status_built_in_passing_is_found() {
        let found =
            |path: &str, text: &str| status_born_elsewhere(&[Source::sample(path, text)]).len();
        assert_eq!(found("src/api/routing.rs", "Err(tonic::Status::internal(\"x\"))"), 1);
        assert_eq!(found("src/api/routing.rs", "let s = RpcStatus { code: 3 };"), 1);
        assert_eq!(found("src/api/status.rs", "Err(tonic::Status::internal(\"x\"))"), 0);
        assert_eq!(found("src/api/routing.rs", "fn f() -> Result<A, Status> { g() }"), 0);
    }

    #[test]
    fn a_test_module_in_its_own_file_is_free() {
        let files = [
            Source::sample("src/reads/mod.rs", "#[cfg(test)] mod tests;"),
            Source::sample("src/reads/tests.rs", "use crate::store::Memory;"),
        ];
        assert_eq!(violations(&files, &BTreeSet::new()), Vec::<String>::new());
    }
}
