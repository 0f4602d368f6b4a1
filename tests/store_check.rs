//! A store on wrong servers is refused at the start, with the setting to change; on real servers.
//!
//! What a right one keeps is `tests/store_conformance.rs`, and again here with the least rights.

#![expect(clippy::expect_used, reason = "a lab that fails is a failed test")]

#[path = "store_redis/stage.rs"]
mod stage;
#[path = "store_conformance/suite.rs"]
mod suite;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tidegate::config::{Password, RedisUrl, Redundancy, StoreTls, Topology};
use tidegate::store::{CheckError, Checked, RedisSettings, survey};
use tidegate_lab::redis::{Cluster, Group, Kind, Options, Sentinels, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What may be granted in place of [`LEAST`] shows what is missing.
const LEAST: &str = "~tidegate:{*}:shop:* resetchannels -@all +info +get +mget +set +del +eval \
                     +evalsha +script|load +config|get";

fn at(servers: &[&Server], topology: Topology) -> RedisSettings {
    let url = |server: &&Server| format!("redis://{}", server.address());
    stage::settings(servers.iter().map(url).collect(), topology)
}

/// Expects a refusal of this setting that says all of these.
async fn refused(settings: &RedisSettings, setting: &str, says: &[&str]) {
    let error = match survey(settings).await {
        Err(error @ CheckError::Refused { .. }) => error.to_string(),
        other => panic!("`{setting}` was to be refused: {other:?}"),
    };
    assert!(error.starts_with(&format!("`{setting}`: ")), "{setting}: {error}");
    for text in says {
        assert!(error.contains(text), "no {text:?} in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "one line: {error}");
    assert!(!error.contains("hunter2"), "the error shows a password: {error}");
}

async fn taken(settings: &RedisSettings) -> Checked {
    survey(settings).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn unreachable(settings: &RedisSettings, says: &str) {
    match survey(settings).await {
        Err(error @ CheckError::Unreachable { .. }) => {
            let error = error.to_string();
            assert!(error.contains(says), "no {says:?} in: {error}");
            assert_eq!(error.lines().count(), 1, "one line: {error}");
        }
        other => panic!("was to be unreachable: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_is_taken_as_it_comes_and_what_is_not_there_may_come() -> Result<()> {
    for (kind, version) in [(Kind::Redis, "Redis 7."), (Kind::Valkey, "Valkey ")] {
        let server = Server::start(Options::new(kind)).await?;
        let settings = at(&[&server], Topology::Single);
        let checked = taken(&settings).await;
        assert!(checked.version.starts_with(version), "{checked:?}");
        assert_eq!((checked.redundancy, checked.fence), (Redundancy::Single, Duration::ZERO));
        assert_eq!((checked.believed_for, checked.replicas), (None, 0));
        let hint = checked.hints.first().expect("it keeps nothing on disk");
        assert!(hint.contains("appendonly"), "{hint}");
        server.stop().await?;
        unreachable(&settings, &format!("redis://{}", server.address())).await;
    }
    let nowhere =
        stage::settings(vec!["redis://no-such-host.invalid:6379".into()], Topology::Single);
    unreachable(&nowhere, "no-such-host.invalid").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_or_user_is_refused_with_the_setting() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis).password("hunter2")).await?;
    let none = at(&[&server], Topology::Single);
    refused(&none, "store.password_file", &["`default`", "store.username"]).await;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("password");
    let from_file = RedisSettings { password: Password::File(file.clone()), ..none.clone() };
    let path = file.to_str().expect("text");
    refused(&from_file, "store.password_file", &[path]).await;
    std::fs::write(&file, "hunter3\n")?;
    refused(&from_file, "store.password_file", &["`default`"]).await;
    let nobody = RedisSettings { username: Some("nobody".to_owned()), ..from_file.clone() };
    std::fs::write(&file, "hunter2\n")?;
    refused(&nobody, "store.password_file", &["`nobody`"]).await;
    taken(&from_file).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_is_refused() -> Result<()> {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let options = Options::new(Kind::Redis).max_memory(50_000_000, policy);
        let server = Server::start(options).await?;
        let says = ["`maxmemory-policy`", policy, "set it to noeviction"];
        refused(&at(&[&server], Topology::Single), "store.urls", &says).await;
        server.set("maxmemory-policy", "noeviction").await?;
        taken(&at(&[&server], Topology::Single)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused_and_the_primary_beside_it_is_found() -> Result<()> {
    let group = Group::start(Options::new(Kind::Redis).min_replicas(1, 10), 1).await?;
    let (primary, replica) = (group.primary(), group.replica(0));
    refused(&at(&[replica], Topology::Single), "store.urls", &["is a replica", "primary"]).await;
    let both = taken(&at(&[replica, primary], Topology::Single)).await;
    assert_eq!(both.redundancy, Redundancy::Fenced);
    assert_eq!((both.fence.as_secs(), both.believed_for), (22, Some(Duration::from_secs(10))));
    // One that is gone may be the primary.
    primary.stop().await?;
    unreachable(&at(&[primary, replica], Topology::Single), "redis://").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_need_a_fence_that_holds() -> Result<()> {
    let group = Group::start(Options::new(Kind::Redis), 2).await?;
    let primary = group.primary();
    let settings = at(&[primary], Topology::Single);
    let says = ["`min-replicas-to-write` is 0; set it to 2", "\"async\""];
    refused(&settings, "store.urls", &says).await;
    let single = stage::with(Redundancy::Single, settings.clone());
    refused(&single, "store.redundancy", &["2 replicas", "\"fenced\" or \"async\""]).await;
    let told = stage::with(Redundancy::Async, settings.clone());
    let checked = taken(&told).await;
    assert_eq!((checked.fence.as_secs(), checked.believed_for), (30, None));
    // A primary that keeps one of two replicas goes on while the other is promoted.
    primary.set("min-replicas-to-write", "1").await?;
    refused(&settings, "store.urls", &["`min-replicas-to-write` is 1; set it to 2"]).await;
    primary.set("min-replicas-to-write", "2").await?;
    primary.set("min-replicas-max-lag", "0").await?;
    refused(&settings, "store.urls", &["`min-replicas-max-lag` is 0", "set it to 10"]).await;
    primary.set("min-replicas-max-lag", "5").await?;
    assert_eq!(taken(&settings).await.fence.as_secs(), 12);
    let short = RedisSettings { fence: Some(Duration::from_secs(11)), ..settings.clone() };
    refused(&short, "store.fence", &["raise it to 12s"]).await;
    let long = RedisSettings { fence: Some(Duration::from_secs(40)), ..settings.clone() };
    assert_eq!(taken(&long).await.fence.as_secs(), 40);
    let waits = RedisSettings { wait_replicas: 3, ..settings.clone() };
    let hints = taken(&waits).await.hints;
    assert!(hints.iter().any(|hint| hint.contains("`store.wait_replicas` is 3")), "{hints:?}");
    let hasty = RedisSettings { lifetime: settings.d_max, ..settings };
    refused(&hasty, "limits.token_lifetime", &["raise it to 2h", "`limits.d_max`"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_needs_replicas_is_not_taken_for_a_single_one() -> Result<()> {
    for kind in [Kind::Redis, Kind::Valkey] {
        // Its only replica was promoted, perhaps: it takes no write, and answers as before.
        let server = Server::start(Options::new(kind).min_replicas(1, 10)).await?;
        let settings = at(&[&server], Topology::Single);
        let checked = taken(&settings).await;
        assert_eq!((checked.redundancy, checked.replicas), (Redundancy::Fenced, 0));
        assert_eq!(checked.believed_for, Some(Duration::from_secs(10)));
        let single = stage::with(Redundancy::Single, settings.clone());
        let says = ["`min-replicas-to-write`", "set that to 0", "\"fenced\" or \"async\""];
        refused(&single, "store.redundancy", &says).await;
        server.set("min-replicas-to-write", "0").await?;
        for settings in [settings, single] {
            assert_eq!(taken(&settings).await.redundancy, Redundancy::Single);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_with_the_line_that_grants_it() -> Result<()> {
    for kind in [Kind::Redis, Kind::Valkey] {
        let rights = |rules: &str| format!(">hunter2 {rules}");
        let options = Options::new(kind)
            .user("least", &rights(LEAST))
            .user("blind", &rights(&LEAST.replace(" +info", "")))
            .user("mute", &rights(&LEAST.replace(" +set", "").replace(" +script|load", "")))
            .user("astray", &rights(&LEAST.replace(":shop:", ":depot:")))
            .user("modest", &rights(&LEAST.replace(" +config|get", "")));
        let server = Server::start(options).await?;
        let settings = |user: &str| RedisSettings {
            username: Some(user.to_owned()),
            password: Password::Text(serde_secret()),
            ..at(&[&server], Topology::Single)
        };
        let grant = |user: &str| format!("ACL SETUSER {user} on >PASSWORD resetkeys {LEAST}");
        taken(&settings("least")).await;
        for (user, denied) in [
            ("blind", "+info on keys"),
            ("mute", "+set +script|load on keys ~tidegate:{*}:shop:*"),
            ("astray", "+get +mget +set +del +eval +evalsha on keys ~tidegate:{*}:shop:*"),
        ] {
            refused(&settings(user), "store.username", &[denied, &grant(user)]).await;
        }
        // Without replicas there is nothing to be read.
        taken(&settings("modest")).await;
    }
    Ok(())
}

/// The password of every user here, as it comes from the environment.
fn serde_secret() -> tidegate::config::Secret {
    serde_json::from_str("\"hunter2\"").expect("a secret is a text")
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_may_not_be_read_must_be_ours() -> Result<()> {
    let user = format!(">hunter2 {}", LEAST.replace(" +config|get", ""));
    let options = Options::new(Kind::Redis).user("modest", &user).min_replicas(1, 10);
    let group = Group::start(options, 1).await?;
    let settings = RedisSettings {
        username: Some("modest".to_owned()),
        password: Password::Text(serde_secret()),
        ..at(&[group.primary()], Topology::Single)
    };
    refused(&settings, "store.max_lag", &["set it to the same", "+config|get"]).await;
    let told = RedisSettings { max_lag: Some(Duration::from_secs(10)), ..settings.clone() };
    assert_eq!(taken(&told).await.fence.as_secs(), 22);
    group.primary().set("min-replicas-to-write", "0").await?;
    refused(&told, "store.urls", &["`min-replicas-to-write` is 0; set it to 1"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_user_with_the_least_rights_passes_the_whole_suite() -> Result<()> {
    let server =
        Server::start(Options::new(Kind::Redis).user("least", &format!(">hunter2 {LEAST}")))
            .await?;
    let number = AtomicUsize::new(0);
    suite::conforms(async || {
        // The rights are those of one installation: the store of a new one is emptied first.
        if number.fetch_add(1, Ordering::Relaxed) > 0 {
            server.flush().await.expect("it is emptied");
        }
        let settings = RedisSettings {
            username: Some("least".to_owned()),
            password: Password::Text(serde_secret()),
            ..at(&[&server], Topology::Single)
        };
        stage::open(settings).await.expect("the server may keep records")
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_clusters_are_told_from_single_servers() -> Result<()> {
    let sentinels = Sentinels::start(Options::new(Kind::Redis).min_replicas(2, 10)).await?;
    let urls: Vec<String> =
        sentinels.addresses().iter().map(|address| format!("redis://{address}")).collect();
    let named = |master: &str| Topology::Sentinel { master: master.to_owned() };
    let checked = taken(&stage::settings(urls.clone(), named(sentinels.name()))).await;
    assert_eq!((checked.redundancy, checked.replicas), (Redundancy::Fenced, 2));
    let other = stage::settings(urls.clone(), named("nobody"));
    refused(&other, "store.sentinel_master", &["no sentinel", "`nobody`"]).await;
    refused(&stage::settings(urls, Topology::Single), "store.urls", &["\"sentinel\""]).await;
    let server = sentinels.primary().await?;
    let plain = at(&[server], named(sentinels.name()));
    refused(&plain, "store.topology", &["no sentinel", "\"single\""]).await;
    refused(&at(&[server], Topology::Cluster), "store.topology", &["\"single\""]).await;

    let cluster = Cluster::start(Options::new(Kind::Redis).min_replicas(1, 10)).await?;
    let checked = taken(&stage::cluster(&cluster)).await;
    assert_eq!((checked.redundancy, checked.replicas), (Redundancy::Fenced, 1));
    let node = cluster.nodes().first().expect("six nodes");
    refused(&at(&[node], Topology::Single), "store.topology", &["\"cluster\""]).await;
    // The one that is wrong is found, whichever it is.
    for node in cluster.nodes() {
        node.set("min-replicas-to-write", "0").await?;
        let primary = node.info().await?.is_primary();
        if primary {
            refused(&stage::cluster(&cluster), "store.urls", &["set it to 1"]).await;
        }
        node.set("min-replicas-to-write", "1").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_suffice_in_a_cluster() -> Result<()> {
    let rights = format!(">hunter2 {LEAST} +cluster|slots +asking +ping");
    let poor = format!(">hunter2 {LEAST} +cluster|slots +ping");
    let options = Options::new(Kind::Redis).min_replicas(1, 1);
    let cluster = Cluster::start(options.user("least", &rights).user("poor", &poor)).await?;
    let settings = |user: &str| RedisSettings {
        username: Some(user.to_owned()),
        password: Password::Text(serde_secret()),
        ..stage::cluster(&cluster)
    };
    refused(&settings("poor"), "store.username", &["+asking", "+cluster|slots"]).await;
    taken(&settings("least")).await;
    let store = stage::open(settings("least")).await?;
    stage::believed(&store, 1).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_checked_and_shown() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis).tls()).await?;
    let other = Server::start(Options::new(Kind::Redis).tls()).await?;
    let address = server.address();
    let url = |text: String| RedisUrl::try_from(text).expect("a URL");
    let authority = |server: &Server| server.certificate_authority().expect("it has TLS");
    let trusting = |ca_file| RedisSettings {
        urls: vec![url(format!("rediss://{address}"))],
        tls: Some(StoreTls { ca_file, identity: None }),
        ..at(&[&server], Topology::Single)
    };
    let settings = trusting(authority(&server));
    taken(&settings).await;
    refused(&trusting(authority(&other)), "store.ca_file", &["certificate"]).await;
    refused(&trusting("/nonexistent".into()), "store.ca_file", &["/nonexistent"]).await;
    // Without TLS it closes the connection: that may be a server on its way up.
    unreachable(&at(&[&server], Topology::Single), "redis://").await;

    // Not for all later starts: the lab itself shows no certificate.
    server.tell(&["CONFIG", "SET", "tls-auth-clients", "yes"]).await?;
    // With TLS 1.3 the server says so after the handshake, and may hang up first.
    match survey(&settings).await {
        Err(CheckError::Refused { setting, .. }) => assert_eq!(setting, "store.cert_file"),
        Err(CheckError::Unreachable { .. }) => {}
        Ok(checked) => panic!("it was shown no certificate: {checked:?}"),
    }
    // Any certificate of the authority: its own does.
    let (cert, key) = (server.folder().join("server.crt"), server.folder().join("server.key"));
    let shown = RedisSettings {
        tls: Some(StoreTls { ca_file: authority(&server), identity: Some((cert, key)) }),
        ..settings
    };
    taken(&shown).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_speaks_another_protocol_is_refused() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("redis://{}", listener.local_addr()?);
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 256];
            let _ = stream.read(&mut asked).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let settings = stage::settings(vec![url], Topology::Single);
    refused(&settings, "store.urls", &["is no Redis"]).await;
    answering.abort();
    Ok(())
}

/// A way to a server on which a field of its `INFO` gets another name.
async fn hiding(field: &'static [u8], server: SocketAddr) -> Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let passing = tokio::spawn(async move {
        while let (Ok((client, _)), Ok(real)) =
            (listener.accept().await, TcpStream::connect(server).await)
        {
            let (mut from_client, mut to_client) = client.into_split();
            let (from_real, mut to_real) = real.into_split();
            let mut from_real = BufReader::new(from_real);
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_real).await });
            tokio::spawn(async move {
                let mut matched = 0;
                // Byte by byte, and as long as before: nothing is held back.
                while let Ok(byte) = from_real.read_u8().await {
                    matched = match field.get(matched) {
                        Some(next) if *next == byte => matched + 1,
                        Some(_) | None => usize::from(field.first() == Some(&byte)),
                    };
                    let whole = matched == field.len();
                    let shown = if whole { b'?' } else { byte };
                    if to_client.write_u8(shown).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok((address, passing))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hides_its_replicas_is_not_taken_for_one_without() -> Result<()> {
    let server = Server::start(Options::new(Kind::Redis)).await?;
    let other: &[u8] = b"connected_clients";
    for (field, is_needed) in [(b"connected_slaves".as_slice(), true), (other, false)] {
        let (address, passing) = hiding(field, server.address()).await?;
        let settings = stage::settings(vec![format!("redis://{address}")], Topology::Single);
        if is_needed {
            refused(&settings, "store.urls", &["does not show `connected_slaves`"]).await;
        } else {
            assert_eq!(taken(&settings).await.redundancy, Redundancy::Single);
        }
        passing.abort();
    }
    Ok(())
}
