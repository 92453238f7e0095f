//! What is kept between requests, what is noticed, and what it costs in memory.

use budao_core::message::CallId;

use super::*;
use crate::{anthropic::AnthropicFormat, testing};

const FORMAT: AnthropicFormat<'static> = AnthropicFormat { model: "m" };

fn session(key: &str, messages: &[Arc<Message>]) -> ModelRequest {
    let messages = Arc::new(messages.to_vec());
    ModelRequest { messages, cache_key: Some(key.into()), ..testing::request("") }
}

fn history(length: usize) -> Vec<Arc<Message>> {
    let message = |index: usize| match index % 2 {
        0 => Message::user(format!("Question {index}? {}", "why ".repeat(100))),
        _ => Message::assistant(format!("Answer {index}.")),
    };
    (0..length).map(message).map(Arc::new).collect()
}

fn kept(sessions: &EncodedSessions) -> (usize, usize) {
    let kept = sessions.0.lock().unwrap();
    (kept.by_key.len(), kept.bytes)
}

#[test]
fn a_changed_message_is_noticed_wherever_it_stands() {
    let sessions = EncodedSessions::default();
    let mut history = history(101);
    for index in [0, 50, 98, 100] {
        drop(sessions.body(&FORMAT, &session("s", &history)));
        let changed = Arc::make_mut(&mut history[index]);
        changed.content = vec![Block::Text(format!("changed {index}"))];
        let request = session("s", &history);
        let body = sessions.body(&FORMAT, &request).to_vec();
        assert!(body == FORMAT.encode(&request), "message {index}");
    }
    history.truncate(41);
    let request = session("s", &history);
    assert!(sessions.body(&FORMAT, &request).to_vec() == FORMAT.encode(&request), "a shorter one");
}

#[test]
fn only_what_is_new_is_encoded() {
    let sessions = EncodedSessions::default();
    let mut history = history(1_001);
    let first = sessions.body(&FORMAT, &session("s", &history)).into_parts();
    history.extend([Message::assistant("Yes."), Message::user("More?")].map(Arc::new));
    let second = sessions.body(&FORMAT, &session("s", &history)).into_parts();
    let is_shared = |part: &&Bytes| first.iter().any(|other| other.as_ptr() == part.as_ptr());
    let own: usize = second.iter().filter(|part| !is_shared(part)).map(Bytes::len).sum();
    let whole: usize = second.iter().map(Bytes::len).sum();
    assert!(own < 2 * PART_BYTES && whole > 12 * PART_BYTES, "{own} of {whole} bytes are new");
}

#[test]
fn unloaded_sessions_and_those_above_the_limit_are_dropped() {
    let sessions = EncodedSessions::default();
    let loaded = history(11);
    drop(sessions.body(&FORMAT, &session("loaded", &loaded)));
    drop(sessions.body(&FORMAT, &session("gone", &history(11))));
    drop(sessions.body(&FORMAT, &session("loaded", &loaded)));
    assert_eq!(kept(&sessions).0, 1, "the history of the other is not loaded");
    let many: Vec<_> = (0..KEPT_SESSIONS + 9).map(|_| history(3)).collect();
    for (index, history) in many.iter().enumerate() {
        drop(sessions.body(&FORMAT, &session(&index.to_string(), history)));
    }
    assert_eq!(kept(&sessions).0, KEPT_SESSIONS);
    let data = "A".repeat(KEPT_BYTES / 2);
    let image = || Block::Image { media_type: "image/png".into(), data: data.clone() };
    let large = || Message { role: Role::User, content: vec![image()] };
    let larges: Vec<_> =
        (0..3).map(|_| [vec![Arc::new(large())], history(3)[1..].to_vec()].concat()).collect();
    for (index, history) in larges.iter().enumerate() {
        drop(sessions.body(&FORMAT, &session(&format!("large {index}"), history)));
    }
    assert!(kept(&sessions).1 <= KEPT_BYTES, "{:?}", kept(&sessions));
}

#[test]
fn a_request_without_a_session_keeps_nothing() {
    let sessions = EncodedSessions::default();
    let request = ModelRequest { cache_key: None, ..session("", &history(5)) };
    assert!(sessions.body(&FORMAT, &request).to_vec() == FORMAT.encode(&request));
    assert_eq!(kept(&sessions), (0, 0));
}

#[test]
fn results_that_join_the_last_message_are_not_lost() {
    let sessions = EncodedSessions::default();
    let mut history = history(3);
    drop(sessions.body(&FORMAT, &session("s", &history)));
    let content =
        vec![Block::ToolResult { call: CallId::from("c"), is_error: false, content: "{}".into() }];
    history.push(Arc::new(Message { role: Role::User, content }));
    let request = session("s", &history);
    assert!(sessions.body(&FORMAT, &request).to_vec() == FORMAT.encode(&request));
}

#[test]
fn a_message_that_now_belongs_to_the_last_run_is_joined_to_it() {
    let sessions = EncodedSessions::default();
    let mut history = history(3);
    drop(sessions.body(&FORMAT, &session("s", &history)));
    history[1] = Arc::new(Message::assistant(""));
    let request = session("s", &history);
    let body = sessions.body(&FORMAT, &request).to_vec();
    assert!(body == FORMAT.encode(&request), "{}", String::from_utf8_lossy(&body));
}
