//! `tidegate failover-notify`: hurries the polls from a hook of whatever runs failovers.
//!
//! A hint is never believed: at worst it costs a poll. It never holds a failover up for long, and
//! arguments it cannot read change nothing.

mod orchestrator;
mod patroni;
mod repmgr;

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, Args};
use tidegate_proto::v1;

use super::admin::{AdminAt, Client, refused, wrong};
use super::table::who_leads;
use crate::api::admin::SOURCE_CHARS_MAX;

/// Time for all of it: a failover waits for its hooks.
const LIMIT: Duration = Duration::from_secs(2);

/// Hurry the polls after a failover.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("tool").required(true).args(["patroni", "repmgr", "orchestrator"]),
    after_help = "\
Patroni, in its configuration; it appends ACTION ROLE CLUSTER:
  postgresql:
    callbacks:
      on_role_change: tidegate failover-notify --patroni --

repmgr, in repmgr.conf; it replaces the placeholders:
  event_notification_command='tidegate failover-notify --repmgr -- %n %e %s \"%t\" \"%d\"'

orchestrator, in its configuration; it sets ORC_ variables, or replaces the placeholders:
  \"PostFailoverProcesses\": [\"tidegate failover-notify --orchestrator\"]
  \"PostFailoverProcesses\": [\"tidegate failover-notify --orchestrator -- \
'{failureType}' '{failureClusterAlias}' '{failedHost}' '{successorHost}'\"]

What is said is a hint: every node is polled at once, and the polls say who leads.

Exit codes: 0 polled, or nothing to poll for; 1 the admin listener does not answer in 2 s;
2 wrong arguments, and then nothing was done."
)]
pub(super) struct FailoverNotify {
    /// Read the arguments Patroni gives its callbacks.
    #[arg(long)]
    patroni: bool,
    /// Read the arguments of repmgr's event_notification_command: %n %e %s "%t" "%d".
    #[arg(long)]
    repmgr: bool,
    /// Read the ORC_ variables orchestrator gives its hooks, or four of its placeholders.
    #[arg(long)]
    orchestrator: bool,
    /// The partition to poll. Left out: all.
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// The node this machine is, for logs and events.
    #[arg(long, value_name = "NAME", requires = "partition")]
    node: Option<String>,
    /// What the tool gives, after `--`.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
    #[command(flatten)]
    admin: AdminAt,
}

/// What a tool says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Said {
    /// For logs and events.
    words: String,
    /// The node that says it leads now.
    leads: bool,
    /// Somebody may have begun to lead, or ended.
    matters: bool,
}

impl FailoverNotify {
    /// Says it.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let said = if self.patroni {
            patroni::read(&args)
        } else if self.repmgr {
            repmgr::read(&args)
        } else {
            orchestrator::read(&args, |name| std::env::var(name).ok())
        };
        let said = said.map_err(wrong)?;
        if !said.matters {
            writeln!(out, "nothing to poll for: {}", said.words)?;
            return Ok(());
        }
        let node = self.node.unwrap_or_default();
        let request = v1::AnnounceFailoverRequest {
            partition: self.partition.unwrap_or_default(),
            new_leader_node: if said.leads { node.clone() } else { String::new() },
            node,
            source: said.words.chars().take(SOURCE_CHARS_MAX).collect(),
        };
        let answer = self.admin.ask(LIMIT, async |mut client: Client| {
            let answer = client.announce_failover(request).await;
            Ok(answer.map_err(|status| refused(&status))?.into_inner())
        })?;
        for hurried in answer.hurried {
            let partition = hurried.partition.unwrap_or_default();
            write!(out, "{}: {}", partition.name, who_leads(&partition))?;
            if !hurried.unanswered_nodes.is_empty() {
                write!(out, "; no answer from {}", hurried.unanswered_nodes.join(", "))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// What is wrong with arguments, and what is expected.
fn unexpected(expected: &str, problem: &str) -> String {
    format!("{problem}\nexpected: {expected}\nnothing was announced")
}
