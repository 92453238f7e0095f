//! Targets for frames of the server's protocol and of A2C-SMCP.

use budao_client::Event;
use budao_core::{Lang, Timestamp, fault::Fact, fault::Kind};
use budao_serve::{
    Keyring,
    frame::connection::{CommandRef, render_rejected},
    inbound::{EVENTS, FrameLimits, parse},
    signed_state::SignedState,
};
use serde_json::Value;

/// A client's frame is parsed or refused, and every refusal can be rendered.
pub(super) fn inbound(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let limits = FrameLimits { frame_bytes: 4096, ..FrameLimits::default() };
    match parse(text, &limits) {
        Ok(inbound) => {
            let event = format!("user.{}", inbound.request.action());
            assert!(EVENTS.contains(&event.as_str()));
            assert!(!inbound.command.is_some_and(|command| command.is_own()));
        }
        Err(refusal) => {
            let facts = refusal.fault.detail();
            assert!(facts.get(Fact::Field).is_some() || facts.get(Fact::Limit).is_some());
            let asked = CommandRef {
                action: refusal.action.unwrap_or("unknown"),
                session: refusal.session,
                command: refusal.command.as_ref(),
            };
            let told = render_rejected(Timestamp::from_micros(0), asked, &refusal.fault, Lang::Zh)
                .encode();
            assert!(told.len() < 8 * 1024, "a refusal is short: {} bytes", told.len());
            assert!(serde_json::from_str::<Value>(&told).is_ok());
        }
    }
}

/// A state is accepted only if signing it again gives the same bytes; the corpus contains a valid one.
pub(super) fn signed(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let keys = Keyring::random(7, 9);
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    match SignedState::verify(text, "acme/ann", &keys, now) {
        Ok(state) => assert_eq!(state.sign(&keys), text, "a second spelling of a state"),
        Err(fault) => assert!(matches!(fault.kind(), Kind::StateForged | Kind::StateExpired)),
    }
}

/// A parsed event can be encoded, and parses to the same value again.
pub(super) fn event(bytes: &[u8]) {
    let Ok(event) = serde_json::from_slice::<Event>(bytes) else { return };
    let written = serde_json::to_string(&event).expect("an event can be written");
    let again: Event = serde_json::from_str(&written).expect("and read again");
    assert_eq!(again, event);
    let _ = (event.text(), event.is_local());
}

/// Any bytes from a peer, as a packet or as its payload, are parsed or refused with a message.
pub(super) fn wire(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    budao_socketio::probe::packet(text);
    budao_smcp::wire::probe::everything(text);
}
