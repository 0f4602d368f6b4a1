//! `RedisSettings`: which servers keep the records, how they are reached, and how long what counts.
//!
//! As the configuration says. What a server itself says of replicas and lags is for `check` to
//! find out. It opens nothing but the files it names.

use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::config::{Config, Password, Redis, RedisUrl, Redundancy, StoreTls, Topology};

/// Bytes of a password file that are read: a password, and no document.
const PASSWORD_BYTES: u64 = 4096;
/// Bytes of a file of certificates or keys that are read: a system's whole bundle fits.
const PEM_BYTES: u64 = 4 * 1024 * 1024;

/// Which servers keep the records, how they are reached, and how long what counts.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Servers, sentinels or seeds, at least one, as `topology` says.
    pub urls: Vec<RedisUrl>,
    /// How the primary is found.
    pub topology: Topology,
    /// Whom to log in as; `None`: the default user.
    pub username: Option<String>,
    /// Where that user's password is.
    pub password: Password,
    /// How certificates are checked; `None`: connections are not encrypted.
    pub tls: Option<StoreTls>,
    /// What keeps a deposed primary from being believed; `None`: as the server shows it.
    pub redundancy: Option<Redundancy>,
    /// How long nothing is believed after a loss; `None`: as the redundancy needs.
    pub fence: Option<Duration>,
    /// `min-replicas-max-lag`, where the server may not be asked.
    pub max_lag: Option<Duration>,
    /// Time one operation may take.
    pub timeout: Duration,
    /// Replicas a record is waited for on; 0: none.
    pub wait_replicas: u32,
    /// How long they are waited for.
    pub wait: Duration,
    /// The name of the installation: in every key.
    pub cluster: String,
    /// The gate's bound: so long a barrier stands.
    pub d_max: Duration,
    /// A record expires so long after it was last written, however often it is looked up. At least
    /// twice `d_max`.
    pub lifetime: Duration,
    /// Subjects whose changes may wait for a server that cannot be reached.
    pub pending_records: usize,
}

/// A file that the settings name cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`store.{setting}`: {file}: {text}")]
pub struct FileError {
    /// Which setting names it.
    pub setting: &'static str,
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub text: String,
}

/// What TLS needs, as it stands in the files.
#[derive(Clone)]
pub struct Certificates {
    /// The certificates that sign the servers', in PEM.
    pub authorities: Vec<u8>,
    /// The certificate Tidegate shows and its key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates(..)")
    }
}

impl RedisSettings {
    /// The settings of a store in Redis, as `config` says.
    pub fn of(config: &Config, redis: &Redis) -> Self {
        let limits = &config.limits;
        Self {
            urls: redis.urls.clone(),
            topology: redis.topology.clone(),
            username: redis.username.clone(),
            password: redis.password.clone(),
            tls: redis.tls.clone(),
            redundancy: redis.redundancy,
            fence: redis.fence,
            max_lag: redis.max_lag,
            timeout: redis.timeout,
            wait_replicas: redis.wait_replicas,
            wait: redis.wait,
            cluster: config.cluster.name.as_str().to_owned(),
            d_max: limits.d_max,
            lifetime: limits.token_lifetime,
            pending_records: limits.pending_records,
        }
    }

    /// The password of now: a file is read at each connection, so that it can be changed.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or holds none.
    pub fn secret(&self) -> Result<Option<String>, FileError> {
        let file = match &self.password {
            Password::None => return Ok(None),
            Password::Text(secret) => return Ok(Some(secret.reveal().to_owned())),
            Password::File(file) => file,
        };
        let bytes = read("password_file", file, PASSWORD_BYTES)?;
        let wrong = |text: &str| file_error("password_file", file, text);
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text"))?;
        let secret = text.strip_suffix('\n').unwrap_or(&text);
        let secret = secret.strip_suffix('\r').unwrap_or(secret);
        if secret.is_empty() {
            return Err(wrong("it is empty; write the password into it, or remove the setting"));
        }
        Ok(Some(secret.to_owned()))
    }

    /// What TLS needs, read from its files; `None`: connections are not encrypted.
    ///
    /// # Errors
    /// [`FileError`] if one cannot be read, or is no PEM.
    pub fn certificates(&self) -> Result<Option<Certificates>, FileError> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let pem = |setting, file: &Path, kind: &str| {
            let bytes = read(setting, file, PEM_BYTES)?;
            let text = String::from_utf8_lossy(&bytes);
            let ends = format!("{kind}-----");
            let is_head = |line: &str| line.starts_with("-----BEGIN ") && line.ends_with(&ends);
            let wrong = || file_error(setting, file, &format!("it holds no {kind} in PEM"));
            if text.lines().any(is_head) { Ok(bytes) } else { Err(wrong()) }
        };
        let authorities = pem("ca_file", &tls.ca_file, "CERTIFICATE")?;
        let identity = match &tls.identity {
            None => None,
            Some((cert, key)) => {
                let cert = pem("cert_file", cert, "CERTIFICATE")?;
                Some((cert, pem("key_file", key, "PRIVATE KEY")?))
            }
        };
        Ok(Some(Certificates { authorities, identity }))
    }

    /// What all keys of one bucket begin with. One bucket is one slot of a Redis Cluster.
    pub fn prefix(&self, bucket: impl std::fmt::Display) -> String {
        format!("tidegate:{{{bucket}}}:{}:", self.cluster)
    }

    /// The settings as people name them: where the store is, without any secret.
    pub fn shown(&self) -> String {
        let urls: Vec<String> = self.urls.iter().map(ToString::to_string).collect();
        let urls = urls.join(", ");
        match &self.topology {
            Topology::Single => urls,
            Topology::Sentinel { master } => format!("`{master}` of the sentinels {urls}"),
            Topology::Cluster => format!("the cluster of {urls}"),
        }
    }
}

fn read(setting: &'static str, file: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let failed = |cause: std::io::Error| file_error(setting, file, &cause.to_string());
    if std::fs::metadata(file).map_err(failed)?.len() > most {
        return Err(file_error(setting, file, &format!("it is larger than {most} bytes")));
    }
    std::fs::read(file).map_err(failed)
}

fn file_error(setting: &'static str, file: &Path, text: &str) -> FileError {
    FileError { setting, file: file.display().to_string(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
        [cluster]
        name = "shop"
        [store]
        kind = "redis"
        urls = ["rediss://10.0.0.1:26379", "rediss://[::1]:26379"]
        topology = "sentinel"
        sentinel_master = "sessions"
        username = "tidegate"
        ca_file = "/etc/ca.pem"
        redundancy = "fenced"
        timeout = "250ms"
        wait_replicas = 1
        secret_file = "secret"
        state_dir = "state"
        [partition.orders]
        id = 1
        system_id = "7321987654321098765"
        database = "shop"
        [[partition.orders.node]]
        name = "db1"
        poll = "127.0.0.1:5432"
    "#;

    fn settings(more: &[(&str, &str)]) -> RedisSettings {
        let environment = more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let config = Config::parse("test", CONFIG, environment);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let crate::config::StoreKind::Redis(redis) = &config.store.kind else {
            panic!("{:?}", config.store)
        };
        RedisSettings::of(&config, redis)
    }

    #[test]
    fn the_settings_are_those_of_the_configuration() {
        let settings = settings(&[]);
        assert_eq!(
            settings.shown(),
            "`sessions` of the sentinels rediss://10.0.0.1:26379, rediss://[::1]:26379"
        );
        assert_eq!(settings.prefix(0), "tidegate:{0}:shop:");
        assert_eq!(settings.redundancy, Some(Redundancy::Fenced));
        assert_eq!((settings.fence, settings.max_lag), (None, None));
        assert_eq!((settings.timeout, settings.wait_replicas), (Duration::from_millis(250), 1));
        assert_eq!(settings.wait, Duration::from_millis(50));
        assert!(settings.lifetime >= settings.d_max * 2, "{settings:?}");
        assert_eq!(settings.secret(), Ok(None));
    }

    #[test]
    fn a_password_is_read_anew_each_time_and_never_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("password");
        let path = file.to_str().expect("text");
        let settings = settings(&[("TIDEGATE_STORE__PASSWORD_FILE", path)]);
        for (text, expected) in [("hunter2\n", "hunter2"), ("a b\r\n", "a b"), ("x\n\n", "x\n")] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(settings.secret(), Ok(Some(expected.to_owned())), "{text:?}");
        }
        for text in ["", "\n", "\r\n"] {
            std::fs::write(&file, text).expect("written");
            let wrong = settings.secret().expect_err("no password").to_string();
            assert!(wrong.starts_with(&format!("`store.password_file`: {path}: ")), "{wrong}");
        }
        std::fs::remove_file(&file).expect("removed");
        assert!(settings.secret().is_err());
        let given = self::settings(&[
            ("TIDEGATE_STORE__PASSWORD_FILE", path),
            ("TIDEGATE_STORE__PASSWORD", "hunter2"),
        ]);
        assert_eq!(given.secret(), Ok(Some("hunter2".to_owned())));
        assert!(!format!("{given:?}").contains("hunter2"), "the password is printed");
    }

    #[test]
    fn a_file_that_holds_no_certificate_is_named_with_its_setting() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        let environment = [
            ("TIDEGATE_STORE__CA_FILE", path("ca")),
            ("TIDEGATE_STORE__CERT_FILE", path("cert")),
            ("TIDEGATE_STORE__KEY_FILE", path("key")),
        ];
        let environment: Vec<_> = environment.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let settings = settings(&environment);
        let begin = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
        for (name, setting, wrong, right) in [
            ("ca", "ca_file", begin("PRIVATE KEY"), begin("CERTIFICATE")),
            ("cert", "cert_file", String::new(), begin("CERTIFICATE")),
            ("key", "key_file", begin("CERTIFICATE"), begin("EC PRIVATE KEY")),
        ] {
            let missing = settings.certificates().expect_err("not there");
            assert_eq!(missing.setting, setting, "{missing}");
            std::fs::write(path(name), wrong).expect("written");
            let wrong = settings.certificates().expect_err("of another kind");
            assert!(wrong.setting == setting && wrong.text.contains("PEM"), "{wrong}");
            std::fs::write(path(name), right).expect("written");
        }
        let read = settings.certificates().expect("all are there").expect("TLS is on");
        assert!(read.identity.is_some() && !format!("{read:?}").contains("AAAA"));
    }
}
