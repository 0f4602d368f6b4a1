//! Refuses calls at once when as many as allowed are in progress.
//!
//! It queues nothing: a call that would wait for a place is late before it begins. A call holds its
//! place until its answer begins, so a wait holds one for as long as it waits, and a stream only
//! until it is open; streams have a bound of their own.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use crate::telemetry::Telemetry;

/// Builds the answer to a call that is refused.
type Refuse<R> = Arc<dyn Fn() -> Response<R> + Send + Sync>;

/// Allows so many calls at once over all connections.
pub struct ShedLayer<R> {
    places: Arc<Semaphore>,
    refuse: Refuse<R>,
    telemetry: Telemetry,
}

impl<R> ShedLayer<R> {
    /// Allows `limit` calls at once; `refuse` builds the answer to those above.
    pub fn new(
        limit: usize,
        telemetry: Telemetry,
        refuse: impl Fn() -> Response<R> + Send + Sync + 'static,
    ) -> Self {
        let places = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Self { places, refuse: Arc::new(refuse), telemetry }
    }
}

impl<R> Clone for ShedLayer<R> {
    fn clone(&self) -> Self {
        Self {
            places: Arc::clone(&self.places),
            refuse: Arc::clone(&self.refuse),
            telemetry: self.telemetry.clone(),
        }
    }
}

impl<R> fmt::Debug for ShedLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShedLayer({} places left)", self.places.available_permits())
    }
}

impl<S, R> Layer<S> for ShedLayer<R> {
    type Service = ShedService<S, R>;

    fn layer(&self, inner: S) -> ShedService<S, R> {
        ShedService { inner, layer: self.clone() }
    }
}

/// A service that refuses what is too much.
#[derive(Debug)]
pub struct ShedService<S, R> {
    inner: S,
    layer: ShedLayer<R>,
}

impl<S: Clone, R> Clone for ShedService<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for ShedService<S, R>
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
        let Ok(place) = Arc::clone(&self.layer.places).try_acquire_owned() else {
            self.layer.telemetry.shed();
            return std::future::ready(Ok((self.layer.refuse)())).boxed();
        };
        let counted = self.layer.telemetry.call_begun();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            drop((place, counted));
            answer
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use tidegate_core::instant::Instant;
    use tokio::sync::Notify;
    use tower::{ServiceExt, service_fn};

    #[tokio::test]
    async fn the_call_above_the_limit_is_refused_and_a_place_that_frees_is_taken() {
        let telemetry = Telemetry::new(Instant::default);
        let gate = Arc::new(Notify::new());
        let inner = {
            let gate = Arc::clone(&gate);
            service_fn(move |_: Request<()>| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.notified().await;
                    Ok::<_, Infallible>(Response::new("served"))
                }
            })
        };
        let layer = ShedLayer::new(2, telemetry.clone(), || Response::new("refused"));
        let service = layer.layer(inner);
        let call = || tokio::spawn(service.clone().oneshot(Request::new(())));
        let (first, second) = (call(), call());
        while layer.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = service.clone().oneshot(Request::new(())).await.expect("infallible");
        assert_eq!(*refused.body(), "refused");
        assert!(telemetry.encode().contains("tidegate_calls_in_flight 2\n"));

        // A caller that leaves gives its place back like one that is served.
        first.abort();
        assert!(first.await.expect_err("aborted").is_cancelled());
        assert_eq!(layer.places.available_permits(), 1);
        let third = call();
        while layer.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        gate.notify_waiters();
        for served in [second, third] {
            let served = served.await.expect("ended").expect("infallible");
            assert_eq!(*served.body(), "served");
        }
        assert_eq!(layer.places.available_permits(), 2);
        let metrics = telemetry.encode();
        assert!(metrics.contains("tidegate_calls_in_flight 0\n"), "{metrics}");
        assert!(metrics.contains("tidegate_calls_shed_total 1\n"), "{metrics}");
    }

    #[tokio::test]
    async fn a_limit_of_zero_refuses_everything() {
        let telemetry = Telemetry::new(Instant::default);
        let layer = ShedLayer::new(0, telemetry, || Response::new("refused"));
        let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("served")));
        let answer = layer.layer(inner).oneshot(Request::new(())).await.expect("infallible");
        assert_eq!(*answer.body(), "refused");
    }
}
