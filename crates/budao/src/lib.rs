//! Agents that fall well: the facade for Rust users.
