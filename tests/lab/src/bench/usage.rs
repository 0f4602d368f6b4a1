//! What a process has used, as the kernel counts it. Starts and ends no process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Ticks in which the kernel counts processor time for `/proc`; fixed on Linux.
const TICKS_PER_SECOND: u32 = 100;

/// Processor time a process has used so far, all its threads together, in ticks of 10 ms.
///
/// # Errors
/// When there is no such process.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let ticks = ticks_of(&text).with_context(|| format!("unreadable: {text}"))?;
    Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
}

/// Bytes a process holds in memory.
///
/// # Errors
/// When there is no such process.
pub(super) fn memory_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = words.context("no VmRSS")?.parse()?;
    Ok(kib * 1024)
}

/// User and system time; the name in parentheses before them may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 3 0 99 1 1";
        assert_eq!(ticks_of(stat), Some(300));
        assert_eq!(ticks_of("7 (x"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let own = std::process::id();
        assert!(cpu(own).is_ok());
        assert!(memory_bytes(own).is_ok_and(|bytes| bytes > 0));
    }
}
