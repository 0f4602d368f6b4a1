//! Where positions come from: one folder per kind of database.
//!
//! A source receives a demand and gives readings. It keeps no history, judges nothing and decides
//! nothing; types of its driver do not leave its folder.

pub mod patroni;
pub mod postgres;
