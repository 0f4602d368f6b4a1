//! Seeds that found something, kept for ever: each line of a corpus file is one world.
//!
//! `SEED PROFILE SCALE GUARD NOTE`: with the guard switched off the world must break a promise, as
//! it is none; `-` stands for no guard: then it broke one before something was mended.

use tidegate_core::guards::Guards;

use crate::options::{Options, Profile, Scale};
use crate::run::live;
use crate::schedule::schedule;

/// One world of the corpus.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its seed.
    pub seed: u64,
    /// Its profile.
    pub profile: Profile,
    /// How much is done in it.
    pub scale: Scale,
    /// The guard it needs.
    pub guard: Option<&'static str>,
    /// What it found.
    pub note: String,
}

/// Reads a corpus file; lines that begin with `#` are for people.
///
/// # Panics
/// On a line that is no world.
pub fn read(text: &str) -> Vec<Kept> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| parse(line).expect("SEED PROFILE SCALE GUARD NOTE")).collect()
}

fn parse(line: &str) -> Option<Kept> {
    let mut words = line.splitn(5, ' ');
    let seed = words.next()?.parse().ok()?;
    let profile = Profile::named(words.next()?)?;
    let scale = match words.next()? {
        "test" => Scale::Test,
        "prove" => Scale::Prove,
        _ => return None,
    };
    let guard = match words.next()? {
        "-" => None,
        name => Some(Guards::ALL.iter().find(|(guard, _)| *guard == name)?.0),
    };
    Some(Kept { seed, profile, scale, guard, note: words.next()?.to_owned() })
}

impl Kept {
    /// Lives the world again; what is wrong with it, if anything.
    pub fn replay(&self) -> Option<String> {
        let options = Options::of(self.seed, self.profile, self.scale, None);
        let actions = schedule(&options);
        if let Some(violation) = live(&options, &actions, false).violation {
            return Some(format!("{}: {violation:?} with every guard on", self.seed));
        }
        let guard = self.guard.filter(|_| cfg!(feature = "unsafe-guards"))?;
        let off = Options::of(self.seed, self.profile, self.scale, Some(guard));
        let broken = live(&off, &actions, false).violation;
        broken.is_none().then(|| format!("{}: nothing breaks without `{guard}`", self.seed))
    }
}
