//! What a session carries from call to call: tokens, evidence not recorded yet, doubt, notices.
//!
//! A token is a string here. An answer's token replaces exactly the tokens its request carried, so
//! that answers which race lose nothing; the service joins what is left.

use std::collections::BTreeMap;

use tidegate_proto::v1;
use tidegate_proto::v1::ErrorReason;

use crate::error::ClientError;
use crate::outcome::Notice;

/// Tokens a request may carry.
pub(crate) const TOKENS_MAX: usize = 16;
/// Characters of tokens a request may carry: 32 KiB.
const TOKEN_CHARS_MAX: usize = 32 * 1024;
/// Tokens a session carries before it has them joined.
pub(crate) const TOKENS_CARRIED: usize = 8;
/// Evidence strings a session keeps, and a request carries.
const EVIDENCE_MAX: usize = 16;

/// One token or evidence string, by which answer or statement it came.
type Numbered = (u64, String);

/// What one session carries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) subject: String,
    pub(crate) max_token_chars: u32,
    tokens: Vec<Numbered>,
    evidence: Vec<Numbered>,
    next: u64,
    /// How often something happened that no evidence tells, and up to which of them the service
    /// was told.
    doubts: u64,
    told: u64,
    notices: BTreeMap<String, Notice>,
    previous_node: String,
}

/// What one request carried, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sent {
    tokens: Vec<u64>,
    evidence: Vec<u64>,
}

impl Carried {
    pub(crate) fn new(subject: String, tokens: Vec<String>, max_token_chars: u32) -> Self {
        let mut carried = Self { subject, max_token_chars, ..Self::default() };
        tokens.into_iter().for_each(|token| carried.add_token(token));
        carried
    }

    /// The session of a request, and what it carries of it.
    pub(crate) fn ask(&self) -> (v1::Session, Sent) {
        self.ask_with(&self.tokens, &self.evidence)
    }

    /// As [`Self::ask`], for a request that records the evidence of this number by itself; with
    /// that evidence. `None`: it is not kept any more.
    pub(crate) fn ask_recording(&self, own: u64) -> Option<(v1::Session, Sent, String)> {
        let mut others = self.evidence.clone();
        let at = others.iter().position(|(number, _)| *number == own)?;
        let (_, evidence) = others.remove(at);
        let (session, mut sent) = self.ask_with(&self.tokens, &others);
        sent.evidence.push(own);
        Some((session, sent, evidence))
    }

    /// As many tokens as one request may carry and nothing else, to have them joined; `None`: the
    /// session carries few enough.
    pub(crate) fn ask_join(&self) -> Option<(v1::Session, Sent)> {
        if self.tokens.len() <= TOKENS_CARRIED {
            return None;
        }
        let mut chars = 0;
        let fits = |(_, token): &&Numbered| {
            chars += token.len();
            chars <= TOKEN_CHARS_MAX
        };
        let some = self.tokens.iter().take(TOKENS_MAX).take_while(fits).count();
        let (session, sent) = self.ask_with(&self.tokens[..some], &[]);
        Some((v1::Session { subject: String::new(), ..session }, sent))
    }

    fn ask_with(&self, tokens: &[Numbered], evidence: &[Numbered]) -> (v1::Session, Sent) {
        let texts = |of: &[Numbered]| of.iter().map(|(_, text)| text.clone()).collect();
        let numbers = |of: &[Numbered]| of.iter().map(|(number, _)| *number).collect();
        let session = v1::Session {
            subject: self.subject.clone(),
            tokens: texts(tokens),
            evidence: texts(evidence),
            max_token_chars: self.max_token_chars,
        };
        (session, Sent { tokens: numbers(tokens), evidence: numbers(evidence) })
    }

    /// Takes an answer's token and notices.
    pub(crate) fn answered(&mut self, sent: &Sent, token: String, notices: Vec<v1::Notice>) {
        self.evidence.retain(|(number, _)| !sent.evidence.contains(number));
        if !token.is_empty() {
            self.tokens.retain(|(number, _)| !sent.tokens.contains(number));
            self.add_token(token);
        }
        for notice in notices {
            self.notices.insert(notice.id.clone(), Notice::read(notice));
        }
    }

    /// Takes a failure. Evidence the service will never take is replaced by doubt, so that it does
    /// not fail every later call too.
    pub(crate) fn failed(&mut self, sent: &Sent, error: &ClientError) {
        let refused = match error.reason() {
            Some(
                ErrorReason::EvidenceMalformed
                | ErrorReason::EvidenceForeign
                | ErrorReason::EvidenceInRecovery,
            ) => true,
            Some(_) | None => false,
        };
        if refused && !sent.evidence.is_empty() {
            self.evidence.retain(|(number, _)| !sent.evidence.contains(number));
            self.doubt();
        }
    }

    /// Keeps evidence until an answer confirms it; returns its number.
    ///
    /// Where there is no room the oldest is replaced by doubt.
    pub(crate) fn keep(&mut self, evidence: String) -> u64 {
        if self.evidence.len() >= EVIDENCE_MAX {
            self.evidence.remove(0);
            self.doubt();
        }
        let number = self.number();
        self.evidence.push((number, evidence));
        number
    }

    /// Something happened that no evidence tells: the next read demands what the leader has then.
    pub(crate) const fn doubt(&mut self) {
        self.doubts += 1;
    }

    /// The doubts the service was not told yet; `None`: there are none.
    pub(crate) fn doubts(&self) -> Option<u64> {
        (self.doubts > self.told).then_some(self.doubts)
    }

    /// The service took the demand that covers these doubts.
    pub(crate) fn told(&mut self, doubts: u64) {
        self.told = self.told.max(doubts);
    }

    /// Forgets tokens that cannot be used; the session is then in doubt, never new.
    pub(crate) fn distrust(&mut self) {
        self.tokens.clear();
        self.doubt();
    }

    /// Carries this token too.
    pub(crate) fn add_token(&mut self, token: String) {
        if !token.is_empty() && !self.tokens.iter().any(|(_, held)| *held == token) {
            let number = self.number();
            self.tokens.push((number, token));
        }
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.iter().map(|(_, token)| token.clone()).collect()
    }

    /// Says whether all there is to the session is at most one token.
    pub(crate) fn is_one_token(&self) -> bool {
        self.subject.is_empty() && self.tokens.len() <= 1 && self.is_settled()
    }

    /// Says whether everything observed was recorded.
    fn is_settled(&self) -> bool {
        self.evidence.is_empty() && self.doubts().is_none()
    }

    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices).into_values().collect()
    }

    pub(crate) fn forget_notices(&mut self, ids: &[String]) {
        self.notices.retain(|id, _| !ids.contains(id));
    }

    pub(crate) fn previous_node(&self) -> String {
        self.previous_node.clone()
    }

    pub(crate) fn served_by(&mut self, node: &str) {
        node.clone_into(&mut self.previous_node);
    }

    const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carrying(tokens: &[&str]) -> Carried {
        Carried::new(String::new(), tokens.iter().map(|t| (*t).to_owned()).collect(), 0)
    }

    #[test]
    fn answers_that_race_lose_nothing() {
        let mut carried = carrying(&["t0"]);
        let (_, first) = carried.ask();
        let (_, second) = carried.ask();
        carried.answered(&first, "t1".to_owned(), Vec::new());
        assert_eq!(carried.tokens(), ["t1"]);
        carried.answered(&second, "t2".to_owned(), Vec::new());
        assert_eq!(carried.tokens(), ["t1", "t2"]);
        let (session, both) = carried.ask();
        assert_eq!(session.tokens, ["t1", "t2"]);
        carried.answered(&both, "t12".to_owned(), Vec::new());
        assert_eq!(carried.tokens(), ["t12"]);
    }

    #[test]
    fn an_answer_from_before_the_newer_ones_takes_nothing_of_theirs() {
        let mut carried = carrying(&["t0"]);
        let (_, slow) = carried.ask();
        let (_, write) = carried.ask();
        carried.answered(&write, "written".to_owned(), Vec::new());
        let (_, next) = carried.ask();
        carried.answered(&next, "read".to_owned(), Vec::new());
        carried.answered(&slow, "old".to_owned(), Vec::new());
        assert_eq!(carried.tokens(), ["read", "old"]);
    }

    #[test]
    fn an_answer_without_a_token_changes_none() {
        let mut carried = carrying(&["t0", "t1"]);
        let (_, sent) = carried.ask();
        carried.answered(&sent, String::new(), Vec::new());
        assert_eq!(carried.tokens(), ["t0", "t1"]);
        carried.add_token("t1".to_owned());
        assert_eq!(carried.tokens(), ["t0", "t1"]);
    }

    #[test]
    fn evidence_stays_until_an_answer_that_carried_it() {
        let mut carried = carrying(&[]);
        let (_, before) = carried.ask();
        let own = carried.keep("capture".to_owned());
        let (session, recording, evidence) = carried.ask_recording(own).expect("it is kept");
        assert!(session.evidence.is_empty() && evidence == "capture");
        carried.answered(&before, "t1".to_owned(), Vec::new());
        assert_eq!(carried.ask().0.evidence, ["capture"]);
        carried.failed(&recording, &ClientError::Closed);
        assert!(!carried.is_settled());
        carried.answered(&recording, "t2".to_owned(), Vec::new());
        assert!(carried.is_settled());
    }

    #[test]
    fn evidence_the_service_never_takes_becomes_doubt() {
        let mut carried = carrying(&[]);
        carried.keep("nonsense".to_owned());
        let (_, sent) = carried.ask();
        let error = crate::ServiceError {
            code: tonic::Code::InvalidArgument,
            reason: ErrorReason::EvidenceMalformed,
            message: String::new(),
            retry_after: None,
        };
        carried.failed(&sent, &error.into());
        assert!(carried.ask().0.evidence.is_empty());
        assert_eq!(carried.doubts(), Some(1));
    }

    #[test]
    fn more_evidence_than_a_request_takes_becomes_doubt() {
        let mut carried = carrying(&[]);
        for number in 0..EVIDENCE_MAX {
            carried.keep(number.to_string());
        }
        assert_eq!(carried.doubts(), None);
        carried.keep("one more".to_owned());
        let (session, _) = carried.ask();
        assert_eq!((session.evidence.len(), carried.doubts()), (EVIDENCE_MAX, Some(1)));
        assert_eq!(session.evidence.last().map(String::as_str), Some("one more"));
    }

    #[test]
    fn a_doubt_that_came_while_another_was_told_stays() {
        let mut carried = carrying(&[]);
        carried.doubt();
        let told = carried.doubts().expect("there is one");
        carried.doubt();
        carried.told(told);
        assert_eq!(carried.doubts(), Some(2));
        carried.told(2);
        assert!(carried.is_settled());
    }

    #[test]
    fn many_tokens_are_joined_in_requests_the_service_takes() {
        let many: Vec<String> = (0..40).map(|n| format!("{n:04000}")).collect();
        let mut carried = Carried::new("user".to_owned(), many, 0);
        let mut requests = 0;
        while let Some((session, sent)) = carried.ask_join() {
            assert!((2..=TOKENS_MAX).contains(&session.tokens.len()));
            assert!(session.tokens.iter().map(String::len).sum::<usize>() <= TOKEN_CHARS_MAX);
            assert!(session.subject.is_empty() && session.evidence.is_empty());
            requests += 1;
            carried.answered(&sent, format!("joined {requests}"), Vec::new());
        }
        assert!(carried.tokens().len() <= TOKENS_CARRIED);
        assert!(requests < 12, "{requests}");
    }
}
