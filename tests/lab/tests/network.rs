//! The proxy: each way a network fails is seen from both of its ends.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::proxy::{Mode, Proxy};
use tidegate_lab::wait::{LIMIT, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than a byte needs on loopback, short enough to wait for in vain.
const IN_VAIN: Duration = Duration::from_millis(150);

/// A server that sends back what it gets.
async fn echo() -> Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
            });
        }
    });
    Ok((address, task))
}

async fn ping(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"ping").await?;
    stream.read_exact(&mut [0; 4]).await.map(drop)
}

#[tokio::test]
async fn bytes_pass_and_the_end_of_a_stream_too() -> Result<()> {
    let (target, _echo) = echo().await?;
    let proxy = Proxy::start(target).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let (mut from, mut to) = stream.split();
    let mut got = Vec::new();
    let write = async {
        to.write_all(&sent).await?;
        to.shutdown().await
    };
    tokio::try_join!(write, from.read_to_end(&mut got))?;
    assert!(got == sent && proxy.connections() == 1 && proxy.bytes() == 2_000_000);
    Ok(())
}

#[tokio::test]
async fn a_delay_counts_once_in_each_direction() -> Result<()> {
    let (target, _echo) = echo().await?;
    let proxy = Proxy::start(target).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    ping(&mut stream).await?;
    proxy.set(Mode::Delay(Duration::from_millis(60))).await?;
    let started_at = Instant::now();
    ping(&mut stream).await?;
    assert!(started_at.elapsed() >= Duration::from_millis(120));
    Ok(())
}

#[tokio::test]
async fn a_cut_closes_refuses_and_can_be_mended() -> Result<()> {
    let (target, _echo) = echo().await?;
    let proxy = Proxy::start(target).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    ping(&mut stream).await?;
    proxy.set(Mode::Cut).await?;
    assert!(timeout(LIMIT, ping(&mut stream)).await?.is_err());
    let refused = TcpStream::connect(proxy.address()).await.map_err(|error| error.kind());
    assert!(matches!(refused, Err(ErrorKind::ConnectionRefused)), "{refused:?}");
    proxy.set(Mode::Pass).await?;
    ping(&mut TcpStream::connect(proxy.address()).await?).await?;
    Ok(())
}

#[tokio::test]
async fn a_black_hole_swallows_old_and_new_connections_until_mended() -> Result<()> {
    let (target, _echo) = echo().await?;
    let proxy = Proxy::start(target).await?;
    let mut old = TcpStream::connect(proxy.address()).await?;
    ping(&mut old).await?;
    proxy.set(Mode::BlackHole).await?;
    let mut new = TcpStream::connect(proxy.address()).await?;
    let delivered = proxy.bytes();
    for stream in [&mut old, &mut new] {
        stream.write_all(b"ping").await?;
        assert!(timeout(IN_VAIN, stream.read_u8()).await.is_err());
    }
    assert_eq!(proxy.bytes(), delivered);
    proxy.set(Mode::Pass).await?;
    for stream in [&mut old, &mut new] {
        timeout(LIMIT, stream.read_exact(&mut [0; 4])).await??;
    }
    Ok(())
}

#[tokio::test]
async fn no_end_of_a_stream_passes_a_black_hole() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::start(listener.local_addr()?).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    let (mut server, _) = listener.accept().await?;
    proxy.set(Mode::BlackHole).await?;
    client.shutdown().await?;
    assert!(timeout(IN_VAIN, server.read_u8()).await.is_err(), "the end of the stream came");
    proxy.set(Mode::Pass).await?;
    assert_eq!(timeout(LIMIT, server.read(&mut [0; 1])).await??, 0);
    Ok(())
}

#[tokio::test]
async fn a_half_open_line_delivers_but_answers_nothing() -> Result<()> {
    let (target, _echo) = echo().await?;
    let proxy = Proxy::start(target).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    ping(&mut stream).await?;
    proxy.set(Mode::HalfOpen).await?;
    stream.write_all(b"ping").await?;
    until("the request has arrived", LIMIT, || async { Ok(proxy.bytes() == 12) }).await?;
    assert!(timeout(IN_VAIN, stream.read_u8()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_slow_line_takes_its_time() -> Result<()> {
    let (target, _echo) = echo().await?;
    let proxy = Proxy::start(target).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    proxy.set(Mode::Slow(100_000)).await?;
    let started_at = Instant::now();
    stream.write_all(&[7; 10_000]).await?;
    stream.read_exact(&mut [0; 10_000]).await?;
    assert!(started_at.elapsed() >= Duration::from_millis(190));
    Ok(())
}

#[tokio::test]
async fn a_standby_behind_a_cut_proxy_is_cut_off_even_while_paused() -> Result<()> {
    let options = ClusterOptions::new(Major::V15).standbys(1);
    let cluster = Cluster::start(options).await?;
    let proxy = Proxy::start(cluster.leader().address()).await?;
    let standby = cluster.standby(0);
    standby.repoint_to(proxy.address()).await?;
    standby.await_streaming().await?;
    standby.pause_replay().await?;
    proxy.set(Mode::Cut).await?;
    until("the walreceiver is gone", LIMIT, || async {
        Ok(standby.value::<i64>("select count(*) from pg_stat_wal_receiver").await? == 0)
    })
    .await?;
    proxy.set(Mode::Pass).await?;
    standby.resume_replay().await?;
    standby.await_streaming().await
}
