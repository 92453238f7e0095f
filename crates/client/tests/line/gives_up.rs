//! Where coming back makes no sense, everybody who waits is told, and why.

use std::time::Duration;

use budao_client::Error;
use budao_core::{fault::Kind, retry::RetryPolicy};
use serde_json::json;

use crate::server::{Server, facts, failed, next_event, soon};

#[tokio::test]
async fn a_session_that_is_refused_is_refused_at_once() {
    let server = Server::new().await;
    let client = server.client();
    let attaching = tokio::spawn(async move { client.attach("s", None).await.map(|_| ()) });
    let mut call = server.accept().await;
    let request = call.receive().await;
    call.answer(&request, "error.validation", json!({"error_code": "ERR_SES_001"})).await;
    let Err(Error::Rejected(event)) = soon(attaching).await.unwrap() else { panic!("refused") };
    assert_eq!(event.meta("error_code"), "ERR_SES_001");
    assert!(!server.is_called(Duration::from_millis(200)).await, "it came back all the same");
}

#[tokio::test]
async fn a_session_that_is_gone_when_its_client_comes_back_ends_its_events_and_its_commands() {
    let server = Server::new().await;
    let (mut call, session, mut events) = server.attached(server.client()).await;
    let asking = tokio::spawn(async move { session.send("go").await });
    call.receive().await;
    drop(call);
    let mut call = server.accept().await;
    let request = call.receive().await;
    call.answer(&request, "error.validation", json!({})).await;
    assert!(next_event(&mut events).await.is_local());
    assert_eq!(next_event(&mut events).await.event, "error.validation");
    assert_eq!(failed(&mut events).await.kind(), Kind::ConnectionLost);
    assert!(soon(events.next()).await.is_none(), "nothing comes after the end");
    let Err(Error::Fault(fault)) = soon(asking).await.unwrap() else { panic!("not answered") };
    assert_eq!(fault.kind(), Kind::ConnectionLost);
}

#[tokio::test]
async fn a_code_that_says_do_not_come_back_is_final_and_the_others_are_not() {
    let server = Server::new().await;
    for code in [4401, 4403, 1000] {
        let (call, session, mut events) = server.attached(server.client()).await;
        call.bye(code).await;
        let fault = failed(&mut events).await;
        assert_eq!(facts(&fault)["close_code"], code);
        assert!(soon(events.next()).await.is_none());
        let Err(Error::Fault(fault)) = soon(session.send("go")).await else { panic!("sent") };
        assert_eq!(fault.kind(), Kind::ConnectionLost);
    }
    for code in [1001, 1011, 1012, 1013, 4408, 4429] {
        let (call, _session, mut events) = server.attached(server.client()).await;
        call.bye(code).await;
        let mut call = server.accept().await;
        call.resume(0, json!({"status": "complete", "epoch": "e1"})).await;
        let lost = next_event(&mut events).await;
        assert_eq!((lost.is_local(), lost.meta("close_code")), (true, &json!(code)));
    }
}

#[tokio::test]
async fn after_its_tries_it_says_how_many_there_were() {
    let server = Server::new().await;
    let client = server.client();
    drop(server);
    let Err(Error::Fault(fault)) = soon(client.attach("s", None)).await else { panic!("there") };
    assert_eq!(fault.kind(), Kind::ConnectionRefused);
    let attempts = fault.attempts().unwrap();
    assert_eq!((attempts.attempt, attempts.max), (4, 4));
    let Err(Error::Fault(fault)) =
        soon(client.create(budao_client::SessionRequest::default())).await
    else {
        panic!("there")
    };
    assert_eq!(fault.attempts().unwrap().attempt, 4);
}

#[tokio::test]
async fn who_lets_go_of_a_session_says_good_bye_and_does_not_come_back() {
    let server = Server::new().await;
    let (mut call, session, events) = server.attached(server.client()).await;
    drop((session, events));
    assert_eq!(call.closed().await, Some(1000));
    let pause = Duration::from_millis(200);
    let retry = RetryPolicy { tries: 9, base: pause, max: pause, ..RetryPolicy::default() };
    let (call, session, mut events) = server.attached(server.client().retry(retry)).await;
    drop(call);
    assert!(next_event(&mut events).await.is_local());
    // While it waits for its next try.
    drop((session, events));
    assert!(!server.is_called(pause * 3).await, "nobody is left who wants it");
}

#[tokio::test]
async fn a_command_during_failed_reconnects_fails_with_their_reason() {
    let server = Server::new().await;
    let (call, session, mut events) = server.attached(server.client()).await;
    drop(call);
    let mut connection = server.accept_raw().await;
    assert!(next_event(&mut events).await.is_local());
    let asking = tokio::spawn(async move { session.send("go").await });
    // One thread runs this test: the command is on its way before this goes on.
    tokio::task::yield_now().await;
    let refused = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut connection, refused).await.unwrap();
    let Err(Error::Fault(fault)) = soon(asking).await.unwrap() else { panic!("answered") };
    assert_eq!(fault.kind(), Kind::NotAuthenticated);
    assert_eq!(failed(&mut events).await.kind(), Kind::NotAuthenticated);
}
