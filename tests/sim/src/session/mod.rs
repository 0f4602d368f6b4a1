//! Sessions: what devices do, and the service's side of each call.
//!
//! - [`holder`]: who is asking, and who is raised
//! - [`committed`]: what a call made of them
//! - [`judged`]: what a session demands now
//! - [`select`]: one read, from its session to a node
//! - [`wait`]: one wait
//! - [`record`]: evidence turned into marks
//! - [`told`]: what reaches a device with an answer
//! - [`client`]: what the application does with the answers
//!
//! The service's side makes the calls of `src/sessions` and `src/reads`, in their order.

mod client;
mod committed;
mod holder;
mod judged;
mod record;
mod select;
mod told;
mod wait;

pub(crate) use client::burst;
pub(crate) use holder::pushed_out;
pub(crate) use select::healed_read;

use crate::check::{Dep, Deps};
use crate::options::Options;
use crate::random::Random;

/// Evidence a device has not delivered yet, and what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) text: String,
    pub(crate) dep: Dep,
}

/// One device of a user: its tokens, and what it knows.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) busy: bool,
    pub(crate) subject: Option<usize>,
    /// It carries tokens.
    pub(crate) carries: bool,
    /// The tokens, as bytes.
    pub(crate) tokens: Vec<Vec<u8>>,
    /// What its tokens stand for.
    pub(crate) deps: Deps,
    pub(crate) pending: Vec<Pending>,
    /// What of that the call under way has delivered, and whether its token stands for it.
    pub(crate) delivered: Vec<(Pending, Option<Dep>, bool)>,
    pub(crate) pooled: bool,
    /// Bytes of the longest token it has room for.
    pub(crate) room: usize,
    /// Its tokens hold components of other partitions, too.
    pub(crate) crowded: bool,
    /// Notices it was told and has not acknowledged.
    pub(crate) notices: Vec<tidegate_core::token::NoticeId>,
}

impl Device {
    pub(crate) fn all(options: &Options) -> Vec<Self> {
        let mut random = Random::new(options.seed ^ 0xDE71_CE00);
        (0..options.devices).map(|index| Self::new(index, options, &mut random)).collect()
    }

    fn new(index: usize, options: &Options, random: &mut Random) -> Self {
        use crate::options::Profile;
        let way = random.below(3);
        let narrow = options.profile == Profile::Narrow || random.one_in(8);
        let subject_only = matches!(
            options.profile,
            Profile::Expiry
                | Profile::Forgets
                | Profile::StoreFailover
                | Profile::StoreSplit
                | Profile::StoreLoss
                | Profile::Evicting
                | Profile::Expiring
                | Profile::Skewed
                | Profile::Foreign
        );
        Self {
            busy: false,
            subject: (way != 0 || subject_only).then_some(index % options.subjects),
            carries: way != 1 && !(subject_only && random.one_in(2)),
            tokens: Vec::new(),
            deps: Deps::default(),
            pending: Vec::new(),
            delivered: Vec::new(),
            pooled: random.below(100) < options.pooled,
            room: if narrow { random.within(80, 160) } else { 700 },
            crowded: narrow,
            notices: Vec::new(),
        }
    }
}
