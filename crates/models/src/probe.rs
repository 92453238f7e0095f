//! Entry points that feed arbitrary bytes to the response decoders, for the fuzz targets and for the tests that
//! replay a part of them.

use std::{io, sync::Arc, time::Duration};

use budao_core::{
    Lang,
    fault::{Fault, render},
    limits::Limits,
    message::{Block, ModelRequest, Piece},
    time::Timestamp,
    world::Clock,
};
use bytes::Bytes;
use futures::{StreamExt, executor::block_on, future::BoxFuture, stream};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    answer::{self, AnswerDeadlines, Decode},
    anthropic::{self, AnthropicFormat},
    failure::{ErrorResponse, Service},
    gemini::{self, GeminiFormat},
    openai,
    request_body::{EncodedSessions, WireFormat as _},
    response_hints::ResponseHints,
    responses,
    shape::ShapeForm,
    sse::SseEvents,
};

/// The answer limit used here, in bytes.
const ANSWER_BYTES: usize = 8 * 1024;

/// A clock whose sleeps never end.
#[derive(Debug)]
pub(crate) struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Decodes these packets and collects every piece and fault.
pub(crate) fn read(
    chunks: impl IntoIterator<Item = Result<Vec<u8>, io::Error>>,
    decoder: impl Decode,
    limits: &Limits,
) -> Vec<Result<Piece, Fault>> {
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| chunk.map(Bytes::from)).collect();
    let events = SseEvents::new(stream::iter(chunks).boxed(), limits.model_answer_bytes);
    let patience = AnswerDeadlines::new(Arc::new(StoppedClock), limits);
    block_on(answer::read(events, decoder, patience, Service::scripted(), limits).collect())
}

/// What a provider keeps of earlier requests.
#[derive(Clone, Debug, Default)]
pub struct EarlierRequests(EncodedSessions);

const GEMINI: GeminiFormat = GeminiFormat { substitute: false, form: ShapeForm::Native };

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic's Messages API.
    Anthropic,
    /// The API for chat completions.
    Chat,
    /// OpenAI's Responses API.
    Responses,
    /// The Gemini API.
    Gemini,
}

impl Wire {
    /// All wire formats.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Chat, Self::Responses, Self::Gemini];

    /// The body of a request, as the provider sends it first.
    #[must_use]
    pub fn request_body(self, request: &ModelRequest) -> Vec<u8> {
        match self {
            Self::Anthropic => AnthropicFormat { model: "m" }.encode(request),
            Self::Chat => openai::format("m").encode(request),
            Self::Responses => responses::format("m").encode(request),
            Self::Gemini => GEMINI.encode(request),
        }
    }

    /// The body of a request as the provider builds it after earlier ones of its session, in the parts that are sent.
    #[must_use]
    pub fn next_request_body(
        self,
        earlier: &EarlierRequests,
        request: &ModelRequest,
    ) -> Vec<Bytes> {
        let body = match self {
            Self::Anthropic => earlier.0.body(&AnthropicFormat { model: "m" }, request),
            Self::Chat => earlier.0.body(&openai::format("m"), request),
            Self::Responses => earlier.0.body(&responses::format("m"), request),
            Self::Gemini => earlier.0.body(&GEMINI, request),
        };
        body.into_parts()
    }

    /// The blocks of an answer, as they enter the history.
    ///
    /// # Errors
    /// The fault that the answer ends with.
    pub fn answer_blocks(self, bytes: Vec<u8>, history: usize) -> Result<Vec<Block>, Fault> {
        let (limits, chunks) = (Limits::default(), [Ok(bytes)]);
        let pieces = match self {
            Self::Anthropic => read(chunks, anthropic::Decoder::default(), &limits),
            Self::Chat => read(chunks, openai::Decoder::new(history), &limits),
            Self::Responses => read(chunks, responses::Decoder::new(history), &limits),
            Self::Gemini => read(chunks, gemini::Decoder::new(history), &limits),
        };
        let block = |piece| match piece {
            Ok(Piece::Block(block)) => Some(Ok(block)),
            Ok(_) => None,
            Err(fault) => Some(Err(fault)),
        };
        pieces.into_iter().filter_map(block).collect()
    }
}

/// Decodes the bytes as an answer in every wire format. Checks that the answer ends exactly once, stays within its
/// limit and does not depend on the split into packets.
///
/// # Panics
/// If one of these properties does not hold.
pub fn stream(bytes: &[u8]) {
    streamed(bytes, anthropic::Decoder::default);
    streamed(bytes, || openai::Decoder::new(3));
    streamed(bytes, || responses::Decoder::new(3));
    streamed(bytes, || gemini::Decoder::new(3));
}

fn streamed<D: Decode>(bytes: &[u8], decoder: impl Fn() -> D) {
    let limits = Limits { model_answer_bytes: ANSWER_BYTES, ..Limits::default() };
    let whole = read([Ok(bytes.to_vec())], decoder(), &limits);
    let pieces = read(bytes.chunks(7).map(|piece| Ok(piece.to_vec())), decoder(), &limits);
    let kinds = |all: &[Result<Piece, Fault>]| -> Vec<_> {
        all.iter().map(|piece| piece.as_ref().map_err(Fault::kind).cloned()).collect()
    };
    assert_eq!(kinds(&whole), kinds(&pieces), "packets make no difference");
    let (last, before) = whole.split_last().expect("a stream ends with something");
    assert!(matches!(last, Err(_) | Ok(Piece::End { .. })), "it ends with its end: {last:?}");
    assert!(before.iter().all(|piece| !matches!(piece, Err(_) | Ok(Piece::End { .. }))));
    let said: usize = before.iter().filter_map(|piece| piece.as_ref().ok()).map(size).sum();
    assert!(said <= ANSWER_BYTES * 4, "{said} bytes came of a bounded answer");
    if let Err(fault) = last {
        check_rendering(fault);
    }
}

fn size(piece: &Piece) -> usize {
    match piece {
        Piece::Text(text) | Piece::Thought(text) => text.len(),
        _ => 0,
    }
}

/// Classifies the bytes as an error response: the status line, header lines, an empty line and the body. Checks that
/// the resulting fault can be rendered.
///
/// # Panics
/// If the fault cannot be rendered within its limits.
pub fn refusal(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\n\n").unwrap_or(("", &text));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(500_u16);
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')).take(32) {
        if let (Ok(name), Ok(value)) =
            (name.trim().parse::<HeaderName>(), HeaderValue::from_str(value.trim()))
        {
            headers.insert(name, value);
        }
    }
    let hints = ResponseHints::read(&headers, Timestamp::from_micros(1_700_000_000_000_000));
    check_rendering(
        &ErrorResponse::new(status, body.as_bytes()).hints(hints).fault(&Service::scripted()),
    );
}

/// Checks that a fault renders for users and the operator, and that the texts are short.
fn check_rendering(fault: &Fault) {
    for lang in [Lang::En, Lang::Zh] {
        let user = render::render_for_user(fault, lang);
        assert!(!user.shown.is_empty() && user.shown.len() < 8 * 1024, "{user:?}");
    }
    assert!(fault.to_string().len() < 16 * 1024, "an operator's line is short");
}
