//! What a client is told once: where the service is, and the bound of every queue and retry.
//!
//! No routing policy lives here: what a read demands goes with each read.

use std::time::Duration;

use tidegate_core::guards::Guards;

/// How long a call may take beyond what it was asked to wait.
const CALL_GRACE: Duration = Duration::from_secs(5);
/// How long one attempt to open the stream may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// A call fails as unreachable after this many failed attempts beyond the first.
const RETRIES: u32 = 1;
/// The pause after the first failed attempt; it doubles from there, with jitter.
const BACKOFF_LEAST: Duration = Duration::from_millis(50);
/// No pause is longer.
const BACKOFF_MOST: Duration = Duration::from_secs(1);
/// Calls in progress at once: 10,000 parked waits and some room.
const CALLS_MAX: usize = 16_384;

/// Where the service is and how a client behaves towards it.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientOptions {
    pub(crate) endpoint: String,
    pub(crate) call_grace: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) calls_max: usize,
    pub(crate) guards: Guards,
}

impl ClientOptions {
    /// A client of the service at `endpoint`, such as `http://127.0.0.1:7400`, with every default.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            call_grace: CALL_GRACE,
            attempt_timeout: ATTEMPT_TIMEOUT,
            retries: RETRIES,
            backoff: (BACKOFF_LEAST, BACKOFF_MOST),
            calls_max: CALLS_MAX,
            guards: Guards::on(),
        }
    }

    /// How long a call may take beyond what it was asked to wait. Default: 5 s.
    pub const fn call_grace(mut self, grace: Duration) -> Self {
        self.call_grace = grace;
        self
    }

    /// How long one attempt to reach the service may take. Default: 1 s.
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// How often a call that finds the service unreachable tries again. Default: once.
    pub const fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The shortest and the longest pause between attempts. Default: 50 ms and 1 s.
    pub const fn backoff(mut self, least: Duration, most: Duration) -> Self {
        self.backoff = (least, most);
        self
    }

    /// Calls in progress at once; more wait for a place until their deadline. Default: 16,384, at
    /// least 1.
    pub fn calls_max(mut self, calls: usize) -> Self {
        self.calls_max = calls.clamp(1, 1 << 20);
        self
    }

    /// Under these safety rules, so that a test can show what a rule prevents.
    #[cfg(feature = "unsafe-guards")]
    pub const fn guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }
}

/// Whose session it is and what it carries already.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SessionOptions {
    pub(crate) partition: String,
    pub(crate) subject: String,
    pub(crate) tokens: Vec<String>,
    pub(crate) zone: String,
    pub(crate) max_token_chars: u32,
    pub(crate) before: bool,
}

impl SessionOptions {
    /// A session of nobody in particular that carries nothing yet, in `partition`.
    pub fn new(partition: impl Into<String>) -> Self {
        Self { partition: partition.into(), ..Self::default() }
    }

    /// Names whose session it is, such as a user id: what is recorded is found again by it. At most
    /// 256 bytes.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Carries a token, as from a cookie, a header or a message. May be called for each of several:
    /// the service joins them.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Carries these tokens too.
    pub fn tokens<T: Into<String>>(mut self, tokens: impl IntoIterator<Item = T>) -> Self {
        self.tokens.extend(tokens.into_iter().map(Into::into));
        self
    }

    /// Prefers nodes of this zone among equals.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// The longest token the session can carry, in characters. Default: the service's, 1,024.
    pub const fn max_token_chars(mut self, chars: u32) -> Self {
        self.max_token_chars = chars;
        self
    }

    /// Reads `tidegate.before()` before each COMMIT, in the same batch: a later loss can then be
    /// told more exactly. Default: no.
    pub const fn before(mut self, before: bool) -> Self {
        self.before = before;
        self
    }
}
