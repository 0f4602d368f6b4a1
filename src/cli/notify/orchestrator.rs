//! What orchestrator gives its hooks: variables that begin with ORC_, or placeholders it replaces.

use super::{Said, unexpected};

const EXPECTED: &str = "--orchestrator with the ORC_ variables orchestrator sets for its hooks, or \
    --orchestrator -- '{failureType}' '{failureClusterAlias}' '{failedHost}' '{successorHost}'";

/// Reads the arguments or, without any, the environment.
///
/// # Errors
/// What is wrong with them, and what is expected.
pub(super) fn read(args: &[&str], var: impl Fn(&str) -> Option<String>) -> Result<Said, String> {
    let wrong = |problem: &str| Err(unexpected(EXPECTED, problem));
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    let [failure, cluster, failed, successor] = match *args {
        [] => {
            let Some(failure) = set("ORC_FAILURE_TYPE") else {
                return wrong("no arguments, and ORC_FAILURE_TYPE is not set");
            };
            let cluster = set("ORC_FAILURE_CLUSTER_ALIAS").or_else(|| set("ORC_FAILURE_CLUSTER"));
            let failed = set("ORC_FAILED_HOST").unwrap_or_default();
            let successor = set("ORC_SUCCESSOR_HOST").unwrap_or_default();
            [failure, cluster.unwrap_or_default(), failed, successor]
        }
        [failure, cluster, failed, successor] => [failure, cluster, failed, successor].map(filled),
        _ => return wrong(&format!("{} arguments where 0 or 4 are expected", args.len())),
    };
    if failure.is_empty() || !failure.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return wrong(&format!("`{failure}` is no type of failure"));
    }
    let part = |name: &str, value: &str| {
        if value.is_empty() { String::new() } else { format!(" {name} {value}") }
    };
    let (of, from, to) = (part("of", &cluster), part("from", &failed), part("to", &successor));
    Ok(Said { words: format!("orchestrator {failure}{of}{from}{to}"), leads: false, matters: true })
}

/// Without a successor its placeholder stays as it is.
fn filled(argument: &str) -> String {
    let is_unfilled = argument.starts_with('{') && argument.ends_with('}');
    if is_unfilled { String::new() } else { argument.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn arguments_and_the_environment_are_read() {
        let said = read(&["DeadMaster", "shop", "db-1", "db-2"], nothing).expect("read");
        assert_eq!(said.words, "orchestrator DeadMaster of shop from db-1 to db-2");
        let failed = read(&["DeadMaster", "shop", "db-1", "{successorHost}"], nothing);
        assert_eq!(failed.expect("read").words, "orchestrator DeadMaster of shop from db-1");
        let set = |name: &str| match name {
            "ORC_FAILURE_TYPE" => Some("DeadMaster".to_owned()),
            "ORC_SUCCESSOR_HOST" => Some("db-2".to_owned()),
            _ => None,
        };
        assert_eq!(read(&[], set).expect("read").words, "orchestrator DeadMaster to db-2");
    }

    #[test]
    fn anything_else_is_refused_and_told_what_is_expected() {
        for args in [
            &[][..],
            &["DeadMaster"],
            &["DeadMaster", "shop", "db-1", "db-2", "db-3"],
            &["{failureType}", "shop", "db-1", "db-2"],
            &["", "shop", "db-1", "db-2"],
            &["dead master", "shop", "db-1", "db-2"],
        ] {
            let wrong = read(args, nothing).expect_err("wrong");
            assert!(wrong.contains("expected: --orchestrator"), "{wrong}");
        }
    }
}
