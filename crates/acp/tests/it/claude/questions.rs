//! Questions of the model to the person, through an editor with forms and through one without.

use budao_core::event::Event;
use budao_journal::PageLimits;
use budao_testkit::claude::{CliVersion, answer};
use serde_json::{Value, json};

use super::Fixture;
use crate::{
    check::AgentKind,
    editor::{Editor, UserBehaviour},
};

/// An editor with these capabilities, and a session.
async fn editor(stage: &Fixture, capabilities: Value) -> (Editor, String) {
    let mut editor = Editor::connect(stage.bridge.clone());
    editor.agent_kind = AgentKind::Claude;
    editor.initialize_with(capabilities).await;
    let session = editor.new_session().await;
    (editor, session)
}

/// Sends a prompt at which the model asks; the state of the call in the end and what it shows.
async fn asked(editor: &mut Editor, session: &str) -> (String, String) {
    let id = editor.prompt(session, "P1 @ask").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(editor.text(), answer("P1"));
    let last = editor.updates("tool_call_update").pop().unwrap();
    (last["status"].as_str().unwrap().to_owned(), last["content"].to_string())
}

/// The note for the model that came with the answer to the session's question.
async fn note(stage: &Fixture, session: &str) -> String {
    let page = stage.journal.read(session.parse().unwrap(), 0, PageLimits::default()).await;
    let events = page.unwrap().records.into_iter().map(|stored| stored.record().unwrap().event);
    let notes = events.filter_map(|event| match event {
        Event::QuestionAnswered { note, .. } => note,
        _ => None,
    });
    notes.collect()
}

fn requests<'a>(editor: &'a Editor, method: &str) -> Vec<&'a Value> {
    let all = editor.transcript.iter().map(|line| &line.value);
    all.filter(|value| value["method"] == method).collect()
}

#[tokio::test(start_paused = true)]
async fn an_editor_with_forms_shows_all_questions_in_one_form() {
    let stage = Fixture::open(CliVersion::Current).await;
    let (mut editor, session) = editor(&stage, json!({"elicitation": {"form": {}}})).await;
    editor.form = Some(json!({"action": "accept", "content": {
        "question_1": "blue", "question_2": ["small", "large"], "question_2_other": ""}}));
    let (status, shown) = asked(&mut editor, &session).await;
    assert_eq!(status, "completed");
    assert!(shown.contains("blue") && shown.contains("small, large"), "{shown}");
    let forms = requests(&editor, "elicitation/create");
    assert_eq!(forms.len(), 1);
    let form = forms[0].clone();
    let mut params = form["params"].clone();
    params["sessionId"] = "[session]".into();
    insta::assert_json_snapshot!(params);
    assert_eq!(requests(&editor, "session/request_permission").len(), 0);
    editor.hang_up().await;
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_own_words_counts_and_a_form_that_is_not_filled_is_no_answer() {
    let stage = Fixture::open(CliVersion::Current).await;
    let cases = [
        (
            json!({"action": "accept", "content": {"question_1_other": "green", "question_2": ["large"]}}),
            "completed",
            "green",
        ),
        (
            json!({"action": "accept", "content": {"question_1": "red"}}),
            "failed",
            "without an answer",
        ),
        (json!({"action": "decline"}), "failed", "did not answer"),
        (json!({"action": "cancel"}), "failed", "did not answer"),
    ];
    for (form, wanted, text) in cases {
        let (mut editor, session) = editor(&stage, json!({"elicitation": {"form": {}}})).await;
        editor.form = Some(form.clone());
        let (status, shown) = asked(&mut editor, &session).await;
        assert_eq!(status, wanted, "{form}");
        let told = shown + &note(&stage, &session).await;
        assert!(told.contains(text), "{form}: {told}");
        editor.hang_up().await;
    }
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_editor_without_forms_shows_one_question_after_the_other_with_numbered_options() {
    let stage = Fixture::open(CliVersion::Old).await;
    // The second editor offers forms and fails to show them.
    for capabilities in [json!({}), json!({"elicitation": {"form": {}}})] {
        let (mut editor, session) = editor(&stage, capabilities).await;
        editor.behaviour = UserBehaviour::Option("1");
        let (status, shown) = asked(&mut editor, &session).await;
        assert_eq!(status, "completed");
        assert!(shown.contains("blue") && shown.contains("large"), "{shown}");
        let questions = requests(&editor, "session/request_permission");
        let names = |question: &Value| {
            let options = question["params"]["options"].as_array().unwrap();
            options.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let all: Vec<_> = questions.iter().map(|question| names(question)).collect();
        let skip = "Do not answer";
        assert_eq!(all, [["1. red", "2. blue", skip], ["1. small", "2. large", skip]]);
        assert_eq!(questions[0]["params"]["toolCall"]["title"], "Which color?");
        editor.hang_up().await;
    }
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_skipped_is_no_answer() {
    let stage = Fixture::open(CliVersion::Current).await;
    for option in ["skip", "7", "allow"] {
        let (mut editor, session) = editor(&stage, json!({})).await;
        editor.behaviour = UserBehaviour::Option(option);
        let (status, _) = asked(&mut editor, &session).await;
        assert_eq!(status, "failed", "{option}");
        let told = note(&stage, &session).await;
        assert!(told.contains("did not answer"), "{option}: {told}");
        editor.hang_up().await;
    }
    stage.close().await;
}
