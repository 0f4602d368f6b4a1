//! Opens one connection as a target says: address, password, TLS, session settings.
//!
//! It asks nothing of the server. What it returns ends when it is dropped, even while the network
//! swallows every packet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::failure::{failure, from_driver};
use super::target::{Address, Target};
use crate::config::{Password, Tls};
use crate::ports::{SourceError, SourceErrorClass as Class};

/// How long a silent connection stays unquestioned, on our side and on the server's.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// Waits for a lock on the lineage table that fit into the time of one poll: it is asked for by
/// the poll itself, by the look at what ails the table, and there is room for the answer.
const LOCKS_IN_A_POLL: u128 = 4;

/// A client and the task that moves its bytes.
pub(super) type Opened = (Client, AbortOnDropHandle<()>);

/// Connects and logs in.
///
/// # Errors
/// Any but those of a wrong answer; the text says what to check.
pub(super) async fn open(target: &Target) -> Result<Opened, SourceError> {
    let mut config = configure(target);
    if let Some(password) = read_password(target).await? {
        config.password(password);
    }
    match (&target.tls, &target.address) {
        (Tls::VerifyFull { ca_file }, Address::Tcp { .. }) => {
            let tls = verifying(target, ca_file)?;
            config.ssl_mode(SslMode::Require);
            connect(target, &config, MakeRustlsConnect::new(tls)).await
        }
        (Tls::Off, _) | (Tls::VerifyFull { .. }, Address::Socket { .. }) => {
            config.ssl_mode(SslMode::Disable);
            connect(target, &config, NoTls).await
        }
    }
}

async fn connect<T>(target: &Target, config: &Config, tls: T) -> Result<Opened, SourceError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connected = config.connect(tls).await;
    let (client, connection) = connected.map_err(|error| from_driver(&target.address, &error))?;
    // Its errors reach whoever waits for an answer.
    let driver = tokio::spawn(async move { drop(connection.await) });
    Ok((client, AbortOnDropHandle::new(driver)))
}

fn configure(target: &Target) -> Config {
    let mut config = Config::new();
    match &target.address {
        Address::Tcp { host, port } => config.host(host).port(*port),
        Address::Socket { folder, port } => config.host_path(folder).port(*port),
    };
    config
        .user(&target.user)
        .dbname(&target.database)
        .application_name(target.application_name())
        .connect_timeout(target.timeouts.connect)
        .tcp_user_timeout(target.timeouts.poll * 2)
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(Duration::from_secs(1))
        .keepalives_retries(3)
        .options(session_settings(target.timeouts.poll));
    config
}

/// What must hold in our sessions, whatever is set for the role, the database or the server.
///
/// A server that lost us cancels the statement and drops the connection by itself: they are few.
fn session_settings(poll: Duration) -> String {
    let millis = poll.as_millis();
    // Short enough that an answer without the table is still in time, and says why.
    let lock_millis = (millis / LOCKS_IN_A_POLL).max(1);
    [
        "default_transaction_read_only=off",
        r"default_transaction_isolation=read\ committed",
        "search_path=pg_catalog",
        &format!("statement_timeout={millis}"),
        &format!("lock_timeout={lock_millis}"),
        &format!("idle_in_transaction_session_timeout={millis}"),
        "idle_session_timeout=0",
        "jit=off",
        "tcp_keepalives_idle=5",
        "tcp_keepalives_interval=1",
        "tcp_keepalives_count=3",
    ]
    .map(|setting| format!("-c {setting}"))
    .join(" ")
}

async fn read_password(target: &Target) -> Result<Option<String>, SourceError> {
    let unusable = |text: String| failure(&target.address, Class::Denied, text);
    match &target.password {
        Password::None => Ok(None),
        Password::File(path) => {
            let text = tokio::fs::read_to_string(path).await.map_err(|error| {
                unusable(format!("the password file {} cannot be read: {error}", path.display()))
            })?;
            match text.lines().next() {
                Some(line) if !line.is_empty() => Ok(Some(line.to_owned())),
                Some(_) | None => {
                    Err(unusable(format!("the password file {} is empty", path.display())))
                }
            }
        }
        Password::Text(secret) => Ok(Some(secret.reveal().to_owned())),
    }
}

/// TLS that accepts only certificates signed by those in `ca_file`, for the host that was dialled.
fn verifying(target: &Target, ca_file: &Path) -> Result<ClientConfig, SourceError> {
    let unusable = |reason: String| {
        let text = format!(
            "the CA file {} cannot be used: {reason}; it must hold certificates in PEM form",
            ca_file.display()
        );
        failure(&target.address, Class::Tls, text)
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(ca_file).map_err(|error| unusable(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("no certificate is in it".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
