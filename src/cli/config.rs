//! `tidegate config`: looks at configuration files. Starts nothing and opens no other file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::config::{Config, TESTED_MAJORS, environment};

/// What to do with a configuration file.
#[derive(Subcommand, Debug)]
pub(super) enum ConfigCommand {
    /// Check a file together with the TIDEGATE_ variables of this environment.
    ///
    /// Names what is wrong with its line: first the first setting that cannot be read; once all
    /// can be, every one that does not fit. Key and password files are not opened, so a file can
    /// be checked on another machine.
    Check {
        /// The file to check, as docs/tidegate.example.toml shows one.
        file: PathBuf,
    },
}

impl ConfigCommand {
    /// Does it.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<()> {
        let Self::Check { file } = self;
        let config = Config::load(&file, environment())?;
        let nodes: usize = config.partitions.iter().map(|partition| partition.nodes.len()).sum();
        writeln!(
            out,
            "{} is fine: cluster {}, partitions {}, nodes {}, data on {}, admin on {}",
            file.display(),
            config.cluster.name,
            config.partitions.len(),
            nodes,
            config.listen.data,
            config.listen.admin,
        )?;
        for partition in &config.partitions {
            let majors = |majors: &[u32]| {
                let majors: Vec<String> = majors.iter().map(ToString::to_string).collect();
                majors.join(", ")
            };
            let name = &partition.name;
            write!(out, "partition {name}: sessions from PostgreSQL {}", majors(&TESTED_MAJORS))?;
            let untested: Vec<u32> = partition.untested_majors().collect();
            if !untested.is_empty() {
                write!(out, "; untested, by `accepted_majors`: {}", majors(&untested))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ran;

    #[test]
    fn a_wrong_file_ends_with_1_and_names_each_wrong_setting() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("t.toml");
        let text = "[cluster]\nname = \"c\"\n[store]\nkind = \"memory\"\nstate_dir = \"/s\"\n\
                    [listen]\ndata = \"0.0.0.0:1\"\n";
        std::fs::write(&file, text).expect("written");
        let file = file.to_str().expect("text");
        let (code, out, err) = ran(&["config", "check", file]);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains(&format!("{file}:7: `listen.data`")), "{err}");
        assert!(err.contains("`partition`"), "{err}");
    }

    #[test]
    fn a_missing_file_ends_with_1() {
        let (code, _, err) = ran(&["config", "check", "/nonexistent/t.toml"]);
        assert_eq!(code, 1);
        assert!(err.starts_with("error: /nonexistent/t.toml: "), "{err}");
    }

    #[test]
    fn the_example_is_fine() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tidegate.example.toml");
        let (code, out, err) = ran(&["config", "check", file]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("is fine: cluster shop, partitions 1, nodes 2"), "{out}");
        assert!(
            out.ends_with("partition main: sessions from PostgreSQL 15, 16, 17, 18\n"),
            "{out}"
        );
    }

    #[test]
    fn majors_accepted_untested_are_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("t.toml");
        let example = include_str!("../../docs/tidegate.example.toml");
        std::fs::write(&file, example.replace("#accepted_majors", "accepted_majors"))
            .expect("written");
        let (code, out, err) = ran(&["config", "check", file.to_str().expect("text")]);
        assert_eq!((code, err.as_str()), (0, ""));
        let shown = "15, 16, 17, 18; untested, by `accepted_majors`: 14\n";
        assert!(out.ends_with(shown), "{out}");
    }
}
