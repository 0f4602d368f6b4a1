//! A session as an application keeps it: a user id, a token, both or neither.
//!
//! Joins and decides nothing: it keeps the newest token in place of the one before.

use tidegate_proto::v1;

/// Whose calls they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    subject: String,
    token: Option<String>,
}

impl Session {
    /// Nothing is known of it and nothing kept.
    pub(crate) fn tokenless() -> Self {
        Self::default()
    }

    /// Known by its user id; keeps no token.
    pub(crate) fn of(subject: &str) -> Self {
        Self { subject: subject.to_owned(), token: None }
    }

    /// Known by nothing but the token it carries, as a browser with a cookie.
    pub(crate) fn carrying() -> Self {
        Self { subject: String::new(), token: Some(String::new()) }
    }

    /// What it sends along.
    pub(crate) fn message(&self) -> v1::Session {
        let tokens = self.token.iter().filter(|token| !token.is_empty()).cloned().collect();
        v1::Session { subject: self.subject.clone(), tokens, ..v1::Session::default() }
    }

    /// Keeps the token of an answer, if it keeps tokens and the answer has one.
    pub(crate) fn keep(&mut self, answered: &str) {
        if let Some(token) = &mut self.token
            && !answered.is_empty()
        {
            answered.clone_into(token);
        }
    }

    /// The token it carries; empty: none.
    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }
}
