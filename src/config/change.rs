//! What of a configuration may change while the service runs, and what needs a restart.
//!
//! Policies, token keys and the fallback cap may change. Everything else was read once, when the
//! service started; a change of it is a problem at the line where it was made. The lists below name
//! every field of each section, or they do not compile.

use super::document::Document;
use super::error::Problem;
use super::sections::{Cluster, Listen, Node};
use super::store::{Redis, Store, StoreKind};
use super::{Config, Limits, Partition, Telemetry};

const RESTART: &str = "this was changed, and needs a restart";

/// The fields of two values of one type, each with whether they differ.
macro_rules! compared {
    ($old:expr, $new:expr, $kind:ident { $($field:ident),+ $(,)? }) => {{
        let $kind { $($field: _),+ } = $old;
        [$((stringify!($field), $old.$field != $new.$field)),+]
    }};
}

/// What `new` changes of `running` that a running service cannot take over, in the order of the
/// sections.
pub(super) fn needs_restart(
    running: &Config,
    new: &Config,
    document: &Document<'_>,
) -> Vec<Problem> {
    let mut changes = Changes { document, problems: Vec::new() };
    let Config {
        cluster,
        listen,
        token,
        store,
        partitions,
        policies: _,
        limits,
        telemetry,
        file: _,
    } = running;
    changes.note(&["cluster"], compared!(cluster, new.cluster, Cluster { name, instance }));
    let listens = compared!(listen, new.listen, Listen { data, admin, reflection, tls });
    changes.note(&["listen"], listens);
    if token.keys.is_empty() != new.token.keys.is_empty() {
        let text = "a key that was made at the start cannot be kept beside those of files: this \
                    needs a restart";
        changes.wrong(&["token", "keys"], text);
    }
    changes.store(store, &new.store);
    changes.partitions(partitions, &new.partitions);
    changes.limits(limits, &new.limits);
    changes.telemetry(telemetry, &new.telemetry);
    changes.problems
}

struct Changes<'a> {
    document: &'a Document<'a>,
    problems: Vec<Problem>,
}

impl Changes<'_> {
    fn wrong(&mut self, path: &[&str], text: impl Into<String>) {
        self.problems.push(self.document.problem(path, text));
    }

    fn note(&mut self, section: &[&str], keys: impl IntoIterator<Item = (&'static str, bool)>) {
        for (key, _) in keys.into_iter().filter(|(_, differs)| *differs) {
            self.wrong(&[section, &[key]].concat(), RESTART);
        }
    }

    fn store(&mut self, old: &Store, new: &Store) {
        let Store { kind, secret_file, state_dir } = old;
        match (kind, &new.kind) {
            (StoreKind::Memory, StoreKind::Memory) => {}
            (StoreKind::Memory, StoreKind::Redis(_)) | (StoreKind::Redis(_), StoreKind::Memory) => {
                self.wrong(&["store", "kind"], RESTART);
            }
            (StoreKind::Redis(old), StoreKind::Redis(new)) => self.redis(old, new),
        }
        let same = [
            ("secret_file", *secret_file != new.secret_file),
            ("state_dir", *state_dir != new.state_dir),
        ];
        self.note(&["store"], same);
    }

    fn redis(&mut self, old: &Redis, new: &Redis) {
        let fields = compared!(
            old,
            new,
            Redis {
                urls,
                topology,
                username,
                password,
                tls,
                redundancy,
                fence,
                max_lag,
                timeout,
                wait_replicas,
                wait,
            }
        );
        // Some fields are made of settings with other names.
        let written = fields.map(|(field, differs)| match field {
            "password" => ("password_file", differs),
            "tls" => ("ca_file", differs),
            "topology" if self.document.sets(&["store", "sentinel_master"]) => {
                ("sentinel_master", differs)
            }
            field => (field, differs),
        });
        self.note(&["store"], written);
    }

    fn partitions(&mut self, old: &[Partition], new: &[Partition]) {
        for partition in old {
            let name = partition.name.as_str();
            match new.iter().find(|other| other.name == partition.name) {
                Some(other) => self.partition(partition, other),
                None => self.wrong(
                    &["partition", name],
                    "this partition is gone: its sessions would be stranded, and it needs a \
                     restart",
                ),
            }
        }
        for partition in new {
            if !old.iter().any(|other| other.name == partition.name) {
                let text = "this partition is new, and needs a restart";
                self.wrong(&["partition", partition.name.as_str()], text);
            }
        }
    }

    fn partition(&mut self, old: &Partition, new: &Partition) {
        let fields = compared!(
            old,
            new,
            Partition {
                name,
                id,
                system_id,
                upgraded_from,
                database,
                user,
                password,
                tls,
                async_commits,
                accepted_majors,
                patroni,
                nodes,
            }
        );
        let path = ["partition", old.name.as_str()];
        // Nodes are told one by one; their order means nothing.
        let fields = fields.into_iter().filter(|(field, _)| *field != "nodes");
        let written = fields.map(|(field, differs)| match field {
            "password" => ("password_file", differs),
            field => (field, differs),
        });
        self.note(&path, written);
        self.nodes(&[&path[..], &["node"]].concat(), &old.nodes, &new.nodes);
    }

    fn nodes(&mut self, path: &[&str], old: &[Node], new: &[Node]) {
        for node in old {
            let path = [path, &[node.name.as_str()]].concat();
            match new.iter().find(|other| other.name == node.name) {
                Some(other) => {
                    let fields =
                        compared!(node, other, Node { name, poll, advertise, reach, zone });
                    self.note(&path, fields);
                }
                None => self.wrong(&path, "this node is gone, and needs a restart"),
            }
        }
        for node in new {
            if !old.iter().any(|other| other.name == node.name) {
                let path = [path, &[node.name.as_str()]].concat();
                self.wrong(&path, "this node is new, and needs a restart");
            }
        }
    }

    fn limits(&mut self, old: &Limits, new: &Limits) {
        let fields = compared!(
            old,
            new,
            Limits {
                token_lifetime,
                d_max,
                clock_drift,
                subjects,
                pending_records,
                view_max_age,
                idle_poll,
                busy_poll,
                poll_timeout,
                wait_budget_max,
                parked_waits,
                fallback_reads,
                fallback_instances,
                calls_in_flight,
                connections,
                streams_per_connection,
                route_streams,
                route_in_flight,
                message_bytes,
                header_list_bytes,
                keepalive_interval,
                keepalive_timeout,
                deadline_margin,
                drain_limit,
                partitions,
                nodes_per_partition,
            }
        );
        let fixed = fields.into_iter().filter(|(field, _)| *field != "fallback_reads");
        self.note(&["limits"], fixed);
    }

    fn telemetry(&mut self, old: &Telemetry, new: &Telemetry) {
        let fields = compared!(
            old,
            new,
            Telemetry {
                log_format,
                otlp_endpoint,
                sample_ratio,
                export_interval,
                export_timeout,
                span_queue,
                flush_limit,
                resource,
            }
        );
        self.note(&["telemetry"], fields);
    }
}
