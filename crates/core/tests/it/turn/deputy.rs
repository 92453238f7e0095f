//! Confused deputies: an approval counts for the call it was given for, as it was shown, once, in time.

use std::time::Duration;

use budao_core::{
    Kind,
    event::{Answer, CommandBody, Decision, Event, QuestionId},
    message::CallId,
    session::CallState,
    turn::CallVerdict,
};
use serde_json::{Value, json};

use crate::turn::play::{Play, ask, done};

/// Two calls that wait for a person, each with arguments and a digest of its own.
fn asked() -> (Play, Vec<CallId>) {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("w", "{}"), ("w", "{}")]);
    let verdict = |name: &str| CallVerdict::Ask {
        arguments: json!({ "path": name }),
        repairs: Vec::new(),
        idempotent: false,
        digest: format!("digest of {name}"),
        reason: "it writes".into(),
    };
    play.check_calls(vec![(calls[0].clone(), verdict("a")), (calls[1].clone(), verdict("b"))]);
    (play, calls)
}

fn decide(play: &mut Play, question: &str, digest: Option<&str>, edited: Option<Value>) -> Answer {
    let ask = CommandBody::Decide {
        question: QuestionId(question.into()),
        decision: Decision::Allow,
        note: None,
        arguments: edited,
        digest: digest.map(str::to_owned),
    };
    play.command(ask).1
}

/// May this call go on, and with what? None while it waits, is over, or was never allowed.
fn allowed(play: &Play, call: &CallId) -> Option<Value> {
    let turn = play.session.turn.as_ref()?;
    turn.calls.iter().find(|known| known.id == *call).and_then(|known| match &known.state {
        CallState::Requested { approved: Some(approved) } => Some(approved.arguments.clone()),
        _ => None,
    })
}

/// What an answer may be bound to that is not the call's own: another's, a part, a beginning, another spelling.
fn wrong_digests() -> Vec<String> {
    let own = "digest of a";
    let mut all: Vec<String> = (0..own.len()).map(|end| own[..end].to_owned()).collect();
    all.extend((1..own.len()).map(|start| own[start..].to_owned()));
    for at in 0..own.len() {
        for bit in 0..7 {
            let mut other = own.as_bytes().to_vec();
            other[at] ^= 1 << bit;
            all.extend(String::from_utf8(other));
        }
    }
    for other in [
        "digest of b",
        "DIGEST OF A",
        "digest of a ",
        " digest of a",
        "digest of a\0",
        "null",
        "*",
        "d",
    ] {
        all.push(other.to_owned());
    }
    all
}

/// Names of questions that were never asked, or not of this session.
fn wrong_questions(own: &str) -> Vec<String> {
    let mut all: Vec<String> = (0..own.len()).map(|end| own[..end].to_owned()).collect();
    all.extend((0..own.len()).map(|at| format!("{}x{}", &own[..at], &own[at + 1..])));
    for number in 0..300 {
        all.push(format!("ask_call_{}_{}_{}", number % 7 + 2, number % 11, number % 13));
    }
    all.extend(["*".to_owned(), own.to_uppercase(), format!("{own} "), format!("{own}\n")]);
    all
}

/// Goal: no approval is used for anything but its own call. Method: every wrong way to use one that we know, on a turn
/// where two calls wait; none may be accepted, and nothing may run.
#[test]
fn an_approval_is_good_for_its_own_call_as_it_was_shown_once_and_in_time() {
    let mut cases = 0;
    let refused = |play: &Play, answer: &Answer, what: &str| {
        assert!(matches!(answer, Answer::Rejected { .. }), "{what} was accepted");
        assert_eq!(play.count("tool_call_started"), 0, "{what} ran something");
    };
    let (mut play, calls) = asked();
    let (first, second) = (format!("ask_{}", calls[0]), format!("ask_{}", calls[1]));
    for digest in wrong_digests() {
        for edited in [None, Some(json!({"path": "a"})), Some(json!({"path": "/etc/x"}))] {
            let answer = decide(&mut play, &first, Some(&digest), edited);
            refused(&play, &answer, &format!("digest {digest:?}"));
            assert_eq!(allowed(&play, &calls[0]), None);
            cases += 1;
        }
    }
    for question in wrong_questions(&first).into_iter().filter(|name| *name != second) {
        for digest in [None, Some("digest of a")] {
            let answer = decide(&mut play, &question, digest, None);
            refused(&play, &answer, &format!("question {question:?}"));
            cases += 1;
        }
    }
    // X's answer under Y's question.
    let answer = decide(&mut play, &second, Some("digest of a"), None);
    refused(&play, &answer, "the approval of one call for another");
    // Used: once, for its own call, with what was shown; then never again.
    assert!(matches!(
        decide(&mut play, &first, Some("digest of a"), None),
        Answer::Accepted { .. }
    ));
    assert_eq!(allowed(&play, &calls[0]), Some(json!({"path": "a"})));
    assert_eq!(allowed(&play, &calls[1]), None, "the other call still waits");
    for edited in [None, Some(json!({"path": "b"}))] {
        for digest in [None, Some("digest of a")] {
            let answer = decide(&mut play, &first, digest, edited.clone());
            refused(&play, &answer, "an approval used twice");
            cases += 1;
        }
    }
    cases += 1 + late() + another_turn();
    assert!(cases >= 500, "{cases} cases");
    eprintln!("security T17: {cases} cases, none accepted");
}

/// After its time, after a cancel, after the turn.
fn late() -> u32 {
    let waits: [fn(&mut Play); 2] =
        [|play| drop(play.wait(Duration::from_secs(24 * 3600))), |play| drop(play.cancel())];
    for wait in waits {
        let (mut play, calls) = asked();
        wait(&mut play);
        for call in &calls {
            let answer = decide(&mut play, &format!("ask_{call}"), None, None);
            assert!(matches!(answer, Answer::Rejected { .. }), "too late");
            assert_eq!(play.count("tool_call_started"), 0);
        }
    }
    4
}

/// A call of a later turn, with the same arguments, asks again.
fn another_turn() -> u32 {
    let mut play = Play::new();
    let mut cases = 0;
    for round in 0..20 {
        play.say("go");
        let calls = play.answer_calls(&[("w", "{}")]);
        assert_eq!(play.check_calls(vec![(calls[0].clone(), ask())]), ["question_asked"]);
        for before in 0..round {
            let answer = decide(&mut play, &format!("ask_call_{}_1_1", before + 1), None, None);
            assert!(matches!(answer, Answer::Rejected { .. }), "an approval of turn {before}");
            cases += 1;
        }
        assert_eq!(play.count("tool_call_started"), round, "nothing ran on an old approval");
        play.decide(&format!("ask_{}", calls[0]), Decision::Allow, None);
        let arguments = allowed(&play, &calls[0]).unwrap();
        let (repairs, idempotent) = (Vec::new(), false);
        play.check_calls(vec![(
            calls[0].clone(),
            CallVerdict::Run { arguments, repairs, idempotent, reconcile: false, route: None },
        )]);
        play.end_call(&calls[0], 1, done());
        play.answer_text("fine");
    }
    let denied = play.entries.iter().filter(|entry| {
        matches!(&*entry.event, Event::ToolCallEnded { outcome, .. }
            if outcome.fault().is_some_and(|fault| fault.kind() == Kind::QuestionExpired))
    });
    assert_eq!(denied.count(), 0);
    cases
}
