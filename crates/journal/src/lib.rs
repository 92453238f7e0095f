//! Durable, ordered records per session: append, read, follow.
