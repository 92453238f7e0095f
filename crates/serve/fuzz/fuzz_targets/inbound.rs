//! Whatever a client sends is read or refused, and a refusal can be told.
#![no_main]

use budao_core::{Lang, Timestamp, fault::Fact};
use budao_serve::{
    frame::connection::{Asked, rejected},
    inbound::{EVENTS, Limits, parse},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let limits = Limits { frame_bytes: 4096, ..Limits::default() };
    match parse(text, &limits) {
        Ok(inbound) => {
            let event = format!("user.{}", inbound.request.action());
            assert!(EVENTS.contains(&event.as_str()));
            assert!(!inbound.command.is_some_and(|command| command.is_own()));
        }
        Err(refusal) => {
            let facts = refusal.fault.detail();
            assert!(facts.get(Fact::Field).is_some() || facts.get(Fact::Limit).is_some());
            let asked = Asked {
                action: refusal.action.unwrap_or("unknown"),
                session: refusal.session,
                command: refusal.command.as_ref(),
            };
            let told = rejected(Timestamp::from_micros(0), asked, &refusal.fault, Lang::Zh).encode();
            assert!(told.len() < 8 * 1024, "a refusal is short: {} bytes", told.len());
            assert!(serde_json::from_str::<serde_json::Value>(&told).is_ok());
        }
    }
});
