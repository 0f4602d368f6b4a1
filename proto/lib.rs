//! Generated types.
