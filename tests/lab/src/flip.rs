//! One address that answers as several servers in turn: a name that moves, a balancer.
//!
//! Connections that are open when it moves are cut or kept, as the test wishes; it knows no
//! protocol and chooses nothing by itself.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::ports::Port;

/// Where a flip leads, and which move brought it there.
#[derive(Clone, Copy, Debug)]
struct Target {
    address: SocketAddr,
    /// How often open connections have been cut.
    cuts: u64,
}

/// A listener on loopback that leads to one server after another; dropping it closes everything.
#[derive(Debug)]
pub struct Flip {
    port: Arc<Port>,
    target: watch::Sender<Target>,
    task: JoinHandle<()>,
}

impl Flip {
    /// Leads to `target` until it is moved.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn to(target: SocketAddr) -> Result<Self> {
        let port = Arc::new(Port::reserve()?);
        let listener = TcpListener::bind(port.address()).await.context("a flip cannot listen")?;
        let (target, targets) = watch::channel(Target { address: target, cuts: 0 });
        let task = tokio::spawn(carry_all(listener, targets));
        Ok(Self { port, target, task })
    }

    /// The one address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Leads to another server from now on, and cuts every connection to the one before.
    pub fn move_to(&self, target: SocketAddr) {
        self.target.send_modify(|now| *now = Target { address: target, cuts: now.cuts + 1 });
    }

    /// Leads new connections to another server; who is connected stays where he is.
    pub fn move_newcomers_to(&self, target: SocketAddr) {
        self.target.send_modify(|now| now.address = target);
    }
}

impl Drop for Flip {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry_all(listener: TcpListener, mut targets: watch::Receiver<Target>) {
    let mut open = JoinSet::new();
    let mut cuts = 0;
    loop {
        let accepted = tokio::select! {
            moved = targets.changed() => {
                if moved.is_err() {
                    return;
                }
                None
            }
            accepted = listener.accept() => Some(accepted),
            Some(_) = open.join_next(), if !open.is_empty() => continue,
        };
        let target = *targets.borrow_and_update();
        // Before a newcomer is let in: whoever came after the move must not be cut for it.
        if target.cuts != cuts {
            cuts = target.cuts;
            open.shutdown().await;
        }
        match accepted {
            None => {}
            Some(Ok((client, _))) => drop(open.spawn(carry(client, target.address))),
            Some(Err(_)) => return,
        }
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));
    // Either end may break it off; who reads it knows.
    drop(copy_bidirectional(&mut client, &mut server).await);
}
