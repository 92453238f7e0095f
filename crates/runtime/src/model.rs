//! Makes one model request as a stream. Small deltas are joined before they are recorded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::{
    event::{SessionId, Settings, Thinking, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    gate::{GateKey, HoldReport, Priority, Requester, Willingness},
    limits::Limits,
    message::{Block, Message, ModelRequest, ModelStop, Piece, ResponseInfo, Usage, text_of},
    session::{Phase, Session, estimate_content_tokens, estimate_tokens},
    spending::{DayRaise, RequestMeasure, with_margin},
    time::Timestamp,
    trace::{SpanId, Trace},
    turn::Input,
};
use budao_models::Model;
use budao_tools::{FINAL_ANSWER, ShapedAnswer, Toolbox};
use futures::StreamExt;

use crate::{
    check,
    gates::{AdmissionAnswer, HeldRequest, Permit},
    ledger::{self, SpendingReservation},
    text_buffer::TextBuffer,
    work::{SessionTools, WorkContext},
};

/// The shortest time until a held request is reviewed.
const REVIEW_MIN: Duration = Duration::from_secs(1);
/// The time until a review doubles at most this often.
const REVIEW_DOUBLINGS: u32 = 6;
/// Upper bound of reviews; more than fit into any patience, since each comes after twice the time.
const REVIEWS_MAX: usize = 64;

/// Identifies an attempt of a step.
#[derive(Clone, Copy)]
pub(crate) struct AttemptId {
    pub(crate) turn: TurnNumber,
    pub(crate) step: u32,
    pub(crate) attempt: u32,
}

impl AttemptId {
    /// The attempt that the session's turn makes or prepares.
    pub(crate) fn of(session: &Session) -> Self {
        let phase = session.turn.as_ref().map(|turn| turn.phase);
        let attempt = match phase {
            Some(Phase::AwaitingModel { attempt }) => attempt,
            _ => 1,
        };
        let step = session.turn.as_ref().map_or(0, |turn| turn.step);
        Self { turn: session.turns, step, attempt }
    }
}

/// One attempt of a step, with its inputs copied from the session at its start.
pub(crate) struct ModelAttempt {
    pub(crate) turn: TurnNumber,
    pub(crate) step: u32,
    pub(crate) attempt: u32,
    settings: Arc<Settings>,
    model: String,
    history: Arc<Vec<Arc<Message>>>,
    trace: Trace,
    toolbox: Arc<tokio::sync::Mutex<Option<(u64, Toolbox)>>>,
    requester: Requester,
    gate_wait: GateWait,
    /// The most tokens that the request is expected to use.
    estimate: Usage,
    /// The part of the estimate for instructions, tools and the schema of the answer.
    overhead_tokens: u64,
    /// The API key of the session's last request, named by a part of its hash.
    last_key: String,
    /// The amounts that people of the session added to daily caps.
    day_raises: Vec<DayRaise>,
    /// Whether the service began its answer.
    has_started: AtomicBool,
}

/// The state of a request that may wait at the gate.
pub(crate) struct GateWait {
    /// Whether the records say that the gate holds this request.
    pub(crate) is_held: bool,
    /// When a held request is reviewed because another model may be asked, and the time until the next review; absent
    /// without another model.
    pub(crate) review: Option<(Timestamp, Duration)>,
    /// The request waited while the session was not loaded: its place at the gate, or its permit.
    pub(crate) admission: Option<(GateKey, AdmissionAnswer)>,
}

impl ModelAttempt {
    pub(crate) fn new(
        work_context: &WorkContext,
        session: &Session,
        step: u32,
        attempt: u32,
        tools: &mut SessionTools,
    ) -> Self {
        Self {
            turn: session.turns,
            step,
            attempt,
            settings: tools.settings(session),
            model: session.model().to_owned(),
            history: Arc::clone(&session.history),
            trace: session.trace(),
            toolbox: Arc::clone(&tools.toolbox),
            requester: requester(work_context, session, Willingness::Wait),
            gate_wait: GateWait {
                is_held: session.turn.as_ref().is_some_and(|turn| turn.wait.is_held),
                review: review_of(&work_context.shared.limits, session),
                admission: tools.admission.take(),
            },
            estimate: session.estimate_request(),
            overhead_tokens: session.overhead_tokens(),
            last_key: session.spending.key.clone(),
            day_raises: session.spending.day_raises.clone(),
            has_started: AtomicBool::new(false),
        }
    }

    pub(crate) fn turn(&self) -> TurnNumber {
        self.turn
    }

    fn id(&self) -> AttemptId {
        let Self { turn, step, attempt, .. } = *self;
        AttemptId { turn, step, attempt }
    }

    /// Corrects the estimate by what the request has besides the history. What differs from what the session knows is
    /// recorded, so that its caps and the next requests count it, too.
    async fn measure(
        &mut self,
        work_context: &WorkContext,
        prepared: &PreparedRequest,
        credential: &str,
    ) {
        let measured = prepared.overhead_tokens(self).max(Session::OVERHEAD_TOKENS_MIN);
        if measured == self.overhead_tokens && *credential == *self.last_key {
            return;
        }
        let before = self.estimate;
        self.estimate.input_tokens =
            before.input_tokens.saturating_sub(self.overhead_tokens).saturating_add(measured);
        self.overhead_tokens = measured;
        credential.clone_into(&mut self.last_key);
        let spending = &work_context.shared.limits.spending;
        if !spending.counts_requests(&self.settings) {
            return;
        }
        let of = |usage| ledger::estimated_amount(&work_context.shared, &self.model, usage);
        let (overhead_tokens, key) = (measured, self.last_key.clone());
        let more = of(self.estimate).minus(of(before));
        let event = RequestMeasure { overhead_tokens, key, more }.annotation();
        work_context.report(Input::RecordOnly { turn: self.turn, event }).await;
    }

    /// Counts the request in the ledgers of its day, before it is made.
    async fn reserve(
        &self,
        work_context: &WorkContext,
        credential: &str,
    ) -> Result<Option<SpendingReservation>, Fault> {
        let of_session = (&*self.settings, &self.day_raises[..]);
        ledger::reserve(work_context, (&self.model, credential), of_session, self.estimate).await
    }

    /// Replaces the estimate by the cost. The estimate of an answer that broke off stays spent.
    async fn settle(
        &self,
        work_context: &WorkContext,
        reservation: SpendingReservation,
        input: Option<&Input>,
    ) {
        let shared = &work_context.shared;
        match input {
            Some(Input::ModelAnswered { usage, .. } | Input::AnswerRejected { usage, .. }) => {
                reservation.settle(shared, *usage).await;
            }
            _ if self.has_started.load(Ordering::Relaxed) => {
                reservation.settle(shared, Usage::default()).await;
            }
            _ => reservation.release(shared).await,
        }
    }

    fn failure_input(&self, fault: Fault) -> Input {
        let Self { turn, step, attempt, .. } = *self;
        Input::ModelFailed { turn, step, attempt, fault }
    }
}

/// The first review of a held request, counted from the first attempt of its model. The time until it doubles with
/// each time around the list of models.
fn review_of(limits: &Limits, session: &Session) -> Option<(Timestamp, Duration)> {
    let count = u32::try_from(session.settings.models().count()).unwrap_or(u32::MAX);
    let models = &session.turn.as_ref()?.models;
    let doublings = (models.changes / count).min(REVIEW_DOUBLINGS);
    let first = limits.fallback.after.max(limits.gate.visible_after).max(REVIEW_MIN);
    let after = first.saturating_mul(1 << doublings);
    models.since.filter(|_| count > 1).map(|since| (since.after(after), after))
}

/// The next review of a request whose session is not loaded; absent without another model.
pub(crate) fn next_review(limits: &Limits, session: &Session, now: Timestamp) -> Option<Timestamp> {
    let (first, after) = review_of(limits, session)?;
    let reviews = std::iter::successors(Some((first, after)), |(at, after)| {
        let after = after.saturating_mul(2);
        Some((at.after(after), after))
    });
    // Bounded: each time is twice as far away.
    reviews.take(REVIEWS_MAX).map(|(at, _)| at).find(|at| *at > now)
}

/// The party that makes a session's requests. A turn without patience never waits, regardless of `willingness`.
pub(crate) fn requester(
    work_context: &WorkContext,
    session: &Session,
    willingness: Willingness,
) -> Requester {
    let gate = &work_context.shared.limits.gate;
    let is_observed = work_context.shared.observers.is_observed(work_context.session);
    let configured = if is_observed { gate.patience_watched } else { gate.patience_background };
    let has_none = session.settings.patience_ms.map_or(configured.is_zero(), |own| own == 0);
    Requester {
        session: work_context.session,
        tenant: session.settings.tenant().into(),
        priority: Priority::of(is_observed),
        willingness: if has_none { Willingness::Never } else { willingness },
    }
}

/// Prepares one request, waits for the gate, makes the request and reports its deltas. The last input is the complete
/// answer or the fault. A request that fails as a probe of the gate waits again and does not count as a try.
/// Tools and hooks run before the gate: a slow one holds no slot, and its fault does not count against the service.
pub(crate) async fn ask(work_context: WorkContext, mut model_attempt: ModelAttempt) -> Input {
    let model = match work_context.shared.models.model(&model_attempt.model) {
        Ok(model) => model,
        Err(fault) => return model_attempt.failure_input(fault),
    };
    let key = model.gate_key();
    loop {
        // Boxed, so that the future of a waiting request stays small.
        let prepared = match Box::pin(prepare(&work_context, &model_attempt, &*model)).await {
            Ok(prepared) => prepared,
            Err(fault) => return model_attempt.failure_input(fault),
        };
        Box::pin(model_attempt.measure(&work_context, &prepared, &key.credential)).await;
        let (id, requester) = (model_attempt.id(), model_attempt.requester.clone());
        let permit =
            match admit(&work_context, id, &key, requester, &mut model_attempt.gate_wait).await {
                Ok(permit) => permit,
                Err(fault) => return model_attempt.failure_input(fault),
            };
        let reserving = model_attempt.reserve(&work_context, &key.credential);
        let reservation = match Box::pin(reserving).await {
            Ok(reservation) => reservation,
            Err(fault) => return model_attempt.failure_input(fault),
        };
        let request = prepared.into_request(&work_context, &model_attempt, &*model);
        let asking = ask_once(&work_context, &model_attempt, &*model, request, permit);
        let input = Box::pin(asking).await;
        if let Some(reservation) = reservation {
            Box::pin(model_attempt.settle(&work_context, reservation, input.as_ref())).await;
        }
        if let Some(input) = input {
            return input;
        }
    }
}

/// A request before it waits: its toolbox, or the whole request if hooks changed it.
enum PreparedRequest {
    Tools(Toolbox),
    Whole(Box<ModelRequest>),
}

impl PreparedRequest {
    /// Estimated tokens of all that the request has besides the history, with a margin.
    fn overhead_tokens(&self, attempt: &ModelAttempt) -> u64 {
        let text = |text: Option<&Arc<str>>| text.map_or(0, |text| text.len());
        let tokens = |bytes: usize| with_margin((bytes as u64).div_ceil(4));
        match self {
            Self::Tools(toolbox) => {
                let instructions = toolbox.instructions();
                let bytes = text(attempt.settings.system.as_ref()) + text(instructions);
                tokens(bytes + toolbox.spec_bytes())
            }
            // A hook may have changed anything.
            Self::Whole(request) => {
                let tools: usize = request.tools.iter().map(|tool| tool.bytes()).sum();
                let sum = |messages: &[Arc<Message>]| -> u64 {
                    with_margin(messages.iter().map(|message| estimate_tokens(message)).sum())
                };
                let added = sum(&request.messages).saturating_sub(sum(&attempt.history));
                tokens(text(request.system.as_ref()) + tools).saturating_add(added)
            }
        }
    }

    fn into_request(
        self,
        work_context: &WorkContext,
        model_attempt: &ModelAttempt,
        model: &dyn Model,
    ) -> ModelRequest {
        match self {
            Self::Tools(toolbox) => {
                build_request(work_context.session, model_attempt, model, &toolbox)
            }
            Self::Whole(request) => *request,
        }
    }
}

/// Loads the tools and lets the hooks see the request.
async fn prepare(
    work_context: &WorkContext,
    model_attempt: &ModelAttempt,
    model: &dyn Model,
) -> Result<PreparedRequest, Fault> {
    let toolbox =
        check::toolbox(work_context, &model_attempt.settings, &model_attempt.toolbox).await?;
    let hooks = &work_context.shared.model_hooks;
    if hooks.is_empty() {
        return Ok(PreparedRequest::Tools(toolbox));
    }
    let request = build_request(work_context.session, model_attempt, model, &toolbox);
    let request = hooks.before(work_context, model_attempt.step, request).await;
    Ok(PreparedRequest::Whole(Box::new(request)))
}

/// Waits for the gate. A long wait and its end are recorded.
pub(crate) async fn admit(
    work_context: &WorkContext,
    id: AttemptId,
    key: &GateKey,
    requester: Requester,
    wait: &mut GateWait,
) -> Result<Permit, Fault> {
    let AttemptId { turn, step, attempt } = id;
    let suspended = wait.admission.take().filter(|(of, _)| of == key);
    let mut admission = match suspended {
        Some((_, admission)) => admission,
        None => work_context.shared.gates.request(key, requester)?,
    };
    let permit = loop {
        let held = match admission {
            AdmissionAnswer::Granted(permit) => break permit,
            AdmissionAnswer::Held(held) => held,
        };
        let (next, report) = progress(work_context, id, &mut wait.review, held).await?;
        admission = next;
        if let Some(hold) = report.map(Box::new) {
            wait.is_held = true;
            work_context.report(Input::RequestHeld { turn, step, attempt, hold }).await;
        }
    };
    if std::mem::take(&mut wait.is_held) {
        work_context.report(Input::RequestReleased { turn, step, attempt }).await;
    }
    Ok(permit)
}

/// Waits for a grant or a report. The turn reviews a long wait, because it may ask another model.
async fn progress(
    work_context: &WorkContext,
    id: AttemptId,
    review: &mut Option<(Timestamp, Duration)>,
    held: HeldRequest,
) -> Result<(AdmissionAnswer, Option<HoldReport>), Fault> {
    let mut progress = std::pin::pin!(held.progress());
    loop {
        let Some((at, after)) = *review else { return progress.await };
        let wait = at.since(work_context.now());
        tokio::select! {
            biased;
            progress = &mut progress => return progress,
            () = work_context.shared.world.clock.sleep(wait) => {}
        }
        let after = after.saturating_mul(2);
        *review = Some((work_context.now().after(after), after));
        let AttemptId { turn, step, attempt } = id;
        work_context.report(Input::HoldReviewed { turn, step, attempt }).await;
    }
}

/// Makes one request. `None` if it was a probe of a service that is still down.
async fn ask_once(
    work_context: &WorkContext,
    model_attempt: &ModelAttempt,
    model: &dyn Model,
    request: ModelRequest,
    permit: Permit,
) -> Option<Input> {
    match stream(work_context, model_attempt, model, request, &permit).await {
        Ok(answered) => {
            permit.report_answer();
            Some(answered)
        }
        Err(fault) if permit.report_failure(&fault) => None,
        Err(fault) => Some(model_attempt.failure_input(fault)),
    }
}

fn build_request(
    session: SessionId,
    model_attempt: &ModelAttempt,
    model: &dyn Model,
    toolbox: &Toolbox,
) -> ModelRequest {
    let tools = toolbox.specs();
    let has_shape = model_attempt.settings.answer_schema.is_some();
    let mut named = tools.iter().filter(|tool| has_shape && *tool.name == *FINAL_ANSWER);
    ModelRequest {
        answer: named.next().cloned(),
        model: model.name().to_owned(),
        system: system_prompt(model_attempt.settings.system.as_ref(), toolbox.instructions()),
        messages: Arc::clone(&model_attempt.history),
        tools,
        max_tokens: model_attempt.settings.answer_tokens(),
        thinking_tokens: model_attempt.settings.thinking.map(Thinking::tokens),
        cache_key: Some(session.to_string().into()),
        trace: model_attempt.trace,
        span: SpanId::of_step(
            session,
            model_attempt.turn,
            model_attempt.step,
            model_attempt.attempt,
        ),
    }
}

/// The session's system prompt, followed by the remarks of its tool sources.
fn system_prompt(own: Option<&Arc<str>>, remarks: Option<&Arc<str>>) -> Option<Arc<str>> {
    match (own, remarks) {
        (Some(own), Some(remarks)) => Some(format!("{own}\n\n{remarks}").into()),
        (own, remarks) => own.or(remarks).cloned(),
    }
}

async fn stream(
    work_context: &WorkContext,
    model_attempt: &ModelAttempt,
    model: &dyn Model,
    request: ModelRequest,
    permit: &Permit,
) -> Result<Input, Fault> {
    let mut pieces = budao_models::ask(model, request).await?;
    let mut has_started = false;
    let mut content: Vec<Block> = Vec::new();
    let mut response = None;
    let mut buffer = TextBuffer::new(work_context, model_attempt);
    let mut length = Length::default();
    loop {
        let Some(piece) = buffer.next_before_due(pieces.next()).await else {
            buffer.flush().await;
            continue;
        };
        if let Some(Ok(piece)) = &piece {
            if !std::mem::replace(&mut has_started, true) {
                permit.report_start();
                model_attempt.has_started.store(true, Ordering::Relaxed);
            }
            length.add(piece);
            if let Err(fault) = length.check(model, work_context.shared.limits.model_answer_bytes) {
                buffer.flush().await;
                return Err(fault.with_trace(model_attempt.trace));
            }
        }
        match piece {
            // The text of a shaped answer is shown once it is known to fit.
            Some(Ok(Piece::Text(_))) if model_attempt.settings.answer_schema.is_some() => {}
            Some(Ok(Piece::Text(text))) => buffer.add_text(text).await,
            Some(Ok(Piece::Thought(thought))) => buffer.add_thought(thought).await,
            Some(Ok(Piece::Block(block))) => content.push(block),
            Some(Ok(Piece::Response(info))) => response = Some(Box::new(info)),
            Some(Ok(Piece::End { stop, usage })) => {
                buffer.flush().await;
                let usage =
                    usage.or_estimate(model_attempt.estimate, estimate_content_tokens(&content));
                let answer = ModelAnswer { content, stop, usage, response };
                return answer_input(work_context, model_attempt, answer).await;
            }
            Some(Err(fault)) => {
                buffer.flush().await;
                return Err(fault);
            }
            None => {
                return Err(Fault::new(Kind::ModelStreamCut, Operation::ModelRequest)
                    .with(Fact::Service, model.provider().to_owned())
                    .with(Fact::Model, model.name().to_owned()));
            }
        }
    }
}

/// The parts of a complete answer.
struct ModelAnswer {
    content: Vec<Block>,
    stop: ModelStop,
    usage: Usage,
    response: Option<Box<ResponseInfo>>,
}

/// The report of a complete answer. If the session's answers have a schema, the final one is checked against it.
async fn answer_input(
    work_context: &WorkContext,
    model_attempt: &ModelAttempt,
    answer: ModelAnswer,
) -> Result<Input, Fault> {
    let ModelAttempt { turn, step, attempt, .. } = *model_attempt;
    let ModelAnswer { content, stop, usage, response } = answer;
    if model_attempt.settings.answer_schema.is_none() {
        return Ok(Input::ModelAnswered { turn, step, attempt, content, stop, usage, response });
    }
    let toolbox =
        check::toolbox(work_context, &model_attempt.settings, &model_attempt.toolbox).await?;
    let limits = &work_context.shared.limits;
    Ok(match toolbox.check_answer(content, stop, limits) {
        ShapedAnswer::Unfinished(content) => {
            Input::ModelAnswered { turn, step, attempt, content, stop, usage, response }
        }
        ShapedAnswer::Complete(content) => {
            let (text, thought) = (text_of(&content), String::new());
            work_context.report(Input::Delta { turn, step, attempt, text, thought }).await;
            let stop = ModelStop::EndTurn;
            Input::ModelAnswered { turn, step, attempt, content, stop, usage, response }
        }
        ShapedAnswer::Rejected(content, fault) => {
            Input::AnswerRejected { turn, step, attempt, content, usage, fault }
        }
    })
}

/// Length of an answer so far, in bytes. Bounds every provider, including those that have no bound of their own.
#[derive(Default)]
struct Length {
    streamed: usize,
    /// Bytes in complete blocks, which repeat the streamed bytes.
    whole: usize,
}

impl Length {
    fn add(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) | Piece::Thought(text) => self.streamed += text.len(),
            Piece::Block(Block::Text(text) | Block::Opaque(text)) => self.whole += text.len(),
            Piece::Block(Block::Thinking { text, signature }) => {
                self.whole += text.len() + signature.as_ref().map_or(0, String::len);
            }
            Piece::Block(Block::ToolUse(call)) => {
                self.whole += call.name.len() + call.arguments.len();
            }
            Piece::Block(Block::Image { data, .. }) => self.whole += data.len(),
            Piece::Block(Block::ToolResult { content, .. }) => self.whole += content.len(),
            Piece::Response(_) | Piece::End { .. } => {}
        }
    }

    fn check(&self, model: &dyn Model, limit: usize) -> Result<(), Fault> {
        if self.streamed.max(self.whole) <= limit {
            return Ok(());
        }
        Err(Fault::new(Kind::LimitReached, Operation::ModelRequest)
            .with(Fact::Service, model.provider().to_owned())
            .with(Fact::Model, model.name().to_owned())
            .with(Fact::LimitName, "model_answer_bytes")
            .with(Fact::Limit, limit)
            .with(Fact::Unit, "bytes"))
    }
}
