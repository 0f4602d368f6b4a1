//! One question over HTTP, on a connection of its own, with a bounded answer.
//!
//! It has no timer: whoever asks limits the time and drops the question.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::config::HttpAddress;

/// Bytes of an answer that are read: a history of ten thousand timelines fits.
const BODY_BYTES: usize = 1024 * 1024;
/// Bytes of the head of an answer that are read.
const HEAD_BYTES: usize = 16 * 1024;

/// Asks for `path`; an error says what happened, for people.
pub(super) async fn get(address: &HttpAddress, path: &'static str) -> Result<Bytes, String> {
    let place = address.host_port();
    let connected = TcpStream::connect((place.host(), place.port())).await;
    let stream = connected.map_err(|error| format!("it cannot be reached: {error}"))?;
    let broken = |error: hyper::Error| format!("it answers in no HTTP: {error}");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Its errors reach the question.
    let _driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let request = Request::get(path)
        .header(HOST, place.to_string())
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("it cannot be asked: {error}"))?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers with status {}", answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), BODY_BYTES).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            format!("its answer is longer than {BODY_BYTES} bytes")
        } else {
            format!("its answer broke off: {error}")
        }
    })?;
    Ok(body.to_bytes())
}
