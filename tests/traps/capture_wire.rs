//! Several statements with one Sync, as drivers with pipelining send them.
//!
//! Speaks just enough of PostgreSQL's protocol for that; the driver of the other tests sends a
//! Sync after each statement. No passwords, no parameters, texts only.

use tidegate_lab::postgres::Server;
use tidegate_lab::service::DATABASE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The newest protocol that every accepted version speaks: 3.0.
const PROTOCOL: i32 = 196_608;

/// Longer messages are not expected of the statements here.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Runs statements in one pipeline; the first column of the last row that any of them returned.
pub(crate) async fn pipeline(server: &Server, statements: &[&str]) -> String {
    let path = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
    let mut stream = UnixStream::connect(path).await.expect("the server is there");
    stream.write_all(&startup()).await.expect("it is sent");
    let greeting = until_ready(&mut stream).await;
    assert_eq!(greeting, None, "rows before any statement");
    let mut sent = Vec::new();
    for statement in statements {
        // The unnamed statement, no parameters; all results as text; all rows.
        sent.extend(message(b'P', &[b"\0", statement.as_bytes(), b"\0\0\0"]));
        sent.extend(message(b'B', &[b"\0\0", &[0; 6]]));
        sent.extend(message(b'E', &[b"\0", &[0; 4]]));
    }
    sent.extend(message(b'S', &[]));
    stream.write_all(&sent).await.expect("it is sent");
    until_ready(&mut stream).await.expect("a row")
}

fn startup() -> Vec<u8> {
    let settings = format!("user\0postgres\0database\0{DATABASE}\0\0");
    let mut sent = length_of(settings.len() + 4).to_vec();
    sent.extend(PROTOCOL.to_be_bytes());
    sent.extend(settings.as_bytes());
    sent
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut sent = vec![kind];
    sent.extend(length_of(body.len()));
    sent.extend(body);
    sent
}

/// The length field of a message, which counts itself.
fn length_of(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes + 4).expect("a short message").to_be_bytes()
}

/// Reads until the server is ready for more.
async fn until_ready(stream: &mut UnixStream) -> Option<String> {
    let mut last = None;
    loop {
        let kind = stream.read_u8().await.expect("an answer");
        let bytes = stream.read_u32().await.expect("an answer");
        let bytes = usize::try_from(bytes).expect("a length").saturating_sub(4);
        assert!(bytes <= MESSAGE_BYTES_MAX, "a message of {bytes} bytes");
        let mut body = vec![0; bytes];
        stream.read_exact(&mut body).await.expect("an answer");
        match kind {
            b'Z' => return last,
            b'D' => last = Some(first_column(&body)),
            b'E' => panic!("refused: {}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
}

/// A row is its number of columns, then each column's length and bytes.
fn first_column(row: &[u8]) -> String {
    let length = row.get(2..6).and_then(|field| field.try_into().ok()).map(u32::from_be_bytes);
    let length = usize::try_from(length.expect("a column")).expect("a length");
    let bytes = row.get(6..6 + length).expect("a column that is not null");
    String::from_utf8(bytes.to_vec()).expect("text")
}
