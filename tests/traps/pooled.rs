//! A pooler between the application and its replica.
