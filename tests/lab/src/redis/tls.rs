//! The certificate of a server that speaks TLS: an authority of its own, made with openssl.
//!
//! Clients need none; they must trust the authority.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use redis::TlsCertificates;

use crate::machine;

/// The files of one server.
pub(super) struct Tls;

impl Tls {
    /// Makes an authority and a certificate for `localhost` and 127.0.0.1.
    pub(super) fn make(folder: &Path) -> Result<()> {
        fs::write(folder.join("san"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
        let steps = [
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
             -subj /CN=tidegate-lab-ca -keyout ca.key -out ca.crt",
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
             -subj /CN=localhost -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
             -extfile san -out server.crt",
        ];
        for step in steps {
            let mut openssl = machine::as_server_user(Path::new("openssl"))?;
            machine::run(openssl.current_dir(folder).args(step.split_whitespace()))?;
        }
        Ok(())
    }

    /// The lines that switch TLS on and everything else off.
    pub(super) fn settings(folder: &Path, port: u16) -> Vec<String> {
        let file = |name: &str| folder.join(name).display().to_string();
        vec![
            "port 0".to_owned(),
            format!("tls-port {port}"),
            format!("tls-cert-file {}", file("server.crt")),
            format!("tls-key-file {}", file("server.key")),
            format!("tls-ca-cert-file {}", authority(folder).display()),
            "tls-auth-clients no".to_owned(),
            "tls-replication yes".to_owned(),
        ]
    }
}

/// The certificate that clients must trust.
pub(super) fn authority(folder: &Path) -> PathBuf {
    folder.join("ca.crt")
}

/// What a client is told to trust.
pub(super) fn trusted(folder: &Path) -> Result<TlsCertificates> {
    let root = fs::read(authority(folder)).context("a server with TLS has an authority")?;
    Ok(TlsCertificates { client_tls: None, root_cert: Some(root) })
}
