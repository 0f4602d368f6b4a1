//! One address that answers as several servers in turn: a name that moves, a balancer.
//!
//! Connections that are open when it moves are cut or kept, as the test wishes; it knows no
//! protocol and chooses nothing by itself.

#![cfg(feature = "unsafe-guards")]

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_lab::ports::Port;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A listener on loopback that leads to one server after another.
pub(crate) struct Flip {
    port: Arc<Port>,
    target: watch::Sender<SocketAddr>,
    task: JoinHandle<()>,
}

impl Flip {
    /// Leads to `target` until it is moved.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let port = Arc::new(Port::reserve().expect("a port"));
        let listener = TcpListener::bind(port.address()).await.expect("a listener");
        let (target, targets) = watch::channel(target);
        let task = tokio::spawn(carry_all(listener, targets));
        Self { port, target, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Leads to another server from now on, and cuts every connection to the one before.
    pub(crate) fn move_to(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }
}

impl Drop for Flip {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry_all(listener: TcpListener, mut targets: watch::Receiver<SocketAddr>) {
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            moved = targets.changed() => {
                if moved.is_err() {
                    return;
                }
                open.shutdown().await;
                continue;
            }
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
        };
        let Ok((client, _)) = accepted else { return };
        // Whoever came after the move must not be cut for it.
        if targets.has_changed().is_ok_and(|moved| moved) {
            open.shutdown().await;
        }
        open.spawn(carry(client, *targets.borrow_and_update()));
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));
    // Either end may break it off; who reads it knows.
    drop(copy_bidirectional(&mut client, &mut server).await);
}
