//! Paragraphs of facts and verdicts, and the test that plays them.
//!
//! A paragraph is a comment, a command, facts, `----`, and the verdict, up to an empty line. The
//! command names the folder; every line means the same under each of them.

use std::fs;
use std::path::PathBuf;

use super::stage::Stage;
use super::words::Told;

const RULER: &str = "----";

/// One paragraph of a file.
struct Paragraph {
    comment: Vec<String>,
    command: String,
    facts: Vec<String>,
    verdict: Vec<String>,
}

impl Paragraph {
    fn parse(text: &str) -> Self {
        let lines = || text.lines().map(str::to_owned);
        let comment: Vec<String> = lines().take_while(|line| line.starts_with('#')).collect();
        let mut rest = lines().skip(comment.len());
        let command = rest.next().unwrap_or_default();
        let facts = rest.by_ref().take_while(|line| line != RULER).collect();
        Self { comment, command, facts, verdict: rest.collect() }
    }

    fn play(&self) -> Vec<String> {
        let kind = match self.command.as_str() {
            "wait" => Told::Waits,
            "failover" => Told::Notables,
            _ => Told::Nothing,
        };
        let mut stage = Stage::new();
        let told: Vec<String> = self.facts.iter().flat_map(|fact| stage.tell(fact, kind)).collect();
        if told.is_empty() { vec!["nothing".to_owned()] } else { told }
    }

    fn with_verdict(&self, verdict: &[String]) -> String {
        let command = [self.command.clone()];
        let ruler = [RULER.to_owned()];
        let lines = self.comment.iter().chain(&command).chain(&self.facts);
        let lines: Vec<&str> = lines.chain(&ruler).chain(verdict).map(String::as_str).collect();
        lines.join("\n")
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(folder);
    let entries = fs::read_dir(&data).expect("a folder of stories");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a story").path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Plays every paragraph of a folder; says how many there are.
fn play(folder: &str) -> usize {
    let rewrite = std::env::var_os("REWRITE").is_some();
    let (mut count, mut wrong) = (0, Vec::new());
    for path in files(folder) {
        let text = fs::read_to_string(&path).expect("a readable story");
        let mut written = Vec::new();
        for block in text.split("\n\n").map(|block| block.trim_matches('\n')) {
            if block.is_empty() {
                continue;
            }
            let paragraph = Paragraph::parse(block);
            assert_eq!(paragraph.command, folder, "the command of: {block}");
            assert!(!paragraph.comment.is_empty(), "{path:?} has no comment at: {block}");
            let told = paragraph.play();
            written.push(paragraph.with_verdict(&told));
            if told != paragraph.verdict {
                let told = told.join("\n");
                wrong.push(format!("{}\n{block}\nbut the core says:\n{told}", path.display()));
            }
            count += 1;
        }
        if rewrite {
            fs::write(&path, written.join("\n\n") + "\n").expect("a writable story");
        }
    }
    assert!(rewrite || wrong.is_empty(), "{}", wrong.join("\n\n"));
    count
}

#[test]
fn every_story_has_its_verdict() {
    let count: usize = ["select", "wait", "failover", "resolve"].into_iter().map(play).sum();
    assert!(count >= 40, "only {count} paragraphs were found");
}
