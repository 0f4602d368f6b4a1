//! What to try while everything runs: commands that can be pasted into a shell, in the order of a
//! little story. `check` runs the very same commands.

use anyhow::{Context, Result};

use super::databases::{DATABASE, NAMES, TABLE};
use super::set::{INSTANCES, Set};

/// Whoever acts in the story.
pub(super) const WHO: &str = "ana";

/// The commands, for the addresses of one running set.
#[derive(Debug)]
pub(super) struct Guide<'s> {
    set: &'s Set,
}

/// A line of words and the command under it.
pub(super) type Step = (String, String);

impl<'s> Guide<'s> {
    /// The guide through one set.
    pub(super) const fn new(set: &'s Set) -> Self {
        Self { set }
    }

    /// What a shell must know before the others: where the servers are, and how Tidegate is called.
    ///
    /// # Errors
    /// When the programs cannot be found.
    pub(super) fn preamble(&self) -> Result<String> {
        let bin = self.set.databases.bin()?;
        let pgpass = self.set.folder.at("pgpass");
        Ok(format!(
            "export PATH=\"{}:$PATH\" PGPASSFILE={} \\\n    \
             PGHOST=127.0.0.1 PGUSER=postgres PGDATABASE={DATABASE}\n\
             ask() {{ target/tools/venv/bin/buf curl \\\n    \
             --protocol grpc --http2-prior-knowledge \
             --data \"$3\" \"$1/tidegate.v1.RoutingService/$2\"; }}",
            bin.display(),
            pgpass.display()
        ))
    }

    /// The whole story.
    ///
    /// # Errors
    /// When an instance or server is missing.
    pub(super) fn story(&self) -> Result<Vec<Step>> {
        let [a, b] = INSTANCES;
        let [leader, held, free] = NAMES;
        let step = |words: &str, command: String| (words.to_owned(), command);
        Ok(vec![
            step(&format!("{held} falls behind."), self.hold()?),
            step(
                &format!("Ana writes on the {leader}; instance {a} records it under her id."),
                self.write(WHO, "a first note", a)?,
            ),
            step(
                &format!(
                    "Instance {b} knows her by her id alone; it waits for a node with her note"
                ),
                self.wait(WHO, b)?,
            ),
            step(&format!("and says where she may read: on {free}."), self.select(WHO, b)?),
            step(&format!("Her note is there, and not on {held}."), {
                format!("{}\n{}", self.rows(free)?, self.rows(held)?)
            }),
            step(&format!("{held} catches up."), self.release()?),
        ])
    }

    /// Makes one standby fall behind.
    ///
    /// # Errors
    /// When there is no such server.
    pub(super) fn hold(&self) -> Result<String> {
        self.psql(NAMES[1], "-c \"select pg_wal_replay_pause()\"")
    }

    /// Lets it catch up.
    ///
    /// # Errors
    /// When there is no such server.
    pub(super) fn release(&self) -> Result<String> {
        self.psql(NAMES[1], "-c \"select pg_wal_replay_resume()\"")
    }

    /// Writes a row on the leader and records what it left through an instance.
    ///
    /// # Errors
    /// When there is no such instance.
    pub(super) fn write(&self, who: &str, words: &str, instance: &str) -> Result<String> {
        let insert = format!("insert into {TABLE} values ('{who}', '{words}')");
        let statements = format!("-qAtX -c \"{insert}\" \\\n    -c \"select tidegate.capture()\"");
        let evidence = self.psql(NAMES[0], &statements)?;
        let data = self.instance(instance)?;
        let asked = format!(
            r#""{{\"session\": {{\"subject\": \"{who}\"}}, \"evidence\": \"$evidence\"}}""#
        );
        Ok(format!("evidence=$({evidence})\nask {data} Record \\\n    {asked}"))
    }

    /// Waits through an instance until a node has what somebody wrote.
    ///
    /// # Errors
    /// When there is no such instance.
    pub(super) fn wait(&self, who: &str, instance: &str) -> Result<String> {
        let whose = format!(r#""session": {{"subject": "{who}"}}, "partition": "main""#);
        self.ask(instance, "WaitUntilFresh", &format!("{whose}, \"budget\": \"10s\""))
    }

    /// Waits through an instance until every node has what somebody wrote.
    ///
    /// # Errors
    /// When there is no such instance.
    pub(super) fn wait_for_all(&self, who: &str, instance: &str) -> Result<String> {
        let whose = format!(r#""session": {{"subject": "{who}"}}, "partition": "main""#);
        let asked = format!("{whose}, \"all\": {{}}, \"budget\": \"10s\"");
        self.ask(instance, "WaitUntilFresh", &asked)
    }

    /// Asks an instance where somebody may read.
    ///
    /// # Errors
    /// When there is no such instance.
    pub(super) fn select(&self, who: &str, instance: &str) -> Result<String> {
        let whose = format!(r#""session": {{"subject": "{who}"}}, "partition": "main""#);
        self.ask(instance, "SelectReplica", &whose)
    }

    /// Asks an instance where somebody may read of whom nothing is known.
    ///
    /// # Errors
    /// When there is no such instance.
    pub(super) fn select_without_session(&self, instance: &str) -> Result<String> {
        self.ask(instance, "SelectReplica", r#""partition": "main""#)
    }

    /// Shows the rows of one server.
    ///
    /// # Errors
    /// When there is no such server.
    pub(super) fn rows(&self, server: &str) -> Result<String> {
        self.psql(server, &format!("-c \"select * from {TABLE}\""))
    }

    /// What operators look at, of one instance and of the others.
    ///
    /// # Errors
    /// When an instance is missing.
    pub(super) fn operators(&self) -> Result<Vec<Step>> {
        let [a, b] = INSTANCES;
        let (first, second) = (self.admin(a)?, self.admin(b)?);
        let step = |words: &str, command: String| (words.to_owned(), command);
        let text = self.set.folder.text();
        Ok(vec![
            step("Whether it is ready, and what it counts:", {
                format!(
                    "curl -sS {first}/readyz\ncurl -sS {first}/metrics | grep -e lag -e selects"
                )
            }),
            step("Which leader followed which:", {
                format!("target/debug/tidegate epochs --admin {second}")
            }),
            step("What the two keep in Redis:", {
                let password = self.set.folder.secret_file("redis_password");
                format!(
                    "REDISCLI_AUTH=$(cat {}) redis-cli -p {} --scan",
                    password.display(),
                    self.set.redis.port()
                )
            }),
            step("Configurations, logs, data and secrets:", format!("ls {text}")),
        ])
    }

    fn psql(&self, server: &str, arguments: &str) -> Result<String> {
        Ok(format!("psql -p {} {arguments}", self.set.databases.port(server)?))
    }

    fn ask(&self, instance: &str, method: &str, asked: &str) -> Result<String> {
        Ok(format!("ask {} {method} \\\n    '{{{asked}}}'", self.instance(instance)?))
    }

    fn instance(&self, name: &str) -> Result<String> {
        let found = self.set.instances.iter().find(|instance| instance.name == name);
        Ok(found.with_context(|| format!("there is no instance {name}"))?.process.endpoint())
    }

    fn admin(&self, name: &str) -> Result<String> {
        let found = self.set.instances.iter().find(|instance| instance.name == name);
        Ok(found.with_context(|| format!("there is no instance {name}"))?.process.admin_endpoint())
    }
}
