//! The arguments of repmgr's event_notification_command: %n %e %s "%t" "%d".

use super::{Said, unexpected};

const EXPECTED: &str = "--repmgr -- %n %e %s \"%t\" \"%d\" in event_notification_command: node id \
    (a number), event (as standby_promote), success (1 or 0), time, details (may be empty)";

/// Characters of the longest event; repmgr's own have about thirty.
const EVENT_CHARS_MAX: usize = 64;
/// Events after which the node that reports them leads.
const LEADS: [&str; 3] = ["standby_promote", "repmgrd_failover_promote", "standby_switchover"];

/// Reads them.
///
/// # Errors
/// What is wrong with them, and what is expected.
pub(super) fn read(args: &[&str]) -> Result<Said, String> {
    let wrong = |problem: &str| Err(unexpected(EXPECTED, problem));
    let [id, event, success, time, details] = *args else {
        return wrong(&format!("{} arguments where 5 are expected", args.len()));
    };
    if id.is_empty() || id.len() > 10 || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return wrong(&format!("`{id}` is no node id"));
    }
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_event = (1..=EVENT_CHARS_MAX).contains(&event.len()) && event.bytes().all(is_word);
    if !is_event {
        return wrong(&format!("`{event}` is no event"));
    }
    let succeeded = match success {
        "1" => true,
        "0" => false,
        other => return wrong(&format!("`{other}` is neither 1 nor 0")),
    };
    if time.is_empty() {
        return wrong("the time is missing");
    }
    let outcome = if succeeded { "done" } else { "failed" };
    let words = format!("repmgr node {id} {event} {outcome} {time} {details}");
    let leads = succeeded && LEADS.contains(&event);
    // Any event may come with a change, and a poll costs little.
    Ok(Said { words: words.trim_end().to_owned(), leads, matters: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2026-11-30 12:00:00.123456+00";

    #[test]
    fn what_repmgr_says_is_read() {
        let said = read(&["2", "standby_promote", "1", TIME, "promoted"]).expect("read");
        assert_eq!(said.words, format!("repmgr node 2 standby_promote done {TIME} promoted"));
        assert!(said.leads && said.matters);
        let failed = read(&["2", "standby_promote", "0", TIME, ""]).expect("read");
        assert!(!failed.leads && failed.matters);
    }

    #[test]
    fn anything_else_is_refused_and_told_what_is_expected() {
        for args in [
            &[][..],
            &["2", "standby_promote", "1"],
            &["2", "standby_promote", "1", TIME, "a", "b"],
            &["%n", "%e", "%s", "%t", "%d"],
            &["two", "standby_promote", "1", TIME, ""],
            &["2", "standby promote", "1", TIME, ""],
            &["2", "", "1", TIME, ""],
            &["2", "standby_promote", "t", TIME, ""],
            &["2", "standby_promote", "1", "", ""],
        ] {
            let wrong = read(args).expect_err("wrong");
            assert!(wrong.contains("expected: --repmgr -- %n %e %s"), "{wrong}");
        }
    }
}
