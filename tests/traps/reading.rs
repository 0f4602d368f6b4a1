//! How a read is checked and raised, and what each wrong way misses.
