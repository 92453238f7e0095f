//! Calls of a server that misbehaves.

use std::{path::PathBuf, time::Duration};

use budao_core::{
    fault::{ErrorType, Fact, Kind},
    limits::Limits,
};
use budao_mcp::{ServerHandle, Transport};
use budao_tools::{Note, NoteSender, isolation};
use serde_json::{Value, json};

use crate::common::{
    call, call_with, connect, done, failed, fake, has_slow, limits, names, seen, toolbox, within,
    world,
};

#[tokio::test]
async fn every_page_of_tools_is_listed() {
    let server = connect(fake(&["--page", "7", "--more", "50"])).await;
    let names = names(&server);
    assert_eq!(names.len(), 68);
    assert_eq!(names[0], "mcp__fake__echo");
    assert_eq!(names[67], "mcp__fake__more_49");
    assert!(seen(&server, "tools/list").await.len() >= 10);
    server.shutdown().await;
}

#[tokio::test]
async fn only_the_wanted_tools_are_offered() {
    let mut config = fake(&["--more", "20"]);
    config.include = vec!["echo".into(), "more_1*".into()];
    config.exclude = vec!["more_1".into(), "more_19".into()];
    let server = connect(config).await;
    let names = names(&server);
    assert_eq!(names.len(), 10, "{names:?}");
    assert!(!names.contains(&"mcp__fake__more_1".to_owned()));
    server.shutdown().await;
}

#[tokio::test]
async fn a_tool_with_a_bad_schema_costs_only_itself() {
    let server = connect(fake(&["--bad-schema"])).await;
    assert_eq!(server.tools().len(), 18);
    let refused = server.refused();
    assert_eq!(refused[0].kind(), Kind::SchemaRefused);
    assert_eq!(refused[0].detail().text(Fact::ToolName), Some("mcp__fake__bad_schema"));
    server.shutdown().await;
}

#[tokio::test]
async fn an_answer_comes_back_as_text_structure_or_blocks() {
    let server = connect(fake(&[])).await;
    assert_eq!(done(call(&server, "echo", json!({ "text": "不倒" })).await), json!("不倒"));
    assert_eq!(done(call(&server, "add", json!({ "a": 2, "b": 3 })).await), json!({ "sum": 5 }));
    let picture = done(call(&server, "picture", json!({})).await);
    assert_eq!(picture["content"][0]["mimeType"], "image/png");
    assert_eq!(picture["content"][1]["uri"], "file:///a.png", "a link to a resource is kept");
    server.shutdown().await;
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_the_server() {
    let server = connect(fake(&[])).await;
    let checked = toolbox(&server).check_value("mcp__fake__echo", json!({ "text": 7 }), &limits());
    assert_eq!(checked.unwrap_err().kind(), Kind::InvalidArguments);
    assert!(seen(&server, "tools/call").await.len() == 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_no_of_the_tool_is_logical_and_keeps_its_content() {
    let server = connect(fake(&[])).await;
    let failure = failed(call(&server, "no", json!({})).await);
    assert_eq!(failure.fault.row().error_type, ErrorType::Logical);
    assert_eq!(failure.fault.kind(), Kind::ToolSaidNo);
    assert_eq!(failure.data, Some(json!("the city is not on the map")));
    assert_eq!(
        (&*failure.fault.hops()[0].role, &*failure.fault.hops()[0].name),
        ("mcp_server", "fake")
    );
    let (model_text, is_error) =
        budao_core::tool::Outcome::Failed(failure).render_for_model(budao_core::Lang::En);
    assert!(is_error && model_text.contains("the city is not on the map"), "{model_text}");
    server.shutdown().await;
}

#[tokio::test]
async fn garbage_wrong_ids_and_second_answers_do_not_disturb_a_call() {
    let server = connect(fake(&[])).await;
    for _ in 0..3 {
        assert_eq!(done(call(&server, "noise", json!({})).await), json!("quiet"));
    }
    assert_eq!(
        done(call(&server, "echo", json!({ "text": "still here" })).await),
        json!("still here")
    );
    server.shutdown().await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_its_call_at_once_and_only_it() {
    let server = connect(fake(&[])).await;
    let huge = call(&server, "huge", json!({ "bytes": 17 * 1024 * 1024 }));
    let small = call(&server, "echo", json!({ "text": "small" }));
    let (huge, small) = tokio::join!(huge, small);
    let fault = failed(huge).fault;
    assert_eq!(fault.kind(), Kind::OutputTooLarge);
    assert!(fault.detail().number(Fact::Actual).unwrap() > 17 * 1024 * 1024);
    assert_eq!(done(small), json!("small"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_long_answer_is_cut_for_the_model() {
    let server = connect(fake(&[])).await;
    let outcome = call(&server, "huge", json!({ "bytes": 1024 * 1024 })).await;
    let budao_core::tool::Outcome::Done(output) = outcome else { panic!("{outcome:?}") };
    assert!(output.data.as_str().unwrap().len() <= Limits::default().output_bytes);
    assert!(output.cut.unwrap().total_bytes >= 1024 * 1024);
    server.shutdown().await;
}

#[tokio::test]
async fn an_unreadable_answer_fails_its_call_at_once() {
    let server = connect(fake(&[])).await;
    for tool in ["half", "odd"] {
        let fault = failed(call(&server, tool, json!({})).await).fault;
        assert_eq!(fault.kind(), Kind::McpServerFailed, "{tool}: {fault}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn every_protocol_error_has_its_fault() {
    let server = connect(fake(&[])).await;
    let cases = [
        (-32602, "b must be positive", Kind::InvalidArguments),
        (-32602, "Unknown tool: error", Kind::UnknownTool),
        (-32601, "Method not found", Kind::UnknownTool),
        (-32603, "boom", Kind::McpServerFailed),
        (-32000, "quota", Kind::McpServerFailed),
    ];
    for (code, message, kind) in cases {
        let arguments = json!({ "code": code, "message": message });
        let fault = failed(call(&server, "error", arguments).await).fault;
        assert_eq!(fault.kind(), kind, "{code} {message}");
        assert_eq!(fault.hops()[0].name, "fake");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_is_cancelled_at_the_server() {
    let server = connect(fake(&[])).await;
    let context = isolation::context();
    let cancel = context.cancel.clone();
    let stopping = async {
        has_slow(&server, 1).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(call_with(&server, "slow", json!({}), context), stopping);
    assert_eq!(failed(outcome).fault.kind(), Kind::Cancelled);
    assert_told_to_forget(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_call_past_its_deadline_fails_with_it_and_is_cancelled_at_the_server() {
    let mut config = fake(&[]);
    config.timeouts.call = Some(Duration::from_millis(1_500));
    let server = connect(config).await;
    let fault = failed(call(&server, "slow", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::DeadlinePassed, "{fault}");
    assert_eq!(fault.detail().number(Fact::TimeoutMs), Some(1_500));
    assert_told_to_forget(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_is_forgotten_by_the_server_too() {
    let server = connect(fake(&[])).await;
    let tools = server.tools();
    let slow = tools.iter().find(|tool| &*tool.spec().name == "mcp__fake__slow").unwrap();
    let context = isolation::context();
    tokio::select! {
        biased;
        answer = slow.call(json!({}), &context) => panic!("{answer:?}"),
        () = has_slow(&server, 1) => {}
    }
    assert_told_to_forget(&server).await;
    server.shutdown().await;
}

/// The server was told to forget the very call of `slow`. Told by a task of its own, so asked for again.
async fn assert_told_to_forget(server: &budao_mcp::ServerHandle) {
    within(async {
        loop {
            let cancelled = seen(server, "notifications/cancelled").await;
            if let [model_text] = &*cancelled {
                let calls = seen(server, "tools/call").await;
                let slow = calls.iter().find(|call| call["params"]["name"] == "slow").unwrap();
                assert_eq!(model_text["params"]["requestId"], slow["id"]);
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn calls_at_once_get_their_own_answers() {
    let server = connect(fake(&[])).await;
    let calls = (0..200).map(|index| {
        let server = &server;
        async move {
            let text = format!("call {index}");
            assert_eq!(done(call(server, "echo", json!({ "text": text })).await), json!(text));
        }
    });
    futures::future::join_all(calls).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_at_its_limit_of_calls_gets_no_more_until_some_are_cancelled() {
    let mut config = fake(&[]);
    config.calls = 2;
    let server = connect(config).await;
    let context = isolation::context();
    let cancel = context.cancel.clone();
    let occupy = || async {
        // The calls below are in the way at times.
        while !context.cancel.is_cancelled() {
            call_with(&server, "slow", json!({}), context.clone()).await;
        }
    };
    let (first, second) = (occupy(), occupy());
    let third = async {
        let fault = within(async {
            // Both of them are on their way when a third one is refused.
            loop {
                if let Some(fault) = call(&server, "echo", json!({ "text": "x" })).await.fault() {
                    return fault.clone();
                }
            }
        })
        .await;
        assert_eq!(fault.kind(), Kind::LimitReached);
        cancel.cancel();
    };
    tokio::join!(first, second, third);
    within(async { while !call(&server, "echo", json!({ "text": "x" })).await.is_done() {} }).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_forbidden_request_of_a_server_is_refused_by_the_protocol() {
    let server = connect(fake(&[])).await;
    let ask_host = |method: &'static str| {
        let server = &server;
        async move {
            let answer = done(call(server, "ask", json!({ "method": method })).await);
            serde_json::from_str::<Value>(answer.as_str().unwrap()).unwrap()
        }
    };
    assert_eq!(ask_host("sampling/createMessage").await["error"]["code"], -32601);
    assert_eq!(ask_host("elicitation/create").await["result"]["action"], "decline");
    assert_eq!(ask_host("roots/list").await["error"]["code"], -32601);
    assert_eq!(ask_host("something/new").await["error"]["code"], -32601);
    assert_eq!(ask_host("ping").await["result"], json!({}));
    server.shutdown().await;
}

#[tokio::test]
async fn configured_roots_are_listed_to_the_server() {
    let mut config = fake(&[]);
    config.roots = vec![PathBuf::from("/srv/my project")];
    let server = connect(config).await;
    let answer = done(call(&server, "ask", json!({ "method": "roots/list" })).await);
    let answer: Value = serde_json::from_str(answer.as_str().unwrap()).unwrap();
    assert_eq!(answer["result"]["roots"][0]["uri"], "file:///srv/my%20project/");
    let hello = &seen(&server, "initialize").await[0];
    assert!(hello["params"]["capabilities"]["roots"].is_object(), "{hello}");
    server.shutdown().await;
}

#[tokio::test]
async fn progress_is_shown_while_a_call_runs() {
    let server = connect(fake(&[])).await;
    let (notes, mut shown) = NoteSender::channel(16);
    let mut context = isolation::context();
    context.notes = notes;
    // News that come before the call is known to be sent are lost, which does no harm.
    let shown = within(async {
        loop {
            done(call_with(&server, "progress", json!({}), context.clone()).await);
            if let Ok(note) = shown.try_recv() {
                return note;
            }
        }
    })
    .await;
    let steps = ["1/2 step\n", "2/2 step\n"].map(|step| Note::Output(step.into()));
    assert!(steps.contains(&shown), "{shown:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_call_carries_its_trace() {
    let server = connect(fake(&[])).await;
    let context = isolation::context();
    let trace = context.trace.to_string();
    done(call_with(&server, "add", json!({}), context).await);
    let calls = seen(&server, "tools/call").await;
    let parent = calls[0]["params"]["_meta"]["traceparent"].as_str().unwrap();
    assert!(parent.contains(&trace), "{parent}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_gets_the_usual_variables_and_its_own_and_no_others() {
    let mut config = fake(&[]);
    if let Transport::Stdio(stdio) = &mut config.transport {
        stdio.env.insert("TOKEN".into(), "hunter22".to_owned().into());
    }
    let server = connect(config).await;
    let env = |name: &'static str| {
        let server = &server;
        async move { done(call(server, "env", json!({ "name": name })).await) }
    };
    assert_eq!(env("TOKEN").await, json!("hunter22"));
    assert_ne!(env("PATH").await, json!("(not set)"));
    // Cargo sets it for every test; it stands for the keys a server must not see.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(env("CARGO_MANIFEST_DIR").await, json!("(not set)"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_gets_its_variables_from_the_caller_and_not_from_the_process() {
    let mut config = fake(&[]);
    if let Transport::Stdio(stdio) = &mut config.transport {
        stdio.inherit = vec!["CARGO_MANIFEST_DIR".into(), "GIVEN_*".into()];
    }
    let given = [("LANG", "given"), ("GIVEN_KEY", "given"), ("OTHER_KEY", "given")];
    let variables = given.map(|(name, value)| (name.into(), value.into())).into_iter().collect();
    let (world, limits) = (world(), limits());
    let connecting = ServerHandle::connect(config, &variables, &world, &limits);
    let server = within(connecting).await.unwrap();
    for (name, value) in [
        ("LANG", "given"),
        ("GIVEN_KEY", "given"),
        ("OTHER_KEY", "(not set)"),
        ("CARGO_MANIFEST_DIR", "(not set)"),
    ] {
        assert_eq!(
            done(call(&server, "env", json!({ "name": name })).await),
            json!(value),
            "{name}"
        );
    }
    server.shutdown().await;
}

#[tokio::test]
async fn tools_appear_and_disappear_as_the_server_lists_them() {
    let server = connect(fake(&[])).await;
    let before = server.generation();
    let mut watch = server.watch();
    done(call(&server, "grow", json!({})).await);
    within(watch.wait_for(|generation| *generation > before)).await.unwrap();
    assert!(names(&server).contains(&"mcp__fake__extra".to_owned()));
    assert_eq!(done(call(&server, "extra", json!({ "text": "new" })).await), json!("new"));
    done(call(&server, "shrink", json!({})).await);
    within(watch.wait_for(|generation| *generation == before + 2)).await.unwrap();
    assert!(!names(&server).contains(&"mcp__fake__extra".to_owned()));
    server.shutdown().await;
}
