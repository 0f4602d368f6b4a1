//! What operators and their tools read over plain HTTP on the admin listener.
//!
//! Metrics, whether the process lives, whether it is ready, and a page that says so. Nothing here
//! changes anything; the gRPC `AdminService` answers on the same listener beside it.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::telemetry::Telemetry;

/// The form of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What `/` answers: everything there is.
const INDEX: &str = "\
Tidegate, admin listener

GET /metrics   metrics in OpenMetrics text, for Prometheus
GET /livez     200 while the process runs; asks nobody else
GET /readyz    200 when every node was tried once and no shutdown has begun, else 503 and why
gRPC           tidegate.v1.AdminService: partitions, epochs, losses, events, an operator's word
";

#[derive(Clone)]
struct Shared {
    telemetry: Telemetry,
    readiness: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// The pages of the admin listener.
///
/// `readiness` says whether calls should come, or why not yet.
pub fn router(
    telemetry: Telemetry,
    readiness: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) -> Router {
    let shared = Shared { telemetry, readiness: Arc::new(readiness) };
    Router::new()
        .route("/", get(async || INDEX))
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .with_state(shared)
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], shared.telemetry.encode())
}

async fn readyz(State(shared): State<Shared>) -> (StatusCode, String) {
    match (shared.readiness)() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::{Method, Request};
    use std::sync::Mutex;
    use tidegate_core::instant::Instant;
    use tower::ServiceExt;

    async fn asked(router: &Router, method: Method, path: &str) -> (u16, String, String) {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let request = request.expect("a request");
        let answer = router.clone().oneshot(request).await.expect("infallible");
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        let kind = kind.map(|kind| kind.to_str().expect("text").to_owned()).unwrap_or_default();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        (status, kind, String::from_utf8(body.to_vec()).expect("text"))
    }

    fn never_ready() -> Router {
        let telemetry = Telemetry::new(Instant::default);
        router(telemetry, || Err("node `pg-2` of `main` was not tried yet".to_owned()))
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_found_and_nothing_can_be_posted() {
        let router = never_ready();
        assert_eq!(asked(&router, Method::GET, "/metricz").await.0, 404);
        assert_eq!(asked(&router, Method::POST, "/metrics").await.0, 405);
    }

    #[tokio::test]
    async fn not_ready_says_why_and_is_alive_all_the_same() {
        let router = never_ready();
        let (status, _, body) = asked(&router, Method::GET, "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(body, "not ready: node `pg-2` of `main` was not tried yet\n");
        assert_eq!(asked(&router, Method::GET, "/livez").await.0, 200);
    }

    #[tokio::test]
    async fn readiness_is_asked_each_time() {
        let state = Arc::new(Mutex::new(Err("it starts".to_owned())));
        let readiness = {
            let state = Arc::clone(&state);
            move || state.lock().expect("not poisoned").clone()
        };
        let router = router(Telemetry::new(Instant::default), readiness);
        assert_eq!(asked(&router, Method::GET, "/readyz").await.0, 503);
        *state.lock().expect("not poisoned") = Ok(());
        assert_eq!(asked(&router, Method::GET, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn metrics_are_open_metrics() {
        let (status, kind, body) = asked(&never_ready(), Method::GET, "/metrics").await;
        assert_eq!((status, kind.as_str()), (200, OPEN_METRICS));
        assert!(body.contains("tidegate_build_info{") && body.ends_with("# EOF\n"), "{body}");
    }

    #[tokio::test]
    async fn the_index_lists_every_page() {
        let router = never_ready();
        let (_, _, index) = asked(&router, Method::GET, "/").await;
        for path in ["/metrics", "/livez", "/readyz"] {
            assert!(index.contains(&format!("GET {path} ")), "{index}");
            assert_ne!(asked(&router, Method::GET, path).await.0, 404);
        }
    }
}
