//! What the core decides, as stories in words: the files of `tests/data`, and tests told likewise.
//!
//! Every story goes through `Partition::handle`, `resolve` and `decide`, as a real read does. There
//! is no database here and no clock: a line of a story is one thing that happens, ten milliseconds
//! after the line before it. `REWRITE=1` writes the verdicts of the files anew.

#![expect(clippy::expect_used, reason = "a story that cannot be read fails its test")]

mod script;
