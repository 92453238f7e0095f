//! Whatever a peer sends, as a packet or as what is in one, is read or refused in words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    budao_socketio::probe(text);
    budao_smcp::wire::probe::everything(text);
});
