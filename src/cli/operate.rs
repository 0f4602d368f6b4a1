//! `tidegate resolve-split` and `tidegate resume`: an operator's word.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use tidegate_proto::v1;

use super::admin::{ANSWER, AdminAt, Client, refused};
use super::table::who_leads;

/// Say who leads.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tidegate events                     shows a split, and the incarnations that claim to lead
  tidegate resolve-split main 7349829384756112345.1764500000000000.1764500000000000

The node that lives INCARNATION leads from now on, and the others that are writable are set aside.
What was written on those and is not on it is told to its sessions as lost. Nothing is served staler
than it was promised, whichever node is named. The node must be writable and answer now.

Exit codes: 0 it leads; 1 the service cannot be reached, or refuses because that incarnation is not
writable or not seen lately; 2 wrong arguments, or no node lives that incarnation.")]
pub(super) struct ResolveSplit {
    /// The partition.
    partition: String,
    /// What the node that is to lead lives, as `SELECT tidegate.incarnation()` returns it there.
    incarnation: String,
    #[command(flatten)]
    admin: AdminAt,
}

impl ResolveSplit {
    /// Says it.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self { partition, incarnation, admin } = self;
        let answer = admin.ask(ANSWER, async |mut client: Client| {
            let request = v1::ResolveSplitRequest { partition, incarnation };
            let answer = client.resolve_split(request).await;
            Ok(answer.map_err(|status| refused(&status))?.into_inner())
        })?;
        let partition = answer.partition.unwrap_or_default();
        writeln!(out, "{}: {}", partition.name, who_leads(&partition))?;
        if partition.leader_node != answer.node {
            bail!("{} does not lead: look at `tidegate events`", answer.node);
        }
        Ok(())
    }
}

/// Take a node out of quarantine.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tidegate resume main pg-2

Say it of a node that was cloned anew, or whose pg_rewind really rewound. It is polled first; one
that is still writable without leading stays out.

Exit codes: 0 it serves sessions; 1 it does not, and why, or the service cannot be reached; 2 wrong
arguments, or there is no such node.")]
pub(super) struct Resume {
    /// The partition.
    partition: String,
    /// The node.
    node: String,
    #[command(flatten)]
    admin: AdminAt,
}

impl Resume {
    /// Says it.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self { partition, node, admin } = self;
        let request = v1::ResumeNodeRequest { partition: partition.clone(), node: node.clone() };
        let answer = admin.ask(ANSWER, async |mut client: Client| {
            let answer = client.resume_node(request).await;
            Ok(answer.map_err(|status| refused(&status))?.into_inner())
        })?;
        let state = answer.node.unwrap_or_default();
        if !state.quarantine_reason.is_empty() {
            bail!("{node} of {partition} stays out: {}", state.quarantine_reason);
        }
        // A leader is eligible where it may be named.
        if !state.session_eligible {
            let why = state.ineligible_reasons.join("; ");
            bail!("{node} of {partition} is out of quarantine, but serves no session: {why}");
        }
        writeln!(out, "{node} of {partition} serves sessions")?;
        Ok(())
    }
}
