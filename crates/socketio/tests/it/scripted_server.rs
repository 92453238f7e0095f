//! A server that is played word by word: for what real ones seldom say.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use budao_core::retry::RetryPolicy;
use budao_socketio::{Client, Config, Error, Event, Limits, Loss, Payload, Transports};
use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{Bytes, Message},
};

use crate::common::{SHORT, config, connected, disconnected, refused, within, world};

/// The other end of a connection.
struct ScriptedServer(WebSocketStream<TcpStream>);

impl ScriptedServer {
    /// Takes the next connection and opens it; its silence may last this long.
    async fn accept(listener: &TcpListener, silence: Duration) -> Self {
        let (stream, _) = within(listener.accept()).await.unwrap();
        let mut played = Self(within(accept_async(stream)).await.unwrap());
        let half = silence.as_millis() / 2;
        let open =
            format!(r#"0{{"sid":"s","upgrades":[],"pingInterval":{half},"pingTimeout":{half}}}"#);
        played.send(&open).await;
        played
    }

    async fn send(&mut self, text: &str) {
        within(self.0.send(Message::text(text))).await.unwrap();
    }

    /// The next words of the client.
    async fn receive(&mut self) -> String {
        loop {
            match within(self.0.next()).await {
                Some(Ok(Message::Text(text))) => return text.as_str().to_owned(),
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the client has gone.
    async fn gone(mut self) {
        within(async { while let Some(Ok(_)) = self.0.next().await {} }).await;
    }
}

const LONG: Duration = Duration::from_secs(3_600);

async fn listen() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, config(&url).transports(Transports::WebSocket))
}

#[tokio::test]
async fn early_events_are_kept_until_the_namespace_is_connected() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        let mut server = ScriptedServer::accept(&listener, LONG).await;
        assert_eq!(server.receive().await, "40");
        // Alive, a noop, somebody else's namespace, an event with bytes: then ours.
        server.send("2").await;
        assert_eq!(server.receive().await, "3");
        server.send("6").await;
        server.send(r#"40/other,{"sid":"o"}"#).await;
        server.send(r#"451-["early",{"_placeholder":true,"num":0}]"#).await;
        within(server.0.send(Message::Binary(Bytes::from_static(b"raw")))).await.unwrap();
        server.send(r#"40{"sid":"a"}"#).await;
        server
    });
    let (client, mut events) = within(Client::connect(config, world())).await.unwrap();
    connected(&mut events).await;
    let Some(Event::Message { name, .. }) = within(events.next()).await else { panic!("lost") };
    assert_eq!(name, "early");
    let mut server = within(server).await.unwrap();
    // Once more connected, an event and an answer of elsewhere, an answer nobody waits for: all harmless.
    server.send(r#"40{"sid":"a"}"#).await;
    server.send("6").await;
    server.send(r#"42/other,["not","ours"]"#).await;
    server.send(r#"43/other,7[1]"#).await;
    server.send(r#"437[1]"#).await;
    server.send(r#"42["still","here"]"#).await;
    let Some(Event::Message { name, .. }) = within(events.next()).await else { panic!("lost") };
    assert_eq!(name, "still");
    assert_eq!(client.stats().late_answers, 2);
    client.close();
    server.gone().await;
}

#[tokio::test]
async fn a_server_that_talks_without_letting_us_in_is_left() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        let mut server = ScriptedServer::accept(&listener, LONG).await;
        for _ in 0..4 {
            server.send(r#"42["early"]"#).await;
        }
        server.gone().await;
    });
    let limits = Limits { inbox_max: 3, ..Limits::default() };
    let error = refused(config.limits(limits)).await;
    assert_eq!(error, Error::Full { name: "inbox_max", limit: 3 });
    within(server).await.unwrap();
}

#[tokio::test]
async fn a_slow_or_interrupted_handshake_has_an_error_of_its_own() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        let server = ScriptedServer::accept(&listener, LONG).await;
        server.gone().await;
        let mut server = ScriptedServer::accept(&listener, LONG).await;
        server.send("1").await;
        server.gone().await;
        let mut server = ScriptedServer::accept(&listener, LONG).await;
        server.send("4?").await;
        server.gone().await;
    });
    let limits = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let error = refused(config.clone().limits(limits)).await;
    assert!(matches!(&error, Error::Unreachable(why) if why.contains("300 ms")), "{error:?}");
    let error = refused(config.clone()).await;
    assert!(matches!(error, Error::Lost(Loss::Closed { .. })), "{error:?}");
    let error = refused(config).await;
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    within(server).await.unwrap();
}

/// Lets a client in whose server may be silent for so long.
async fn let_in(listener: &TcpListener, silence: Duration) -> ScriptedServer {
    let mut server = ScriptedServer::accept(listener, silence).await;
    assert_eq!(server.receive().await, "40");
    server.send(r#"40{"sid":"a"}"#).await;
    server
}

#[tokio::test]
async fn a_silent_server_is_left_and_the_next_connection_is_as_good() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        let silent = let_in(&listener, Duration::from_millis(200)).await;
        let mut next = let_in(&listener, LONG).await;
        next.send("2").await;
        let mut heard = [next.receive().await, next.receive().await];
        heard.sort();
        assert_eq!(heard, ["3", r#"42["bye"]"#]);
        drop(silent);
    });
    let (client, mut events) = within(Client::connect(config, world())).await.unwrap();
    let (error, goes_on) = disconnected(&mut events).await;
    assert_eq!((error, goes_on), (Error::Lost(Loss::Silent(Duration::from_millis(200))), true));
    connected(&mut events).await;
    client.emit("bye", Payload::none()).await.unwrap();
    within(server).await.unwrap();
}

#[tokio::test]
async fn a_server_that_closes_refuses_or_talks_nonsense_is_lost_with_its_reason() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        for word in ["1", "9", "4?", r#"44{"message":"no more"}"#] {
            let mut server = let_in(&listener, LONG).await;
            server.send(word).await;
            server.gone().await;
        }
    });
    let (_client, mut events) = within(Client::connect(config, world())).await.unwrap();
    let (error, _) = disconnected(&mut events).await;
    assert!(matches!(error, Error::Lost(Loss::Closed { .. })), "{error:?}");
    let (error, _) = disconnected(&mut events).await;
    assert!(matches!(error, Error::Lost(Loss::Broken(_))), "{error:?}");
    let (error, goes_on) = disconnected(&mut events).await;
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    if goes_on {
        let (error, _) = disconnected(&mut events).await;
        assert!(
            matches!(&error, Error::Refused { message, .. } if message == "no more"),
            "{error:?}"
        );
        within(server).await.unwrap();
    }
}

#[tokio::test]
async fn unconsumed_events_end_the_connection_before_the_server_does() {
    let (listener, config) = listen().await;
    let limits = Limits { inbox_max: 1, ..Limits::default() };
    let server = tokio::spawn(async move {
        let mut server = let_in(&listener, Duration::from_millis(400)).await;
        for _ in 0..3 {
            server.send(r#"42["much"]"#).await;
        }
        server.gone().await;
    });
    let (_client, mut events) =
        within(Client::connect(config.limits(limits), world())).await.unwrap();
    // Nothing is read until the connection has been given up.
    within(server).await.unwrap();
    let (error, _) = disconnected(&mut events).await;
    assert_eq!(error, Error::Lost(Loss::EventsNotConsumed(Duration::from_millis(400))));
}

/// Goal: a server that talks and does not listen is left. Method: it pings all the time and reads nothing, while more
/// is sent than any buffer on the way holds.
#[tokio::test]
async fn a_server_that_takes_nothing_is_left_though_it_pings() {
    let (listener, config) = listen().await;
    let silence = Duration::from_millis(400);
    let server = tokio::spawn(async move {
        let mut server = let_in(&listener, silence).await;
        let mut ping = tokio::time::interval(silence / 8);
        // Until the client has gone.
        while server.0.send(Message::text("2")).await.is_ok() {
            ping.tick().await;
        }
    });
    let (client, mut events) = within(Client::connect(config, world())).await.unwrap();
    let much = "x".repeat(1 << 20);
    for _ in 0..32 {
        client.emit("much", Payload::of(much.clone())).await.unwrap();
    }
    let (error, goes_on) = disconnected(&mut events).await;
    assert_eq!((error, goes_on), (Error::Lost(Loss::SendTimedOut(silence)), true));
    within(server).await.unwrap();
}

#[tokio::test]
async fn unconsumed_early_events_end_the_connection() {
    let (listener, config) = listen().await;
    let limits = Limits { inbox_max: 1, ..Limits::default() };
    let server = tokio::spawn(async move {
        let mut server = ScriptedServer::accept(&listener, Duration::from_millis(400)).await;
        server.send(r#"42["early"]"#).await;
        server.send(r#"40{"sid":"a"}"#).await;
        server.gone().await;
    });
    let (_client, mut events) =
        within(Client::connect(config.limits(limits), world())).await.unwrap();
    within(server).await.unwrap();
    let (error, _) = disconnected(&mut events).await;
    assert_eq!(error, Error::Lost(Loss::EventsNotConsumed(Duration::from_millis(400))));
}

/// Goal: what cannot be sent is noticed although nothing is heard. Method: a server for polling that answers every
/// request but the second post, and lets the last poll hang.
#[tokio::test]
async fn a_server_that_refuses_what_we_send_is_lost() {
    let (polls, posts) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let poll = move || {
        let number = polls.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                0 => r#"0{"sid":"s","upgrades":[],"pingInterval":1000000,"pingTimeout":1000000}"#,
                1 => r#"40{"sid":"a"}"#,
                _ => std::future::pending().await,
            }
        }
    };
    let post = move || {
        let number = posts.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                0 => (StatusCode::OK, "ok"),
                _ => (StatusCode::BAD_REQUEST, "no"),
            }
        }
    };
    let (listener, config) = listen().await;
    let app = Router::new().route("/socket.io/", get(poll).post(post));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let policy = RetryPolicy { tries: 1, ..RetryPolicy::default() };
    let config = config.transports(Transports::Polling).reconnect(policy);
    let (client, mut events) = within(Client::connect(config, world())).await.unwrap();
    client.emit("much", Payload::none()).await.unwrap();
    let (error, goes_on) = disconnected(&mut events).await;
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(!goes_on);
    server.abort();
}

#[tokio::test]
async fn events_without_a_reader_are_counted_and_answers_still_come() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        let mut server = let_in(&listener, LONG).await;
        assert_eq!(server.receive().await, r#"421["echo"]"#);
        server.send(r#"42["nobody","listens"]"#).await;
        server.send("431[]").await;
        server
    });
    let (client, events) = within(Client::connect(config, world())).await.unwrap();
    drop(events);
    within(client.call("echo", Payload::none(), SHORT)).await.unwrap();
    assert!(client.stats().untaken_events >= 1);
    drop(within(server).await.unwrap());
}

#[tokio::test]
async fn closing_while_there_is_no_connection_ends_the_wait_for_the_next() {
    let (listener, config) = listen().await;
    let never = RetryPolicy { tries: u32::MAX, base: LONG, max: LONG, ..RetryPolicy::default() };
    let server = tokio::spawn(async move { drop(let_in(&listener, LONG).await) });
    let connecting = Client::connect(config.reconnect(never), world());
    let (client, mut events) = within(connecting).await.unwrap();
    within(server).await.unwrap();
    disconnected(&mut events).await;
    client.close();
    within(async { while events.next().await.is_some() {} }).await;
    assert_eq!(client.ended(), Some(Error::Closed));
}

#[tokio::test]
async fn early_events_up_to_the_inbox_limit_are_kept_and_close_leaves_the_namespace() {
    let (listener, config) = listen().await;
    let server = tokio::spawn(async move {
        let mut server = ScriptedServer::accept(&listener, LONG).await;
        assert_eq!(server.receive().await, "40");
        server.send(r#"42["one"]"#).await;
        server.send(r#"42["two"]"#).await;
        server.send(r#"40{"sid":"a"}"#).await;
        assert_eq!(server.receive().await, "41", "it leaves its namespace");
        server.gone().await;
    });
    let limits = Limits { inbox_max: 2, ..Limits::default() };
    let connecting = Client::connect(config.limits(limits), world());
    let (client, mut events) = within(connecting).await.unwrap();
    connected(&mut events).await;
    for expected in ["one", "two"] {
        let Some(Event::Message { name, .. }) = within(events.next()).await else { panic!("lost") };
        assert_eq!(name, expected);
    }
    client.close();
    within(server).await.unwrap();
}
