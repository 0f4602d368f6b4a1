//! What a restart looks like from outside, on every accepted major.
