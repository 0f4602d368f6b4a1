//! A connection over TLS is as direct as one without: it is not taken for a pooler's.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tidegate_client::{
    Checked, Client, ClientOptions, NodeAddress, NodePool, Policy, SessionOptions,
};
use tidegate_lab::install::Major;
use tidegate_lab::postgres::{Cluster, ClusterOptions};
use tidegate_lab::service::{DATABASE, PARTITION, Service, ServiceOptions};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, Error, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Makes a connection for each read.
struct Encrypted {
    tls: MakeRustlsConnect,
    mode: SslMode,
}

impl NodePool for Encrypted {
    type Connection = Checked<tokio_postgres::Client>;
    type Error = Error;

    async fn checkout(&self, node: &NodeAddress) -> Result<Self::Connection, Error> {
        let (host, port) = node.address.rsplit_once(':').expect("host and port");
        let mut config = Config::new();
        config.host(host).port(port.parse().expect("a port")).user("postgres").dbname(DATABASE);
        let (client, connection) = config.ssl_mode(self.mode).connect(self.tls.clone()).await?;
        // Ends by itself with the client.
        drop(tokio::spawn(connection));
        Ok(Checked::new(client))
    }

    fn discard(&self, _: &mut Self::Connection) {}
}

#[tokio::test]
async fn a_direct_connection_over_tls_is_not_taken_for_a_pooler() {
    let cluster = Cluster::start(ClusterOptions::new(Major::V15).tls()).await.expect("it starts");
    let authority = cluster.certificate_authority().expect("with TLS");
    let options = ServiceOptions::of(&cluster).await.expect("the objects are installed");
    let options = options.partition("tls", "\"verify-full\"");
    let options = options.partition("tls_ca_file", &format!("\"{}\"", authority.display()));
    let service = Service::start(options).await.expect("the service starts");
    let client = Client::connect(ClientOptions::new(service.endpoint())).await;
    let session = client.expect("the service listens").session(SessionOptions::new(PARTITION));

    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).expect("a certificate");
    roots.add(certificate).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.expect("versions").with_root_certificates(roots).with_no_client_auth();
    for mode in [SslMode::Require, SslMode::Prefer] {
        let pool = Encrypted { tls: MakeRustlsConnect::new(tls.clone()), mode };
        // Behind a pooler it would be inside a transaction.
        let how = async |db: &tokio_postgres::Client| {
            let encrypted = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
            let encrypted: bool = db.query_one(encrypted, &[]).await?.try_get(0)?;
            let outside = db.simple_query("select now() = statement_timestamp()").await?;
            let outside = outside.iter().any(|message| {
                matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"))
            });
            Ok::<_, Error>((encrypted, outside))
        };
        let read = session.read(&pool, &Policy::default(), how).await.expect("it is served");
        assert_eq!(read.value, (true, true), "{mode:?}");
    }
    service.stop().await.expect("the service had not failed");
}
