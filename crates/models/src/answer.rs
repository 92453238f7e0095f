//! Decodes a response body into pieces, within the deadlines and the size limit of an answer.
//!
//! Two deadlines apply. The first token must arrive within `model_first_token` of the request. After that, the stream
//! has stalled if no event arrives for `model_between_tokens`. Because a server may send pings forever, it has also
//! stalled if no *content* arrives for the longer of the two times.

use std::{collections::VecDeque, future::Future, io, mem, sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind},
    limits::Limits,
    message::{Block, ModelStop, Piece, ResponseInfo, Usage},
    world::Clock,
};
use futures::{StreamExt, future::BoxFuture, stream};
use serde_json::Value;

use crate::{
    PieceStream,
    failure::{ErrorResponse, Service},
    sse::{EventStreamError, SseEvent, SseEvents},
    stream_guard,
};

/// Decodes the events of one vendor's API.
pub(crate) trait Decode: Send + 'static {
    /// Consumes one event and appends the pieces it completes to `out`.
    fn event(&mut self, event: SseEvent, out: &mut PieceBuffer) -> Result<(), DecodeError>;

    /// Called when the stream has ended. Ends the answer if the events so far form a complete one.
    fn finish(&mut self, out: &mut PieceBuffer);
}

/// The two ways in which an event can be unusable.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The event cannot be parsed; the text is the parser's reason.
    Malformed(String),
    /// The event is the service's own error report, as JSON.
    ServiceError(Value),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Pieces that a decoder has produced and the reader has not passed on yet, with the size of the answer so far.
#[derive(Debug, Default)]
pub(crate) struct PieceBuffer {
    pieces: VecDeque<Piece>,
    bytes: usize,
    progressed: bool,
    ended: bool,
    response: ResponseInfo,
}

impl PieceBuffer {
    /// Notes how the service names the answer. The first name counts; one that is too long is left out.
    pub(crate) fn identify(&mut self, id: Option<&str>, model: Option<&str>) {
        let note = |field: &mut String, text: Option<&str>| {
            let text = text.unwrap_or_default();
            if field.is_empty() && text.len() <= ResponseInfo::LENGTH_MAX {
                field.push_str(text);
            }
        };
        note(&mut self.response.id, id);
        note(&mut self.response.model, model);
    }

    /// Appends a text delta.
    pub(crate) fn text(&mut self, text: &str) {
        if self.grow(text.len()) {
            self.pieces.push_back(Piece::Text(text.to_owned()));
        }
    }

    /// Appends a thinking delta.
    pub(crate) fn thought(&mut self, text: &str) {
        if self.grow(text.len()) {
            self.pieces.push_back(Piece::Thought(text.to_owned()));
        }
    }

    /// Appends a complete block.
    pub(crate) fn block(&mut self, block: Block) {
        self.progressed = true;
        self.pieces.push_back(Piece::Block(block));
    }

    /// Adds `bytes` to the answer's size. Returns false for zero bytes, which do not count as progress.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.progressed |= bytes > 0;
        bytes > 0
    }

    /// Ends the answer; a second end is ignored.
    pub(crate) fn end(&mut self, stop: ModelStop, usage: Usage) {
        if !mem::replace(&mut self.ended, true) {
            let usage = believable(usage);
            let response = mem::take(&mut self.response);
            if !response.is_empty() {
                self.pieces.push_back(Piece::Response(response));
            }
            self.pieces.push_back(Piece::End { stop, usage });
        }
    }
}

/// No request has more tokens than this; a service that reports more miscounts.
const TOKENS_MAX: u64 = 1_000_000_000;

/// The counts of a service, or none if they cannot be true. A request without counts costs its estimate.
fn believable(usage: Usage) -> Usage {
    if usage.input_tokens.max(usage.output_tokens) <= TOKENS_MAX {
        return usage;
    }
    tracing::warn!(?usage, "the service reports impossible token counts; they are not used");
    Usage::default()
}

/// The deadlines of one request, for its first token and between tokens.
pub(crate) struct AnswerDeadlines {
    clock: Arc<dyn Clock>,
    first: Duration,
    between: Duration,
    /// Elapses if no content arrives in time; reset by each piece of content.
    progress: Option<BoxFuture<'static, ()>>,
    started: bool,
}

impl std::fmt::Debug for AnswerDeadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerDeadlines").field("started", &self.started).finish_non_exhaustive()
    }
}

impl AnswerDeadlines {
    /// Starts the deadline for the first token.
    pub(crate) fn new(clock: Arc<dyn Clock>, limits: &Limits) -> Self {
        let (first, between) = (limits.model_first_token, limits.model_between_tokens);
        let progress = Some(clock.sleep(first));
        Self { clock, first, between, progress, started: false }
    }

    /// Awaits `something`; `None` if a deadline passes first.
    pub(crate) async fn wait<T>(&mut self, something: impl Future<Output = T>) -> Option<T> {
        let longest = self.first.max(self.between);
        let (clock, between, started) = (&self.clock, self.between, self.started);
        let progress = self.progress.get_or_insert_with(|| clock.sleep(longest));
        tokio::select! {
            biased;
            something = something => Some(something),
            () = progress => None,
            () = async { clock.sleep(between).await }, if started => None,
        }
    }

    /// Records that content arrived and resets the deadlines.
    fn progressed(&mut self) {
        self.started = true;
        self.progress = None;
    }

    /// The fault for a passed deadline: `model_stalled` after the first token, `model_first_token_timeout` before.
    pub(crate) fn fault(&self, service: &Service) -> Fault {
        let (kind, timeout) = if self.started {
            (Kind::ModelStalled, self.between)
        } else {
            (Kind::ModelFirstTokenTimeout, self.first)
        };
        service.fault(kind).with(Fact::TimeoutMs, timeout)
    }
}

/// Decodes the events of one answer of `service`.
pub(crate) fn read(
    events: SseEvents,
    decode: impl Decode,
    patience: AnswerDeadlines,
    service: Service,
    limits: &Limits,
) -> PieceStream {
    let (provider, model) = (service.provider, service.model.clone());
    let bytes_max = limits.model_answer_bytes;
    let reader = AnswerReader {
        events,
        decode,
        patience,
        service,
        bytes_max,
        out: PieceBuffer::default(),
        over: false,
    };
    let pieces = stream::unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Some((piece, reader))
    });
    stream_guard::require_end(provider, &model, pieces.boxed())
}

struct AnswerReader<D> {
    events: SseEvents,
    decode: D,
    patience: AnswerDeadlines,
    service: Service,
    bytes_max: usize,
    out: PieceBuffer,
    /// Set after the end or an error; no further event is read.
    over: bool,
}

impl<D: Decode> AnswerReader<D> {
    async fn next(&mut self) -> Option<Result<Piece, Fault>> {
        loop {
            if let Some(piece) = self.out.pieces.pop_front() {
                return Some(Ok(piece));
            }
            if self.over {
                // `whole` ends the stream after the first error.
                let is_cut = !self.out.ended;
                return is_cut
                    .then(|| Err(self.add_position(self.service.fault(Kind::ModelStreamCut))));
            }
            if let Err(fault) = self.step().await {
                self.over = true;
                return Some(Err(fault));
            }
            self.over |= self.out.ended;
        }
    }

    /// Reads and decodes one event, or ends the answer if the stream has ended.
    async fn step(&mut self) -> Result<(), Fault> {
        let event = match self.patience.wait(self.events.next()).await {
            Some(Some(Ok(event))) => event,
            Some(Some(Err(broken))) => return self.broke(broken),
            Some(None) => {
                self.finish();
                return Ok(());
            }
            None => {
                // Some servers send a complete answer but never close the connection.
                self.finish();
                return if self.out.ended {
                    Ok(())
                } else {
                    Err(self.patience.fault(&self.service))
                };
            }
        };
        match self.decode.event(event, &mut self.out) {
            Ok(()) => {}
            Err(DecodeError::ServiceError(error)) => {
                return Err(ErrorResponse::in_stream(&error).fault(&self.service));
            }
            // An incomplete event at the end of the body means a cut connection, not a malformed stream.
            Err(DecodeError::Malformed(_)) if self.events.ended() => self.over = true,
            Err(DecodeError::Malformed(reason)) => {
                return Err(self.malformed(self.events.position(), &reason));
            }
        }
        if self.out.bytes > self.bytes_max {
            return Err(self.too_long());
        }
        if mem::take(&mut self.out.progressed) {
            self.patience.progressed();
        }
        Ok(())
    }

    /// Handles a failed read. A connection error after a complete answer is ignored.
    fn broke(&mut self, broken: EventStreamError) -> Result<(), Fault> {
        match broken {
            EventStreamError::TooLong => Err(self.too_long()),
            EventStreamError::Malformed { position, reason } => {
                Err(self.malformed(position, &reason))
            }
            EventStreamError::Body(error) => {
                self.finish();
                if self.out.ended { Ok(()) } else { Err(self.cut(&error)) }
            }
        }
    }

    fn finish(&mut self) {
        self.decode.finish(&mut self.out);
        self.over = true;
    }

    fn cut(&self, error: &io::Error) -> Fault {
        self.add_position(self.service.fault(Kind::ModelStreamCut))
            .with_cause(self.service.excerpt(&error.to_string()))
    }

    /// Says how far the answer came, if it began: the gate then knows that the service works.
    fn add_position(&self, fault: Fault) -> Fault {
        match self.events.position() {
            0 => fault,
            position => fault.with(Fact::Position, position),
        }
    }

    fn malformed(&self, position: u64, reason: &str) -> Fault {
        self.service
            .fault(Kind::ModelMalformedStream)
            .with(Fact::Position, position)
            .with_cause(self.service.excerpt(reason))
    }

    fn too_long(&self) -> Fault {
        self.service
            .fault(Kind::LimitReached)
            .with(Fact::LimitName, "model_answer_bytes")
            .with(Fact::Limit, self.bytes_max)
            .with(Fact::Unit, "bytes")
    }
}
