//! Where a read gets its connection: the caller's pool, or the small one here.
//!
//! A connection remembers the server process it leads to, as far as no pooler is between; nothing
//! here knows which node may serve.

use std::borrow::BorrowMut;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

use crate::checkout::Identity;

/// One address of one node, as an answer named it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeAddress {
    /// The node's name.
    pub node: String,
    /// `host:port`.
    pub address: String,
}

/// A physical connection that remembers the server process it leads to.
///
/// The identity lives and dies with the connection. A pool that cannot keep it may return a new one
/// each time, at the cost of one round trip per read.
pub trait NodeConnection: DerefMut<Target = Client> + Send {
    /// What is known of the server process behind it.
    fn identity(&self) -> &Identity;
}

/// The connections of an application to its nodes.
pub trait NodePool: Sync {
    /// One connection, given back to the pool when dropped.
    type Connection: NodeConnection;
    /// Why there is none.
    type Error: std::error::Error;

    /// Returns a connection to this address and no other, outside any transaction, with the
    /// identity it had if it was handed out before. May wait; the caller bounds how long.
    fn checkout(
        &self,
        node: &NodeAddress,
    ) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Marks a connection, about to be dropped, that must not be used again: it is closed then, and
    /// not given back.
    fn discard(&self, connection: &mut Self::Connection);
}

/// A connection of the caller's with the identity it needs.
#[derive(Debug)]
pub struct Checked<C> {
    connection: C,
    identity: Identity,
}

impl<C> Checked<C> {
    /// Wraps a connection just made.
    pub fn new(connection: C) -> Self {
        Self { connection, identity: Identity::default() }
    }
}

impl<C: BorrowMut<Client>> Deref for Checked<C> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.connection.borrow()
    }
}

impl<C: BorrowMut<Client>> DerefMut for Checked<C> {
    fn deref_mut(&mut self) -> &mut Client {
        self.connection.borrow_mut()
    }
}

impl<C: BorrowMut<Client> + Send> NodeConnection for Checked<C> {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Why the small pool has no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The address is not `host:port`.
    #[error("`{address}` is no address: `host:port` is expected")]
    Address {
        /// What was given.
        address: String,
    },
    /// The server cannot be connected to.
    #[error("cannot connect to {address}: {}", crate::client::causes(.source))]
    Connect {
        /// Where it should be.
        address: String,
        /// Why.
        source: tokio_postgres::Error,
    },
    /// No connection was made in time.
    #[error("no connection to {address} within {after:?}")]
    Timeout {
        /// Where it should be.
        address: String,
        /// How long was waited.
        after: Duration,
    },
}

/// How long making one connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A small pool of connections without TLS, keyed by address. Clones share it.
///
/// It opens connections as they are asked for, at most `limit` to one address, and keeps them.
#[derive(Clone, Debug)]
pub struct DirectPool {
    config: Config,
    limit: usize,
    shelves: Arc<Mutex<BTreeMap<String, Arc<Shelf>>>>,
}

/// The connections to one address. One that is checked out is locked by its holder.
#[derive(Debug)]
struct Shelf {
    places: Arc<Semaphore>,
    connections: Mutex<Vec<Arc<AsyncMutex<Physical>>>>,
}

#[derive(Debug)]
struct Physical {
    checked: Checked<Client>,
    task: JoinHandle<()>,
    discarded: bool,
}

impl Drop for Physical {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl DirectPool {
    /// A pool that connects with `config`, which names user, password and database but no host, at
    /// most `limit` times to one address.
    pub fn new(config: Config, limit: usize) -> Self {
        Self { config, limit: limit.max(1), shelves: Arc::default() }
    }

    fn shelf(&self, address: &str) -> Arc<Shelf> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let shelf = shelves.entry(address.to_owned()).or_insert_with(|| {
            let places = Arc::new(Semaphore::new(self.limit));
            Arc::new(Shelf { places, connections: Mutex::default() })
        });
        Arc::clone(shelf)
    }

    async fn connect(&self, address: &str) -> Result<Physical, PoolError> {
        let wrong = || PoolError::Address { address: address.to_owned() };
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut config = self.config.clone();
        config.host(host).port(port);
        let made = tokio::time::timeout(CONNECT_TIMEOUT, config.connect(NoTls)).await;
        let (client, connection) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(source)) => {
                return Err(PoolError::Connect { address: address.to_owned(), source });
            }
            Err(_) => {
                let after = CONNECT_TIMEOUT;
                return Err(PoolError::Timeout { address: address.to_owned(), after });
            }
        };
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        Ok(Physical { checked: Checked::new(client), task, discarded: false })
    }
}

impl Shelf {
    /// An idle connection; those that ended are dropped on the way.
    fn take(&self) -> Option<OwnedMutexGuard<Physical>> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = connections.len();
        while at > 0 {
            at -= 1;
            let Ok(physical) = Arc::clone(&connections[at]).try_lock_owned() else { continue };
            if physical.discarded || physical.checked.is_closed() {
                connections.swap_remove(at);
            } else {
                return Some(physical);
            }
        }
        None
    }

    fn put(&self, physical: Arc<AsyncMutex<Physical>>) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(physical);
    }
}

impl NodePool for DirectPool {
    type Connection = Pooled;
    type Error = PoolError;

    async fn checkout(&self, node: &NodeAddress) -> Result<Pooled, PoolError> {
        let shelf = self.shelf(&node.address);
        let place = Arc::clone(&shelf.places).acquire_owned().await.ok();
        let physical = match shelf.take() {
            Some(physical) => physical,
            None => {
                let made = Arc::new(AsyncMutex::new(self.connect(&node.address).await?));
                let taken = Arc::clone(&made).lock_owned().await;
                shelf.put(made);
                taken
            }
        };
        Ok(Pooled { physical, _place: place })
    }

    fn discard(&self, connection: &mut Pooled) {
        connection.physical.discarded = true;
        connection.physical.task.abort();
    }
}

/// A connection of a [`DirectPool`]; free again when dropped.
#[derive(Debug)]
pub struct Pooled {
    // Declared first, so that the connection is free before its place is.
    physical: OwnedMutexGuard<Physical>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Deref for Pooled {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.physical.checked
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.physical.checked
    }
}

impl NodeConnection for Pooled {
    fn identity(&self) -> &Identity {
        self.physical.checked.identity()
    }
}
