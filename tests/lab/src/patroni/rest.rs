//! Patroni's own answers over HTTP: who leads, and the order to switch over.
//!
//! A connection per question, as Patroni's server closes it after each answer. Follows nothing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A switchover is answered when it is over.
const LIMIT: Duration = Duration::from_secs(30);

/// What `GET /cluster` says of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) leads: bool,
    /// It runs, and follows if it does not lead.
    pub(super) is_well: bool,
    pub(super) timeline: Option<u64>,
}

/// The members as one node sees them.
pub(super) async fn members(at: SocketAddr) -> Result<Vec<Member>> {
    let (status, text) = ask(at, "GET", "/cluster", "").await?;
    if status != 200 {
        bail!("GET /cluster of {at} was answered with {status}: {text}");
    }
    let answer: Value = serde_json::from_str(&text).context("GET /cluster is JSON")?;
    let members = answer["members"].as_array().context("a cluster has members")?;
    Ok(members.iter().map(member).collect())
}

fn member(member: &Value) -> Member {
    let word = |key: &str| member[key].as_str().unwrap_or_default();
    let leads = word("role") == "leader";
    let wanted = if leads { "running" } else { "streaming" };
    Member {
        name: word("name").to_owned(),
        leads,
        is_well: word("state") == wanted,
        timeline: member["timeline"].as_u64(),
    }
}

/// Orders a switchover; returns Patroni's words when it is over.
pub(super) async fn switchover(at: SocketAddr, leader: &str, candidate: &str) -> Result<String> {
    let order = serde_json::json!({"leader": leader, "candidate": candidate}).to_string();
    let (status, text) = ask(at, "POST", "/switchover", &order).await?;
    if status != 200 {
        bail!("a switchover from {leader} to {candidate} was answered with {status}: {text}");
    }
    Ok(text)
}

async fn ask(at: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let exchange = async {
        let mut connection = TcpStream::connect(at).await?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nHost: {at}\r\n");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(LIMIT, exchange).await;
    let answer = answer.with_context(|| format!("{method} {path} of {at}: no answer"))?;
    let answer = answer.with_context(|| format!("{method} {path} of {at}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.context("an answer has a status")?, body.to_owned()))
}
