//! `TraceContext`: what a caller says of the trace its call belongs to, as W3C writes it.
//!
//! Of it only the two ids and the sampled flag are read. `tracestate` is not: it is free text of
//! the caller, nothing here needs it, and nobody is called on a call's behalf who could.

/// The length of a `traceparent` of version 00, in bytes.
const LEN: usize = 55;

/// The caller's own span.
///
/// Invariant: neither id is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) sampled: bool,
}

impl TraceContext {
    /// Reads the value of a `traceparent`; `None`: it is none, and W3C has it ignored.
    ///
    /// Builds nothing: it is read before anybody knows whether the call is followed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(LEN)?;
        let [version, trace_id, span_id, flags] =
            [0..2, 3..35, 36..52, 53..55].map(|at| &known[at]);
        if [2, 35, 52].iter().any(|at| known[*at] != b'-') {
            return None;
        }
        // A later version may say more, after one more dash.
        let ends = match number(version)? {
            0x00 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let (trace_id, span_id) = (number(trace_id)?, u64::try_from(number(span_id)?).ok()?);
        let sampled = number(flags)? & 1 == 1;
        (ends && trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }

    /// True if the caller's own span is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.sampled
    }
}

/// Lower-case hex digits, at most 32.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |sum, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parsed(text: &str) -> Option<TraceContext> {
        TraceContext::parse(text.as_bytes())
    }

    #[test]
    fn what_is_no_trace_context_is_ignored() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-0",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn ids_and_flag_are_read_and_nothing_else() {
        let (trace_id, span_id) =
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7);
        let expected = |sampled| Some(TraceContext { trace_id, span_id, sampled });
        assert_eq!(parsed(GOOD), expected(true));
        assert_eq!(parsed(&GOOD.replace("-01", "-00")), expected(false));
        // The second flag of version 00, and flags nobody has named yet, say nothing of sampling.
        assert_eq!(parsed(&GOOD.replace("-01", "-02")), expected(false));
        assert_eq!(parsed(&GOOD.replace("-01", "-ff")), expected(true));
        assert_eq!(parsed(&GOOD.replacen("00-", "cc-", 1)), expected(true));
        assert_eq!(parsed(&format!("{}-more", GOOD.replacen("00-", "cc-", 1))), expected(true));
    }
}
