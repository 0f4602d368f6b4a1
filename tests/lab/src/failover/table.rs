//! The tables of a run: what each kind looks like from outside, and what came of its rows.
//!
//! Judges nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use super::judge::{Judgement, Reborn, Sight, Way};
use super::kind::Kind;

/// What changed from outside, in words.
type Look = [String; 8];

const HEADS: [&str; 8] =
    ["timeline", "start", "reset", "replay", "begins", "was standby", "last row", "other leader"];

/// How a new epoch looked when it was first seen, against what was seen before.
fn look(sight: &Sight) -> Look {
    let before = sight.before.as_ref();
    let changed = |same: Option<bool>| match same {
        Some(true) => "kept",
        Some(false) => "new",
        None => "-",
    };
    let step = i64::from(sight.epoch.timeline) - i64::from(sight.parent.map_or(0, |p| p.timeline));
    let replay = match sight.shown.replay {
        None => "none",
        Some(_) if before.is_some_and(|before| before.writes.is_none()) => "frozen",
        Some(_) if before.is_some_and(|before| before.replay == sight.shown.replay) => "kept",
        Some(_) => "new",
    };
    let begins = match sight.flush_seen {
        None => "no flush seen",
        Some(flush) if sight.shown.begins() == flush => "at flush",
        Some(flush) if sight.shown.begins() > flush => "above flush",
        Some(_) if sight.flush_starts_page => "below, page",
        Some(_) => "below flush",
    };
    let standby = match (sight.was_standby, sight.received_timeline, sight.parent) {
        (false, ..) => "no",
        (true, Some(timeline), Some(parent)) if timeline == parent.timeline => "yes, streamed",
        (true, Some(_), _) => "yes, other",
        (true, None, _) => "yes, cut off",
    };
    [
        if step == 0 { "same".to_owned() } else { format!("{step:+}") },
        changed(before.map(|before| before.life.0 == sight.shown.life.0)).to_owned(),
        changed(before.map(|before| before.life.1 == sight.shown.life.1)).to_owned(),
        replay.to_owned(),
        begins.to_owned(),
        standby.to_owned(),
        if sight.row_is_older { "older" } else { "newest" }.to_owned(),
        match sight.beside {
            None => "none",
            Some(false) => "silent",
            Some(true) => "answers",
        }
        .to_owned(),
    ]
}

/// All tables of one version.
pub(super) fn tables(found: &Judgement, interval: Duration) -> String {
    let mut text = String::new();
    leaders(found, interval, &mut text);
    standbys(found, &mut text);
    rows(found, &mut text);
    wrong_ways(found, &mut text);
    text
}

fn line(text: &mut String, cells: &[(String, usize)]) {
    let cells = cells.iter().map(|(cell, width)| format!("{cell:<width$}"));
    // A string takes everything.
    _ = writeln!(text, "{}", cells.collect::<String>().trim_end());
}

/// New epochs, by kind; the same letter means that nothing outside tells them apart.
fn leaders(found: &Judgement, interval: Duration, text: &mut String) {
    let mut letters: BTreeMap<Look, usize> = BTreeMap::new();
    let mut by_kind: BTreeMap<(Kind, usize), (u64, u64, Look, &str)> = BTreeMap::new();
    for (kind, sight) in &found.sights {
        let look = look(sight);
        let next = letters.len();
        let letter = *letters.entry(look.clone()).or_insert(next);
        let entry =
            by_kind.entry((*kind, letter)).or_insert_with(|| (0, 0, look, sight.rule.name()));
        entry.0 += 1;
        entry.1 = entry.1.max(sight.unseen_for);
    }
    _ = writeln!(text, "\nNew leaders and new lives of leaders, as they were first seen\n");
    let mut heads = vec![("kind".to_owned(), 31), ("n".to_owned(), 4), ("look".to_owned(), 6)];
    heads.extend(HEADS.iter().map(|head| ((*head).to_owned(), 15)));
    heads.push(("gap".to_owned(), 6));
    heads.push(("taken for".to_owned(), 0));
    line(text, &heads);
    let mut kinds: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for ((kind, letter), (count, gap, look, rule)) in &by_kind {
        kinds.entry(*letter).or_default().insert(kind.name());
        let mut cells = vec![(kind.name().to_owned(), 31), (count.to_string(), 4)];
        cells.push((name(*letter), 6));
        cells.extend(look.iter().map(|cell| (cell.clone(), 15)));
        let polls = Duration::from_nanos(*gap).as_secs_f64() / interval.as_secs_f64();
        cells.push((format!("{polls:.1}"), 6));
        cells.push(((*rule).to_owned(), 0));
        line(text, &cells);
    }
    _ = writeln!(text, "\nKinds that nothing seen of the leader tells apart\n");
    for (letter, kinds) in kinds.iter().filter(|(_, kinds)| kinds.len() > 1) {
        let kinds: Vec<&str> = kinds.iter().copied().collect();
        line(text, &[(name(*letter), 6), (kinds.join("; "), 0)]);
    }
}

fn name(letter: usize) -> String {
    format!("{:02}", letter + 1)
}

/// New lives of standbys, by kind.
fn standbys(found: &Judgement, text: &mut String) {
    let mut by_look: BTreeMap<(Kind, [&str; 5]), (u64, u64)> = BTreeMap::new();
    for (kind, reborn) in &found.reborn {
        let entry = by_look.entry((*kind, standby_look(reborn))).or_default();
        entry.0 += 1;
        let back = reborn.before.position().unwrap_or(0);
        entry.1 = entry.1.max(back.saturating_sub(reborn.shown.position().unwrap_or(0)));
    }
    _ = writeln!(text, "\nServers that came back as standbys, as they were first seen\n");
    let heads = ["was", "start", "reset", "receiver", "row"];
    let mut cells = vec![("kind".to_owned(), 31), ("n".to_owned(), 4)];
    cells.extend(heads.iter().map(|head| ((*head).to_owned(), 15)));
    cells.push(("most bytes behind what it had shown".to_owned(), 0));
    line(text, &cells);
    for ((kind, look), (count, back)) in &by_look {
        let mut cells = vec![(kind.name().to_owned(), 31), (count.to_string(), 4)];
        cells.extend(look.iter().map(|cell| ((*cell).to_owned(), 15)));
        cells.push((back.to_string(), 0));
        line(text, &cells);
    }
}

fn standby_look(reborn: &Reborn) -> [&'static str; 5] {
    let (before, shown) = (&reborn.before, &reborn.shown);
    let changed = |same: bool| if same { "kept" } else { "new" };
    let receiver = match (shown.receives, shown.row) {
        (None, _) => "none",
        (Some(timeline), Some(row)) if timeline == row.timeline => "row's",
        (Some(_), _) => "another",
    };
    [
        if before.writes.is_some() { "leader" } else { "standby" },
        changed(before.life.0 == shown.life.0),
        changed(before.life.1 == shown.life.1),
        receiver,
        changed(before.row == shown.row),
    ]
}

/// What became of the rows, and what the other servers looked like in the end.
fn rows(found: &Judgement, text: &mut String) {
    _ = writeln!(text, "\nRows written before the last leader's life, and the other servers\n");
    let heads = [
        ("kind", 31),
        ("n", 4),
        ("alive", 7),
        ("doubted", 9),
        ("lost", 6),
        ("maybe lost", 12),
        ("on standbys", 13),
        ("the other servers in the end", 0),
    ];
    line(text, &heads.map(|(head, width)| (head.to_owned(), width)));
    for (kind, count) in &found.played {
        let rows = found.rows.get(kind).copied().unwrap_or_default();
        let ends = found.ends.iter().filter(|((of, _), _)| of == kind);
        let ends: Vec<String> = ends.map(|((_, end), n)| format!("{n} {end}")).collect();
        let cells = [
            (kind.name().to_owned(), 31),
            (count.to_string(), 4),
            (rows.alive.to_string(), 7),
            (rows.doubted.to_string(), 9),
            (rows.lost.to_string(), 6),
            (rows.possibly_lost.to_string(), 12),
            (rows.covered.to_string(), 13),
            (ends.join(", "), 0),
        ];
        line(text, &cells);
    }
}

/// What rules that look right would have answered.
fn wrong_ways(found: &Judgement, text: &mut String) {
    _ = writeln!(text, "\nRules that look right, and how often each was wrong here\n");
    for way in Way::WRONG {
        let of = found.wrong_ways.iter().filter(|((wrong, _), count)| *wrong == way && **count > 0);
        let kinds: Vec<String> = of.map(|((_, kind), n)| format!("{n} {}", kind.name())).collect();
        line(text, &[(way.name().to_owned(), 54), (kinds.join("; "), 0)]);
    }
}
