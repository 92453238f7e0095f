//! The outcome of a run: a fold of the records after its position, and the wait for its end.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, Lang, Record, Timestamp,
    activity::{Activity, ControlRequest},
    event::{CommandId, StopReason},
    fault::{Operation, render},
    message::Block,
};
use serde_json::{Value, json};

use super::progress::ProgressReporter;
use crate::{
    admission::AdmissionPermit,
    connection::Connection,
    frame::close,
    front_end::{Pause, PendingQuestion, StreamCursor, Thread, TurnCalls},
    http_api::Caller,
    observe::{ObserveMode, ObserveRequest},
    observer_format::{ObserverFormat, decode_record},
    outbox::{CloseMode, CloseReason},
    server::Server,
    sse::StreamGuard,
};

/// The state of a run. The names are those of the protocol's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum RunState {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// The state of a run, folded from its records.
#[derive(Debug)]
pub(super) struct RunOutcome {
    own: CommandId,
    is_own_turn: bool,
    end: Option<RunState>,
    /// The text of the last complete answer of the model.
    pub(super) answer: String,
    calls: TurnCalls,
    fault: Option<Fault>,
    /// The times of the run's first and last record.
    pub(super) times: Option<(Timestamp, Timestamp)>,
}

impl RunOutcome {
    pub(super) fn new(own: CommandId) -> Self {
        Self {
            own,
            is_own_turn: false,
            end: None,
            answer: String::new(),
            calls: TurnCalls::default(),
            fault: None,
            times: None,
        }
    }

    /// Applies the next record.
    pub(super) fn apply(&mut self, record: &Record) {
        if self.end.is_some() {
            return;
        }
        let began = self.times.map_or(record.at, |(began, _)| began);
        self.times = Some((began, record.at));
        let Some(activity) = Activity::of(&record.event) else { return };
        match activity {
            Activity::TurnStarted { message } => self.is_own_turn = *message == self.own,
            Activity::ControlRequested { request: ControlRequest::Withdraw(message), .. }
                if *message == self.own =>
            {
                self.end = Some(RunState::Cancelled);
            }
            Activity::Answered { content, .. } if self.is_own_turn => {
                self.answer = text_of(content);
            }
            Activity::TurnEnded { stop, fault, .. } if self.is_own_turn => {
                self.fault = fault.cloned();
                self.end = Some(match stop {
                    StopReason::Cancelled => RunState::Cancelled,
                    StopReason::Failed => RunState::Failed,
                    _ => RunState::Completed,
                });
            }
            _ => {}
        }
        if self.is_own_turn {
            self.calls.apply(&activity);
        }
    }

    pub(super) fn state(&self) -> RunState {
        match self.end {
            Some(end) => end,
            None if self.questions().is_empty() => RunState::Working,
            None => RunState::InputRequired,
        }
    }

    /// The questions that the run waits for.
    pub(super) fn questions(&self) -> &[PendingQuestion] {
        match self.calls.pause() {
            Some(Pause::Questions(questions)) => questions,
            _ => &[],
        }
    }

    /// The run as the result of a tool.
    pub(super) fn to_result(
        &self,
        server: &Server,
        run: &str,
        thread: &Thread,
        lang: Lang,
    ) -> Value {
        let state = self.state();
        let mut data = json!({
            "run": run, "session": thread.session.to_string(), "state": <&str>::from(state),
        });
        if matches!(state, RunState::Completed) {
            data["answer"] = self.answer.as_str().into();
        }
        if state == RunState::InputRequired {
            let questions = self.questions().iter().map(|open| {
                json!({
                    "question": &*open.question.0, "tool": open.tool, "reason": open.reason,
                    "arguments": open.arguments, "expires_at": open.expires_at.to_string(),
                })
            });
            data["questions"] = questions.collect();
        }
        if let Some(fault) = &self.fault {
            let fault = fault.clone().scrub(&server.config.scrubber);
            let rendered = render::render_for_peer(&fault, lang);
            data["fault"] = json!({
                "code": rendered.code, "message": rendered.message, "retryable": rendered.retryable,
            });
        }
        let text = match state {
            RunState::Completed => self.answer.clone(),
            _ => data.to_string(),
        };
        json!({
            "content": [{ "type": "text", "text": text }],
            "structuredContent": data,
            "isError": state == RunState::Failed,
        })
    }
}

fn text_of(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("")
}

/// How a run is followed.
#[derive(Debug, Default)]
pub(super) struct FollowOptions {
    /// The longest wait for the end.
    pub(super) wait: Duration,
    /// Gets the records of the run while it is followed.
    pub(super) progress: Option<ProgressReporter>,
}

/// Follows a run until it ends or waits for a person. Records that exist are read in any case.
pub(super) async fn follow(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    thread: &Thread,
    run: StreamCursor,
    own: CommandId,
    FollowOptions { wait, mut progress }: FollowOptions,
) -> Result<RunOutcome, Fault> {
    let connection =
        Connection::new(Arc::clone(server), caller.identity.clone(), caller.lang, permit);
    let request = ObserveRequest {
        after: run.seq,
        format: ObserverFormat::Records,
        ..ObserveRequest::new(thread.session, None, ObserveMode::Fresh)
    };
    connection.observe(thread.meta.clone(), request)?;
    let connection = StreamGuard(connection);
    let _running = server.running.token();
    let mut outcome = RunOutcome::new(own);
    let mut deadline = server.world.clock.sleep(wait);
    let (mut position, mut is_late) = (run.seq, wait.is_zero());
    while outcome.end.is_none() {
        let is_current = position >= thread.state.head;
        if is_current && (is_late || outcome.state() == RunState::InputRequired) {
            break;
        }
        connection.0.outbox.record_activity(server.now());
        tokio::select! {
            biased;
            () = server.stopping.cancelled() => {
                return Err(Fault::new(Kind::ShuttingDown, Operation::FollowRecords));
            }
            frames = connection.0.outbox.next() => {
                let frames = frames.map_err(|closed| {
                    Fault::new(Kind::ConnectionLost, Operation::FollowRecords).with_cause(closed.reason)
                })?;
                for frame in &frames {
                    let Some((_, _, seq)) = frame.at else {
                        return Err(Fault::new(Kind::ConnectionLost, Operation::FollowRecords));
                    };
                    position = seq;
                    let record = decode_record(frame)?;
                    outcome.apply(&record);
                    if let Some(progress) = progress.as_mut().filter(|_| outcome.is_own_turn) {
                        progress.report(&record);
                    }
                }
                connection.0.mark_sent(&frames);
            }
            () = &mut deadline, if !is_late => is_late = true,
        }
    }
    let read = CloseReason::new(close::NORMAL, "the state of the run was read");
    connection.0.outbox.close(read, CloseMode::Discard);
    Ok(outcome)
}
