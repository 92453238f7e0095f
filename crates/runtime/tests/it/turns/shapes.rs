//! Answers with a shape: checked like calls, corrected by the same loop, stopped by the same brake.

use budao_core::{Kind, event::Settings};
use budao_models::script::Script;
use budao_runtime::Agent;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct City {
    name: String,
    people: u64,
}

fn paris() -> City {
    City { name: "Paris".into(), people: 2_100_000 }
}

async fn ask(script: Script) -> Result<City, budao_core::Fault> {
    let agent = Agent::builder(script).build().unwrap();
    agent.session().await.unwrap().run_typed("Which city?").await
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_a_value_whether_it_comes_as_text_or_as_a_call() {
    let text = r#"{"name": "Paris", "people": 2100000}"#;
    assert_eq!(ask(Script::new().say(text)).await.unwrap(), paris());
    let arguments = json!({"name": "Paris", "people": 2_100_000});
    assert_eq!(ask(Script::new().calls([("final_answer", arguments)])).await.unwrap(), paris());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_goes_back_with_the_reasons() {
    let script = Script::new()
        .say("It is Paris.")
        .say(r#"{"name": "Paris"}"#)
        .say(r#"{"name": "Paris", "people": 2100000}"#);
    assert_eq!(ask(script).await.unwrap(), paris());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_ignores_the_schema_for_ever_is_stopped_by_the_brake() {
    let script = (0..40).fold(Script::new(), |script, _| script.say("It is Paris."));
    assert_eq!(ask(script).await.unwrap_err().kind(), Kind::RepeatedCallStopped);
    let script =
        (0..40).fold(Script::new(), |script, number| script.say(format!("It is number {number}.")));
    assert_eq!(ask(script).await.unwrap_err().kind(), Kind::FailuresExhausted);
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_admits_nothing_is_refused_when_it_is_set() {
    let agent = Agent::builder(Script::new()).answer_schema(json!({"enum": []})).build().unwrap();
    assert_eq!(agent.session().await.unwrap_err().kind(), Kind::AnswerSchemaRefused);
}

#[tokio::test(start_paused = true)]
async fn after_a_typed_answer_texts_are_texts_again() {
    let script =
        Script::new().say(r#"{"name": "Paris", "people": 2100000}"#).say("You are welcome.");
    let agent = Agent::builder(script).build().unwrap();
    let session = agent.session().await.unwrap();
    session.run_typed::<City>("Which city?").await.unwrap();
    assert_eq!(session.run("Thanks.").await.unwrap().text, "You are welcome.");
    assert_eq!(
        session.state().await.unwrap().settings,
        Settings { model: "script".into(), ..Settings::default() }
    );
}
