//! How a prompt is answered when its turn did not end well: truly, and never as if it had.

use budao_acp::ExecutionError;
use budao_testkit::claude::CliVersion;

use super::{AGES, Fixture};

#[tokio::test(start_paused = true)]
async fn every_failure_of_the_service_is_shown_as_its_kind() {
    let failures = [
        (429, "-32603", "model_rate_limited"),
        (529, "-32603", "model_overloaded"),
        (500, "-32603", "model_server_error"),
        (503, "-32603", "model_server_error"),
        (401, "-32000", "model_authentication"),
        (403, "-32603", "model_permission"),
        (400, "-32603", "model_bad_request"),
        (404, "-32602", "unknown_model"),
        (413, "-32603", "context_too_long"),
    ];
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        for (status, code, kind) in failures {
            let id = stage.prompt(&format!("P1 @api-{status}")).await;
            assert_eq!(stage.editor.stop(id).await, code, "{status}");
            let data = stage.editor.answer(id).await["error"]["data"].clone();
            assert_eq!(data["kind"], kind, "{status} {age:?}: {data}");
            for field in ["code", "retryable", "advice", "trace", "turn"] {
                assert!(!data[field].is_null(), "{field} of {data}");
            }
            stage.runs_well("P2").await;
        }
        assert!(!stage.editor.text().contains("API Error"), "an error is not also an answer");
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn execution_errors_and_unknown_results_never_look_like_a_normal_end() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        for word in ["@broke", "@broke-quietly", "@odd"] {
            let (stop, _) = stage.run(&format!("P1 {word}")).await;
            assert_eq!(stop, "-32603", "{word} {age:?}");
            stage.runs_well("P2").await;
        }
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_literal_mapping_of_the_seed_shows_them_as_refusals() {
    let mut stage =
        Fixture::with(CliVersion::Current, 1, ExecutionError::Refusal, 1024 * 1024).await;
    for word in ["@broke", "@broke-quietly", "@odd"] {
        let (stop, shown) = stage.run(&format!("P1 {word}")).await;
        assert_eq!(stop, "refusal", "{word}");
        assert!(!shown.is_empty(), "with a sentence that says why");
    }
    stage.runs_well("P2").await;
    stage.close().await;
}
