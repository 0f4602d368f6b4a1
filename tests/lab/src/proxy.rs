//! A TCP proxy on loopback whose network can be broken and mended while it runs.
//!
//! Knows no protocol: PostgreSQL, gRPC and Redis pass alike. Loses no byte in the middle of a
//! connection; what is held back arrives in order once the way is free, as TCP would have it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::ports::Port;

/// Bytes moved at once; also the grain of [`Mode::Slow`].
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks on their way in one direction; more stay with the sender.
const CHUNKS_IN_FLIGHT: usize = 1024;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bytes pass at once.
    Pass,
    /// Bytes arrive this much later, in each direction; throughput stays.
    Delay(Duration),
    /// Open connections are closed and new ones refused.
    Cut,
    /// Connections stay open and new ones are accepted, but no byte arrives on either side.
    BlackHole,
    /// Bytes reach the target, but no answer comes back.
    HalfOpen,
    /// At most this many bytes per second in each direction of each connection; at least 1.
    Slow(u64),
}

impl Mode {
    fn holds_back(self, way: Way) -> bool {
        match self {
            Self::BlackHole => true,
            Self::HalfOpen => way == Way::Back,
            Self::Pass | Self::Delay(_) | Self::Cut | Self::Slow(_) => false,
        }
    }

    fn delay(self) -> Duration {
        match self {
            Self::Delay(delay) => delay,
            Self::Pass | Self::Cut | Self::BlackHole | Self::HalfOpen | Self::Slow(_) => {
                Duration::ZERO
            }
        }
    }

    fn time_to_send(self, bytes: usize) -> Duration {
        match self {
            Self::Slow(rate) => Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate.max(1)),
            Self::Pass | Self::Delay(_) | Self::Cut | Self::BlackHole | Self::HalfOpen => {
                Duration::ZERO
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    bytes: AtomicU64,
}

/// A running proxy; dropping it closes everything it carries.
#[derive(Debug)]
pub struct Proxy {
    port: Arc<Port>,
    mode: watch::Sender<Mode>,
    /// What the listener has put into effect.
    in_effect: watch::Receiver<Mode>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy before a target; it passes everything.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let port = Arc::new(Port::reserve()?);
        let listener = listen(&port).await?;
        let (mode, modes) = watch::channel(Mode::Pass);
        let (effect, in_effect) = watch::channel(Mode::Pass);
        let counters = Arc::new(Counters::default());
        let line = Line { target, modes, effect, counters: Arc::clone(&counters) };
        let task = tokio::spawn(line.run(Arc::clone(&port), Some(listener)));
        Ok(Self { port, mode, in_effect, counters, task })
    }

    /// The port to connect to instead of the target's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address to connect to instead of the target's.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Changes what the network does, for open connections and new ones; returns when in effect.
    ///
    /// # Errors
    /// When the proxy cannot listen again after a cut.
    pub async fn set(&self, mode: Mode) -> Result<()> {
        self.mode.send_replace(mode);
        let mut in_effect = self.in_effect.clone();
        in_effect.wait_for(|now| *now == mode).await.context("the proxy lost its port")?;
        Ok(())
    }

    /// What the network does now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Connections accepted since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// Bytes delivered since the start, both directions together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(port: &Port) -> Result<TcpListener> {
    let address = port.address();
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// The task that listens and owns the tasks of all connections.
struct Line {
    target: SocketAddr,
    modes: watch::Receiver<Mode>,
    effect: watch::Sender<Mode>,
    counters: Arc<Counters>,
}

impl Line {
    async fn run(mut self, port: Arc<Port>, mut listener: Option<TcpListener>) {
        let mut open = JoinSet::new();
        loop {
            let mode = *self.modes.borrow_and_update();
            if mode == Mode::Cut {
                listener = None;
                open.shutdown().await;
            } else if listener.is_none() {
                let Ok(again) = listen(&port).await else { return };
                listener = Some(again);
            }
            self.effect.send_replace(mode);
            // A change that came while this one was put into effect wakes at once.
            loop {
                tokio::select! {
                    changed = self.modes.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    client = accept(listener.as_ref()) => {
                        self.counters.connections.fetch_add(1, Ordering::Relaxed);
                        open.spawn(carry(client, self.target, self.modes.clone(),
                            Arc::clone(&self.counters)));
                    }
                    Some(_) = open.join_next(), if !open.is_empty() => {}
                }
            }
        }
    }
}

/// The next connection; never, while there is no listener.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        match listener {
            Some(listener) => match listener.accept().await {
                Ok((client, _)) => return client,
                // Out of file handles, or the client has gone again.
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            },
            None => std::future::pending().await,
        }
    }
}

/// Carries one connection until either side or the network ends it.
async fn carry(
    client: TcpStream,
    target: SocketAddr,
    mut modes: watch::Receiver<Mode>,
    counters: Arc<Counters>,
) {
    // In a black hole not even the connection reaches the target.
    if modes.wait_for(|mode| !mode.holds_back(Way::There)).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    // Small messages must not wait for others: the proxy adds no delay of its own.
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        pump(Way::There, from_client, to_server, modes.clone(), &counters),
        pump(Way::Back, from_server, to_client, modes, &counters),
    );
}

/// Moves bytes one way, passing an end of stream on after the bytes before it.
async fn pump(
    way: Way,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
    counters: &Counters,
) {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_IN_FLIGHT);
    let arriving = modes.clone();
    let read = async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = from.read(&mut chunk).await {
            let due_at = Instant::now() + arriving.borrow().delay();
            if queue.send((due_at, chunk[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due_at, chunk)) = queued.recv().await {
            tokio::time::sleep_until(due_at).await;
            let Ok(mode) = modes.wait_for(|mode| !mode.holds_back(way)).await.map(|mode| *mode)
            else {
                return;
            };
            tokio::time::sleep(mode.time_to_send(chunk.len())).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
            counters.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
        // An end is news as well: it does not pass where bytes do not.
        if modes.wait_for(|mode| !mode.holds_back(way)).await.is_err() {
            return;
        }
        // A reset by the other side says the same.
        drop(to.shutdown().await);
    };
    tokio::join!(read, write);
}
