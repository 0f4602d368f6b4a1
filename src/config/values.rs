//! The kinds of value a setting takes: names, addresses, durations, sizes, secrets.
//!
//! Each is checked while it is read, so that no other value exists afterwards. What two settings
//! demand of each other is checked in `check.rs`.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// The name of a cluster, instance, partition, node or zone: `[a-z0-9-]{1,32}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(String);

impl Name {
    /// A name the program itself gives.
    pub(super) fn literal(text: &'static str) -> Self {
        debug_assert!(Self::try_from(text.to_owned()).is_ok(), "{text:?} is no name");
        Self(text.to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=32).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text));
        }
        Err(format!("`{text}` is no name; use 1 to 32 of a-z, 0-9 and `-`"))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host by name or address, and a port. Not resolved here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// The host, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, never 0.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// True if it is this machine for certain: `localhost` or a loopback address.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

impl TryFrom<String> for HostPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let problem =
            || format!("`{text}` is no address; write `host:port`, an IPv6 host as `[::1]:5432`");
        let (host, port) = text.rsplit_once(':').ok_or_else(problem)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_host = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
                (1..=253).contains(&host.len()) && host.bytes().all(fits)
            }
        };
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|&port: &u16| digits && is_host && port > 0);
        let port = port.ok_or_else(problem)?;
        Ok(Self { host: bracketed.unwrap_or(host).to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Where a tool of the operator answers over plain HTTP: `http://host:port`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct HttpAddress(HostPort);

impl HttpAddress {
    /// Its host and port.
    pub const fn host_port(&self) -> &HostPort {
        &self.0
    }
}

impl TryFrom<String> for HttpAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err(format!("`{text}` asks for TLS, which is not built yet; use `http://`"));
        }
        let rest = text.strip_prefix("http://");
        let address = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest).to_owned());
        let address = address.and_then(|address| HostPort::try_from(address).ok());
        let wrong = || format!("`{text}` is no HTTP address; write `http://host:8008`");
        address.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// A secret given as text. Never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text, for the one call that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Reads a duration such as `250ms`, `5s`, `1h 30m`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(|_| {
        D::Error::custom(format!(
            "`{text}` is no duration; write a number and a unit, as in `250ms`"
        ))
    })
}

/// Reads a size such as `64KiB` or a number of bytes.
pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as `64KiB`, or a number of bytes")
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<usize, E> {
            usize::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
            size(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    from.deserialize_any(Size)
}

fn size(text: &str) -> Option<usize> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(factor)
}

/// Reads a number of 64 bits without sign, also as text: TOML's own numbers end at 63 bits.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number from 1 to 18446744073709551615")
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
            let positive = u64::try_from(value).ok().filter(|&value| value > 0);
            positive.ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse().ok().filter(|&number: &u64| digits && number > 0);
            number.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    from.deserialize_any(Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(33);
        for text in ["", "Main", "a_b", "a b", "a.b", "\u{e9}", &long] {
            assert!(Name::try_from(text.to_owned()).is_err(), "{text:?} was accepted");
        }
        for text in ["a", "0", "eu-west-1", "-", &long[..32]] {
            assert_eq!(Name::try_from(text.to_owned()).map(|n| n.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let cases = [
            "",
            ":",
            "h",
            "h:",
            ":1",
            "h:0",
            "h:65536",
            "h:+1",
            "h:1:2",
            "::1:5432",
            "[::1]",
            "[h]:1",
            "[::1:5432",
            "a b:1",
            "h/x:1",
            "h: 1",
            "user@h:1",
        ];
        for text in cases {
            assert!(HostPort::try_from(text.to_owned()).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn an_address_prints_as_it_was_written() {
        for text in ["127.0.0.1:5432", "[::1]:5432", "db-1.example.com:6432", "pg_1:1"] {
            let parsed = HostPort::try_from(text.to_owned());
            assert_eq!(parsed.map(|a| a.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn an_http_address_is_plain_and_has_no_path() {
        let refused = [
            "h:8008",
            "http://h",
            "http://:8008",
            "http://h:8008/cluster",
            "http://h:8008//",
            "http://user@h:8008",
            "HTTP://h:8008",
            "https://h:8008",
        ];
        for text in refused {
            assert!(HttpAddress::try_from(text.to_owned()).is_err(), "{text:?} was accepted");
        }
        for (text, shown) in [
            ("http://h:8008", "http://h:8008"),
            ("http://h:8008/", "http://h:8008"),
            ("http://[::1]:8008", "http://[::1]:8008"),
        ] {
            let parsed = HttpAddress::try_from(text.to_owned());
            assert_eq!(parsed.map(|a| a.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (text, expected) in [
            ("localhost:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("10.0.0.1:1", false),
            ("localhost.example:1", false),
            ("[::]:1", false),
        ] {
            let address = HostPort::try_from(text.to_owned()).expect("an address");
            assert_eq!(address.is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_and_say_so() {
        for text in ["KiB", "1KB", "1k", "-1", "1.5MiB", "99999999999999999999", "1 GiB"] {
            assert_eq!(size(text), None, "{text:?} was accepted");
        }
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("7B"), Some(7));
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("2 MiB"), Some(2_097_152));
    }

    #[test]
    fn a_secret_is_never_printed() {
        assert_eq!(format!("{:?}", Secret("hunter2".to_owned())), "Secret(..)");
    }
}
