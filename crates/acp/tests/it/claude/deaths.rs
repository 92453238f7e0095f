//! The CLI is killed, dies, falls silent, or the editor is gone.

use std::time::Duration;

use budao_claude::Launch;
use budao_core::engine::Engine as _;
use budao_testkit::claude::CliVersion;

use super::{AGES, Fixture};
use crate::editor::UserBehaviour;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_cli_killed_while_idle_is_started_again_on_the_same_conversation() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        stage.runs_well("P1").await;
        stage.played.kill();
        stage.editor.read_for(SECOND).await;
        stage.runs_well("P2").await;
        assert_eq!(stage.played.launches(), [Launch::Fresh, Launch::Resume], "{age:?}");
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cli_killed_in_the_middle_fails_its_prompt_at_once_and_the_next_one_works() {
    for age in AGES {
        // While it streams, while its tool runs, while a person is asked.
        for (word, sign) in [
            ("@slow", "agent_message_chunk"),
            ("@free", "tool_call_update"),
            ("@tool", "tool_call"),
        ] {
            let mut stage = Fixture::open(age).await;
            stage.editor.behaviour = UserBehaviour::Silent;
            stage.runs_well("P1").await;
            let id = stage.prompt(&format!("P2 {word}")).await;
            stage.editor.until(|it| it["params"]["update"]["sessionUpdate"] == sign).await;
            let began = tokio::time::Instant::now();
            stage.played.kill();
            assert_eq!(stage.editor.stop(id).await, "-32603", "{word}");
            assert!(began.elapsed() < SECOND, "{word}: {:?}", began.elapsed());
            let data = stage.editor.answer(id).await["error"]["data"].clone();
            assert_eq!(data["kind"], "cli_exited", "{data}");
            stage.runs_well("P3").await;
            assert_eq!(stage.played.launches(), [Launch::Fresh, Launch::Resume], "{word}");
            stage.close().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_by_itself_fails_its_prompt_alone() {
    for age in AGES {
        for word in ["@die", "@die-mid", "@die-tool"] {
            let mut stage = Fixture::open(age).await;
            stage.runs_well("P1").await;
            let second = stage.prompt(&format!("P2 {word}")).await;
            let third = stage.prompt("P3").await;
            assert_eq!(stage.editor.stop(second).await, "-32603", "{word}");
            assert_eq!(stage.editor.stop(third).await, "end_turn", "{word}: it waited");
            stage.close().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_cli_is_judged_and_one_that_does_not_stop_is_stopped() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        let began = tokio::time::Instant::now();
        let (stop, _) = stage.run("P1 @dead").await;
        assert_eq!(stop, "-32603");
        assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
        for word in ["@silent", "@dead", "@slow @deaf"] {
            let id = stage.prompt(&format!("P2 {word}")).await;
            stage.editor.read_for(SECOND).await;
            let began = tokio::time::Instant::now();
            stage.cancel().await;
            assert_eq!(stage.editor.stop(id).await, "cancelled", "{word}");
            assert!(began.elapsed() < Duration::from_secs(15), "{word}: {:?}", began.elapsed());
            stage.runs_well("P3").await;
        }
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_editor_that_hangs_up_is_gone_within_a_second_and_no_cli_is_left() {
    for word in ["", "@slow", "@tool", "@free", "@silent", "@dead", "@slow @deaf"] {
        let mut stage = Fixture::open(CliVersion::Current).await;
        stage.editor.behaviour = UserBehaviour::Silent;
        stage.prompt(&format!("P1 {word}")).await;
        stage.prompt("P2").await;
        stage.editor.read_for(Duration::from_millis(300)).await;
        let Fixture { editor, engine, played, .. } = stage;
        let began = tokio::time::Instant::now();
        editor.vanish().await;
        engine.shutdown(Duration::ZERO).await;
        assert!(began.elapsed() < SECOND, "{word}: {:?}", began.elapsed());
        assert_eq!(played.running(), 0, "{word}");
    }
}
