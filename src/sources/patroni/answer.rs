//! Answers of Patroni as values: who leads on which timeline, and where timelines ended.
//!
//! What it adds to its answers over time is passed over; what is needed and missing is an error.

use serde::Deserialize;
use serde_json::Value;
use tidegate_core::position::Lsn;

use crate::ports::TimelineEnd;

/// Who leads, as `GET /cluster` says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Leading {
    /// Its name in Patroni; `None`: nobody holds the leader's key.
    pub(super) leader: Option<String>,
    /// The timeline it writes, where Patroni knows it.
    pub(super) timeline: Option<u32>,
}

#[derive(Deserialize)]
struct Cluster {
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    role: String,
    timeline: Option<u32>,
}

/// Reads the answer to `GET /cluster`.
pub(super) fn leading(bytes: &[u8]) -> Result<Leading, String> {
    let cluster: Cluster = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let leader = cluster.members.into_iter().find(|member| member.role == "leader");
    Ok(leader.map_or_else(Leading::default, |leader| Leading {
        leader: Some(leader.name),
        timeline: leader.timeline,
    }))
}

/// Reads the answer to `GET /history`: a list of `[timeline, position, reason, ...]`.
pub(super) fn ends(bytes: &[u8]) -> Result<Vec<TimelineEnd>, String> {
    let lines: Vec<Vec<Value>> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    lines.iter().map(|line| end(line)).collect()
}

fn end(line: &[Value]) -> Result<TimelineEnd, String> {
    let wrong = || format!("`{}` is no end of a timeline", Value::from(line.to_vec()));
    let [timeline, position, ..] = line else { return Err(wrong()) };
    let timeline = timeline.as_u64().and_then(|number| u32::try_from(number).ok());
    let (Some(timeline), Some(position)) = (timeline, position.as_u64()) else {
        return Err(wrong());
    };
    Ok(TimelineEnd { timeline, at: Lsn::new(position) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_found_among_members_of_any_role() {
        let text = r#"{"members": [
            {"name": "a", "role": "replica", "state": "streaming", "timeline": 4, "lag": "unknown"},
            {"name": "b", "role": "leader", "state": "running", "timeline": 5, "port": 5432}
        ], "scope": "s", "pause": true}"#;
        let expected = Leading { leader: Some("b".to_owned()), timeline: Some(5) };
        assert_eq!(leading(text.as_bytes()), Ok(expected));
        // A leader that is just starting has no timeline yet, and a standby cluster's never writes.
        let starting = br#"{"members": [{"name": "b", "role": "leader"}]}"#;
        let expected = Leading { leader: Some("b".to_owned()), timeline: None };
        assert_eq!(leading(starting), Ok(expected));
        let standby = br#"{"members": [{"name": "b", "role": "standby_leader", "timeline": 5}]}"#;
        assert_eq!(leading(standby), Ok(Leading::default()));
    }

    #[test]
    fn what_is_no_cluster_is_refused() {
        for text in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"members": {}}"#,
            r#"{"members": [{"role": "leader"}]}"#,
            r#"{"members": [{"name": "b", "role": "leader", "timeline": -1}]}"#,
            r#"{"members": [{"name": "b", "role": "leader", "timeline": 4294967296}]}"#,
            r#"{"members": [{"name": 7, "role": "leader"}]}"#,
        ] {
            assert!(leading(text.as_bytes()).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn a_history_tells_where_each_timeline_ended() {
        let text = r#"[
            [1, 83886240, "no recovery target specified"],
            [2, 100663456, "no recovery target specified", "2026-11-30T12:00:00+00:00", "b"]
        ]"#;
        let expected = vec![
            TimelineEnd { timeline: 1, at: Lsn::new(83_886_240) },
            TimelineEnd { timeline: 2, at: Lsn::new(100_663_456) },
        ];
        assert_eq!(ends(text.as_bytes()), Ok(expected));
        assert_eq!(ends(b"[]"), Ok(vec![]));
    }

    #[test]
    fn what_is_no_history_is_refused() {
        for text in ["", "{}", "[1]", "[[]]", "[[1]]", r#"[[1, "0/5"]]"#, "[[-1, 5]]", "[[1, 1.5]]"]
        {
            assert!(ends(text.as_bytes()).is_err(), "{text} was accepted");
        }
    }
}
