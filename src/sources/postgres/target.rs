//! `Target`: whom a source polls, as whom, and how long it waits. It opens nothing.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tidegate_core::guards::Guards;
use tidegate_core::lineage::SystemId;
use tidegate_core::views::NodeId;

/// The port of an address that names none.
const DEFAULT_PORT: u16 = 5432;

/// One server to poll.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which node of the partition it is.
    pub node: NodeId,
    /// Where this one server listens; never a pooler or balancer.
    pub address: Address,
    /// The home database, which has the lineage table.
    pub database: String,
    /// The role to log in as.
    pub user: String,
    /// Where its password comes from.
    pub password: Password,
    /// Whether the connection is encrypted, and whom it must meet.
    pub tls: Tls,
    /// The name of the Tidegate installation.
    pub cluster: String,
    /// The name of this instance of it.
    pub instance: String,
    /// The database cluster this partition is; `None` accepts any, before `init` has pinned it.
    pub system: Option<SystemId>,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// The safety rules in force.
    pub guards: Guards,
}

impl Target {
    /// The name the server lists its connection under: `tidegate/CLUSTER/INSTANCE`.
    ///
    /// PostgreSQL cuts it to 63 bytes.
    pub fn application_name(&self) -> String {
        format!("tidegate/{}/{}", self.cluster, self.instance)
    }
}

/// Where a password comes from. It is read at every connect, so that a changed one is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Password {
    /// There is none.
    None,
    /// The first line of a file.
    File(PathBuf),
    /// The value of an environment variable.
    Environment(String),
}

/// Whether a connection is encrypted. Unix sockets never are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tls {
    /// In the clear.
    Off,
    /// Encrypted; the certificate must be signed by one of `ca_file` and name the host.
    VerifyFull {
        /// Certificates in PEM form, read at every connect.
        ca_file: PathBuf,
    },
}

/// How long a source waits. Each is a bound: what takes longer has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// For a connection that is ready to poll.
    pub connect: Duration,
    /// For the answer to one poll or the insert of one row.
    pub poll: Duration,
    /// Between two attempts to connect, at most.
    pub backoff_max: Duration,
}

impl Default for Timeouts {
    /// One second each: a node unseen for five is not eligible, and that leaves two attempts.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { connect: second, poll: second, backoff_max: second }
    }
}

/// Where one server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp {
        /// The name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The folder of a Unix socket, and the port in the socket's name.
    Socket {
        /// An absolute path.
        folder: PathBuf,
        /// The port.
        port: u16,
    },
}

/// The text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "`{text}` is not an address: write HOST:PORT, [IPV6]:PORT, or the absolute folder of a Unix \
     socket as FOLDER:PORT; without a port, 5432 is meant"
)]
pub struct AddressError {
    /// What was given.
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let fail = || AddressError { text: text.to_owned() };
        let (place, port) = match text.rsplit_once(':') {
            // The colons of a bare or bracketed IPv6 address separate no port.
            Some((place, _)) if place.contains(':') && !place.ends_with(']') => (text, None),
            Some((place, port)) if !text.ends_with(']') => (place, Some(port)),
            Some(_) | None => (text, None),
        };
        let port = match port {
            Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => {
                port.parse().ok().filter(|port| *port > 0).ok_or_else(fail)?
            }
            Some(_) => return Err(fail()),
            None => DEFAULT_PORT,
        };
        if place.starts_with('/') {
            return Ok(Self::Socket { folder: PathBuf::from(place), port });
        }
        let bare = place.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = bare.unwrap_or(place);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-:%".contains(&b);
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(fail());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Socket { folder, port } => write!(f, "{}:{port}", folder.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in ["", ":5432", "db:", "db:0", "db:65536", "db:x", "a b:1", "db/x:1", "db:+1"] {
            assert!(text.parse::<Address>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn each_form_of_an_address_is_read() {
        for (text, prints) in [
            ("db-1.example:6432", "db-1.example:6432"),
            ("db", "db:5432"),
            ("127.0.0.1:5433", "127.0.0.1:5433"),
            ("[::1]:5433", "[::1]:5433"),
            ("::1", "[::1]:5432"),
            ("[::1]", "[::1]:5432"),
            ("/run/postgresql", "/run/postgresql:5432"),
            ("/run/postgresql:5433", "/run/postgresql:5433"),
        ] {
            let address = text.parse::<Address>().map(|address| address.to_string());
            assert_eq!(address.as_deref(), Ok(prints));
        }
    }
}
