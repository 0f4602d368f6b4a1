//! A small language for what a partition sees and is asked.
//!
//! - `names`: nodes, lives, epochs and positions as words
//! - `stage`: one partition, its clock, and the rows that stand in the databases
//! - `ask`: what a session depends on, and how its read is decided
//! - `words`: effects, plans and demands as words
//! - `file`: paragraphs of facts and verdicts
//!
//! The tests beside them: the data files, each guard, the partition's own rules, predictions, and
//! laws.

mod ask;
mod eta_tests;
mod file;
mod guard_tests;
mod law_tests;
mod names;
mod partition_tests;
mod stage;
mod track_record_tests;
mod words;
mod world;
