//! What settings demand of each other, and the configuration that is left when they agree.
//!
//! Opens no file and resolves no name: a configuration can be checked on another machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::lineage::SystemId;
use tidegate_core::token::PartitionId;

use super::document::Document;
use super::error::Problem;
use super::limits::{
    ACCEPTABLE_MAJORS, ACCEPTED_MAJORS, ADVERTISED_PER_NODE, PATRONI_ADDRESSES, POLICIES,
    TESTED_MAJORS, TOKEN_KEYS,
};
use super::policy::{Policy, PolicySection};
use super::sections::{Listen, PartitionSection, Sections, TlsSetting};
use super::values::{HttpAddress, Name};
use super::{Config, Partition, Password, Tls};

/// A check of one document, and what it found so far.
struct Check<'a> {
    document: &'a Document<'a>,
    problems: Vec<Problem>,
}

/// Turns sections into a configuration.
///
/// # Errors
/// Every problem found, in the order of the sections.
pub(super) fn check(document: &Document<'_>, sections: Sections) -> Result<Config, Vec<Problem>> {
    let mut check = Check { document, problems: Vec::new() };
    check.listen(&sections.listen);
    check.keys(sections.token.keys.len());
    check.count(&sections);
    for (key, text) in sections.limits.out_of_range() {
        check.wrong(&["limits", key], text);
    }
    for (key, text) in sections.telemetry.out_of_range() {
        check.wrong(&["telemetry", key], text);
    }
    let password_given = document.is_overridden(&["store", "password"]);
    let store = sections.store.checked(password_given).map_err(|wrong| {
        for (key, text) in wrong {
            check.wrong(&["store", key], text);
        }
    });
    let policies = check.policies(sections.policy, sections.limits.wait_budget_max);
    let nodes_most = sections.limits.nodes_per_partition;
    let partitions = sections.partition.into_iter();
    let partitions: Vec<Partition> = partitions
        .filter_map(|(name, section)| check.partition(name, section, nodes_most))
        .collect();
    check.unique(&partitions);
    let Ok(store) = store else { return Err(check.problems) };
    if !check.problems.is_empty() {
        return Err(check.problems);
    }
    Ok(Config {
        cluster: sections.cluster,
        listen: sections.listen,
        token: sections.token,
        store,
        partitions,
        policies,
        limits: sections.limits,
        telemetry: sections.telemetry,
        file: None,
    })
}

impl Check<'_> {
    fn wrong(&mut self, path: &[&str], text: impl Into<String>) {
        self.problems.push(self.document.problem(path, text));
    }

    fn listen(&mut self, listen: &Listen) {
        if listen.tls.is_some() {
            self.wrong(
                &["listen", "tls"],
                "TLS on listeners is not built yet; remove this and put a TLS proxy on the same \
                 machine in front",
            );
        }
        for (key, address) in [("data", listen.data), ("admin", listen.admin)] {
            self.loopback(key, address);
        }
        if listen.data == listen.admin && listen.data.port() != 0 {
            self.wrong(&["listen", "admin"], "use another port: it is the same as `listen.data`");
        }
    }

    fn loopback(&mut self, key: &str, address: SocketAddr) {
        if address.ip().is_loopback() {
            return;
        }
        let port = address.port();
        self.wrong(
            &["listen", key],
            format!(
                "{address} is open to other machines, and neither TLS nor keys for callers are \
                 built yet; use 127.0.0.1:{port} and put a TLS proxy on the same machine in front"
            ),
        );
    }

    fn keys(&mut self, count: usize) {
        if count > TOKEN_KEYS {
            let text = format!("name at most {TOKEN_KEYS} files; rotation needs two");
            self.wrong(&["token", "keys"], text);
        }
    }

    fn count(&mut self, sections: &Sections) {
        let (count, most) = (sections.partition.len(), sections.limits.partitions);
        if count == 0 {
            self.wrong(&["partition"], "add a section [partition.NAME] with the database to watch");
        }
        if count > most {
            let text = format!("{count} partitions are more than `limits.partitions` = {most}");
            self.wrong(&["partition"], text);
        }
    }

    /// The policies that are fine.
    fn policies(
        &mut self,
        sections: BTreeMap<Name, PolicySection>,
        wait_most: Duration,
    ) -> Vec<Policy> {
        if sections.len() > POLICIES {
            let text = format!("{} policies are more than {POLICIES}", sections.len());
            self.wrong(&["policy"], text);
        }
        let mut policies = Vec::new();
        for (name, section) in sections {
            match section.checked(name.clone(), wait_most) {
                Ok(policy) => policies.push(policy),
                Err(wrong) => {
                    for (key, text) in wrong {
                        self.wrong(&["policy", name.as_str(), key], text);
                    }
                }
            }
        }
        policies
    }

    fn partition(
        &mut self,
        name: Name,
        section: PartitionSection,
        nodes_most: usize,
    ) -> Option<Partition> {
        let found = self.problems.len();
        if section.upgraded_from == Some(section.system_id) {
            self.wrong(
                &["partition", name.as_str(), "upgraded_from"],
                "it is the same as `system_id`; set it to the id before the upgrade, or remove it",
            );
        }
        for (key, value) in [("database", &section.database), ("user", &section.user)] {
            if value.is_empty() || value.len() > 63 || value.contains('\0') {
                self.wrong(&["partition", name.as_str(), key], "use 1 to 63 bytes");
            }
        }
        self.nodes(&name, &section, nodes_most);
        self.patroni(&name, &section.patroni);
        let accepted_majors = self.majors(&name, &section.accepted_majors);
        let password = self.password(&name, &section);
        let tls = self.tls(&name, &section);
        if self.problems.len() > found {
            return None;
        }
        Some(Partition {
            name,
            id: PartitionId::new(section.id),
            system_id: SystemId::new(section.system_id),
            upgraded_from: section.upgraded_from.map(SystemId::new),
            database: section.database,
            user: section.user,
            password,
            tls: tls?,
            async_commits: section.async_commits,
            accepted_majors,
            patroni: section.patroni,
            nodes: section.node,
        })
    }

    fn nodes(&mut self, partition: &Name, section: &PartitionSection, most: usize) {
        let path = ["partition", partition.as_str(), "node"];
        if section.node.is_empty() {
            self.wrong(&path, "add a [[partition.NAME.node]] for each server");
        }
        if section.node.len() > most {
            let count = section.node.len();
            let text = format!("{count} nodes are more than `limits.nodes_per_partition` = {most}");
            self.wrong(&path, text);
        }
        let mut names = BTreeMap::new();
        let mut polls = BTreeMap::new();
        for node in &section.node {
            let setting = |key| [&path[..], &[node.name.as_str(), key]].concat();
            if names.insert(&node.name, ()).is_some() {
                self.wrong(&setting("name"), "two nodes have this name; give each its own");
            }
            if let Some(other) = polls.insert(&node.poll, &node.name) {
                let text = format!("node `{other}` has the same address; give each its own");
                self.wrong(&setting("poll"), text);
            }
            if node.advertise.len() > ADVERTISED_PER_NODE {
                let text = format!("name at most {ADVERTISED_PER_NODE} addresses");
                self.wrong(&setting("advertise"), text);
            }
        }
    }

    fn patroni(&mut self, partition: &Name, addresses: &[HttpAddress]) {
        let path = ["partition", partition.as_str(), "patroni"];
        if addresses.len() > PATRONI_ADDRESSES {
            self.wrong(&path, format!("name at most {PATRONI_ADDRESSES} addresses"));
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = addresses.iter().find(|address| !known.insert(*address)) {
            self.wrong(&path, format!("`{twice}` is named twice; name each address once"));
        }
    }

    /// The majors that serve sessions. One that is tested by now may stay in the file: a newer
    /// Tidegate must not refuse the configuration of an older one.
    fn majors(&mut self, partition: &Name, accepted: &[u32]) -> Vec<u32> {
        let path = ["partition", partition.as_str(), "accepted_majors"];
        if accepted.len() > ACCEPTED_MAJORS {
            self.wrong(&path, format!("name at most {ACCEPTED_MAJORS} majors"));
        }
        let (least, most) = ACCEPTABLE_MAJORS;
        if let Some(wrong) = accepted.iter().find(|major| !(least..=most).contains(*major)) {
            self.wrong(
                &path,
                format!(
                    "{wrong} cannot be accepted; name majors of PostgreSQL from {least} to \
                     {most}, as in [{least}]"
                ),
            );
        }
        let all: BTreeSet<u32> = TESTED_MAJORS.iter().chain(accepted).copied().collect();
        all.into_iter().collect()
    }

    fn password(&mut self, partition: &Name, section: &PartitionSection) -> Password {
        let path = ["partition", partition.as_str(), "password"];
        let variable = partition.as_str().to_ascii_uppercase().replace('-', "_");
        if section.password.is_some() && !self.document.is_overridden(&path) {
            self.wrong(
                &path,
                format!(
                    "a password does not belong into this file; name a file with `password_file`, \
                     or set the environment variable TIDEGATE_PARTITION__{variable}__PASSWORD"
                ),
            );
        }
        // The environment is nearer to the operator than the file is.
        match (&section.password, &section.password_file) {
            (Some(secret), _) => Password::Text(secret.clone()),
            (None, Some(file)) => Password::File(file.clone()),
            (None, None) => Password::None,
        }
    }

    fn tls(&mut self, partition: &Name, section: &PartitionSection) -> Option<Tls> {
        let path = ["partition", partition.as_str(), "tls"];
        let local = section.node.iter().all(|node| node.poll.is_loopback());
        match (section.tls, &section.tls_ca_file) {
            (Some(TlsSetting::VerifyFull), Some(ca)) => {
                Some(Tls::VerifyFull { ca_file: ca.clone() })
            }
            (Some(TlsSetting::VerifyFull), None) => {
                self.wrong(
                    &path,
                    "set `tls_ca_file` too, to the certificates that sign the servers'",
                );
                None
            }
            (Some(TlsSetting::Off) | None, Some(_)) => {
                self.wrong(&path, "set it to \"verify-full\", or remove `tls_ca_file`");
                None
            }
            (None, None) if !local => {
                self.wrong(
                    &path,
                    "a node is on another machine; set \"verify-full\", or \"off\" if you trust \
                     the network in between",
                );
                None
            }
            (Some(TlsSetting::Off) | None, None) => Some(Tls::Off),
        }
    }

    /// Ids and pinned databases are each of one partition.
    fn unique(&mut self, partitions: &[Partition]) {
        let mut ids = BTreeMap::new();
        let mut systems = BTreeMap::new();
        for partition in partitions {
            let name = partition.name.as_str();
            if let Some(other) = ids.insert(partition.id, name) {
                let text = format!("partition `{other}` has the same id; give each its own");
                self.wrong(&["partition", name, "id"], text);
            }
            if let Some(other) = systems.insert(partition.system_id, name) {
                self.wrong(
                    &["partition", name, "system_id"],
                    format!(
                        "partition `{other}` is the same server; list its nodes once, one server \
                         has one replication log"
                    ),
                );
            }
        }
    }
}
