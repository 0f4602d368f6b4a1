//! `tidegate sql`: prints the database objects. Connects to nothing.

use std::io::Write;

use anyhow::Result;
use clap::Args;

use crate::sources::postgres::schema;

/// Print the database objects.
#[derive(Args, Debug)]
#[command(after_help = "\
Example, on the leader:
  tidegate sql | psql -d shop
  tidegate sql --functions-only | psql -d reports   for another database of the same server")]
pub(super) struct Sql {
    /// Leave out the table, for databases that are not the home database of their partition.
    #[arg(long)]
    functions_only: bool,
}

impl Sql {
    /// Prints them.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        if self.functions_only {
            out.write_all(schema::elsewhere().as_bytes())?;
        } else {
            out.write_all(schema::HOME.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ran;

    #[test]
    fn the_table_is_printed_unless_only_functions_are_wanted() {
        let (code, all, _) = ran(&["sql"]);
        assert_eq!(code, 0);
        let (code, functions, _) = ran(&["sql", "--functions-only"]);
        assert_eq!(code, 0);
        assert!(all.contains("create table") && !functions.contains("create table"));
        assert!(functions.contains("tidegate.incarnation()"));
    }
}
