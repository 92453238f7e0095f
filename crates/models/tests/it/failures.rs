//! Every way a service can fail, against a server that fails that way, on every wire.

use std::{sync::Arc, time::Duration};

use crate::support::{Signal, fault, request, world};
use budao_core::{
    fault::{Fact, Fault, Kind},
    limits::Limits,
    message::Piece,
};
use budao_models::{Anthropic, Gemini, Model, OpenAi, OpenAiResponses, ask};
use budao_testkit::{
    port::Refusing,
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use futures::StreamExt;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Anthropic,
    OpenAi,
    Responses,
    Gemini,
}
use Wire::{Anthropic as A, Gemini as G, OpenAi as O, Responses as R};

impl Wire {
    fn model(self, base: &str, bell: &Arc<Signal>, limits: Limits) -> Box<dyn Model> {
        self.model_with_key(base, "k", bell, limits)
    }

    fn model_with_key(
        self,
        base: &str,
        key: &str,
        bell: &Arc<Signal>,
        limits: Limits,
    ) -> Box<dyn Model> {
        let (world, limits, key) = (world(bell.clone()), Arc::new(limits), Some(key.into()));
        let base = Some(base);
        match self {
            A => Box::new(Anthropic::new("m", base, key, &world, limits).unwrap()),
            O => Box::new(OpenAi::new("m", base, key, &world, limits).unwrap()),
            R => Box::new(OpenAiResponses::new("m", base, key, &world, limits).unwrap()),
            G => Box::new(Gemini::new("m", base, key, &world, limits).unwrap()),
        }
    }

    /// What a fault names as the service, and the setting that has its key.
    fn service(self) -> (&'static str, &'static str) {
        match self {
            A => ("anthropic", "ANTHROPIC_API_KEY"),
            O | R => ("openai", "OPENAI_API_KEY"),
            G => ("gemini", "GEMINI_API_KEY"),
        }
    }

    fn events(self, sayings: &[ModelOutput]) -> Vec<String> {
        match self {
            A => sse::anthropic(sayings),
            O => sse::openai(sayings),
            R => sse::responses(sayings),
            G => sse::gemini(sayings),
        }
    }

    /// Three events before the last, so that a stream of them has begun and has not ended.
    fn begun(self) -> Vec<String> {
        let events = self.events(&[ModelOutput::text("one two three four five")]);
        events[..5].to_vec()
    }

    fn delta(self, text: &str) -> String {
        match self {
            A => sse::event(
                "content_block_delta",
                &json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}}),
            ),
            O => sse::data(&json!({"choices": [{"delta": {"content": text}}]})),
            R => sse::response_event(
                "response.output_text.delta",
                json!({"output_index": 0, "delta": text}),
            ),
            G => sse::data(&json!({"candidates": [{"content": {"parts": [{"text": text}]}}]})),
        }
    }

    fn ping(self) -> String {
        match self {
            A => sse::event("ping", &json!({"type": "ping"})),
            O => sse::data(&json!({"choices": []})),
            R => sse::response_event("keepalive", json!({})),
            G => sse::data(&json!({"candidates": []})),
        }
    }
}

/// One request against one reply; the server was asked exactly once.
async fn failing(wire: Wire, reply: Reply) -> Fault {
    let provider = Provider::start([reply]).await;
    let model = wire.model(&provider.url(), &Arc::default(), Limits::default());
    let fault = fault(&*model, request("hi")).await;
    assert_eq!(provider.asked().len(), 1, "nobody tries again here");
    assert!(fault.trace().is_some());
    for fact in fault.row().always {
        assert!(fault.detail().get(*fact).is_some(), "{fact:?} is missing in {fault:?}");
    }
    assert_eq!(fault.detail().text(Fact::Service), Some(wire.service().0));
    fault
}

fn said(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

#[rstest]
#[case(401, said("authentication_error", "invalid key"), Kind::ModelAuthentication)]
#[case(403, said("permission_error", "no"), Kind::ModelPermission)]
#[case(404, said("not_found_error", "model: m"), Kind::UnknownModel)]
#[case(413, said("request_too_large", "too large"), Kind::ContextTooLong)]
#[case(
    400,
    said("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
    Kind::ContextTooLong
)]
#[case(400, said("invalid_request_error", "messages: wrong"), Kind::ModelBadRequest)]
#[case(429, said("rate_limit_error", "slow down"), Kind::ModelRateLimited)]
#[case(429, said("insufficient_quota", "pay"), Kind::ModelQuota)]
#[case(500, said("api_error", "oops"), Kind::ModelServerError)]
#[case(503, json!("down"), Kind::ModelServerError)]
#[case(529, said("overloaded_error", "Overloaded"), Kind::ModelOverloaded)]
#[case(307, json!({}), Kind::ModelBadRequest)]
#[tokio::test]
async fn a_refusal_is_classified(
    #[values(A, O, R, G)] wire: Wire,
    #[case] status: u16,
    #[case] body: Value,
    #[case] kind: Kind,
) {
    let reply = Reply::refuse(status, &body).header("request-id", "req_7");
    let fault = failing(wire, reply.header("location", "http://elsewhere.invalid/")).await;
    assert_eq!(fault.kind(), kind, "{fault}");
    assert_eq!(fault.detail().number(Fact::Status), Some(i64::from(status)));
    assert_eq!(fault.detail().text(Fact::RequestId), Some("req_7"));
    if kind == Kind::ModelAuthentication {
        let setting = fault.detail().get(Fact::RequiredConfig).unwrap().to_string();
        assert_eq!(setting, wire.service().1);
    }
}

#[rstest]
#[case(&[("retry-after", "12")], 12_000)]
#[case(
    &[
        ("date", "Sun, 15 Nov 2026 08:00:00 GMT"),
        ("retry-after", "Sun, 15 Nov 2026 08:01:00 GMT"),
    ],
    60_000
)]
#[case(
    &[
        ("date", "Mon, 16 Nov 2026 08:00:00 GMT"),
        ("retry-after", "Mon, 16 Nov 2026 08:01:00 GMT"),
    ],
    60_000
)]
#[case(&[("retry-after-ms", "250"), ("retry-after", "12")], 250)]
#[tokio::test]
async fn a_rate_limit_has_the_time_of_the_next_try(
    #[values(A, O, R, G)] wire: Wire,
    #[case] headers: &[(&str, &str)],
    #[case] wait_ms: u64,
) {
    let reply = Reply::refuse(429, &said("rate_limit_error", "slow down"))
        .header("x-ratelimit-limit-requests", "60")
        .header("x-ratelimit-remaining-requests", "0")
        .header("x-ratelimit-reset-requests", "30s");
    let reply = headers.iter().fold(reply, |reply, (name, value)| reply.header(name, value));
    let fault = failing(wire, reply).await;
    assert_eq!(fault.retry_hint(), Some(Duration::from_millis(wait_ms)));
    assert_eq!(fault.detail().number(Fact::LimitPerMinute), Some(60));
    assert_eq!(fault.detail().number(Fact::RequestsMade), Some(60));
    assert_eq!(fault.detail().text(Fact::RateLimitReset), Some("2026-11-15T08:00:30.000Z"));
}

#[rstest]
#[case::broken_line(|wire: Wire| Reply::events(wire.begun()).cut(), Kind::ModelStreamCut)]
#[case::quiet_end(|wire: Wire| Reply::events(wire.begun()), Kind::ModelStreamCut)]
#[case::nothing(|_| Reply::stream(), Kind::ModelStreamCut)]
#[case::half_an_event(|wire: Wire| Reply::events(wire.begun()).bytes("data: {\"type\":\"cont"), Kind::ModelStreamCut)]
#[case::not_json(|wire: Wire| Reply::events(wire.begun()).bytes("data: {oops}\n\n").stall(), Kind::ModelMalformedStream)]
#[case::not_utf8(|wire: Wire| Reply::events(wire.begun()).bytes(&b"data: \"\xff\xfe\"\n\n"[..]).stall(), Kind::ModelMalformedStream)]
#[case::a_web_page(|_| Reply::status(200).header("content-type", "text/html").bytes("<html>"), Kind::ModelMalformedStream)]
#[case::overloaded_midway(|wire: Wire| Reply::events(wire.begun()).then([sse::event("error", &said("overloaded_error", "Overloaded"))]).stall(), Kind::ModelOverloaded)]
#[case::failed_midway(|wire: Wire| Reply::events(wire.begun()).then([sse::event("error", &said("api_error", "oops"))]).stall(), Kind::ModelServerError)]
#[case::an_endless_event(|_| Reply::stream().bytes("data: ").bytes(vec![b'x'; 10 << 20]).stall(), Kind::LimitReached)]
#[tokio::test]
async fn a_stream_that_goes_wrong_is_classified(
    #[values(A, O, R, G)] wire: Wire,
    #[case] reply: impl Fn(Wire) -> Reply,
    #[case] kind: Kind,
) {
    let fault = failing(wire, reply(wire)).await;
    assert_eq!(fault.kind(), kind, "{fault:?}");
}

#[rstest]
#[tokio::test]
async fn ten_megabytes_are_too_much(#[values(A, O, R, G)] wire: Wire) {
    let delta = wire.delta(&"x".repeat(64 << 10));
    let reply = Reply::events(wire.begun()).then(vec![delta; 160]).stall();
    let fault = failing(wire, reply).await;
    assert_eq!(fault.kind(), Kind::LimitReached);
    assert_eq!(fault.detail().text(Fact::LimitName), Some("model_answer_bytes"));
    assert_eq!(fault.detail().number(Fact::Limit), Some(4 << 20));
}

/// Asks, and rings for this wait whenever somebody sleeps for it.
async fn late(wire: Wire, reply: Reply, wait: Duration) -> Fault {
    let provider = Provider::start([reply]).await;
    let bell = Arc::new(Signal::default());
    let model = wire.model(&provider.url(), &bell, Limits::default());
    let ringing = async {
        provider.reached(1).await;
        bell.ringing(wait, std::future::pending::<Fault>()).await
    };
    let fault = tokio::select! {
        fault = fault(&*model, request("hi")) => fault,
        fault = ringing => fault,
    };
    provider.hung_up(1).await;
    fault
}

#[rstest]
#[case::no_status(|_| Reply::silence())]
#[case::no_event(|_| Reply::stream().stall())]
#[case::only_pings(|wire: Wire| Reply::events(vec![wire.ping(); 20]).stall())]
#[tokio::test]
async fn no_first_token_in_time(
    #[values(A, O, R, G)] wire: Wire,
    #[case] reply: impl Fn(Wire) -> Reply,
) {
    let limit = Limits::default().model_first_token;
    let fault = late(wire, reply(wire), limit).await;
    assert_eq!(fault.kind(), Kind::ModelFirstTokenTimeout);
    assert_eq!(fault.detail().number(Fact::TimeoutMs), Some(120_000));
}

#[rstest]
#[tokio::test]
async fn a_stream_that_stalls(#[values(A, O, R, G)] wire: Wire) {
    let reply = Reply::stream().bytes(wire.begun().concat()).stall();
    let fault = late(wire, reply, Limits::default().model_between_tokens).await;
    assert_eq!(fault.kind(), Kind::ModelStalled);
    assert_eq!(fault.detail().number(Fact::TimeoutMs), Some(60_000));
}

/// Goal: pings keep a silent stream alive, but not for ever.
/// Method: after the first words only pings come; we ring the clock that runs since the last word.
#[rstest]
#[tokio::test]
async fn pings_do_not_keep_a_stream_alive_for_ever(#[values(A, O, R, G)] wire: Wire) {
    let reply = Reply::events(wire.begun()).then(vec![wire.ping(); 3]).stall();
    let provider = Provider::start([reply]).await;
    let bell = Arc::new(Signal::default());
    let model = wire.model(&provider.url(), &bell, Limits::default());
    let mut stream = ask(&*model, request("hi")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Piece::Text(_)))));
    let longest = Limits::default().model_first_token;
    let rest = async {
        loop {
            match stream.next().await {
                Some(Err(fault)) => break fault,
                Some(Ok(_)) => {}
                None => panic!("ended"),
            }
        }
    };
    let fault = bell.ringing(longest, rest).await;
    assert_eq!(fault.kind(), Kind::ModelStalled);
}

#[rstest]
#[tokio::test]
async fn an_answer_ends_at_its_end_marker_though_the_connection_stays_open() {
    let events = sse::openai(&[ModelOutput::text("hi")]);
    let reply = Reply::stream().bytes(events[..events.len() - 1].concat()).stall();
    let provider = Provider::start([reply]).await;
    let bell = Arc::new(Signal::default());
    let model = O.model(&provider.url(), &bell, Limits::default());
    let wait = Limits::default().model_between_tokens;
    let pieces = bell.ringing(wait, crate::support::pieces(&*model, request("hi"))).await;
    assert!(matches!(pieces.unwrap().last(), Some(Piece::End { .. })));
}

#[rstest]
#[tokio::test]
async fn an_address_without_a_listener(#[values(A, O, R, G)] wire: Wire) {
    let nobody = Refusing::take();
    let base = format!("http://{}", nobody.address());
    let model = wire.model(&base, &Arc::default(), Limits::default());
    let fault = fault(&*model, request("hi")).await;
    assert_eq!(fault.kind(), Kind::ConnectionRefused, "{fault:?}");
    // The address of a private net is not shown as an endpoint.
    assert!(!fault.detail().text(Fact::Endpoint).unwrap().contains("127.0.0.1"));
}

#[rstest]
#[tokio::test]
async fn no_such_name(#[values(A, O, R, G)] wire: Wire) {
    let model = wire.model("http://no-such-host.invalid", &Arc::default(), Limits::default());
    let fault = fault(&*model, request("hi")).await;
    assert_eq!(fault.kind(), Kind::NameNotResolved, "{fault:?}");
    assert_eq!(fault.detail().text(Fact::Host), Some("no-such-host.invalid"));
}

/// Goal: TLS that fails is the operator's, not a reason to try again.
/// Method: speak TLS to a server that speaks plain HTTP.
#[rstest]
#[tokio::test]
async fn tls_that_fails(#[values(A, O, R, G)] wire: Wire) {
    let provider = Provider::start([]).await;
    let base = provider.url().replace("http://", "https://");
    let model = wire.model(&base, &Arc::default(), Limits::default());
    let fault = fault(&*model, request("hi")).await;
    assert_eq!(fault.kind(), Kind::TlsFailed, "{fault:?}");
}

/// Goal: a connection that does not come about has its own, shorter deadline.
/// Method: a server that accepts and never answers the handshake; we ring the connect clock.
#[rstest]
#[tokio::test]
async fn no_connection_in_time(#[values(A, O, R, G)] wire: Wire) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let bell = Arc::new(Signal::default());
    let model = wire.model(&base, &bell, Limits::default());
    let wait = Limits::default().model_connect;
    let fault = bell.ringing(wait, fault(&*model, request("hi"))).await;
    assert_eq!(fault.kind(), Kind::ModelConnectTimeout, "{fault:?}");
    assert_eq!(fault.detail().number(Fact::TimeoutMs), Some(10_000));
}

#[rstest]
#[tokio::test]
async fn a_key_no_header_can_carry_is_a_wrong_key(#[values(A, O, R, G)] wire: Wire) {
    let base = "http://127.0.0.1:9";
    let model = wire.model_with_key(base, "line\nbreak", &Arc::default(), Limits::default());
    assert_eq!(fault(&*model, request("hi")).await.kind(), Kind::ModelAuthentication);
}
