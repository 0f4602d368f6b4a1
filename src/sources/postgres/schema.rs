//! The database objects of Tidegate, as the SQL an operator runs once.
//!
//! `tidegate sql` prints it for psql; nothing here connects anywhere.

/// The SQL for the home database of a partition: roles, table and functions.
pub const HOME: &str = include_str!("schema.sql");

/// The version of the objects, as `tidegate.version()` tells it.
pub const VERSION: u32 = 1;

const HOME_ONLY_BEGINS: &str = "-- >>> home database only";
const HOME_ONLY_ENDS: &str = "-- <<< home database only";

/// The SQL for other databases of the same server: the same functions, which do not mention the
/// table and answer with an empty row.
pub fn elsewhere() -> String {
    let mut left_out = false;
    let mut text = String::with_capacity(HOME.len());
    for line in HOME.lines() {
        left_out |= line == HOME_ONLY_BEGINS;
        if !left_out {
            text.push_str(line);
            text.push('\n');
        }
        left_out &= line != HOME_ONLY_ENDS;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_marks_stand_in_the_file_once() {
        for mark in [HOME_ONLY_BEGINS, HOME_ONLY_ENDS] {
            assert_eq!(HOME.lines().filter(|line| *line == mark).count(), 1, "{mark}");
        }
    }

    #[test]
    fn elsewhere_has_the_functions_and_no_table() {
        let text = elsewhere();
        assert!(!text.contains("create table") && HOME.contains("create table"));
        for part in ["tidegate.KIND()", "tidegate.incarnation()", "create role", "commit;"] {
            assert!(text.contains(part), "{part} is missing");
        }
    }

    #[test]
    fn the_version_is_the_one_the_objects_tell() {
        assert!(HOME.contains(&format!("return {VERSION};")));
    }
}
