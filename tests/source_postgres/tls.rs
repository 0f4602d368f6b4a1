//! TLS: only a certificate of the named authority, for the dialled name, is talked to.

use tidegate::config::Tls;
use tidegate::ports::SourceErrorClass as Class;
use tidegate::sources::postgres::{Address, schema};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::ClusterOptions;

use crate::running::{Running, bare, target};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_certificate_of_the_named_authority_is_talked_to_pg15() {
    let options = ClusterOptions::new(Major::V15).tls();
    let cluster = bare(options.setting("listen_addresses", "127.0.0.1,127.0.0.2")).await;
    cluster.leader().sql(schema::HOME).await.expect("the schema is applied");
    let authority = cluster.certificate_authority().expect("with TLS");
    let plain = target(cluster.leader());

    // The server demands TLS; in the clear it refuses the login.
    let mut source = Running::start(plain.clone());
    assert_eq!(source.failed().await.class, Class::Denied);
    source.end().await;

    let own_key = cluster.folder().join("no-authority.pem");
    std::fs::write(&own_key, "not a certificate\n").expect("a file");
    let another = bare(ClusterOptions::new(Major::V15).tls()).await;
    let strangers = another.certificate_authority().expect("with TLS");
    for ca_file in [own_key, strangers] {
        let mut wrong = plain.clone();
        wrong.tls = Tls::VerifyFull { ca_file: ca_file.clone() };
        let mut source = Running::start(wrong);
        let error = source.failed().await;
        assert_eq!(error.class, Class::Tls, "{error}");
        assert!(error.text.contains("CA file"), "{error}");
        source.end().await;
    }

    let mut right = plain;
    right.tls = Tls::VerifyFull { ca_file: authority };
    let mut source = Running::start(right.clone());
    source.observed().await;
    let encrypted: bool = cluster
        .leader()
        .value(
            "select bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) \
             where a.usename = 'tidegate'",
        )
        .await
        .expect("a session");
    assert!(encrypted);
    source.end().await;

    // The certificate names `localhost` and 127.0.0.1.
    right.address = Address::Tcp { host: "127.0.0.2".to_owned(), port: cluster.leader().port() };
    let mut source = Running::start(right);
    let error = source.failed().await;
    assert_eq!(error.class, Class::Tls, "{error}");
    source.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_needs_no_tls_pg15() {
    let cluster = bare(ClusterOptions::new(Major::V15)).await;
    cluster.leader().sql(schema::HOME).await.expect("the schema is applied");
    let mut socket = target(cluster.leader());
    let folder = cluster.leader().socket_dir().to_owned();
    socket.address = Address::Socket { folder, port: cluster.leader().port() };
    socket.tls = Tls::VerifyFull { ca_file: "/nowhere".into() };
    let mut source = Running::start(socket);
    source.observed().await;
    source.end().await;
}
