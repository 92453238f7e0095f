//! The pure machine: what upstream events become.

use budao_core::{
    event::{
        Answer, Command, CommandBody, Decision, Entry, Event, QuestionId, SessionId, Settings,
        Settlement,
    },
    fault::{Fault, Kind, Operation},
    limits::Limits,
    message::{Block, CallId},
    session::Session,
    time::Timestamp,
    timer::TimerRequest,
    trace::Trace,
};
use budao_relay::{
    ENGINE_NAME, PartialTurn, RelayLimits,
    machine::{self, Input, RelayAction, RelayEnv, RelayMachine},
};
use budao_scrub::Scrubber;
use serde_json::{Value, json};

use crate::common::{call, finished, lines, result, run, started, text};

struct Play {
    machine: RelayMachine,
    entries: Vec<Entry>,
    events: Vec<Event>,
    posts: Vec<Value>,
    post_number: u32,
    steady_ms: i64,
    commands: u32,
    limits: RelayLimits,
    /// The answer to the last command.
    answer: Option<Answer>,
    /// What the last input wants to be read back.
    restore: Option<(u64, u64, Option<Value>)>,
}

/// A session of this engine without records.
fn opened() -> Session {
    let mut session = Session::default();
    session.settings.labels.insert(Settings::ENGINE.to_owned(), ENGINE_NAME.to_owned());
    session
}

const ID: SessionId = SessionId(uuid::Uuid::nil());

impl Play {
    fn new() -> Self {
        Self {
            machine: RelayMachine::new(ID, opened()),
            entries: Vec::new(),
            events: Vec::new(),
            posts: Vec::new(),
            post_number: 0,
            steady_ms: 0,
            commands: 0,
            limits: RelayLimits::default(),
            answer: None,
            restore: None,
        }
    }

    /// The connection to the agent breaks.
    fn cut(&mut self) {
        let fault = Fault::new(Kind::UpstreamCut, Operation::ModelRequest).unconfirmed();
        let (post_number, is_unsent) = (self.post_number, false);
        self.input(Input::Failed { post_number, fault, is_unsent });
    }

    /// The process is killed; another one reads the records.
    fn kill(&mut self) {
        let mut session = opened();
        for entry in &self.entries {
            session.apply(&entry.event, entry.at, entry.trace);
        }
        self.machine = RelayMachine::new(ID, session);
        self.input(Input::Resumed);
        let (turn, after, before) = self.restore.take().expect("a turn was interrupted");
        let mut partial = PartialTurn::new(before);
        for entry in &self.entries[usize::try_from(after).unwrap()..] {
            partial.apply(&entry.event, self.limits.state_bytes);
        }
        self.input(Input::Restored { turn, partial: Some(Box::new(partial)) });
    }

    fn allow(&mut self, question: &str) {
        self.command(CommandBody::Decide {
            question: QuestionId(question.into()),
            decision: Decision::Allow,
            note: None,
            arguments: None,
            digest: None,
        });
    }

    fn input(&mut self, input: Input) {
        let (limits, scrubber) = (Limits::default(), Scrubber::new());
        let at = Timestamp::from_micros(self.steady_ms * 1_000);
        let env = RelayEnv {
            now: at,
            steady: at,
            trace: Trace::from_random(7),
            jitter: 0.0,
            limits: &limits,
            run_limits: &self.limits,
            resubmit: false,
            scrubber: &scrubber,
            server: None,
        };
        let decided = machine::step(&mut self.machine, input, &env);
        self.events.extend(decided.entries.iter().map(|entry| (*entry.event).clone()));
        self.entries.extend(decided.entries);
        self.answer = decided.answer.map(|(_, answer)| answer);
        for action in decided.actions {
            match action {
                RelayAction::Post { post_number, body, .. } => {
                    self.post_number = post_number;
                    self.posts.push(body);
                }
                RelayAction::Restore { turn, after, before } => {
                    self.restore = Some((turn, after, before));
                }
                RelayAction::Leave { .. } => {}
            }
        }
    }

    fn command(&mut self, body: CommandBody) {
        self.commands += 1;
        let id = format!("c{}", self.commands).as_str().into();
        self.input(Input::Command(Command { id, by: "ada".into(), trace: Trace::NONE, body }));
    }

    fn say(&mut self, text: &str) {
        self.command(CommandBody::Message { content: vec![Block::Text(text.to_owned())] });
    }

    fn upstream(&mut self, events: impl IntoIterator<Item = Value>) {
        for event in events {
            let bytes = event.to_string().len();
            self.input(Input::Upstream { post_number: self.post_number, event, bytes });
        }
    }

    fn wait(&mut self, ms: i64) {
        self.steady_ms += ms;
        self.input(Input::TimerFired);
    }

    fn lines(&self) -> String {
        lines(&self.events)
    }
}

#[test]
fn text_thoughts_calls_and_usage_become_native_events_beside_the_verbatim_ones() {
    let mut play = Play::new();
    play.say("weather?");
    let thought = [
        json!({"type": "REASONING_START", "messageId": "q"}),
        json!({"type": "REASONING_MESSAGE_START", "messageId": "q"}),
        json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": "q", "delta": "let me "}),
        json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": "q", "delta": "see"}),
        json!({"type": "REASONING_MESSAGE_END", "messageId": "q"}),
        json!({"type": "REASONING_END", "messageId": "q"}),
    ];
    play.upstream([started(), json!({"type": "RAW", "event": {"secret": 1}})]);
    play.upstream(thought);
    play.upstream(text("m1", &["Look", "ing."]));
    play.upstream(call("x", "weather", r#"{"city":"a"}"#));
    play.upstream(call("y", "weather", r#"{"city":"b"}"#));
    play.wait(300);
    play.upstream([result("y", "rain"), result("x", "sun")]);
    play.upstream(text("m2", &["Sun ", "and ", "rain."]));
    let usage = json!([{"inputTokens": 10, "outputTokens": 4}]);
    play.upstream([json!({"type": "RUN_FINISHED", "usage": usage})]);
    insta::assert_snapshot!(play.lines());
}

#[test]
fn a_timer_asks_the_agent_once_at_its_time() {
    let mut play = Play::new();
    let (timer, message) = (Some("tea".into()), "make tea".to_owned());
    play.command(CommandBody::SetTimer { timer, when: TimerRequest::After(60_000), message });
    play.wait(59_000);
    assert!(play.posts.is_empty(), "{}", play.lines());
    play.wait(1_000);
    play.wait(1_000);
    assert_eq!(play.posts.len(), 1, "{}", play.lines());
    assert!(play.posts[0].to_string().contains("make tea"), "{}", play.posts[0]);
    play.upstream(run([text("m1", &["Ready."])]));
    play.wait(120_000);
    assert_eq!(play.posts.len(), 1, "{}", play.lines());
}

#[test]
fn the_next_request_has_our_history_with_the_ids_of_the_agent() {
    let mut play = Play::new();
    play.say("weather?");
    let state = [
        json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}}),
        json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/m", "value": [2]}]}),
    ];
    play.upstream(run([
        state.to_vec(),
        call("x", "weather", r#"{"city":"a"}"#),
        vec![result("x", "sun")],
        text("m2", &["Sun."]),
    ]));
    play.say("thanks");
    insta::assert_json_snapshot!(play.posts);
}

#[test]
fn chunks_old_names_and_snapshots_are_read() {
    let mut play = Play::new();
    play.say("old");
    play.upstream([
        started(),
        json!({"type": "THINKING_START"}),
        json!({"type": "THINKING_TEXT_MESSAGE_START"}),
        json!({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"}),
        json!({"type": "THINKING_TEXT_MESSAGE_END"}),
        json!({"type": "THINKING_END"}),
        json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "a"}),
        json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": null, "delta": "b"}),
        json!({"type": "TOOL_CALL_CHUNK", "toolCallId": "x", "toolCallName": "t", "delta": "{}"}),
        json!({"type": "MESSAGES_SNAPSHOT", "messages": [
            {"id": "u", "role": "user", "content": "old"},
            {"id": "m", "role": "assistant", "content": "ab"},
            {"id": "r", "role": "tool", "toolCallId": "x", "content": "done"},
        ]}),
        finished(),
    ]);
    play.say("only a snapshot");
    play.upstream([
        started(),
        json!({"type": "MESSAGES_SNAPSHOT", "messages": [
            {"id": "u", "role": "user", "content": "only a snapshot"},
            {"id": "n", "role": "assistant", "content": "whole"},
        ]}),
        finished(),
    ]);
    insta::assert_snapshot!(play.lines());
}

#[test]
fn an_interrupt_asks_a_question_and_its_answer_goes_into_the_next_request() {
    let mut play = Play::new();
    play.say("delete it");
    play.upstream([started()]);
    play.upstream(call("x", "delete", r#"{"name":"a"}"#));
    let interrupts = json!([
        {"id": "int-x", "reason": "tool_call", "message": "Approve?", "toolCallId": "x"},
        {"id": "int-2", "reason": "input", "message": "Which colour?"},
    ]);
    let outcome = json!({"type": "interrupt", "interrupts": interrupts});
    play.upstream([json!({"type": "RUN_FINISHED", "outcome": outcome})]);
    assert_eq!(play.posts.len(), 1, "nothing is posted while a question is open");
    let decide = |question: &str, decision, arguments| CommandBody::Decide {
        question: budao_core::event::QuestionId(question.into()),
        decision,
        note: None,
        arguments,
        digest: None,
    };
    play.command(decide("ask_call_1_1_1", Decision::Allow, Some(json!({"name": "b"}))));
    assert_eq!(play.posts.len(), 1, "one of two is answered");
    play.command(decide("ask_call_1_1_2", Decision::Allow, Some(json!({"colour": "red"}))));
    play.upstream([started(), result("x", "deleted b")]);
    play.upstream(text("m", &["Done."]));
    play.upstream([finished()]);
    insta::assert_snapshot!(play.lines());
    insta::assert_json_snapshot!("the_answers_of_people", {
        let post = &play.posts[1];
        json!({"resume": post["resume"], "messages": post["messages"]})
    });
}

#[test]
fn an_interrupt_of_an_older_langgraph_is_answered_in_its_own_form() {
    let mut play = Play::new();
    play.say("go");
    let interrupt = json!({"type": "CUSTOM", "name": "on_interrupt", "value": "really?"});
    play.upstream([started(), interrupt, finished()]);
    play.command(CommandBody::Decide {
        question: budao_core::event::QuestionId("ask_call_1_1_1".into()),
        decision: Decision::Deny,
        note: Some("no".to_owned()),
        arguments: None,
        digest: None,
    });
    let command = &play.posts[1]["forwardedProps"]["command"];
    assert_eq!(*command, json!({"resume": {"approved": false, "reason": "no"}}));
    assert_eq!(play.posts[1]["messages"].as_array().unwrap().len(), 1, "the made-up call is ours");
}

#[test]
fn a_tool_of_the_front_end_is_refused_plainly() {
    let mut play = Play::new();
    play.say("click");
    play.upstream([started()]);
    play.upstream(call("x", "click", "{}"));
    let outcome = json!({"type": "success", "pendingToolCallIds": ["x"]});
    play.upstream([json!({"type": "RUN_FINISHED", "outcome": outcome})]);
    assert!(
        play.lines().contains("call call_1_1_1 failed unsupported_operation"),
        "{}",
        play.lines()
    );
    assert!(play.lines().ends_with("turn ended Failed 0+0 unsupported_operation\n"));
}

#[test]
fn a_call_without_a_result_ends_when_the_agent_continues() {
    let mut play = Play::new();
    play.say("go");
    play.upstream([started()]);
    play.upstream(call("x", "t", "{}"));
    play.wait(300);
    play.upstream(text("m", &["on"]));
    play.upstream([finished()]);
    insta::assert_snapshot!(play.lines());
}

#[test]
fn a_call_id_that_is_used_again_is_another_call() {
    let mut play = Play::new();
    play.say("go");
    play.upstream([started()]);
    for content in ["one", "two"] {
        play.upstream(call("x", "t", "{}"));
        play.upstream([result("x", content)]);
    }
    play.upstream([finished()]);
    let lines = play.lines();
    assert!(lines.contains(r#"call call_1_1_1 done {"ok":true,"data":"one"}"#), "{lines}");
    assert!(lines.contains(r#"call call_1_2_1 done {"ok":true,"data":"two"}"#), "{lines}");
}

#[test]
fn a_cancelled_turn_ends_at_once_and_keeps_what_came() {
    let mut play = Play::new();
    play.say("go");
    play.upstream([started()]);
    play.upstream(text("m", &["half"]).into_iter().take(2));
    play.command(CommandBody::Cancel { reason: None });
    insta::assert_snapshot!(play.lines());
    let post_number = play.post_number;
    let late = json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "late"});
    let before = play.events.len();
    play.input(Input::Upstream { post_number, event: late, bytes: 9 });
    assert_eq!(play.events.len(), before, "the run was left");
}

#[test]
fn silence_and_a_run_without_end_are_left_at_their_limits() {
    for (name, events) in [("first_event", 0), ("between_events", 1)] {
        let mut play = Play::new();
        play.say("go");
        play.upstream((0..events).map(|_| started()));
        play.wait(11 * 60 * 1_000);
        let Some(Event::TurnEnded { fault: Some(fault), .. }) = play.events.last() else {
            panic!("{}", play.lines())
        };
        let limit = fault.detail().text(budao_core::fault::Fact::LimitName);
        assert_eq!(limit, Some(format!("engines.agui.limits.{name}").as_str()));
        assert!(fault.is_outcome_unknown());
    }
}

#[test]
fn a_closed_session_gives_waiting_messages_an_empty_turn() {
    let mut play = Play::new();
    play.say("one");
    play.say("two");
    play.command(CommandBody::Close);
    assert_eq!(play.posts.len(), 1);
    let lines = play.lines();
    assert!(lines.ends_with("turn started\nturn ended Cancelled 0+0 \nsession_ended\n"), "{lines}");
}

/// A turn that is cut while the agent makes a call; the call is in doubt.
fn in_doubt(play: &mut Play) -> CallId {
    play.say("pay");
    play.upstream([started()]);
    play.upstream(call("x", "pay", r#"{"claim":7}"#));
    play.cut();
    let open = play.machine.session().doubts.all_open();
    assert_eq!(open.len(), 1, "{}", play.lines());
    open[0].call.clone()
}

#[test]
fn the_settlement_of_a_call_of_a_cut_run_is_in_the_next_request_once() {
    let mut play = Play::new();
    let call = in_doubt(&mut play);
    let settle = |settlement| CommandBody::SettleDoubt {
        call: call.clone(),
        settlement,
        note: Some("I looked".to_owned()),
    };
    play.command(settle(Settlement::Happened { result: json!({"receipt": 41}) }));
    assert!(matches!(play.answer, Some(Answer::Accepted { .. })), "{:?}", play.answer);
    assert!(play.machine.session().doubts.all_open().is_empty());
    assert_eq!(play.posts.len(), 1, "nothing runs because of a settlement");
    play.command(settle(Settlement::DidNotHappen));
    let Some(Answer::Rejected { fault }) = &play.answer else { panic!("a doubt is settled once") };
    assert_eq!(fault.kind(), Kind::ConstraintViolated);

    play.say("and now?");
    let last = |play: &Play| {
        let messages = play.posts.last().unwrap()["messages"].as_array().unwrap().clone();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    let told = last(&play);
    assert!(told.starts_with("and now?\n\nA person settled"), "{told}");
    for part in [r#"{"receipt":41}"#, "I looked", r#"{"claim":7}"#] {
        assert!(told.contains(part), "{told}");
    }
    play.upstream(run([text("m", &["I see."])]));
    play.say("more");
    assert_eq!(last(&play), "more");
    let all = play.posts.last().unwrap().to_string();
    assert_eq!(all.matches("receipt").count(), 1, "the history has it once: {all}");
}

#[test]
fn messages_while_the_agent_waits_for_an_answer_are_part_of_the_next_request() {
    let mut play = Play::new();
    let doubtful = in_doubt(&mut play);
    play.say("delete");
    play.upstream([started()]);
    play.upstream(call("y", "delete", "{}"));
    let interrupt = json!({"id": "i", "reason": "tool_call", "toolCallId": "y"});
    let outcome = json!({"type": "interrupt", "interrupts": [interrupt]});
    play.upstream([json!({"type": "RUN_FINISHED", "outcome": outcome})]);
    let (settlement, note) = (Settlement::DidNotHappen, None);
    play.command(CommandBody::SettleDoubt { call: doubtful, settlement, note });
    play.allow("ask_call_2_1_1");
    let told = |play: &Play| play.posts.last().unwrap().to_string().contains("it did not happen");
    assert!(!told(&play), "the results of open calls come next");
    play.upstream([started(), result("y", "deleted"), finished()]);
    play.say("more");
    assert!(told(&play), "{}", play.posts.last().unwrap());
}

/// Goal: a kill keeps what a broken connection would have kept, wherever it falls. Method: after each event of a run, one
/// machine is cut; the records of another are read back by a new one. Both must record the same answer and outcomes.
#[test]
fn after_every_event_a_new_writer_keeps_of_the_answer_what_a_cut_would_have_kept() {
    let chunk = |fields: Value| {
        let mut event = json!({"type": "TOOL_CALL_CHUNK"});
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        event
    };
    let chunks = vec![
        chunk(json!({"toolCallId": "c", "toolCallName": "pay", "delta": r#"{"cl"#,
            "parentMessageId": "m1"})),
        chunk(json!({"delta": r#"aim":"#})),
        chunk(json!({"toolCallId": "c", "toolCallName": "pay", "delta": "7}"})),
        chunk(json!({"toolCallId": "d", "toolCallName": "pay", "delta": r#"{"claim":8}"#})),
        json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "role": "assistant", "delta": "Pay"}),
        json!({"type": "TEXT_MESSAGE_CHUNK", "delta": "ing."}),
        result("c", "paid"),
        result("d", "paid"),
    ];
    let parts = [
        vec![started()],
        text("m1", &["Look", "ing."]),
        call("x", "look", r#"{"at":1}"#),
        vec![result("x", "seen")],
        text("m3", &["Now ", "paying."]),
        text("m4", &["Another answer."]),
        chunks,
        text("m5", &["Done."]),
        call("z", "", "{}"),
        vec![json!({"type": "RUN_FINISHED"})],
    ];
    let events: Vec<Value> = parts.into_iter().flatten().collect();
    for cut in 1..events.len() {
        let played = || {
            let mut play = Play::new();
            play.say("pay");
            for event in &events[..cut] {
                play.upstream([event.clone()]);
                play.input(Input::Flush);
            }
            let before = play.events.len();
            (play, before)
        };
        let (mut alive, before) = played();
        alive.cut();
        let (mut killed, _) = played();
        killed.kill();
        let kept = |play: &Play| {
            let kept = play.events[before..].iter().filter(|event| {
                matches!(event, Event::ModelAnswered { .. } | Event::ToolCallEnded { .. })
            });
            format!("{:#}", json!(kept.collect::<Vec<_>>()))
        };
        assert_eq!(kept(&killed), kept(&alive), "after event {cut}: {}", events[cut - 1]);
        let open = |play: &Play| play.machine.session().doubts.all_open().len();
        assert_eq!(open(&killed), open(&alive), "after event {cut}");
    }
}
