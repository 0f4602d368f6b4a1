//! The commands of the program: one file each. It reads arguments, calls the code that does the
//! work, and turns what comes back into an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong arguments.

mod admin;
mod config;
mod epochs;
mod events;
mod lost;
mod notify;
mod operate;
mod reload;
mod serve;
mod sql;
mod store;
mod table;
mod token;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

const DONE: u8 = 0;
const FAILED: u8 = 1;
const WRONG_ARGUMENTS: u8 = 2;

/// Makes read replicas safe to read from.
///
/// Tidegate knows how far every replica has applied its leader's log and how far every session has
/// written and read, and answers which replica may serve a read now.
#[derive(Parser, Debug)]
#[command(name = "tidegate", version, max_term_width = 100, after_help = START)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const START: &str = "\
To start:
  tidegate sql | psql -h LEADER -d shop        install the functions, once
  tidegate token keygen --out token.key        make a key
  cp docs/tidegate.example.toml tidegate.toml  and set system_id, servers and key in it
  tidegate config check tidegate.toml
  tidegate serve --config tidegate.toml
  curl http://127.0.0.1:7401/readyz

After a failover, of a running service:
  tidegate epochs                which leader lives followed which, and what was lost
  tidegate lost --since 2h       what is gone, and how many sessions were told
  tidegate events --follow       what happens
  tidegate failover-notify --help   for the hooks of Patroni, repmgr and orchestrator

Exit codes: 0 done, 1 failed, 2 wrong arguments.";

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the service until it is told to stop (SIGTERM or Ctrl-C).
    Serve(serve::Serve),
    /// Look at configuration files.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Have a running instance read its configuration again.
    Reload(reload::Reload),
    /// Make keys.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Print the database objects Tidegate needs, as SQL that can be run twice.
    Sql(sql::Sql),
    /// Show which leader lives followed which, where each ended, and what was lost.
    Epochs(epochs::ShowEpochs),
    /// Show what failovers lost, and how many sessions were told.
    Lost(lost::Lost),
    /// Show the state of now, and what happens.
    Events(events::Events),
    /// Show what keeps the records of subjects, and how it is.
    Store(store::Store),
    /// Say who leads, where several nodes claim to.
    ResolveSplit(operate::ResolveSplit),
    /// Take a node out of quarantine.
    Resume(operate::Resume),
    /// Hurry the polls, from a hook of Patroni, repmgr or orchestrator.
    FailoverNotify(notify::FailoverNotify),
}

/// Runs the program with `args`, of which the first is its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(execute(args, &mut io::stdout().lock(), &mut io::stderr()))
}

fn execute(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(usage) => {
            let (code, to): (u8, &mut dyn Write) =
                if usage.use_stderr() { (WRONG_ARGUMENTS, err) } else { (DONE, out) };
            let written = write!(to, "{}", usage.render());
            return if written.is_ok() { code } else { FAILED };
        }
    };
    let done = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Config(command) => command.run(out),
        Command::Reload(reload) => reload.run(out),
        Command::Token(command) => command.run(out),
        Command::Sql(sql) => sql.run(out),
        Command::Epochs(epochs) => epochs.run(out),
        Command::Lost(lost) => lost.run(out),
        Command::Events(events) => events.run(out),
        Command::Store(store) => store.run(out),
        Command::ResolveSplit(resolve) => resolve.run(out),
        Command::Resume(resume) => resume.run(out),
        Command::FailoverNotify(notify) => notify.run(out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => DONE,
        Err(error) if reader_left(&error) => DONE,
        Err(error) => {
            // Where even this cannot be written, the exit code says it.
            let _ = writeln!(err, "error: {error:#}");
            let is_wrong = error.is::<admin::WrongArguments>();
            if is_wrong { WRONG_ARGUMENTS } else { FAILED }
        }
    }
}

/// True if whoever read the output has seen enough, as `head` does.
fn reader_left(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    pub(super) fn ran(args: &[&str]) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once(&"tidegate").chain(args).map(OsString::from);
        let code = execute(args, &mut out, &mut err);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (code, text(out), text(err))
    }

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_arguments_end_with_2_and_say_what_is_wrong() {
        for args in [
            &[][..],
            &["start"],
            &["serve", "--conf", "x"],
            &["serve", "--config", "x", "--log-format", "xml"],
            &["config"],
            &["config", "check"],
            &["token", "keygen", "file"],
            &["sql", "--all"],
            &["lost"],
            &["lost", "--since", "yesterday"],
            &["resolve-split", "main"],
            &["resume", "main"],
            &["reload", "tidegate.toml"],
            &["failover-notify"],
            &["failover-notify", "on_role_change", "primary", "demo"],
            &["failover-notify", "--patroni", "--repmgr", "--", "a"],
            &["failover-notify", "--patroni", "--node", "pg-1", "--", "on_start", "primary", "d"],
        ] {
            let (code, out, err) = ran(args);
            assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
            assert!(err.contains("--help") || err.contains("Usage"), "{args:?}: {err}");
        }
    }

    #[test]
    fn help_shows_how_to_start_and_version_what_this_is() {
        let (code, out, err) = ran(&["--help"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("tidegate serve --config tidegate.toml"), "{out}");
        assert!(out.contains("Exit codes"), "{out}");
        let version = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(ran(&["--version"]), (0, version, String::new()));
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::BrokenPipe))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let args = ["tidegate", "sql"].map(OsString::from);
        let mut err = Vec::new();
        assert_eq!(execute(args, &mut Closed, &mut err), 0);
        assert!(err.is_empty());
    }
}
