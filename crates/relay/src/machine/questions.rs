//! Interrupts of the agent as questions to people.

use budao_core::{
    event::{Decision, Event, QuestionId, QuestionPurpose},
    fault::{Advice, Fact, Fault, Kind, Operation},
    message::CallId,
    session::{CallState, Turn},
    time::Timestamp,
    tool::{Outcome, Output},
};
use serde_json::{Value, json};

use super::RelayStepper;
use crate::{
    draft::DraftCall,
    interrupt::{Interrupt, InterruptAnswer},
};

/// Name of the tool in a question that belongs to no call of the agent.
const INTERRUPT_TOOL: &str = "interrupt";
/// Longest text of an interrupt that is shown as the reason of its question, in characters.
const REASON_CHARS: usize = 500;

/// A person's decision.
pub(super) struct PersonDecision {
    pub(super) question: QuestionId,
    pub(super) decision: Decision,
    pub(super) by: String,
    pub(super) note: Option<String>,
    pub(super) arguments: Option<Value>,
    pub(super) digest: Option<String>,
}

/// The times at which the open questions of a turn expire.
pub(super) fn expiries(turn: &Turn) -> impl Iterator<Item = Timestamp> + '_ {
    turn.calls.iter().filter_map(|call| match &call.state {
        CallState::AwaitingDecision { expires_at, .. } => Some(*expires_at),
        _ => None,
    })
}

impl RelayStepper<'_> {
    /// Asks people the interrupts with which a run ended. The turn goes on when all of them are answered.
    pub(super) fn ask(&mut self, interrupts: Vec<Value>) {
        let interrupts: Vec<Value> =
            interrupts.into_iter().take(self.env.limits.calls_per_step).collect();
        for (number, interrupt) in interrupts.iter().enumerate() {
            if self.call_of(interrupt).is_none() {
                self.add_synthetic_call(number, interrupt);
            }
        }
        self.finish_answer(false);
        let synthetic: Vec<CallId> = self.synthetic_calls();
        let mut synthetic = synthetic.into_iter();
        let mut asked = Vec::new();
        for interrupt in &interrupts {
            let id = interrupt["id"].as_str().map(str::to_owned);
            let known = self.call_of(interrupt);
            let is_call = known.is_some();
            let Some(call) = known.or_else(|| synthetic.next()) else { continue };
            asked.push((Interrupt { id, call, is_call, answer: None }, interrupt));
        }
        self.m.memory.interrupts = asked.iter().map(|(interrupt, _)| interrupt.clone()).collect();
        self.save_state();
        // Calls without a question have no result and will get none: the run that made them is over.
        let waiting: Vec<CallId> = asked.iter().map(|(it, _)| it.call.clone()).collect();
        self.end_calls_without_result(|call| waiting.contains(call));
        for (interrupt, said) in asked {
            self.ask_one(&interrupt.call, said);
        }
        self.m.run = None;
    }

    /// The open or drafted call that an interrupt is about.
    fn call_of(&mut self, interrupt: &Value) -> Option<CallId> {
        let theirs = interrupt["toolCallId"].as_str()?;
        if let Some(ours) = self.run().calls.get(theirs).cloned() {
            let call = self.turn().call(&ours).filter(|call| call.is_open());
            return call.map(|call| call.id.clone());
        }
        // A drafted call gets its id when the answer is finished.
        let drafted = self.run().draft.call(theirs)?;
        drafted.is_complete = true;
        Some(CallId::from(theirs))
    }

    fn add_synthetic_call(&mut self, number: usize, interrupt: &Value) {
        let arguments = match interrupt {
            Value::Object(map) => {
                let keep = |(key, _): &(&String, &Value)| *key != "id";
                Value::Object(
                    map.iter().filter(keep).map(|(k, v)| (k.clone(), v.clone())).collect(),
                )
            }
            other => json!({ "value": other }),
        };
        let call = DraftCall {
            theirs: format!("budao-interrupt-{number}"),
            name: INTERRUPT_TOOL.to_owned(),
            arguments: arguments.to_string(),
            is_complete: true,
            is_synthetic: true,
        };
        self.run().draft.add_call(call);
    }

    fn synthetic_calls(&self) -> Vec<CallId> {
        let last = self.m.session.history.last().map(|message| &*message.content);
        let ids = crate::draft::UpstreamIds::of(last.unwrap_or_default());
        ids.synthetic.iter().map(|id| CallId::from(id.as_str())).collect()
    }

    fn ask_one(&mut self, id: &CallId, interrupt: &Value) {
        let Some(call) = self.turn().call(id).filter(|call| call.is_open()) else { return };
        let (tool, written) = (call.tool.clone(), call.written.clone());
        let arguments: Value = serde_json::from_str(&written).unwrap_or_default();
        let said = interrupt["message"].as_str().or(interrupt["reason"].as_str());
        let said = said.or(interrupt.as_str()).unwrap_or_default();
        let latest = self.env.now.after(self.env.limits.question);
        let own = interrupt["expiresAt"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let digest = budao_tools::digest::of_call(&tool, &arguments);
        self.emit(Event::QuestionAsked {
            question: QuestionId(format!("ask_{id}").into()),
            call: id.clone(),
            tool,
            arguments,
            repairs: Vec::new(),
            digest,
            idempotent: false,
            reason: said.chars().take(REASON_CHARS).collect(),
            purpose: QuestionPurpose::Permission,
            expires_at: own.map_or(latest, |own| own.min(latest)),
        });
    }

    /// Applies a person's decision: once, in time, and only for the arguments that the question showed.
    pub(super) fn decide(&mut self, decided: PersonDecision) -> Result<(), Fault> {
        let PersonDecision { question, decision, by, note, arguments, digest } = decided;
        let Some((call, shown, bound, expires_at)) = self.open_question(&question) else {
            return Err(not_open(&question, "it is not pending"));
        };
        if digest.is_some_and(|bound_to| bound_to != bound) {
            return Err(not_open(&question, "the answer is for other arguments"));
        }
        if expires_at <= self.env.now {
            self.expire_questions();
            return Err(not_open(&question, "it has expired"));
        }
        let edited = arguments.filter(|arguments| *arguments != shown);
        self.emit(Event::QuestionAnswered {
            question,
            call: call.clone(),
            decision,
            by,
            note: note.clone(),
            arguments: edited.clone(),
        });
        let is_allowed = decision == Decision::Allow;
        self.answer_interrupt(&call, |interrupt| {
            let payload = interrupt.payload(is_allowed, note.as_deref(), edited.clone());
            InterruptAnswer::Resolved(payload)
        });
        if decision == Decision::Deny {
            let tool = self.turn().call(&call).map_or(String::new(), |it| it.tool.clone());
            self.end_call(&call, denial_fault(&tool, note).into());
        }
        self.continue_turn();
        Ok(())
    }

    /// Records that the agent makes the allowed calls now; a made-up call ends with the answer.
    fn start_allowed_calls(&mut self) {
        for interrupt in self.m.memory.interrupts.clone() {
            let Some(call) = self.turn().call(&interrupt.call) else { continue };
            let arguments = match &call.state {
                CallState::Requested { approved: Some(approved) } => {
                    Some(approved.arguments.clone())
                }
                _ => None,
            };
            let written = || serde_json::from_str(&call.written).unwrap_or_default();
            let arguments = arguments.unwrap_or_else(written);
            self.start_call(&interrupt.call, &arguments);
            if let (false, Some(InterruptAnswer::Resolved(said))) =
                (interrupt.is_call, interrupt.answer)
            {
                let output = Output { data: said, note: None, cut: None };
                self.end_call(&interrupt.call, Outcome::Done(output));
            }
        }
    }

    fn open_question(&self, question: &QuestionId) -> Option<(CallId, Value, String, Timestamp)> {
        let turn = self.m.session.turn.as_ref()?;
        turn.calls.iter().find_map(|call| match &call.state {
            CallState::AwaitingDecision {
                question: open, arguments, digest, expires_at, ..
            } if open == question => {
                Some((call.id.clone(), arguments.clone(), digest.clone(), *expires_at))
            }
            _ => None,
        })
    }

    fn answer_interrupt(&mut self, call: &CallId, answer: impl Fn(&Interrupt) -> InterruptAnswer) {
        let mut interrupts = self.m.memory.interrupts.iter_mut();
        if let Some(interrupt) = interrupts.find(|interrupt| interrupt.call == *call) {
            interrupt.answer = Some(answer(interrupt));
        }
    }

    /// Posts the answers once every interrupt has one. Before the POST, a call or a step is recorded as begun, so
    /// that a new writer knows of the POST.
    fn continue_turn(&mut self) {
        let is_open = |interrupt: &Interrupt| interrupt.answer.is_none();
        if self.m.memory.interrupts.iter().any(is_open) {
            return self.save_state();
        }
        self.start_allowed_calls();
        if !self.m.has_open_calls() {
            let next = self.turn().step + 1;
            self.begin_step(next, 1);
        }
        self.post();
        // The answers are given once; they are not those of a later request.
        self.m.memory.interrupts.clear();
        self.save_state();
    }

    /// Closes all open questions; their calls are cancelled.
    pub(super) fn close_questions(&mut self, by: &str) {
        let Some(turn) = &self.m.session.turn else { return };
        let open: Vec<(QuestionId, CallId, String)> = turn
            .calls
            .iter()
            .filter_map(|call| match &call.state {
                CallState::AwaitingDecision { question, .. } => {
                    Some((question.clone(), call.id.clone(), call.tool.clone()))
                }
                _ => None,
            })
            .collect();
        for (question, call, tool) in open {
            self.emit(Event::QuestionAnswered {
                question,
                call: call.clone(),
                decision: Decision::Deny,
                by: by.to_owned(),
                note: None,
                arguments: None,
            });
            let fault = Fault::new(Kind::Cancelled, Operation::ToolCall).with(Fact::ToolName, tool);
            self.end_call(&call, fault.not_started().into());
        }
    }

    /// Denies the questions whose time has expired.
    pub(super) fn expire_questions(&mut self) {
        let Some(turn) = &self.m.session.turn else { return };
        let now = self.env.now;
        let expired: Vec<(QuestionId, CallId, String)> = turn
            .calls
            .iter()
            .filter_map(|call| match &call.state {
                CallState::AwaitingDecision { question, expires_at, .. } if *expires_at <= now => {
                    Some((question.clone(), call.id.clone(), call.tool.clone()))
                }
                _ => None,
            })
            .collect();
        if expired.is_empty() {
            return;
        }
        for (question, call, tool) in expired {
            let fault = Fault::new(Kind::QuestionExpired, Operation::AskPermission)
                .with(Fact::ToolName, tool)
                .with(Fact::QuestionId, question.to_string());
            self.emit(Event::QuestionExpired { question, call: call.clone() });
            self.answer_interrupt(&call, |_| InterruptAnswer::Cancelled);
            self.end_call(&call, fault.into());
        }
        self.continue_turn();
    }
}

fn denial_fault(tool: &str, note: Option<String>) -> Fault {
    let fault =
        Fault::new(Kind::DeniedByPerson, Operation::ToolCall).with(Fact::ToolName, tool.to_owned());
    match note {
        Some(note) => fault.with(Fact::Note, note.clone()).advise_model([Advice::Custom(note)]),
        None => fault,
    }
}

fn not_open(question: &QuestionId, reason: &'static str) -> Fault {
    Fault::new(Kind::QuestionNotOpen, Operation::AnswerQuestion)
        .with(Fact::QuestionId, question.to_string())
        .with(Fact::Reason, reason)
}
