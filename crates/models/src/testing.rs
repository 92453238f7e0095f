//! Helpers for decoding without a network, shared by the tests of both wire formats.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    fault::{Fault, Kind},
    limits::Limits,
    message::{Message, ModelRequest, Piece},
    time::Timestamp,
    tool::{Effect, ToolOrigin, ToolSpec},
    trace::{SpanId, Trace},
    world::Clock,
};
use futures::{StreamExt, executor::block_on, future::BoxFuture};
use serde_json::Value;

use crate::{Model, answer::Decode, ask, probe};

/// The pieces and the fault that a stream decoded to.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedStream {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) fault: Option<Kind>,
}

/// A clock whose sleeps end at once and are added up.
#[derive(Debug, Default)]
pub(crate) struct InstantClock(AtomicU64);

impl InstantClock {
    /// The sum of all sleeps so far.
    pub(crate) fn slept(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

impl Clock for InstantClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(millis, Ordering::Relaxed);
        Box::pin(async {})
    }
}

/// A request with one message and no tools.
pub(crate) fn request(text: &str) -> ModelRequest {
    user(vec![Message::user(text)])
}

/// A request with this history and no tools.
pub(crate) fn user(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        system: None,
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::new([]),
        answer: None,
        max_tokens: 1024,
        thinking_tokens: None,
        cache_key: None,
        trace: Trace::NONE,
        span: SpanId::NONE,
    }
}

/// A tool specification whose contents do not matter.
pub(crate) fn tool(name: &str) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.into(),
        description: "".into(),
        schema: Arc::new(Value::Null),
        effect: Effect::Reads,
        idempotent: true,
        confirm: false,
        repair: false,
        deadline: None,
        output_bytes: None,
        source: ToolOrigin::Builtin,
    })
}

/// Collects all pieces of an answer, or the fault it ends in.
pub(crate) fn ask_all(model: &dyn Model, request: ModelRequest) -> Result<Vec<Piece>, Fault> {
    block_on(async { ask(model, request).await?.collect::<Vec<_>>().await.into_iter().collect() })
}

/// Decodes these packets to the end.
pub(crate) fn decode(
    chunks: impl IntoIterator<Item = Result<Vec<u8>, io::Error>>,
    decoder: impl Decode,
) -> DecodedStream {
    let all = probe::read(chunks, decoder, &Limits::default());
    let fault = all.iter().find_map(|item| item.as_ref().err()).map(Fault::kind);
    DecodedStream { pieces: all.into_iter().filter_map(Result::ok).collect(), fault }
}

/// Formats an event without a name.
pub(crate) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Splits bytes at these positions, taken modulo the length.
pub(crate) fn cut(bytes: &[u8], places: &[usize]) -> Vec<Result<Vec<u8>, io::Error>> {
    let mut places: Vec<_> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| Ok(bytes[pair[0]..pair[1]].to_vec())).collect()
}

/// Generates the property tests for decoders: the packet split does not matter, and a cut stream is noticed.
macro_rules! chunking_and_noise {
    ($decoder:expr, $write:expr) => {
        mod packets {
            use budao_testkit::sse::ModelOutput;
            use proptest::prelude::*;

            use super::*;

            fn sayings() -> impl Strategy<Value = Vec<ModelOutput>> {
                let parts = || prop::collection::vec("[a-z不倒\u{1f600}\"\\\\ \n]{1,6}", 0..4);
                let saying = prop_oneof![
                    parts().prop_map(ModelOutput::Text),
                    (parts(), "[A-Za-z0-9+/=]{0,20}").prop_map(|(text, seal)| ModelOutput::Thinking(text, seal)),
                    ("[a-z]{1,5}", parts()).prop_map(|(name, parts)| {
                        ModelOutput::Call(format!("id_{name}"), name, parts)
                    }),
                ];
                prop::collection::vec(saying, 0..4)
            }

            /// An answer with text, thinking and two calls, with characters of one to four bytes.
            fn all_kinds() -> Vec<ModelOutput> {
                let parts = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
                vec![
                    ModelOutput::Thinking(parts(&["不", "倒 \u{1f600}"]), "c2lnbmVk".to_owned()),
                    ModelOutput::Text(parts(&["a\n", "é\"\\", "翁"])),
                    ModelOutput::call("id_a", "a", &json!({"path": "不.txt"})),
                    ModelOutput::call("id_b", "b", &json!({})),
                ]
            }

            #[test]
            fn a_packet_may_end_after_every_byte_and_a_line_may_break_after_every_byte() {
                for line_end in ["\n", "\r\n"] {
                    let mut events: Vec<String> = $write(&all_kinds());
                    events.iter_mut().for_each(|event| *event = event.replace('\n', line_end));
                    let text = events.concat();
                    let whole = testing::decode([Ok(text.clone().into_bytes())], $decoder);
                    assert_eq!(whole.fault, None);
                    for place in 0..=text.len() {
                        let chunks = testing::cut(text.as_bytes(), &[place]);
                        assert_eq!(testing::decode(chunks, $decoder), whole, "after {place} bytes");
                    }
                    // All events before the one that completes the answer.
                    let begun = events[..events.len() - 3].concat();
                    for place in 0..=begun.len() {
                        let begun = begun.as_bytes()[..place].to_vec();
                        let ended = testing::decode([Ok(begun)], $decoder);
                        let cut = Some(budao_core::Kind::ModelStreamCut);
                        assert_eq!(ended.fault, cut, "after {place} bytes");
                    }
                }
            }

            proptest! {
                #[test]
                fn any_packets_give_the_same_pieces(
                    sayings in sayings(),
                    places in prop::collection::vec(any::<usize>(), 0..40),
                    crlf: bool,
                ) {
                    let mut text = $write(&sayings).concat();
                    if crlf {
                        text = text.replace('\n', "\r\n");
                    }
                    let bytes = text.as_bytes();
                    let whole = testing::decode([Ok(bytes.to_vec())], $decoder);
                    prop_assert_eq!(whole.fault, None);
                    let cut = testing::decode(testing::cut(bytes, &places), $decoder);
                    prop_assert_eq!(&whole, &cut);
                    let bytewise = testing::decode(bytes.iter().map(|byte| Ok(vec![*byte])), $decoder);
                    prop_assert_eq!(&whole, &bytewise);
                }

                #[test]
                fn a_stream_cut_anywhere_is_never_taken_for_whole(
                    sayings in sayings(), place: usize,
                ) {
                    // All events before the one that completes the answer.
                    let events = $write(&sayings);
                    let text = events[..events.len() - 3].concat();
                    let place = place % (text.len() + 1);
                    let ended = testing::decode([Ok(text.as_bytes()[..place].to_vec())], $decoder);
                    prop_assert_eq!(ended.fault, Some(budao_core::Kind::ModelStreamCut));
                }

                #[test]
                fn random_bytes_never_panic(
                    noise in prop::collection::vec(any::<u8>(), 0..400),
                    lines in prop::collection::vec("(data|event|id|retry|x)?:? ?[\\PC]{0,40}\n{1,2}", 0..20),
                ) {
                    testing::decode([Ok(noise), Ok(lines.concat().into_bytes())], $decoder);
                }

                #[test]
                fn random_json_never_panics(
                    keys in prop::collection::vec(
                        prop::sample::select(&["type", "index", "delta", "choices", "content_block",
                            "message", "usage", "tool_calls", "function", "finish_reason", "error"][..]),
                        0..6,
                    ),
                    kind in prop::sample::select(&["content_block_start", "content_block_delta",
                        "content_block_stop", "message_delta", "message_stop", "message_start", "tool_use"][..]),
                ) {
                    let nested = keys.iter().fold(json!(kind), |inner, key| {
                        json!({"type": kind, *key: inner.clone(), "choices": [inner]})
                    });
                    testing::decode([Ok(event(&nested).into_bytes())], $decoder);
                }
            }
        }
    };
}
pub(crate) use chunking_and_noise;
