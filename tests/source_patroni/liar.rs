//! A server that says what a test wants wherever Patroni's REST API is expected.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::config::HttpAddress;
use tidegate_lab::wait::{LIMIT, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// How it answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Says {
    /// As Patroni does: a leader on a timeline, and where timelines ended.
    Leader(&'static str, u32, Vec<(u32, u64)>),
    /// Status 200 with this text.
    Text(&'static str),
    /// This status.
    Status(u16),
    /// A body that does not end.
    Endless,
    /// A head that does not end.
    EndlessHead,
    /// What is no HTTP.
    Noise,
    /// Nothing, and the connection stays.
    Nothing,
    /// Nothing, and the connection goes.
    Goodbye,
}

/// The server; it ends with this value.
pub(crate) struct Liar {
    says: Arc<Mutex<(Says, u64)>>,
    address: String,
    _task: AbortOnDropHandle<()>,
}

impl Liar {
    pub(crate) async fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let says = Arc::new(Mutex::new((says, 0)));
        let shared = Arc::clone(&says);
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { return };
                // Whoever asks may go away at any time.
                drop(tokio::spawn(answer(connection, Arc::clone(&shared))));
            }
        });
        Self { says, address, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn address(&self) -> HttpAddress {
        self.address.clone().try_into().expect("an address")
    }

    /// Answers like this from now on.
    pub(crate) fn say(&self, says: Says) {
        self.says.lock().unwrap_or_else(PoisonError::into_inner).0 = says;
    }

    /// Questions that were answered, or left without an answer, so far.
    pub(crate) fn asked(&self) -> u64 {
        self.says.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Waits until it was asked so often after now, the one being answered not counted.
    pub(crate) async fn await_asked(&self, times: u64) {
        let wanted = self.asked() + times + 1;
        let asked = || async { Ok(self.asked() >= wanted) };
        until("Patroni is asked", LIMIT, asked).await.expect("it is asked again and again");
    }
}

async fn answer(mut connection: TcpStream, says: Arc<Mutex<(Says, u64)>>) -> std::io::Result<()> {
    let mut question = [0; 2048];
    let length = connection.read(&mut question).await?;
    let question = String::from_utf8_lossy(&question[..length]).into_owned();
    let says = {
        let mut shared = says.lock().unwrap_or_else(PoisonError::into_inner);
        shared.1 += 1;
        shared.0.clone()
    };
    let ok = |body: &str| format!("HTTP/1.0 200 OK\r\nContent-Type: text/json\r\n\r\n{body}");
    match says {
        Says::Leader(name, timeline, ends) => {
            let body = if question.starts_with("GET /history ") {
                history(&ends)
            } else {
                cluster(name, timeline)
            };
            connection.write_all(ok(&body).as_bytes()).await
        }
        Says::Text(text) => connection.write_all(ok(text).as_bytes()).await,
        Says::Status(status) => {
            let text = format!("HTTP/1.0 {status} No\r\n\r\n{}", cluster("p9", 99));
            connection.write_all(text.as_bytes()).await
        }
        Says::Endless => {
            connection.write_all(ok("{\"members\": [").as_bytes()).await?;
            endlessly(&mut connection, b"          ").await
        }
        Says::EndlessHead => {
            connection.write_all(b"HTTP/1.0 200 OK\r\n").await?;
            endlessly(&mut connection, b"X-More: of the same\r\n").await
        }
        Says::Noise => connection.write_all(b"\x00\x01SSH-2.0-noise\r\n\r\n").await,
        Says::Nothing => std::future::pending().await,
        Says::Goodbye => Ok(()),
    }
}

async fn endlessly(connection: &mut TcpStream, text: &[u8]) -> std::io::Result<()> {
    let many = text.repeat(4096);
    loop {
        connection.write_all(&many).await?;
    }
}

fn cluster(leader: &str, timeline: u32) -> String {
    format!(
        "{{\"members\": [{{\"name\": \"other\", \"role\": \"replica\", \"lag\": \"unknown\"}}, \
         {{\"name\": \"{leader}\", \"role\": \"leader\", \"timeline\": {timeline}}}]}}"
    )
}

fn history(ends: &[(u32, u64)]) -> String {
    let mut text = String::new();
    for (timeline, position) in ends {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}[{timeline}, {position}, \"no recovery target\"]").expect("grows");
    }
    format!("[{text}]")
}
