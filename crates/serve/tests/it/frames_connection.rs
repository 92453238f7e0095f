//! Frames about the connection, as a server would send them.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, Lang, Timestamp,
    event::CommandId,
    fault::{Fact, Operation},
    message::CallId,
    remote::ToolRoute,
    session::Session,
    trace::{Trace, parent_of},
};
use budao_journal::GapReason;
use budao_remote::{CallKey, CallOffer, CallPurpose, CancelReason};
use budao_serve::{
    frame::{
        Frame, close,
        connection::{
            self, CommandRef, ConnectedFields, Coverage, ExportedState, Head, RestoredState,
            Resumption,
        },
        worker,
    },
    inbound::{FrameLimits, parse},
    project::snapshot,
};
use serde_json::{Map, json};

use crate::{
    frames::read,
    frames_history::{EPOCH, SESSION, START, history},
};

/// One of each, in the order a client might meet them.
pub(crate) fn samples(lang: Lang) -> Vec<Frame> {
    let at = Timestamp::from_micros(START);
    let command = CommandId::from("c-7");
    let limits = FrameLimits::default();
    let fields = ConnectedFields {
        connection: "01900000-0000-7000-8000-0000000000c1",
        version: "0.1.0",
        heartbeat: Duration::from_secs(15),
        unobserved: Duration::from_secs(86_400),
        retention: Duration::from_secs(30 * 86_400),
        frame_bytes: limits.frame_bytes,
        json_depth: limits.json_depth,
        takes_offers: true,
    };
    let head = Head { session: SESSION, epoch: EPOCH, seq: 48, frame: 47 };
    let command_ref =
        CommandRef { action: "cancel_task", session: Some(SESSION), command: Some(&command) };
    let more = Map::from_iter([("task_id".to_owned(), json!("2"))]);
    let refusal = parse(r#"{"event":"user.message","content":5}"#, &limits).unwrap_err();
    let rejected = CommandRef { action: "message", ..command_ref };
    let broken = Fault::new(Kind::JournalBusy, Operation::SubmitCommand);
    let resumption = |coverage, restored| Resumption {
        session: SESSION,
        command: Some(&command),
        epoch: EPOCH,
        cursor: 42,
        head: 48,
        coverage,
        restored,
    };
    let gap = Coverage::Gap { from: 43, to: 45, reason: GapReason::Age };
    let restored = RestoredState { step: 2, messages: 6, stage: None };
    let mut state = Session::default();
    state.apply_all(&history(lang)[..48]);
    vec![
        connection::render_connected(at, &fields, lang),
        connection::render_heartbeat(at, &[head], 3_600, lang),
        connection::render_accepted(at, command_ref, more, lang),
        connection::render_rejected(at, rejected, &refusal.fault, lang),
        connection::render_error(at, Some(SESSION), &broken, lang),
        connection::render_resumption(at, &resumption(Coverage::Complete, None), lang),
        connection::render_resumption(at, &resumption(gap, None), lang),
        connection::render_resumption(at, &resumption(Coverage::Expired, None), lang),
        connection::render_resumption(at, &resumption(Coverage::EpochMismatch, None), lang),
        connection::render_resumption(at, &resumption(Coverage::Complete, Some(restored)), lang),
        connection::render_replayed(at, head, 5, Coverage::Complete, lang),
        connection::render_state(
            at,
            &ExportedState {
                session: SESSION,
                command: Some(&command),
                epoch: EPOCH,
                seq: 47,
                signed: "djEuazEuZXhhbXBsZQ",
                valid_until: at.after(Duration::from_secs(86_400)),
                messages: 6,
                step: 2,
            },
            lang,
        ),
        snapshot(at, SESSION, EPOCH, &state, None),
        connection::render_shutdown(at, Duration::from_secs(5), lang),
        worker::call(at, "w-1", &offer()),
        worker::cancel(at, "w-1", &offer().key, 1, CancelReason::Cancelled),
    ]
}

/// A call as a worker sees it.
fn offer() -> CallOffer {
    let key = CallKey { session: SESSION, call: CallId::from("call_2_1_1") };
    let (worker, version) = ("billing".to_owned(), "9f86d081884c7d659a2feaa0c55ad015".to_owned());
    CallOffer {
        idempotency_key: format!("{SESSION}.call_2_1_1").into(),
        key,
        tool: "pay".into(),
        route: ToolRoute { worker, version },
        attempt: 1,
        purpose: CallPurpose::Run,
        arguments: Arc::new(json!({ "invoice": 7 })),
        trace: Trace::from_traceparent(PARENT).unwrap(),
        span: parent_of(PARENT).unwrap().1,
        deadline: Duration::from_secs(60),
        opened: budao_core::time::Timestamp::default(),
    }
}

/// The example of the W3C recommendation.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn every_frame_about_the_connection_in_both_languages() {
    let lines = |lang| samples(lang).iter().map(|frame| frame.encode() + "\n").collect::<String>();
    insta::assert_snapshot!("connection_en", lines(Lang::En));
    insta::assert_snapshot!("connection_zh", lines(Lang::Zh));
}

#[test]
fn a_frame_about_the_connection_has_no_place() {
    for frame in samples(Lang::En) {
        let parsed = read(&frame);
        assert!(parsed.get("seq").is_none() && parsed.get("event_id").is_none(), "{parsed}");
        assert_eq!(frame.is_droppable(), frame.name() == "system.heartbeat");
    }
}

#[test]
fn a_rejection_names_the_command_the_field_and_the_rule() {
    let rejected = read(&samples(Lang::En)[3]);
    assert_eq!(rejected["event"], "error.validation");
    let texts = &rejected["metadata"];
    assert_eq!(texts["command_id"], "c-7");
    assert_eq!(texts["field"], "session_id");
    assert_eq!(texts["recovery_strategy"], "escalate_to_user");
    let lost = Fault::new(Kind::UnknownSession, Operation::SubmitCommand).with(Fact::Session, "x");
    let command_ref = CommandRef { action: "cancel", session: None, command: None };
    let frame =
        connection::render_rejected(Timestamp::from_micros(START), command_ref, &lost, Lang::En);
    assert_eq!(frame.name(), "error.validation");
}

#[test]
fn a_client_reconnects_after_transient_closes_and_not_after_permanent_ones() {
    for code in [close::GOING_AWAY, 1006, close::RESTARTING, close::TOO_SLOW] {
        assert!(close::is_resumable(code), "{code}");
    }
    for code in [close::NORMAL, close::PROTOCOL_ERROR, close::TOO_LARGE, close::NOT_UTF8] {
        assert!(!close::is_resumable(code), "{code}");
    }
}
