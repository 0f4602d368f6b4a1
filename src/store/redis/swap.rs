//! One compare-and-set: of a record, or of the generation.
//!
//! The script knows no record: what is joined is the core's affair.

use std::sync::Arc;

use redis::Value;
use tidegate_core::store_guard::Worth;

use super::Inner;
use super::client::{CallError, Lane, Script};
use super::events::StoreCount;
use super::guards::Took;
use super::info::ServerInfo;
use super::keys::Bucket;
use super::lookups::{held, senseless};
use super::record::Held;
use crate::ports::Stored;

/// Why a server refuses all writes that has too few replicas; its own words name the script.
const TOO_FEW: &str = "fewer replicas follow it than `min-replicas-to-write`: bring them back";

/// The script of every write.
pub(super) fn script() -> Script {
    Script::new(include_str!("scripts/swap.lua"))
}

/// What became of a compare-and-set.
pub(super) enum Swapped {
    /// The key holds what it was to hold.
    Set(Stored, Worth),
    /// It held something else and still does.
    Differs(Held, Worth),
}

impl Inner {
    /// Sets a key of a bucket, if it holds what is expected; `lasts` so many milliseconds, 0 for
    /// ever.
    pub(super) async fn swap(
        self: &Arc<Self>,
        bucket: Bucket,
        key: &str,
        (expected, new): (&Held, &Held),
        lasts_millis: u64,
    ) -> Result<Swapped, CallError> {
        let sent_at = self.clock.now();
        let generation = self.layout.generation(bucket);
        let lasts = lasts_millis.to_string();
        let arguments = [expected.bytes(), new.bytes(), lasts.as_bytes()];
        let (lane, more) = match self.wait_replicas {
            0 => (Lane::Quick, Vec::new()),
            replicas => {
                let mut wait = redis::cmd("WAIT");
                wait.arg(replicas).arg(u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX));
                (Lane::Waiting, vec![wait])
            }
        };
        self.counters.add(StoreCount::RoundTrips, 1);
        let keys = [key, generation.as_str()];
        let ran = self.client.run(bucket, lane, &self.script, (&keys, &arguments), &more).await;
        let ran = ran.inspect_err(|error| self.refused(bucket, error))?;
        let mut answers = ran.answers.into_iter();
        let Some(Value::Array(fields)) = answers.next() else { return Err(senseless()) };
        let Ok([Value::Int(set), now, generation, info]) = <[Value; 4]>::try_from(fields) else {
            return Err(senseless());
        };
        let (Some(now), Some(generation)) = (held(now), held(generation)) else {
            return Err(senseless());
        };
        let info = ServerInfo::read(&info).ok_or_else(senseless)?;
        for void in self.beliefs.ran_script(info.server, ran.was_missing) {
            self.voids.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(void);
            self.beliefs.wake.notify_waiters();
        }
        if set == 0 {
            let now = if now.bytes().is_empty() { Held::Nothing } else { now };
            return Ok(Swapped::Differs(now, self.judge(bucket, &info, generation)));
        }
        let took = self.beliefs.took(bucket, &info, sent_at);
        if took != Took::Counts {
            if took == Took::Behind {
                self.client.doubt("its replicas do not follow");
            }
            return Err(CallError::Refused {
                code: "NOREPLICAS".to_owned(),
                text: "it took a write that its replicas may never see".to_owned(),
            });
        }
        if !new.bytes().is_empty() {
            self.beliefs.stored(bucket);
        }
        let worth = self.judge(bucket, &info, generation);
        let replicated = match (answers.next(), i64::from(self.wait_replicas)) {
            (Some(Value::Int(acknowledged)), wanted) => acknowledged >= wanted,
            (Some(_) | None, _) => false,
        };
        let stored = match replicated && !self.beliefs.is_fenced(bucket) {
            true => Stored::Replicated,
            false => Stored::PrimaryOnly,
        };
        Ok(Swapped::Set(stored, worth))
    }

    /// Notes that a server refused a write.
    pub(super) fn refused(&self, bucket: Bucket, error: &CallError) {
        match error {
            CallError::Refused { code, .. } if tells_no_role(code) => {
                self.beliefs.complains(bucket, code, &error.to_string());
            }
            CallError::Refused { code, .. } => {
                let why = if code == "NOREPLICAS" { TOO_FEW.to_owned() } else { error.to_string() };
                self.beliefs.refused(bucket, &why);
                if code == "NOREPLICAS" || code == "READONLY" {
                    self.client.doubt(code);
                }
            }
            CallError::Unreachable(_) => {}
        }
    }
}

/// Whether a server refuses a write for what it or the key holds: that says nothing of who is
/// primary, and heartbeats, which it takes all the same or refuses for what it is, do.
fn tells_no_role(code: &str) -> bool {
    matches!(code, "OOM" | "WRONGTYPE" | "BUSY" | "MISCONF" | "NOPERM")
}
