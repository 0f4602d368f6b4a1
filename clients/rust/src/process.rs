//! Which server process a connection's start-up named, to tell a pooler from the server itself.
//!
//! The driver keeps that number to itself but writes it into every cancel request, so one is
//! written into memory and read back. Nothing is sent and nothing is cancelled.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// What a cancel request carries where others carry a version of the protocol.
const CANCEL_CODE: [u8; 4] = 80_877_102_u32.to_be_bytes();
/// Length, code, process id, secret key.
const CANCEL_BYTES: usize = 16;

/// The process id that the start-up of this connection named; `None`: the driver does not tell it.
pub(crate) async fn protocol_pid(client: &Client) -> Option<i32> {
    let memory = Memory::default();
    client.cancel_token().cancel_query_raw(memory.clone(), InMemory).await.ok()?;
    let written = memory.written.lock().unwrap_or_else(PoisonError::into_inner);
    pid_of(&written)
}

/// The process id in a cancel request, which may stand behind a request for TLS.
fn pid_of(written: &[u8]) -> Option<i32> {
    let request = written.last_chunk::<CANCEL_BYTES>()?;
    let (code, pid) = (request[4..8].first_chunk::<4>()?, request[8..12].first_chunk::<4>()?);
    (*code == CANCEL_CODE).then(|| i32::from_be_bytes(*pid))
}

/// A stream that keeps what is written and agrees to TLS.
#[derive(Clone, Debug, Default)]
struct Memory {
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Memory {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for Memory {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Lets the request through as it is where the connection itself uses TLS.
struct InMemory;

impl TlsConnect<Memory> for InMemory {
    type Stream = Memory;
    type Error = io::Error;
    type Future = Ready<io::Result<Memory>>;

    fn connect(self, memory: Memory) -> Self::Future {
        ready(Ok(memory))
    }
}

#[cfg(test)]
mod tests {
    use super::pid_of;

    #[test]
    fn only_a_cancel_request_names_a_process() {
        let request = [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 1, 2, 9, 9, 9, 9];
        assert_eq!(pid_of(&request), Some(258));
        let behind_tls = [&[0, 0, 0, 8, 4, 210, 22, 47][..], &request].concat();
        assert_eq!(pid_of(&behind_tls), Some(258));
        assert_eq!(pid_of(&request[1..]), None);
        let other = [0, 0, 0, 16, 4, 210, 22, 47, 0, 0, 1, 2, 9, 9, 9, 9];
        assert_eq!(pid_of(&other), None);
    }
}
