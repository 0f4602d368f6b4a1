//! Counts and times every call, and follows some through a span.
//!
//! Whether a call is followed is decided before anything is built for it: as its caller says in
//! `traceparent`, and without one by chance. A span carries the method, never what the caller sent:
//! no subject, no token, no address.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Request, Response};
use tower::{Layer, Service};
use tracing::{Instrument, Span};

use crate::clock::{Clock, Instant};
use crate::telemetry::{
    Code, Label, Method, Sampling, Telemetry, TraceContext, answered, call_span,
};

/// Counts every call, and follows some.
#[derive(Clone, Debug)]
pub struct TraceLayer {
    clock: Clock,
    telemetry: Telemetry,
    sampling: Sampling,
}

impl TraceLayer {
    /// Follows the calls that `sampling` wants.
    pub const fn new(clock: Clock, telemetry: Telemetry, sampling: Sampling) -> Self {
        Self { clock, telemetry, sampling }
    }

    /// The span of a call; none, and nothing built for it, where the call is not followed.
    fn span(&self, method: Method, headers: &HeaderMap) -> Span {
        if !self.sampling.looks() {
            return Span::none();
        }
        let caller = caller_of(headers);
        if self.sampling.follows(caller.as_ref()) {
            call_span(method, caller)
        } else {
            Span::none()
        }
    }
}

/// What the caller says of its trace. Said twice, it says nothing, as W3C has it.
fn caller_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all("traceparent").iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { TraceContext::parse(value.as_bytes()) }
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
        let came_at = self.layer.clock.now();
        let method = Method::of_path(request.uri().path());
        let span = self.layer.span(method, request.headers());
        let mut call = Call {
            method,
            came_at,
            code: Code::CANCELLED,
            span: span.clone(),
            layer: self.layer.clone(),
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
    span: Span,
    layer: TraceLayer,
}

impl Drop for Call {
    fn drop(&mut self) {
        let took: Duration = self.layer.clock.now().since(self.came_at);
        self.layer.telemetry.called(self.method, self.code, took);
        answered(&self.span, self.code);
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

    fn traced(share: f64) -> (TraceLayer, Telemetry) {
        let clock = Clock::new();
        let telemetry = Telemetry::new(move || clock.now());
        (TraceLayer::new(clock, telemetry.clone(), Sampling::new(share, false)), telemetry)
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
        let (layer, telemetry) = traced(0.0);
        let refuse = service_fn(async |_: Request<()>| Ok::<_, Infallible>(answer("8")));
        layer.layer(refuse).oneshot(request()).await.expect("infallible");
        assert!(counts(&telemetry, "RESOURCE_EXHAUSTED"), "{}", telemetry.encode());
    }

    #[tokio::test]
    async fn a_call_whose_caller_leaves_is_counted_as_cancelled() {
        let (layer, telemetry) = traced(0.0);
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
    fn written(share: f64, traceparent: &[&'static str]) -> String {
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
            let (layer, _) = traced(share);
            let serve = service_fn(async |_: Request<()>| {
                tracing::debug!("inside");
                Ok::<_, Infallible>(answer("0"))
            });
            let mut request = request();
            for value in traceparent {
                let value = http::HeaderValue::from_static(value);
                request.headers_mut().append("traceparent", value);
            }
            let call = layer.layer(serve).oneshot(request);
            call.now_or_never().expect("ready").expect("infallible");
        });
        let bytes = lines.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn a_followed_call_shows_its_method_and_nothing_the_caller_sent() {
        let followed = written(1.0, &[]);
        let method = "rpc.method=\"tidegate.v1.RoutingService/SelectReplica\"";
        assert!(followed.contains("call{") && followed.contains(method), "{followed}");
        assert!(followed.contains("inside") && followed.contains("code=\"OK\""), "{followed}");
        assert!(!followed.contains("tg1."), "{followed}");
        let alone = written(0.0, &[]);
        assert!(!alone.contains("call{") && alone.contains("inside"), "{alone}");
    }

    #[test]
    fn a_call_is_followed_as_its_caller_is() {
        for (share, traceparent, follows) in [
            (0.001, &[SAMPLED][..], true),
            (1.0, &[UNSAMPLED], false),
            // What is no context leaves it to chance.
            (1.0, &["tg1.secret"], true),
            (1.0, &[UNSAMPLED, UNSAMPLED], true),
        ] {
            let written = written(share, traceparent);
            assert_eq!(written.contains("call{"), follows, "{traceparent:?}: {written}");
            assert!(!written.contains("tg1."), "{written}");
        }
    }
}
