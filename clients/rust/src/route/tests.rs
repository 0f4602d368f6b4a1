//! The stream's mechanics against a server of our own: reconnect, send again, withdraw, give up.
//!
//! It answers what each test says and judges nothing.
