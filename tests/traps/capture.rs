//! Where a write is captured, and what each wrong way misses.
