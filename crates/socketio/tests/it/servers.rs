//! The same promises against every server, over every transport.

use budao_core::fault::Kind;
use budao_socketio::{Auth, Error, Event, Limits, Payload, Transports};
use budao_testkit::port::Refusing;
use serde_json::json;

use crate::common::{ALL, SHORT, Server, connect, disconnected, refused, servers, within};

#[tokio::test]
async fn arguments_come_back_as_they_were_sent() {
    for server in servers().await {
        for transports in ALL {
            let (client, _events) = connect(server.config().transports(transports)).await;
            let values =
                [json!({"深": [1, null, 2.5]}), json!("二\n\u{1e}"), json!(true), json!([])];
            let sent = Payload::all(values);
            let answer = within(client.call("echo", sent.clone(), SHORT)).await;
            assert_eq!(answer, Ok(sent), "{} {transports:?}", server.name());
            let empty = within(client.call("echo", Payload::none(), SHORT)).await.unwrap();
            assert!(empty.args().is_empty() || empty.first().is_null(), "{}", server.name());
            assert_eq!((client.waiting(), client.stats().connections), (0, 1));
        }
    }
}

#[tokio::test]
async fn attachments_keep_their_places_in_both_directions() {
    for server in servers().await {
        for transports in ALL {
            let (client, _events) = connect(server.config().transports(transports)).await;
            let sent = Payload::none().and_bytes(vec![1, 2, 3]).and_bytes(vec![255, 0]);
            let answer = within(client.call("swap", sent, SHORT)).await.unwrap();
            let [two, one] = answer.args() else { panic!("{answer:?}") };
            let name = server.name();
            assert_eq!(answer.bytes(two).unwrap()[..], [255, 0], "{name} {transports:?}");
            assert_eq!(answer.bytes(&one["deep"]).unwrap()[..], [1, 2, 3], "{name}");
        }
    }
}

#[tokio::test]
async fn a_question_of_the_server_is_answered() {
    for server in servers().await {
        for transports in ALL {
            let (client, mut events) = connect(server.config().transports(transports)).await;
            let answering = tokio::spawn(async move {
                while let Some(event) = events.next().await {
                    if let Event::Message { payload, reply: Some(reply), name, .. } = event {
                        assert_eq!(name, "question");
                        reply.send(Payload::of(json!({ "for": payload.first() }))).await.unwrap();
                    }
                }
            });
            let answer = within(client.call("ask", Payload::of(42), SHORT)).await.unwrap();
            assert_eq!(answer.first(), &json!({ "for": 42 }), "{} {transports:?}", server.name());
            client.close();
            within(answering).await.unwrap();
            assert_eq!(client.ended(), Some(Error::Closed));
        }
    }
}

#[tokio::test]
async fn a_namespace_admits_the_right_token_and_refuses_others() {
    for server in servers().await {
        for transports in ALL {
            let config = server.config().transports(transports).namespace("/locked");
            let error = refused(config.clone().auth(json!({ "token": "wrong" }))).await;
            let Error::Refused { namespace, message, data } = &error else { panic!("{error:?}") };
            assert_eq!((namespace.as_str(), message.as_str()), ("/locked", "wrong token"));
            if server.name() != "ours" {
                assert_eq!(data.as_ref().unwrap()["code"], 401, "{}", server.name());
            }
            assert_eq!(error.to_fault().kind(), Kind::NotAuthenticated);
            let fresh = Auth::Fresh(std::sync::Arc::new(|| {
                Box::pin(async { json!({ "token": "right" }) })
            }));
            let (client, _events) = connect(config.with_auth(fresh)).await;
            let answer = within(client.call("echo", Payload::of("in"), SHORT)).await;
            assert_eq!(answer, Ok(Payload::of("in")));
        }
    }
}

#[tokio::test]
async fn two_namespaces_share_a_connection_and_nothing_else() {
    for server in servers().await {
        let config = server.config().namespace("/").namespace("/locked");
        let (root, mut events) = connect(config.auth(json!({ "token": "right" }))).await;
        let locked = root.on("/locked").unwrap();
        assert!(root.on("/unknown").is_none());
        locked.emit("tell", Payload::of("for locked")).await.unwrap();
        let (one, two) = tokio::join!(
            within(root.call("echo", Payload::of(1), SHORT)),
            within(locked.call("echo", Payload::of(2), SHORT)),
        );
        assert_eq!((one.unwrap().first(), two.unwrap().first()), (&json!(1), &json!(2)));
        let reconnected = within(async {
            loop {
                if let Some(Event::Message { namespace, payload, .. }) = events.next().await {
                    return (namespace, payload);
                }
            }
        });
        let (namespace, payload) = reconnected.await;
        assert_eq!((&*namespace, payload.first()), ("/locked", &json!("for locked")));
    }
}

#[tokio::test]
async fn an_unknown_namespace_is_refused() {
    for server in servers().await {
        let error = refused(server.config().namespace("/nowhere")).await;
        assert!(matches!(error, Error::Refused { .. }), "{} {error:?}", server.name());
    }
}

#[tokio::test]
async fn an_unanswered_call_ends_at_its_deadline_and_a_late_answer_is_dropped() {
    for server in servers().await {
        let (client, _events) = connect(server.config()).await;
        let limit = std::time::Duration::from_millis(30);
        let silent = within(client.call("silent", Payload::none(), limit)).await;
        assert_eq!(silent, Err(Error::TimedOut(limit)), "{}", server.name());
        let late = within(client.call("later", Payload::of(120), limit)).await;
        assert_eq!(late, Err(Error::TimedOut(limit)));
        assert_eq!(client.waiting(), 0);
        within(async {
            while client.stats().late_answers == 0 {
                client.call("echo", Payload::none(), SHORT).await.unwrap();
            }
        })
        .await;
    }
}

#[tokio::test]
async fn being_kicked_ends_the_session_with_its_reason() {
    for server in servers().await {
        let (client, mut events) = connect(server.config()).await;
        let pending = tokio::spawn({
            let client = client.clone();
            async move { client.call("silent", Payload::none(), SHORT).await }
        });
        within(async {
            while client.waiting() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        client.emit("kick", Payload::none()).await.unwrap();
        let (error, goes_on) = disconnected(&mut events).await;
        let kicked = Error::Kicked { namespace: "/".into() };
        assert_eq!((&error, goes_on), (&kicked, false), "{}", server.name());
        assert_eq!(within(pending).await.unwrap(), Err(kicked.clone()));
        let after = within(client.call("echo", Payload::none(), SHORT)).await;
        assert_eq!(after, Err(kicked), "{}", server.name());
        assert!(within(events.next()).await.is_none());
    }
}

#[tokio::test]
async fn a_packet_the_server_would_not_take_is_refused_and_the_connection_stays() {
    for server in servers().await {
        let (client, _events) = connect(server.config()).await;
        let huge = Payload::of("x".repeat(1_000_001));
        let error = within(client.call("echo", huge, SHORT)).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 1_000_000, .. }), "{error:?}");
        within(client.call("echo", Payload::of("still here"), SHORT)).await.unwrap();
        assert_eq!(client.stats().connections, 1, "{}", server.name());
    }
}

#[tokio::test]
async fn a_packet_larger_than_we_take_loses_the_connection_with_a_reason() {
    let limits = Limits { frame_bytes_max: 10_000, ..Limits::default() };
    for server in servers().await {
        let config = server.config().limits(limits).transports(Transports::WebSocket);
        let (client, mut events) = connect(config).await;
        let answer = within(client.call("echo", Payload::of("x".repeat(20_000)), SHORT)).await;
        assert!(matches!(answer, Err(Error::Lost(_))), "{} {answer:?}", server.name());
        assert!(disconnected(&mut events).await.1, "it connects again");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_again() {
    for server in servers().await {
        if matches!(server, Server::Ours(_)) {
            continue; // Its library cannot end one transport; `life` ends all of them.
        }
        for transports in ALL {
            let config = server.config().transports(transports);
            let (client, mut events) = connect(config).await;
            client.emit("drop", Payload::none()).await.unwrap();
            let (error, goes_on) = disconnected(&mut events).await;
            // Python's server says goodbye to the namespaces first.
            let is_loss = matches!(error, Error::Lost(_) | Error::Kicked { .. });
            assert!(is_loss, "{} {transports:?} {error:?}", server.name());
            if goes_on {
                let answer = within(client.call("echo", Payload::of("again"), SHORT)).await;
                assert_eq!(answer, Ok(Payload::of("again")), "{}", server.name());
                assert_eq!(client.stats().connections, 2);
            }
        }
    }
}

#[tokio::test]
async fn no_server_is_an_error_at_once_and_no_socket_io_is_another() {
    let nobody = Refusing::take();
    for transports in ALL {
        let config = crate::common::config(&format!("http://{}", nobody.address()));
        let error = refused(config.transports(transports)).await;
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert_eq!(error.to_fault().kind(), Kind::ConnectionRefused);
    }
    for server in servers().await {
        let error = refused(server.config().path("/elsewhere")).await;
        let Error::Http(refusal) = &error else { panic!("{} {error:?}", server.name()) };
        assert_eq!(refusal.status, 404);
    }
}
