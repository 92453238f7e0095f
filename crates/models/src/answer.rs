//! Turns a body's events into pieces, within the deadlines and the size an answer may have.
//!
//! Two clocks run. Until the first token there is one deadline from the moment we asked. After it, no
//! event at all for the time between tokens means the stream stalled; and since a server may ping for
//! ever, no *progress* for as long as the first token may take means the same.

use std::{collections::VecDeque, future::Future, io, mem, sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind},
    limits::Limits,
    message::{Block, ModelStop, Piece, Usage},
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

/// Reads one vendor's events.
pub(crate) trait Decode: Send + 'static {
    /// Takes in one event.
    fn event(&mut self, event: SseEvent, out: &mut PieceBuffer) -> Result<(), DecodeError>;

    /// Nothing more will come. Ends the answer if what came makes a whole one.
    fn finish(&mut self, out: &mut PieceBuffer);
}

/// What can be wrong with an event.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// It cannot be read.
    Malformed(String),
    /// The service says that it failed.
    ServiceError(Value),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// What a decoder has to say.
#[derive(Debug, Default)]
pub(crate) struct PieceBuffer {
    pieces: VecDeque<Piece>,
    bytes: usize,
    progressed: bool,
    ended: bool,
}

impl PieceBuffer {
    /// More words.
    pub(crate) fn text(&mut self, text: &str) {
        if self.grow(text.len()) {
            self.pieces.push_back(Piece::Text(text.to_owned()));
        }
    }

    /// More thought.
    pub(crate) fn thought(&mut self, text: &str) {
        if self.grow(text.len()) {
            self.pieces.push_back(Piece::Thought(text.to_owned()));
        }
    }

    /// Something whole.
    pub(crate) fn block(&mut self, block: Block) {
        self.progressed = true;
        self.pieces.push_back(Piece::Block(block));
    }

    /// The answer grew by something that is not shown yet. Nothing is no growth.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.progressed |= bytes > 0;
        bytes > 0
    }

    /// It is whole.
    pub(crate) fn end(&mut self, stop: ModelStop, usage: Usage) {
        if !mem::replace(&mut self.ended, true) {
            self.pieces.push_back(Piece::End { stop, usage });
        }
    }
}

/// The waits of one request.
pub(crate) struct AnswerDeadlines {
    clock: Arc<dyn Clock>,
    first: Duration,
    between: Duration,
    /// Runs until the next progress.
    progress: Option<BoxFuture<'static, ()>>,
    started: bool,
}

impl std::fmt::Debug for AnswerDeadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patience").field("started", &self.started).finish_non_exhaustive()
    }
}

impl AnswerDeadlines {
    /// Starts waiting for the first token.
    pub(crate) fn new(clock: Arc<dyn Clock>, limits: &Limits) -> Self {
        let (first, between) = (limits.model_first_token, limits.model_between_tokens);
        let progress = Some(clock.sleep(first));
        Self { clock, first, between, progress, started: false }
    }

    /// Waits for something; none if it took too long.
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

    /// A token came.
    fn progressed(&mut self) {
        self.started = true;
        self.progress = None;
    }

    /// What it means that it took too long.
    pub(crate) fn fault(&self, service: &Service) -> Fault {
        let (kind, timeout) = if self.started {
            (Kind::ModelStalled, self.between)
        } else {
            (Kind::ModelFirstTokenTimeout, self.first)
        };
        service.fault(kind).with(Fact::TimeoutMs, timeout)
    }
}

/// Reads the answer of `service` from its events.
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
    stream_guard::whole(provider, &model, pieces.boxed())
}

struct AnswerReader<D> {
    events: SseEvents,
    decode: D,
    patience: AnswerDeadlines,
    service: Service,
    bytes_max: usize,
    out: PieceBuffer,
    /// Nothing more is read.
    over: bool,
}

impl<D: Decode> AnswerReader<D> {
    async fn next(&mut self) -> Option<Result<Piece, Fault>> {
        loop {
            if let Some(piece) = self.out.pieces.pop_front() {
                return Some(Ok(piece));
            }
            if self.over {
                return None;
            }
            if let Err(fault) = self.step().await {
                self.over = true;
                return Some(Err(fault));
            }
            self.over |= self.out.ended;
        }
    }

    /// Takes in the next event, or finds out that there is none.
    async fn step(&mut self) -> Result<(), Fault> {
        let event = match self.patience.wait(self.events.next()).await {
            Some(Some(Ok(event))) => event,
            Some(Some(Err(broken))) => return self.broke(broken),
            Some(None) => {
                self.finish();
                return Ok(());
            }
            None => {
                // Some servers say that they are done and forget to hang up.
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
            // Half an event at the end is a cut line, not a server that cannot write.
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

    /// The line failed. An answer that was whole by then stays whole.
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
        self.service
            .fault(Kind::ModelStreamCut)
            .with_cause(self.service.excerpt(&error.to_string()))
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
