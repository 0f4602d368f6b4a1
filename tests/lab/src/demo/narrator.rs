//! What the demo tells the person who watches it: chapters and short lines on standard output.
//!
//! Judges nothing.

use std::io::Write;
use std::time::Duration;

use tidegate_client::Lag;

const COLUMNS: usize = 88;
const INDENT: &str = "  ";

/// Opens a chapter.
pub(crate) fn chapter(title: &str) {
    line(&format!("\n{title}"));
}

/// Tells one thing, in lines of a readable width.
pub(crate) fn say(text: &str) {
    line(&wrapped(text));
}

fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::from(INDENT), INDENT.len());
    for word in text.split(' ') {
        if width > INDENT.len() && width + 1 + word.len() > COLUMNS {
            lines.push('\n');
            lines.push_str(INDENT);
            width = INDENT.len();
        } else if width > INDENT.len() {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += word.len();
    }
    lines
}

/// Writes a line as it is.
pub(crate) fn line(text: &str) {
    // Whoever stopped reading does not change what is checked.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}

/// A number of bytes for people.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..100_000 => format!("{}.{} kB", count / 1_000, count % 1_000 / 100),
        _ => format!("{}.{} MB", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// A time for people.
pub(super) fn span(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// How far a node is said to be behind, for people.
pub(super) fn lag(lag: &Lag) -> String {
    let time = lag.time.map_or_else(String::new, |time| format!(", {}", span(time)));
    format!("{}{time}", bytes(lag.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_words_and_long_words_stay_whole() {
        let words = wrapped(&format!("{} {} end", "a".repeat(60), "b".repeat(90)));
        assert_eq!(words, format!("  {}\n  {}\n  end", "a".repeat(60), "b".repeat(90)));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_250), "1.2 kB");
        assert_eq!(bytes(3_250_000), "3.2 MB");
        assert_eq!(span(Duration::from_millis(340)), "340 ms");
        assert_eq!(span(Duration::from_millis(2_340)), "2.3 s");
    }
}
