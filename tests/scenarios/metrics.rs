//! Counters as an operator reads them: from `/metrics` of the admin listener.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The sum of a counter over all members that have these labels; 0 if there is none.
pub(crate) async fn counter(admin: SocketAddr, name: &str, labels: &[(&str, &str)]) -> u64 {
    let page = page(admin).await;
    let head = format!("tidegate_{name}_total{{");
    let wanted: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let members = page.lines().filter_map(|line| line.strip_prefix(&head)?.rsplit_once("} "));
    members
        .filter(|(labels, _)| {
            let has = |wanted: &String| labels.split(',').any(|label| label == wanted);
            wanted.iter().all(has)
        })
        .map(|(_, count)| count.parse::<u64>().expect("a counter counts"))
        .sum()
}

async fn page(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect(admin).await.expect("the admin listener listens");
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.expect("the question is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer in text");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.trim_end().ends_with("# EOF"), "chunked or cut: {answer}");
    answer
}
