//! Error responses of each vendor, and the kind each is classified as.

use budao_core::time::Timestamp;
use rstest::rstest;
use serde_json::json;

use super::*;

fn service() -> Service {
    Service {
        provider: "anthropic",
        model: "m".into(),
        host: "api.example.com".into(),
        endpoint: "api.example.com/v1/messages".into(),
        required_config: "ANTHROPIC_API_KEY",
        key: Some("sk-ant-0123456789".into()),
    }
}

#[rstest]
#[case::wrong_key(401, json!({"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}), Kind::ModelAuthentication)]
#[case::key_said_with_400(400, json!({"error":{"code":"invalid_api_key","message":"Incorrect API key"}}), Kind::ModelAuthentication)]
#[case::no_permission(403, json!({"error":{"type":"permission_error","message":"no"}}), Kind::ModelPermission)]
#[case::no_such_model(404, json!({"error":{"type":"not_found_error","message":"model: x"}}), Kind::UnknownModel)]
#[case::ollama_no_such_model(404, json!({"error":"model 'x' not found"}), Kind::UnknownModel)]
#[case::litellm_no_such_model(400, json!({"error":{"message":"Invalid model name passed in model=x","type":"invalid_request_error","code":"400"}}), Kind::UnknownModel)]
#[case::item_not_found(404, json!({"error":{"message":"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.","type":"invalid_request_error","param":"input","code":null}}), Kind::ModelBadRequest)]
#[case::openai_no_such_model(404, json!({"error":{"message":"The model `x` does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}), Kind::UnknownModel)]
#[case::openai_no_such_model_400(400, json!({"error":{"message":"no","type":"invalid_request_error","code":"model_not_found"}}), Kind::UnknownModel)]
#[case::other_region(400, json!({"error":{"message":"no","code":"data_residency_mismatch"}}), Kind::ModelPermission)]
#[case::other_region_gemini(400, json!({"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}), Kind::ModelPermission)]
#[case::other_region_address(401, json!({"error":{"message":"Attempted to access resource with incorrect regional hostname. Please make your request to eu.api.openai.com","type":"invalid_request_error","code":"incorrect_hostname"}}), Kind::ModelPermission)]
#[case::wrong_key_as_text(400, json!({"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***ey."}), Kind::ModelAuthentication)]
#[case::no_credit_403(403, json!({"code":"The caller does not have permission","error":"Your newly created team doesn't have any credits yet."}), Kind::ModelQuota)]
#[case::gemini_rate(429, json!({"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}}), Kind::ModelRateLimited)]
#[case::gemini_credit(429, json!({"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}), Kind::ModelQuota)]
#[case::no_credit(429, json!({"error":{"message":"no","type":"insufficient_quota","code":"credit_balance_exhausted"}}), Kind::ModelQuota)]
#[case::rate(429, json!({"error":{"type":"rate_limit_error","message":"slow down"}}), Kind::ModelRateLimited)]
#[case::token_rate(429, json!({"error":{"message":"Rate limit reached: too many tokens"}}), Kind::ModelRateLimited)]
#[case::quota(429, json!({"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota"}}), Kind::ModelQuota)]
#[case::anthropic_credit(400, json!({"error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}), Kind::ModelQuota)]
#[case::payment(402, json!({}), Kind::ModelQuota)]
#[case::overloaded(529, json!({"error":{"type":"overloaded_error","message":"Overloaded"}}), Kind::ModelOverloaded)]
#[case::llama_loading(503, json!({"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}), Kind::ModelOverloaded)]
#[case::server(500, json!({"error":{"type":"api_error","message":"Internal server error"}}), Kind::ModelServerError)]
#[case::gateway(502, json!(null), Kind::ModelServerError)]
#[case::timed_out(504, json!({"error":{"type":"timeout_error","message":"timed out"}}), Kind::RequestTimedOut)]
#[case::request_timeout(408, json!({}), Kind::RequestTimedOut)]
#[case::conflict(409, json!({"error":{"message":"no","type":"invalid_request_error"}}), Kind::ModelServerError)]
#[case::too_large(413, json!({"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}), Kind::ContextTooLong)]
#[case::anthropic_context(400, json!({"error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}), Kind::ContextTooLong)]
#[case::openai_context(400, json!({"error":{"code":"context_length_exceeded","type":"invalid_request_error","message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."}}), Kind::ContextTooLong)]
#[case::llama_context(400, json!({"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds the available context size","n_prompt_tokens":900,"n_ctx":512}}), Kind::ContextTooLong)]
#[case::vllm_flat(400, json!({"object":"error","message":"This model's maximum context length is 4096 tokens","type":"BadRequestError","code":400}), Kind::ContextTooLong)]
#[case::azure_filter(400, json!({"error":{"code":"content_filter","message":"filtered"}}), Kind::ModelRefused)]
#[case::bad_request(400, json!({"error":{"type":"invalid_request_error","message":"max_tokens: required"}}), Kind::ModelBadRequest)]
#[case::unprocessable(422, json!({"detail":"field required"}), Kind::ModelBadRequest)]
#[case::redirect(302, json!(null), Kind::ModelBadRequest)]
#[case::list_of_one(400, json!([{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}]), Kind::ModelAuthentication)]
#[case::expired_key(400, json!({"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT"}}), Kind::ModelAuthentication)]
fn every_refusal_has_its_row(#[case] status: u16, #[case] body: Value, #[case] kind: Kind) {
    let fault = ErrorResponse::new(status, body.to_string().as_bytes()).fault(&service());
    assert_eq!(fault.kind(), kind);
    assert_eq!(fault.detail().text(Fact::Service), Some("anthropic"));
    assert_eq!(fault.detail().number(Fact::Status), Some(i64::from(status)));
}

#[rstest]
#[case::wrong_but_later(400, Some("true"), Kind::ModelServerError)]
#[case::broken_for_good(500, Some("false"), Kind::ModelBadRequest)]
#[case::conflict_for_good(409, Some("false"), Kind::ModelBadRequest)]
#[case::overloaded_for_good(529, Some("false"), Kind::ModelBadRequest)]
#[case::a_rate_limit_is_waited_for(429, Some("false"), Kind::ModelRateLimited)]
#[case::a_key_gets_no_better(401, Some("true"), Kind::ModelAuthentication)]
#[case::nonsense(500, Some("perhaps"), Kind::ModelServerError)]
#[case::nothing_said(400, None, Kind::ModelBadRequest)]
fn what_the_service_says_of_a_repetition_comes_before_its_status(
    #[case] status: u16,
    #[case] should_retry: Option<&'static str>,
    #[case] kind: Kind,
) {
    let header = should_retry.map(|value| {
        let name = http::HeaderName::from_static("x-should-retry");
        (name, http::HeaderValue::from_static(value))
    });
    let hints = ResponseHints::read(&header.into_iter().collect(), Timestamp::from_micros(0));
    let response = ErrorResponse::new(status, b"{}").hints(hints);
    assert_eq!(response.fault(&service()).kind(), kind);
}

#[rstest]
#[case(json!({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}), Kind::ModelOverloaded)]
#[case(json!({"type":"error","error":{"type":"api_error","message":"oops"}}), Kind::ModelServerError)]
#[case(json!({"type":"error","error":{"type":"rate_limit_error","message":"later"}}), Kind::ModelRateLimited)]
#[case(json!({"type":"error","error":{"type":"invalid_request_error","message":"no"}}), Kind::ModelBadRequest)]
#[case(json!({"error":{"message":"Provider returned error","code":429}}), Kind::ModelRateLimited)]
#[case(json!({"error":"something"}), Kind::ModelServerError)]
fn an_error_in_a_stream_is_classified_by_its_words(#[case] error: Value, #[case] kind: Kind) {
    assert_eq!(ErrorResponse::in_stream(&error).fault(&service()).kind(), kind);
}

#[test]
fn the_context_size_is_read_from_any_service_that_reports_it() {
    let size = |message: &str| {
        ErrorBody { message: message.into(), ..ErrorBody::default() }.context_size()
    };
    assert_eq!(
        size("prompt is too long: 208310 tokens > 200000 maximum"),
        Some((208_310, 200_000))
    );
    let openai = "maximum context length is 8192 tokens. However, you requested 9000 tokens";
    assert_eq!(size(openai), Some((9000, 8192)));
    assert_eq!(size("too long"), None);
}

#[test]
fn foreign_words_are_causes_and_nothing_else() {
    let body = json!({"error":{"type":"api_error","message":"db at 10.0.0.7 said no"}});
    let fault = ErrorResponse::new(500, body.to_string().as_bytes()).fault(&service());
    assert_eq!(fault.causes(), ["api_error: db at 10.0.0.7 said no"]);
    assert!(fault.detail().iter().all(|(_, value)| !value.to_string().contains("10.0.0.7")));
}

#[test]
fn a_key_that_a_server_echoes_is_not_kept() {
    let fault = ErrorResponse::new(401, b"bad key sk-ant-0123456789!").fault(&service());
    assert_eq!(fault.causes(), ["bad key [key]!"]);
    assert!(!format!("{:?}", service()).contains("0123456789"));
}

#[test]
fn a_long_body_is_shortened_at_a_character() {
    let body = "不".repeat(10_000);
    let fault = ErrorResponse::new(500, body.as_bytes()).fault(&service());
    assert!(fault.causes()[0].len() <= EXCERPT_BYTES);
}

#[rstest]
#[case("Rate limit reached. Please try again in 1.2s.", Some(1_200))]
#[case("Please try again in 350ms. Visit us.", Some(350))]
#[case("Please try again in 6m0s.", Some(360_000))]
#[case("Please try again in a moment.", None)]
#[case("try again in ", None)]
fn a_wait_in_the_message_is_a_hint(#[case] message: &str, #[case] millis: Option<u64>) {
    let body = json!({"error": {"code": "rate_limit_exceeded", "message": message}});
    let fault = ErrorResponse::in_stream(&body).fault(&service());
    assert_eq!(fault.retry_hint(), millis.map(Duration::from_millis));
}

#[test]
fn a_wait_in_the_details_is_a_hint() {
    let body = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow",
        "details": [{"@type": "x"}, {"retryDelay": "12s"}]}});
    let fault = ErrorResponse::new(429, body.to_string().as_bytes()).fault(&service());
    assert_eq!(fault.retry_hint(), Some(Duration::from_secs(12)));
}
