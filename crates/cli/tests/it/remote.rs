//! Hub, computer and agent as processes of their own, some of them frozen, killed, or not reading.

mod common;
mod unconfirmed;
mod unread;
