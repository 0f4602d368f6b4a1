//! The arguments Patroni gives its callbacks: ACTION ROLE CLUSTER.

use super::{Said, unexpected};

const EXPECTED: &str = "--patroni -- ACTION ROLE CLUSTER, as Patroni calls a callback: ACTION is \
    one of on_start, on_stop, on_restart, on_reload, on_role_change; ROLE one of primary, master, \
    promoted, replica, standby_leader, demoted, uninitialized";

/// Actions, and whether they can change who leads.
const ACTIONS: [(&str, bool); 5] = [
    ("on_start", true),
    ("on_stop", true),
    ("on_restart", true),
    ("on_role_change", true),
    ("on_reload", false),
];

/// Roles, and whether one that has it leads. Patroni said master before it said primary.
const ROLES: [(&str, bool); 7] = [
    ("primary", true),
    ("master", true),
    ("promoted", true),
    ("replica", false),
    ("standby_leader", false),
    ("demoted", false),
    ("uninitialized", false),
];

/// Reads them.
///
/// # Errors
/// What is wrong with them, and what is expected.
pub(super) fn read(args: &[&str]) -> Result<Said, String> {
    let wrong = |problem: &str| Err(unexpected(EXPECTED, problem));
    let [action, role, cluster] = *args else {
        return wrong(&format!("{} arguments where Patroni gives 3", args.len()));
    };
    let Some((_, matters)) = ACTIONS.iter().find(|(known, _)| *known == action) else {
        return wrong(&format!("`{action}` is no action of Patroni"));
    };
    let Some((_, leads)) = ROLES.iter().find(|(known, _)| *known == role) else {
        return wrong(&format!("`{role}` is no role of Patroni"));
    };
    if cluster.is_empty() {
        return wrong("the cluster has no name");
    }
    let words = format!("patroni {action} {role} {cluster}");
    // A leader that stops does not lead.
    Ok(Said { words, leads: *leads && action != "on_stop", matters: *matters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_patroni_says_is_read() {
        let said = read(&["on_role_change", "primary", "demo"]).expect("read");
        assert_eq!(
            (said.words.as_str(), said.leads),
            ("patroni on_role_change primary demo", true)
        );
        assert!(read(&["on_role_change", "master", "demo"]).is_ok_and(|said| said.leads));
        assert!(read(&["on_role_change", "replica", "demo"]).is_ok_and(|said| !said.leads));
        assert!(read(&["on_stop", "primary", "demo"]).is_ok_and(|said| !said.leads));
        assert!(read(&["on_reload", "primary", "demo"]).is_ok_and(|said| !said.matters));
    }

    #[test]
    fn anything_else_is_refused_and_told_what_is_expected() {
        for args in [
            &[][..],
            &["on_role_change"],
            &["on_role_change", "primary"],
            &["on_role_change", "primary", ""],
            &["on_role_change", "primary", "demo", "more"],
            &["primary", "on_role_change", "demo"],
            &["on_fire", "primary", "demo"],
            &["ON_START", "primary", "demo"],
            &["on_start", "leader", "demo"],
        ] {
            let wrong = read(args).expect_err("wrong");
            assert!(wrong.contains("expected: --patroni -- ACTION ROLE CLUSTER"), "{wrong}");
        }
    }
}
