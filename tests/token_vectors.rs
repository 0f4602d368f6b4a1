//! Sealed tokens against `proto/vectors/token.json`: what carriers hold for as long as they live.
//!
//! The strings in that file were sealed by another program, from the description alone.

#![expect(clippy::expect_used, reason = "a broken vector must end the test")]

use std::io::Write;
use std::path::Path;

use serde::Deserialize;
use tidegate::seal::{Key, Keyring, OpenError};

const LIMIT_CHARS: usize = 8 * 1024;

#[derive(Deserialize)]
struct Vectors {
    key: String,
    cluster: String,
    tenant: String,
    accepted: Vec<Sealed>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    name: String,
    cluster: String,
    tenant: String,
    key: String,
    body: String,
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    name: String,
    token: String,
    error: String,
}

fn keyring(cluster: &str, tenant: &str, key: &str) -> Keyring {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(key.as_bytes()).expect("written");
    let key = Key::load(file.path()).expect("a key");
    Keyring::of_one(cluster, tenant, key, LIMIT_CHARS)
}

#[test]
fn tokens_are_sealed_and_opened_as_the_vectors_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/vectors/token.json");
    let text = std::fs::read_to_string(path).expect("the file is there");
    let vectors: Vectors = serde_json::from_str(&text).expect("the file is as described");
    assert!(!vectors.accepted.is_empty() && !vectors.refused.is_empty());
    for Sealed { name, cluster, tenant, key, body, token } in vectors.accepted {
        let (keyring, body) = (keyring(&cluster, &tenant, &key), hex::decode(body).expect("hex"));
        assert_eq!(keyring.seal(&body), token, "{name}");
        assert_eq!(Keyring::sealed_chars(body.len()), token.len(), "{name}");
        assert_eq!(keyring.open(&token), Ok(body), "{name}");
    }
    let own = keyring(&vectors.cluster, &vectors.tenant, &vectors.key);
    for Refused { name, token, error } in vectors.refused {
        let found = match own.open(&token) {
            Ok(_) => "nothing",
            Err(OpenError::Malformed { .. }) => "malformed",
            Err(OpenError::Foreign) => "foreign",
            Err(OpenError::Unreadable { .. }) => "unreadable",
            Err(OpenError::TooLarge { .. }) => "too large",
        };
        assert_eq!(found, error, "{name}");
    }
}
