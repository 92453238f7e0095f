//! Plan mode of the real CLIs: it does not write, and ends and begins when it is set, when a plan is handed in, and when
//! the model begins to plan.

use budao_core::{
    event::{CommandBody, Decision, Event, Settings, StopReason},
    tool::{Mode, Permissions},
};
use serde_json::Value;

use super::{CURRENT, Fixture, OLD};

async fn plans_without_writing(peer: &str) {
    let permissions = Permissions { mode: Mode::Readonly, ..Permissions::default() };
    let settings = Settings { permissions, ..Settings::default() };
    let Some(fixture) = Fixture::open(peer, settings).await else { return };
    let file = fixture.file("never");
    let seen = fixture.run(1, &format!("plan %write:{}", file.display())).await;
    seen.assert_is(StopReason::EndTurn, "let me after the tool");
    assert!(!file.exists(), "plan mode does not write");
    assert_eq!(
        seen.count(|it| matches!(it, Event::ToolCallEnded { outcome, .. } if !outcome.is_done())),
        1
    );
    fixture.close().await;
}

/// Is a file that the model writes asked about? In plan mode it is denied without a question.
async fn is_asked_about(fixture: &Fixture, turn: u64) -> bool {
    let file = fixture.file(&format!("file-{turn}"));
    fixture.say(&format!("write %write:{}", file.display())).await;
    let mut is_asked = false;
    fixture
        .until(|record| {
            is_asked |= record.turn == turn && matches!(record.event, Event::QuestionAsked { .. });
            is_asked || record.turn == turn && matches!(record.event, Event::TurnEnded { .. })
        })
        .await;
    if is_asked {
        fixture.decide(turn, Decision::Allow).await;
    }
    fixture.ended(turn).await.assert_is(StopReason::EndTurn, "let me after the tool");
    assert_eq!(file.exists(), is_asked);
    is_asked
}

async fn set_mode(fixture: &Fixture, mode: Mode) {
    let (state, _) = budao_journal::fold(&*fixture.journal, fixture.session).await.unwrap();
    let mut settings = state.settings;
    settings.permissions.mode = mode;
    fixture.ask(CommandBody::Settings { settings: Box::new(settings), before: None }).await;
}

async fn mode_shown(fixture: &Fixture) -> Mode {
    budao_journal::fold(&*fixture.journal, fixture.session)
        .await
        .unwrap()
        .0
        .settings
        .permissions
        .mode
}

/// Allows the CLI what a user may have allowed it everywhere, and has it keep plans in the project.
fn generous_user(fixture: &Fixture) {
    let config = fixture.folder.path().join("config");
    std::fs::create_dir_all(&config).unwrap();
    let settings =
        r#"{"permissions": {"allow": ["Write", "Edit", "Bash"]}, "plansDirectory": "kept"}"#;
    std::fs::write(config.join("settings.json"), settings).unwrap();
}

/// With a CLI that runs when the mode is set, and with one that is started on the conversation afterwards.
async fn plan_mode_ends_and_begins(peer: &str, is_restarted: bool) {
    let Some(mut fixture) = Fixture::open(peer, Settings::default()).await else { return };
    for (turn, mode) in (1..).zip([Mode::Readonly, Mode::Approval, Mode::Readonly, Mode::Approval])
    {
        set_mode(&fixture, mode).await;
        assert_eq!(is_asked_about(&fixture, turn).await, mode == Mode::Approval, "turn {turn}");
        assert_eq!(mode_shown(&fixture).await, mode, "turn {turn}");
        let word = if mode == Mode::Readonly { "plan" } else { "default" };
        assert_eq!(fixture.recorder.modes.lock().unwrap().last().unwrap(), word, "turn {turn}");
        if is_restarted {
            fixture = fixture.restarted().await;
        }
    }
    fixture.close().await;
}

async fn a_plan_is_handed_in(peer: &str, is_generous: bool, decision: Decision) {
    let permissions = Permissions { mode: Mode::Readonly, ..Permissions::default() };
    let settings = Settings { permissions, ..Settings::default() };
    let Some(fixture) = Fixture::open(peer, settings).await else { return };
    if is_generous {
        generous_user(&fixture);
        assert!(!is_asked_about(&fixture, 1).await, "what a user allowed elsewhere is denied too");
    } else {
        fixture.run(1, "first").await.assert_is(StopReason::EndTurn, "hello world");
    }
    fixture.say("plan it %plan").await;
    let mut plan = Value::Null;
    let question_asked = fixture.until(|record| match &record.event {
        Event::QuestionAsked { tool, arguments, .. } => {
            assert_eq!(tool, "ExitPlanMode", "nothing else is asked about");
            plan = arguments["plan"].clone();
            true
        }
        Event::TurnEnded { .. } => record.turn == 2,
        _ => false,
    });
    let records = question_asked.await;
    assert_eq!(plan, budao_testkit::claude_api::PLAN, "{records:#?}");
    assert_eq!(mode_shown(&fixture).await, Mode::Readonly);
    fixture.decide(2, decision).await;
    fixture.ended(2).await.assert_is(StopReason::EndTurn, "let me after the plan");
    let is_approved = decision == Decision::Allow;
    let mode = if is_approved { Mode::Approval } else { Mode::Readonly };
    assert_eq!(mode_shown(&fixture).await, mode, "as soon as the turn is over");
    if is_generous {
        // Outside of plan mode the user's own rules hold again.
        let file = fixture.file("afterwards");
        fixture.run(3, &format!("write %write:{}", file.display())).await;
        assert!(file.exists());
    } else {
        assert_eq!(is_asked_about(&fixture, 3).await, is_approved);
    }
    assert_eq!(mode_shown(&fixture).await, mode);
    fixture.close().await;
}

async fn the_model_begins_to_plan(peer: &str) {
    let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
    fixture.say("think first %enter").await;
    fixture
        .until(|record| {
            matches!(record.event, Event::QuestionAsked { .. } | Event::TurnEnded { .. })
        })
        .await;
    fixture.ended(1).await.assert_is(StopReason::EndTurn, "let me after the tool");
    assert_eq!(mode_shown(&fixture).await, Mode::Readonly);
    assert!(!is_asked_about(&fixture, 2).await, "it is in force");
    set_mode(&fixture, Mode::Approval).await;
    assert!(is_asked_about(&fixture, 3).await, "and can be ended");
    fixture.close().await;
}

#[tokio::test]
async fn plan_mode_of_the_current_cli_ends_and_begins_when_it_is_set() {
    plan_mode_ends_and_begins(CURRENT, false).await;
    plan_mode_ends_and_begins(CURRENT, true).await;
}

#[tokio::test]
async fn plan_mode_of_the_old_cli_ends_and_begins_when_it_is_set() {
    plan_mode_ends_and_begins(OLD, false).await;
    plan_mode_ends_and_begins(OLD, true).await;
}

#[tokio::test]
async fn the_current_cli_hands_in_its_plan_and_an_approval_ends_plan_mode() {
    a_plan_is_handed_in(CURRENT, false, Decision::Allow).await;
    a_plan_is_handed_in(CURRENT, true, Decision::Allow).await;
}

#[tokio::test]
async fn the_old_cli_hands_in_its_plan_and_an_approval_ends_plan_mode() {
    a_plan_is_handed_in(OLD, false, Decision::Allow).await;
    a_plan_is_handed_in(OLD, true, Decision::Allow).await;
}

#[tokio::test]
async fn a_plan_that_was_rejected_leaves_both_clis_in_plan_mode() {
    a_plan_is_handed_in(CURRENT, false, Decision::Deny).await;
    a_plan_is_handed_in(OLD, false, Decision::Deny).await;
}

#[tokio::test]
async fn a_model_that_begins_to_plan_is_shown_to_be_planning_by_both_clis() {
    the_model_begins_to_plan(CURRENT).await;
    the_model_begins_to_plan(OLD).await;
}

#[tokio::test]
async fn plan_mode_of_the_current_cli_does_not_write() {
    plans_without_writing(CURRENT).await;
}

#[tokio::test]
async fn plan_mode_of_the_old_cli_does_not_write() {
    plans_without_writing(OLD).await;
}
