//! The client of Tidegate over `tokio-postgres`: write and read scopes whose reads see the
//! session's writes, on replicas too.
//!
//! ```no_run
//! # async fn f(mut leader: tokio_postgres::Client, pool: tidegate_client::DirectPool)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! # use tidegate_client::{Client, ClientOptions, Policy, SessionOptions};
//! # let tidegate = Client::connect(ClientOptions::new("http://127.0.0.1:7400")).await?;
//! let ann = tidegate.session(SessionOptions::new("orders").subject("user-7"));
//! ann.write(&mut leader, async |tx| tx.execute("INSERT INTO cart VALUES (1)", &[]).await).await?;
//! let policy = Policy::default(); // SESSION: everything Ann wrote and read before
//! let cart = ann.read(&pool, &policy, async |db| db.query("TABLE cart", &[]).await).await?;
//! # println!("{} on {}", cart.value.len(), cart.node.name);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client`]: the connection to Tidegate and the one `Route` stream on it, for all sessions;
//! - [`Session`]: what one user, job or request wrote and read, as tokens, by its subject, or both;
//! - [`Session::write`]: BEGIN, your statements, COMMIT with capture, record;
//! - [`Session::read`]: a node that may serve, a connection to exactly that server out of your
//!   [`NodePool`], your statements, sample, record;
//! - [`Policy`]: what a read demands; [`DirectPool`]: a small pool to start with.
//!
//! It carries tokens and decides nothing: which node may serve is the service's word. It connects
//! to databases only through the caller's pool. Behind a pooler or a shared address a connection
//! can move to another server unseen; there, declared or found out, each read is checked inside its
//! transaction, and a pooler that knows no transactions is refused.

mod carried;
mod checkout;
mod client;
mod clock;
mod error;
mod held;
mod options;
mod outcome;
mod policy;
mod pool;
mod pooled;
mod process;
mod read;
mod read_error;
mod route;
mod session;
mod sql;
mod write;

pub use checkout::Identity;
pub use client::Client;
pub use error::{ClientError, ServiceError};
pub use options::{ClientOptions, SessionOptions};
pub use outcome::{
    Lag, Node, Notice, NoticeKind, Outcome, Reach, Refused, Selection, Served, WaitOutcome,
    WaitTarget, Waited,
};
pub use policy::{AboveCap, Level, Policy};
pub use pool::{Checked, DirectPool, NodeAddress, NodeConnection, NodePool, PoolError, Pooled};
pub use read::Read;
pub use read_error::ReadError;
pub use session::{Observed, Session, SessionState};
pub use tidegate_core::guards::Guards;
pub use tidegate_proto::v1::{ErrorReason, Guarantee, OnLost, Raise, Reason, Role, Stored};
pub use write::{UnrecordedCause, WriteError, Written};
