//! What the driver's errors mean for the source, and what people should do about them.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::target::Address;
use crate::ports::{Fault, SourceError, SourceErrorClass as Class};

/// Makes an error about the server at `address`.
pub(super) fn failure(address: &Address, class: Class, text: String) -> SourceError {
    SourceError { class, address: address.to_string(), text }
}

/// Nothing came back in time.
pub(super) fn timed_out(address: &Address, limit: Duration) -> SourceError {
    let text = format!(
        "no answer within {limit:?}: the server is overloaded or stopped, or the network drops \
         packets"
    );
    failure(address, Class::TimedOut, text)
}

/// Translates an error of the driver.
pub(super) fn from_driver(address: &Address, error: &tokio_postgres::Error) -> SourceError {
    let Some(db) = error.as_db_error() else {
        return from_transport(address, error);
    };
    let said = db.message();
    let (class, text) = match db.code() {
        code if *code == SqlState::CANNOT_CONNECT_NOW
            || *code == SqlState::ADMIN_SHUTDOWN
            || *code == SqlState::CRASH_SHUTDOWN =>
        {
            (Class::NotReady, format!("{said}; it is asked again soon"))
        }
        code if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            let advice = "check user and password of this partition, and pg_hba.conf there";
            (Class::Denied, format!("{said}: {advice}"))
        }
        code if *code == SqlState::INVALID_CATALOG_NAME => {
            let advice = "name the database that `tidegate sql` was run in";
            (Class::Denied, format!("{said}: {advice}"))
        }
        code if *code == SqlState::TOO_MANY_CONNECTIONS => {
            let advice = "raise max_connections there, or the CONNECTION LIMIT of the role";
            (Class::Rejected, format!("{said}: {advice}"))
        }
        code if *code == SqlState::QUERY_CANCELED => {
            (Class::TimedOut, format!("{said}: the server is overloaded"))
        }
        code if *code == SqlState::LOCK_NOT_AVAILABLE => {
            (Class::TimedOut, Fault::SchemaLocked.to_string())
        }
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            let advice = "run `tidegate sql | psql` again, which grants what is missing";
            (Class::Rejected, format!("{said}: {advice}"))
        }
        code => (Class::Rejected, format!("{said} (SQLSTATE {})", code.code())),
    };
    failure(address, class, text)
}

/// The driver tells kinds of failure below SQL apart by their text alone.
fn from_transport(address: &Address, error: &tokio_postgres::Error) -> SourceError {
    let kind = error.to_string();
    let mut text = kind.clone();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // Writing into a string cannot fail.
        _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    if kind.starts_with("error performing TLS handshake") {
        text.push_str("; check `ssl` there, and that the CA file signed its certificate");
        return failure(address, Class::Tls, text);
    }
    if kind.starts_with("invalid configuration") || kind.starts_with("authentication error") {
        text.push_str("; set `password_file` of this partition, and the password by ALTER ROLE");
        return failure(address, Class::Denied, text);
    }
    text.push_str("; check the address, listen_addresses there, and the network");
    failure(address, Class::Unreachable, text)
}

/// The fault an error of a statement that names the table stands for; `None` if it is another.
pub(super) fn table_fault(error: &tokio_postgres::Error) -> Option<Fault> {
    let code = error.code()?;
    if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME {
        Some(Fault::SchemaMissing)
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        Some(Fault::SchemaUnreadable)
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        Some(Fault::SchemaLocked)
    } else {
        None
    }
}
