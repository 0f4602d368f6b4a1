//! `tidegate reload`: has a running instance read its configuration again. It reads no file itself.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use tidegate_proto::v1;

use super::admin::{ANSWER, AdminAt, Client, refused};

/// Have a running instance read its configuration again.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  tidegate config check tidegate.toml && tidegate reload

Policies, token keys and `limits.fallback_reads` may change while the service runs; everything
else needs a restart. All of a configuration is taken over or nothing: where a line is wrong,
changes what needs a restart, or takes away a key whose tokens may be out, the service says which
and goes on as it was. SIGHUP does the same, and tells the log. Each instance is told on its own.

Exit codes: 0 it is in force; 1 it was refused, and which line and why, or the service cannot be
reached; 2 wrong arguments.")]
pub(super) struct Reload {
    #[command(flatten)]
    admin: AdminAt,
}

impl Reload {
    /// Does it, and says what changed.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let answer = self.admin.ask(ANSWER, async |mut client: Client| {
            let answer = client.reload(v1::ReloadRequest {}).await;
            Ok(answer.map_err(|status| refused(&status))?.into_inner())
        })?;
        if answer.changed.is_empty() {
            writeln!(out, "nothing has changed")?;
        }
        for change in answer.changed {
            writeln!(out, "{change}")?;
        }
        Ok(())
    }
}
