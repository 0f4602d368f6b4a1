//! Turns `grpc-timeout` into the instant at which the answer must be there.
//!
//! It starts no timer and ends no call: services look at the [`Deadline`] and answer before it,
//! with an outcome. The timer of tonic would answer `CANCELLED`, and so comes too late here.

use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use tower::{Layer, Service};

use crate::clock::{Clock, Deadline};

/// Gives each call that names a timeout its [`Deadline`].
#[derive(Clone, Copy, Debug)]
pub struct DeadlineLayer {
    clock: Clock,
    margin: Duration,
}

impl DeadlineLayer {
    /// Keeps `margin` of each timeout, but at most half of it, to get the answer back.
    pub const fn new(clock: Clock, margin: Duration) -> Self {
        Self { clock, margin }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService { inner, layer: *self }
    }
}

/// A service whose calls have deadlines.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineService<S> {
    inner: S,
    layer: DeadlineLayer,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for DeadlineService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let header = request.headers().get("grpc-timeout");
        let timeout = header.and_then(|value| timeout_of(value.as_bytes()));
        if let Some(timeout) = timeout {
            let kept = self.layer.margin.min(timeout / 2);
            let at = self.layer.clock.now() + (timeout - kept);
            request.extensions_mut().insert(Deadline(at));
        }
        self.inner.call(request)
    }
}

/// The timeout a header names: 1 to 8 digits and a unit. `None` for anything else, as if there were
/// none: the client's own timer ends its call anyway.
fn timeout_of(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(count * 3600)),
        b'M' => Some(Duration::from_secs(count * 60)),
        b'S' => Some(Duration::from_secs(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceExt, service_fn};

    async fn deadline_of(header: Option<&str>) -> Option<Deadline> {
        let read = service_fn(async |request: Request<()>| {
            Ok::<_, std::convert::Infallible>(request.extensions().get::<Deadline>().copied())
        });
        let layer = DeadlineLayer::new(Clock::new(), Duration::from_millis(10));
        let mut request = Request::new(());
        if let Some(value) = header {
            let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("a header");
            request.headers_mut().insert("grpc-timeout", value);
        }
        layer.layer(read).oneshot(request).await.expect("infallible")
    }

    #[test]
    fn what_is_no_timeout_is_none() {
        for value in ["", "S", "1", "1s", "1h", "-1S", "+1S", "1.5S", " 1S", "1S ", "123456789S"] {
            assert_eq!(timeout_of(value.as_bytes()), None, "{value:?} was accepted");
        }
        assert_eq!(timeout_of(&[0xFF; 9]), None);
    }

    #[test]
    fn every_unit_is_understood() {
        for (value, millis) in
            [("1H", 3_600_000), ("2M", 120_000), ("3S", 3000), ("40m", 40), ("5000u", 5)]
        {
            assert_eq!(timeout_of(value.as_bytes()), Some(Duration::from_millis(millis)));
        }
        assert_eq!(timeout_of(b"7n"), Some(Duration::from_nanos(7)));
        let longest = Duration::from_secs(99_999_999 * 3600);
        assert_eq!(timeout_of(b"99999999H"), Some(longest));
    }

    #[tokio::test]
    async fn a_call_without_a_timeout_has_no_deadline() {
        assert_eq!(deadline_of(None).await, None);
        assert_eq!(deadline_of(Some("soon")).await, None);
    }

    #[tokio::test]
    async fn the_deadline_leaves_the_margin_but_never_more_than_half() {
        let clock = Clock::new();
        for (value, millis) in [("1S", 990), ("12m", 6), ("0m", 0)] {
            let before = clock.now();
            let Deadline(at) = deadline_of(Some(value)).await.expect("a deadline");
            let (least, most) = (before, clock.now());
            let span = Duration::from_millis(millis);
            assert!(at >= least + span && at <= most + span, "{value}: {at:?}");
        }
    }
}
