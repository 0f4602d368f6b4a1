//! `Sampling`: which calls are followed by a span, decided before one is made.
//!
//! A span costs as much as a decision (a microsecond, also one that is thrown away at its end), so
//! nothing is built for a call until this has said yes.

use super::TraceContext;

/// One call in how many, and whether anybody looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// Of 2^32 draws so many are followed.
    followed: u64,
    /// Spans are sent somewhere.
    exported: bool,
}

/// Draws there are.
const DRAWS: u64 = 1 << 32;

impl Sampling {
    /// Follows no call.
    pub const NONE: Self = Self { followed: 0, exported: false };

    /// Follows a share of the calls that bring no trace context, 0 to 1. With `exported` false only
    /// where debug events are wanted, to be seen in them.
    pub fn new(share: f64, exported: bool) -> Self {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "0 to 2^32, which all three types hold exactly"
        )]
        let followed = (share * DRAWS as f64).round() as u64;
        Self { followed, exported }
    }

    /// True if any call may be followed; else its context need not even be read.
    pub fn looks(&self) -> bool {
        self.exported || (self.followed > 0 && tracing::enabled!(tracing::Level::DEBUG))
    }

    /// Says whether to follow a call: as its caller does, and without one by chance.
    pub fn follows(&self, caller: Option<&TraceContext>) -> bool {
        match caller {
            Some(caller) => caller.is_sampled(),
            None => u64::from(fastrand::u32(..)) < self.followed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(sampled: bool) -> TraceContext {
        TraceContext { trace_id: 1, span_id: 1, sampled }
    }

    #[test]
    fn a_caller_is_followed_as_it_follows_itself_whatever_the_share() {
        for share in [0.0, 0.5, 1.0] {
            let sampling = Sampling::new(share, true);
            assert!(sampling.follows(Some(&caller(true))), "{share}");
            assert!(!sampling.follows(Some(&caller(false))), "{share}");
        }
    }

    #[test]
    fn the_share_of_other_calls_is_kept() {
        let followed = |share: f64| {
            let sampling = Sampling::new(share, true);
            (0..10_000).filter(|_| sampling.follows(None)).count()
        };
        assert_eq!((followed(0.0), followed(1.0), followed(f64::NAN)), (0, 10_000, 0));
        // Sixteen deviations: wrong by chance less often than the machine.
        assert!((200..=1_800).contains(&followed(0.1)), "not one in ten");
    }

    #[test]
    fn with_nobody_to_look_nothing_is_read() {
        assert!(!Sampling::NONE.looks());
        assert!(!Sampling::new(0.0, false).looks());
        assert!(Sampling::new(0.0, true).looks());
    }
}
