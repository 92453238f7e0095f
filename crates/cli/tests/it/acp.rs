//! `budao acp` as a real process, on either engine.

mod claude;
mod editor;
mod ends;
mod gateways;
mod native;
