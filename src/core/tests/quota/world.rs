//! Eight instances with clocks of their own, and one store between them, in steps of a millisecond.
//!
//! Each instance is the core's own `CapShare`; the store is one book that is compared and swapped.
//! What befalls them is drawn from a seed. It judges nothing.

use tidegate_core::guards::Guards;
use tidegate_core::instant::Instant;
use tidegate_core::routing::{CapShare, InstanceLife, Quota, QuotaBook, QuotaRules};

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) const INSTANCES: usize = 8;
const STEP_NANOS: u64 = 1_000_000;
/// Steps in a second.
const SECOND: usize = 1_000;
/// Steps between two exchanges of one instance.
const INTERVAL: u64 = 200;
/// Steps after which an exchange without an answer has failed.
const TIMEOUT: u64 = 1_000;
const CAP: u32 = 400;
/// One in so many steps something happens.
const SELDOM: u64 = 4_000;

/// As the shell uses them.
const RULES: QuotaRules = QuotaRules {
    lease: Duration::from_secs(1),
    reclaim: Duration::from_millis(1_250),
    remember: Duration::from_secs(60),
    fallback_instances: 8,
};

/// Numbers that look random, the same for each seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    fn roll_index(&mut self, below: usize) -> usize {
        usize::try_from(self.roll(below as u64)).unwrap_or(0)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }
}

/// The clock of one machine.
#[derive(Clone, Copy)]
struct LocalClock {
    offset: u64,
    /// By how much it runs fast, in parts per million, from 500 too slow on.
    fast: u64,
}

impl LocalClock {
    fn at(self, step: u64) -> Instant {
        let nanos = step * STEP_NANOS;
        Instant::from_nanos(self.offset + nanos / 1_000_000 * (999_500 + self.fast))
    }
}

/// What befalls a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// An instance ends, and tells nobody.
    Kill,
    /// An instance ends.
    Leave,
    /// An instance starts.
    Join,
    /// The store is away, or there again.
    Away,
    /// The store forgets everything, with or without a new name.
    Forget,
    /// A replica of the store that was behind is promoted.
    Promote,
    /// An instance does not reach the store that others reach.
    CutOff,
    /// The cap changes.
    SetCap,
}

/// A book, and the server that was asked for the one before it.
type Kept = Option<(QuotaBook, u64)>;
/// What was read, and of which server.
type Read = (Kept, u64);

/// What keeps the book.
struct Store {
    kept: Kept,
    /// What it was at times, and a replica may still have.
    older: Kept,
    /// Which server it is; it takes another name when it is promoted or starts again.
    server: u64,
    is_away: bool,
}

/// Where an exchange is; every step has its time.
enum Stage {
    Idle { next: u64 },
    Asking { asked: u64, arrives: u64 },
    Answered { asked: u64, comes: u64, read: Read },
    Writing { sent: u64, arrives: u64, read: Read, book: QuotaBook },
    Written { sent: u64, comes: u64, took: bool, book: QuotaBook },
    Lost { fails: u64 },
}

struct Instance {
    clock: LocalClock,
    share: CapShare,
    stage: Stage,
    /// Calls in a second.
    demand: u64,
    born: u64,
    cut_off_until: u64,
    /// Writes that arrive after their exchange has failed.
    late: Vec<(u64, Read, QuotaBook)>,
    /// Steps for which it has had no share.
    without: usize,
}

pub(crate) struct World {
    dice: Dice,
    fates: &'static [Fate],
    store: Store,
    instances: Vec<Option<Instance>>,
    step: u64,
    cap: u32,
    /// Reads admitted in each step, and asked for.
    admitted: Vec<u32>,
    asked: Vec<u32>,
    /// In which steps something was out of order, or had been just before.
    troubled: Vec<bool>,
    trouble_until: u64,
    /// In which steps which cap could still be in force.
    caps: Vec<u32>,
    higher_until: (u64, u32),
    by_book: bool,
    /// The most steps in a row for which an instance had no share.
    longest_without: usize,
    guards: Guards,
}

impl World {
    pub(crate) fn new(seed: u64, fates: &'static [Fate], by_book: bool) -> Self {
        let store = Store { kept: None, older: None, server: 1, is_away: false };
        let mut world = Self {
            dice: Dice(seed),
            fates,
            store,
            instances: (0..INSTANCES).map(|_| None).collect(),
            step: 0,
            cap: CAP,
            admitted: Vec::new(),
            asked: Vec::new(),
            troubled: Vec::new(),
            trouble_until: 6_000,
            caps: Vec::new(),
            higher_until: (0, CAP),
            by_book,
            longest_without: 0,
            guards: Guards::on(),
        };
        (0..INSTANCES).for_each(|at| world.join(at));
        world
    }

    fn join(&mut self, at: usize) {
        let clock = LocalClock { offset: self.dice.roll(1 << 50), fast: self.dice.roll(1_001) };
        let life = InstanceLife::new(self.dice.roll(u64::MAX));
        let now = clock.at(self.step);
        let share = match self.by_book {
            true => CapShare::leased(Quota::new(RULES, life, self.cap), now),
            false => CapShare::whole(self.cap, RULES.fallback_instances),
        };
        let stage = Stage::Idle { next: self.step + self.dice.roll(INTERVAL) };
        let demand = self.dice.roll(800);
        let (born, cut_off_until, late) = (self.step, 0, Vec::new());
        let without = 0;
        let joined = Instance { clock, share, stage, demand, born, cut_off_until, late, without };
        self.instances[at] = Some(joined);
    }

    /// Something is out of order for so many steps from now on.
    fn trouble(&mut self, steps: u64) {
        self.trouble_until = self.trouble_until.max(self.step + steps);
    }

    /// What happens to the world once in a while.
    fn befall(&mut self) {
        let (at, fate) = (self.dice.roll_index(INSTANCES), self.dice.roll_index(self.fates.len()));
        let Some(fate) = self.fates.get(fate) else { return };
        match fate {
            Fate::Kill => {
                self.instances[at] = None;
                self.trouble(RULES.remember.as_secs() * 1_000 + 2_000);
            }
            Fate::Leave => self.leave(at),
            Fate::Join if self.instances[at].is_some() => {}
            Fate::Join => {
                self.join(at);
                self.trouble(3_000);
            }
            Fate::Away => self.store.is_away = !self.store.is_away,
            Fate::Forget => {
                self.store.kept = None;
                self.store.server += self.dice.roll(2);
                self.trouble(4_000);
            }
            Fate::Promote => {
                self.store.kept = self.store.older.clone();
                self.store.server += 1;
                self.trouble(4_000);
            }
            Fate::CutOff => {
                let steps = 1_000 + self.dice.roll(20_000);
                // One that never reached the store is known to nobody: nothing is promised of it.
                let known = |instance: &&mut Instance| instance.born + 3_000 < self.step;
                if let Some(instance) = self.instances[at].as_mut().filter(known) {
                    instance.cut_off_until = self.step + steps;
                    self.trouble(steps + 6_000);
                }
            }
            Fate::SetCap => self.set_cap(),
        }
    }

    fn leave(&mut self, at: usize) {
        let Some(instance) = &mut self.instances[at] else { return };
        let now = instance.clock.at(self.step);
        let reachable = !self.store.is_away && instance.cut_off_until <= self.step;
        if let Some((book, server)) = self.store.kept.clone().filter(|_| reachable) {
            self.store.kept = instance.share.leave(&book, now).map(|book| (book, server));
        }
        self.instances[at] = None;
        self.trouble(RULES.remember.as_secs() * 1_000 * u64::from(!reachable) + 3_000);
    }

    /// The word of a new cap comes to each instance.
    fn set_cap(&mut self) {
        let before = self.cap;
        self.cap = [CAP, CAP / 2, CAP * 2][self.dice.roll_index(3)];
        for instance in self.instances.iter_mut().flatten() {
            instance.share.set_cap(self.cap, instance.clock.at(self.step));
        }
        self.higher_until = (self.step + 2_000, before);
        self.trouble(3_000);
    }

    pub(crate) fn run(&mut self, seconds: usize) {
        for _ in 0..seconds * SECOND {
            self.step += 1;
            if self.dice.once_in(SELDOM) {
                self.befall();
            }
            if self.store.is_away {
                // Seldom for long.
                self.trouble(6_000);
                self.store.is_away = !self.dice.once_in(5_000);
            }
            if self.dice.once_in(300) {
                self.store.older = self.store.kept.clone();
            }
            if self.dice.once_in(3_000) {
                let at = self.dice.roll_index(INSTANCES);
                let demand = [0, 5, 100, 4_000][self.dice.roll_index(4)];
                if let Some(instance) = &mut self.instances[at] {
                    instance.demand = demand;
                }
                self.trouble(3_000);
            }
            for at in 0..INSTANCES {
                self.exchange(at);
            }
            self.call();
        }
    }

    /// All calls of one step.
    fn call(&mut self) {
        let (mut admitted, mut asked) = (0, 0);
        for instance in self.instances.iter_mut().flatten() {
            let (share, _) = instance.share.in_force(instance.clock.at(self.step));
            instance.without = if share == 0 { instance.without + 1 } else { 0 };
            self.longest_without = self.longest_without.max(instance.without);
            let (whole, part) = (instance.demand / 1_000, instance.demand % 1_000);
            let calls = whole + u64::from(self.dice.roll(1_000) < part);
            for _ in 0..calls {
                let now = instance.clock.at(self.step);
                asked += 1;
                admitted += u32::from(instance.share.try_admit(now, &self.guards).is_ok());
            }
        }
        self.admitted.push(admitted);
        self.asked.push(asked);
        self.troubled.push(self.step < self.trouble_until);
        let (until, before) = self.higher_until;
        self.caps.push(if self.step < until { self.cap.max(before) } else { self.cap });
    }

    /// Takes the exchange of one instance as far as it gets in this step.
    fn exchange(&mut self, at: usize) {
        let Some(mut instance) = self.instances[at].take() else { return };
        let cut_off = self.store.is_away || instance.cut_off_until > self.step;
        let step = self.step;
        for (_, read, book) in instance.late.extract_if(.., |late| late.0 <= step) {
            if !cut_off {
                self.store.swap(&read, book);
            }
        }
        let now = instance.clock.at(step);
        instance.stage = match instance.stage {
            Stage::Idle { next } if next <= step => {
                self.after(cut_off, |arrives| Stage::Asking { asked: step, arrives })
            }
            Stage::Asking { asked, arrives } if arrives <= step => {
                let read = (self.store.kept.clone(), self.store.server);
                self.after(cut_off, |comes| Stage::Answered { asked, comes, read })
            }
            Stage::Answered { asked, comes, read } if comes <= step => {
                let times = (instance.clock.at(asked), now);
                // What another server kept is older than what was lost with that.
                let current = read.0.as_ref().filter(|(_, server)| *server == read.1);
                match instance.share.propose(current.map(|(book, _)| book), times) {
                    Some(book) => {
                        let late = self.dice.once_in(200).then(|| self.dice.roll(3_000));
                        if let Some(late) = late {
                            self.trouble(TIMEOUT + 2_000);
                            instance.late.push((step + late, read.clone(), book.clone()));
                        }
                        let lost = cut_off || late.is_some();
                        self.after(lost, |arrives| Stage::Writing {
                            sent: step,
                            arrives,
                            read,
                            book,
                        })
                    }
                    None => Stage::Idle { next: u64::MAX },
                }
            }
            Stage::Writing { sent, arrives, read, book } if arrives <= step => {
                let took = !cut_off && self.store.swap(&read, book.clone());
                self.after(cut_off, |comes| Stage::Written { sent, comes, took, book })
            }
            Stage::Written { sent, comes, took: true, book } if comes <= step => {
                instance.share.confirmed(&book, instance.clock.at(sent), now);
                Stage::Idle { next: step + INTERVAL }
            }
            // Somebody was faster.
            Stage::Written { comes, took: false, .. } if comes <= step => {
                Stage::Idle { next: step }
            }
            Stage::Lost { fails } if fails <= step => {
                instance.share.failed(now);
                Stage::Idle { next: step + INTERVAL }
            }
            stage @ (Stage::Idle { .. }
            | Stage::Asking { .. }
            | Stage::Answered { .. }
            | Stage::Writing { .. }
            | Stage::Written { .. }
            | Stage::Lost { .. }) => stage,
        };
        self.instances[at] = Some(instance);
    }

    /// A message that is on its way for a moment, or lost.
    fn after(&mut self, lost: bool, then: impl FnOnce(u64) -> Stage) -> Stage {
        let loses_it = self.dice.once_in(2_000);
        if loses_it {
            self.trouble(TIMEOUT + 2_000);
        }
        if lost || loses_it {
            return Stage::Lost { fails: self.step + TIMEOUT };
        }
        let slow = if self.dice.once_in(100) { self.dice.roll(400) } else { 1 };
        then(self.step + slow + self.dice.roll(3))
    }

    /// The highest ratio of what was admitted to the cap in any second, in percent.
    pub(crate) fn busiest(&self) -> u64 {
        let (mut busiest, mut sum, mut higher) = (0, 0_u64, VecDeque::new());
        for at in 0..self.admitted.len() {
            sum += u64::from(self.admitted[at]);
            if at >= SECOND {
                sum -= u64::from(self.admitted[at - SECOND]);
            }
            // The highest cap of the second is the first of those that no later one exceeds.
            while higher.back().is_some_and(|last: &usize| self.caps[*last] <= self.caps[at]) {
                higher.pop_back();
            }
            higher.push_back(at);
            while higher.front().is_some_and(|first| first + SECOND <= at) {
                higher.pop_front();
            }
            let cap = higher.front().map_or(1, |first| self.caps[*first].max(1));
            busiest = busiest.max(sum * 100 / u64::from(cap));
        }
        busiest
    }

    /// The most steps in a row for which an instance admitted nothing, whatever was asked of it.
    pub(crate) fn longest_without(&self) -> usize {
        self.longest_without
    }

    /// The lowest ratio of what was admitted to the cap in any second in which nothing was out of
    /// order and demand was well above the cap, in percent; and how many such steps there were.
    pub(crate) fn idlest(&self) -> (u64, usize) {
        let (mut idlest, mut count) = (u64::MAX, 0);
        let (mut admitted, mut asked, mut calm) = (0_u64, 0_u64, 0);
        for at in 0..self.admitted.len() {
            admitted += u64::from(self.admitted[at]);
            asked += u64::from(self.asked[at]);
            calm = if self.troubled[at] { 0 } else { calm + 1 };
            let Some(before) = at.checked_sub(SECOND) else { continue };
            admitted -= u64::from(self.admitted[before]);
            asked -= u64::from(self.asked[before]);
            let cap = u64::from(self.caps[at]);
            if calm >= SECOND && asked * 2 > cap * 3 {
                idlest = idlest.min(admitted * 100 / cap);
                count += 1;
            }
        }
        (idlest, count)
    }
}

impl Store {
    fn swap(&mut self, read: &Read, book: QuotaBook) -> bool {
        let same = self.kept == read.0;
        if same {
            self.kept = Some((book, read.1));
        }
        same
    }
}
