//! The lab's Redis and Valkey: each shape comes up, and each fault does what it says.
//!
//! Asks the servers alone: no Tidegate runs here. What one server does stands in `server`, what a
//! primary and its replicas do in `group`, Sentinels and Cluster in `many`; what a barrier misses
//! when it is taken too early in `spike`.

#[path = "redis/group.rs"]
mod group;
#[path = "redis/many.rs"]
mod many;
#[path = "redis/server.rs"]
mod server;
#[path = "redis/spike.rs"]
mod spike;

use anyhow::{Context, Result};
use redis::RedisError;
use tidegate_lab::redis::Server;

/// Makes a test on Redis and one on Valkey of each function.
macro_rules! on_both {
    ($($body:ident => $redis:ident, $valkey:ident;)*) => {$(
        #[tokio::test]
        async fn $redis() -> anyhow::Result<()> {
            $body(tidegate_lab::redis::Kind::Redis).await
        }

        #[tokio::test]
        async fn $valkey() -> anyhow::Result<()> {
            $body(tidegate_lab::redis::Kind::Valkey).await
        }
    )*};
}
pub(crate) use on_both;

async fn get(server: &Server, key: &str) -> Result<Option<String>> {
    server.ask(&["GET", key]).await
}

async fn set(server: &Server, key: &str, value: &str) -> Result<()> {
    server.tell(&["SET", key, value]).await
}

/// The first word of the error that a server answers with, as `NOREPLICAS`.
async fn refusal(server: &Server, words: &[&str]) -> Result<String> {
    let error = server.tell(words).await.err().context("it is refused")?;
    let code = error.downcast_ref::<RedisError>().and_then(RedisError::code).map(str::to_owned);
    code.with_context(|| format!("the server itself refuses, not: {error:#}"))
}
