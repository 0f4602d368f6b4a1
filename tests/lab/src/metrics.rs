//! Metrics as an operator reads them: from `/metrics` of the admin listener.
//!
//! Whole numbers alone; what never happened is zero.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The sum of a counter over all members that have these labels; 0 if there is none.
///
/// # Errors
/// If the listener does not answer in full.
pub async fn counter(admin: SocketAddr, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
    gauge(admin, &format!("{name}_total"), labels).await
}

/// The sum of a gauge of whole numbers over all members that have these labels.
///
/// # Errors
/// If the listener does not answer in full.
pub async fn gauge(admin: SocketAddr, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
    let page = page(admin, "/metrics").await?;
    ensure!(page.starts_with("HTTP/1.1 200 "), "{page}");
    ensure!(page.trim_end().ends_with("# EOF"), "chunked or cut: {page}");
    let head = format!("tidegate_{name}{{");
    let wanted: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let members = page.lines().filter_map(|line| line.strip_prefix(&head)?.rsplit_once("} "));
    members
        .filter(|(labels, _)| {
            let has = |wanted: &String| labels.split(',').any(|label| label == wanted);
            wanted.iter().all(has)
        })
        .map(|(_, count)| count.parse::<u64>().with_context(|| format!("{name}: {count}")))
        .sum()
}

/// Says whether the service admits calls.
///
/// # Errors
/// If the listener does not answer in full.
pub async fn is_ready(admin: SocketAddr) -> Result<bool> {
    Ok(page(admin, "/readyz").await?.starts_with("HTTP/1.1 200 "))
}

async fn page(admin: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(admin).await?;
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
