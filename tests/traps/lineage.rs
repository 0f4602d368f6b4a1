//! Rows, grants and disks: what the database refuses, and how it is told.
