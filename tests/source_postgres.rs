//! The PostgreSQL source on real servers: what goes wrong first, then polls, rows, the schema.
//!
//! The lab asks every server the same questions on its own connection: what the source says is
//! held against that. Nothing here judges freshness.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "source_postgres/bad.rs"]
mod bad;
#[path = "source_postgres/history.rs"]
mod history;
#[path = "source_postgres/polls.rs"]
mod polls;
#[path = "source_postgres/rows.rs"]
mod rows;
#[path = "source_postgres/running.rs"]
mod running;
#[path = "source_postgres/schema.rs"]
mod schema;
#[path = "source_postgres/tls.rs"]
mod tls;

/// Makes one test per PostgreSQL version that every scenario runs on.
macro_rules! on_both_versions {
    ($($claim:ident => $pg15:ident, $pg18:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg15() {
            $claim(tidegate_lab::install::Major::V15).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $pg18() {
            $claim(tidegate_lab::install::Major::V18).await;
        }
    )*};
}
pub(crate) use on_both_versions;
