//! Targets for histories: any sequence of events can be folded, resumed and ended, even one that no runtime would
//! write.

use budao_core::{
    Fault, Kind, Timestamp,
    event::{Command, CommandBody, Event},
    fault::Operation,
    limits::Limits,
    session::Session,
    trace::Trace,
    turn::{Env, Input},
};

/// Events, one per line.
pub(super) fn events(bytes: &[u8]) {
    let mut session = Session::default();
    for line in bytes.split(|byte| *byte == b'\n').take(200) {
        if let Ok(event) = Event::decode(line) {
            let kept = event.encode();
            let again = Event::decode(&kept).expect("what was written can be read");
            assert_eq!(again.encode(), kept, "and is the same");
            session.apply(&event, Timestamp::from_micros(5), Trace::NONE);
        } else if let Ok(command) = serde_json::from_slice::<Command>(line) {
            step(&mut session, Input::Command(command));
        }
    }
    resume(session);
}

/// A session state in the format of a snapshot.
pub(super) fn snapshot(bytes: &[u8]) {
    let Ok(session) = serde_json::from_slice::<Session>(bytes) else { return };
    let kept = serde_json::to_vec(&session).expect("a state can be written");
    let again: Session = serde_json::from_slice(&kept).expect("and read again");
    assert_eq!(again, session);
    resume(session);
}

/// A new writer can resume the session, and can end it.
fn resume(mut session: Session) {
    step(&mut session, Input::Resumed);
    for turn in [0, session.turns] {
        step(&mut session, Input::TimerFired { turn });
    }
    let id = "fuzz-close".into();
    let command = Command {
        id,
        by: "ada".into(),
        trace: Trace::NONE,
        body: CommandBody::Cancel { reason: None },
    };
    step(&mut session, Input::Command(command));
    let fault = Fault::new(Kind::Bug, Operation::ReadRecords);
    step(&mut session, Input::Aborted { fault });
}

fn step(session: &mut Session, input: Input) {
    let limits = Limits::default();
    let env = Env {
        now: Timestamp::from_micros(1_700_000_000_000_000),
        jitter: 0.5,
        busy_slots: 0,
        is_observed: true,
        trace: Trace::from_random(7),
        outlooks: &[],
        limits: &limits,
        server: None,
    };
    let is_command = matches!(input, Input::Command(_));
    let decided = budao_pipeline::step(session, input, &env);
    assert_eq!(decided.answer.is_some(), is_command, "every command has an answer");
    let _ = budao_pipeline::due(session, &limits);
    let _ = session.state();
}
