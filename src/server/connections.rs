//! Accepts connections, at most so many at once. It reads nothing from them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::warn;

/// The places for connections.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Semaphore>);

impl Connections {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))))
    }
}

/// One connection, and its place until it closes.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// Connections as they come; with all places taken, new ones wait in the listener's backlog.
pub(super) fn accept(
    listener: TcpListener,
    places: Connections,
) -> impl Stream<Item = io::Result<Connection>> {
    unfold((listener, places), |(listener, places)| async {
        let place = Arc::clone(&places.0).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        warn!(%error, "a connection stays slow");
                    }
                    return Some((Ok(Connection { stream, _place: place }), (listener, places)));
                }
                // One connection failed before it was taken, or no file is left: others go on.
                Err(error) => {
                    warn!(%error, "a connection could not be taken");
                    tokio::task::yield_now().await;
                }
            }
        }
    })
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
