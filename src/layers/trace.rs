//! Counts and times every call, and follows one in many through a span.
//!
//! Whether a call is followed is decided before anything is built for it. A span carries the
//! method, never what the caller sent: no subject, no token, no address.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use tower::{Layer, Service};
use tracing::Instrument;

use crate::clock::{Clock, Instant};
use crate::telemetry::{Code, Label, Method, Telemetry};

/// Counts every call, and follows one in `sample_every`.
#[derive(Clone, Debug)]
pub struct TraceLayer {
    clock: Clock,
    telemetry: Telemetry,
    sample_every: u32,
}

impl TraceLayer {
    /// Follows one call in `sample_every` by chance; 0 follows none, 1 each.
    pub const fn new(clock: Clock, telemetry: Telemetry, sample_every: u32) -> Self {
        Self { clock, telemetry, sample_every }
    }

    fn follows(&self) -> bool {
        self.sample_every > 0
            && tracing::enabled!(tracing::Level::DEBUG)
            && fastrand::u32(0..self.sample_every) == 0
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = TraceService<S>;

    fn layer(&self, inner: S) -> TraceService<S> {
        TraceService { inner, layer: self.clone() }
    }
}

/// A service whose calls are counted.
#[derive(Clone, Debug)]
pub struct TraceService<S> {
    inner: S,
    layer: TraceLayer,
}

impl<S, B, R> Service<Request<B>> for TraceService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut call = Call {
            method: Method::of_path(request.uri().path()),
            came_at: self.layer.clock.now(),
            code: Code::CANCELLED,
            layer: self.layer.clone(),
        };
        let span = if self.layer.follows() {
            tracing::debug_span!("call", method = call.method.word())
        } else {
            tracing::Span::none()
        };
        let answer = span.in_scope(|| self.inner.call(request));
        async move {
            let answer = answer.await;
            call.code = answer.as_ref().map_or(Code::INTERNAL, code_of);
            drop(call);
            answer
        }
        .instrument(span)
        .boxed()
    }
}

/// One call. When it is dropped it has ended, by its answer or because its caller left.
struct Call {
    method: Method,
    came_at: Instant,
    code: Code,
    layer: TraceLayer,
}

impl Drop for Call {
    fn drop(&mut self) {
        let took: Duration = self.layer.clock.now().since(self.came_at);
        self.layer.telemetry.called(self.method, self.code, took);
        tracing::trace!(method = self.method.word(), code = self.code.word(), ?took, "answered");
    }
}

/// The code of an answer that begins. A stream that fails later has begun well.
fn code_of<R>(answer: &Response<R>) -> Code {
    let Some(status) = answer.headers().get("grpc-status") else {
        return if answer.status().is_success() { Code::OK } else { Code::UNKNOWN };
    };
    let number = status.to_str().ok().and_then(|digits| digits.parse().ok());
    number.map_or(Code::UNKNOWN, Code::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use tower::{ServiceExt, service_fn};
    use tracing_subscriber::fmt::MakeWriter;

    const SELECT: &str = "/tidegate.v1.RoutingService/SelectReplica";

    fn answer(status: &'static str) -> Response<()> {
        let mut answer = Response::new(());
        answer.headers_mut().insert("grpc-status", http::HeaderValue::from_static(status));
        answer
    }

    fn traced(sample_every: u32) -> (TraceLayer, Telemetry) {
        let clock = Clock::new();
        let telemetry = Telemetry::new(move || clock.now());
        (TraceLayer::new(clock, telemetry.clone(), sample_every), telemetry)
    }

    fn counts(telemetry: &Telemetry, code: &str) -> bool {
        let name = "tidegate_call_duration_seconds_count{method=\"SelectReplica\"";
        telemetry.encode().contains(&format!("{name},code=\"{code}\"}} 1\n"))
    }

    fn request() -> Request<()> {
        let mut request = Request::new(());
        *request.uri_mut() = http::Uri::from_static(SELECT);
        request.headers_mut().insert("cookie", http::HeaderValue::from_static("tg1.secret"));
        request
    }

    #[test]
    fn an_answer_that_is_no_status_is_unknown() {
        for status in ["", "x", "-1", "99", "256"] {
            assert_eq!(code_of(&answer(status)), Code::UNKNOWN, "{status:?}");
        }
        let mut missing = Response::new(());
        assert_eq!(code_of(&missing), Code::OK);
        *missing.status_mut() = http::StatusCode::NOT_FOUND;
        assert_eq!(code_of(&missing), Code::UNKNOWN);
    }

    #[tokio::test]
    async fn a_call_is_counted_by_its_code() {
        let (layer, telemetry) = traced(0);
        let refuse = service_fn(async |_: Request<()>| Ok::<_, Infallible>(answer("8")));
        layer.layer(refuse).oneshot(request()).await.expect("infallible");
        assert!(counts(&telemetry, "RESOURCE_EXHAUSTED"), "{}", telemetry.encode());
    }

    #[tokio::test]
    async fn a_call_whose_caller_leaves_is_counted_as_cancelled() {
        let (layer, telemetry) = traced(0);
        let never =
            service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, Infallible>>());
        let mut call = layer.layer(never).oneshot(request()).boxed();
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        assert!(counts(&telemetry, "CANCELLED"), "{}", telemetry.encode());
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// What is written while one call is made.
    fn written(sample_every: u32) -> String {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        let dispatch = tracing::Dispatch::new(subscriber);
        // With one subscriber alone, a thread that has none may switch events off for all.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        tracing::dispatcher::with_default(&dispatch, || {
            let (layer, _) = traced(sample_every);
            let serve = service_fn(async |_: Request<()>| {
                tracing::debug!("inside");
                Ok::<_, Infallible>(answer("0"))
            });
            let call = layer.layer(serve).oneshot(request());
            call.now_or_never().expect("ready").expect("infallible");
        });
        let bytes = lines.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_followed_call_shows_its_method_and_nothing_the_caller_sent() {
        let followed = written(1);
        assert!(followed.contains("call{method=\"SelectReplica\"}"), "{followed}");
        assert!(followed.contains("inside") && followed.contains("code=\"OK\""), "{followed}");
        assert!(!followed.contains("tg1."), "{followed}");
        let alone = written(0);
        assert!(!alone.contains("call{") && alone.contains("inside"), "{alone}");
    }
}
