//! A server that says what a test has it say.

use std::time::Duration;

use budao_client::{Client, Event, Events, Session};
use budao_core::{fault::Fault, retry::RetryPolicy};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// Nothing here takes this long unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, what).await.expect("in time")
}

pub(crate) struct Server(TcpListener);

impl Server {
    pub(crate) async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// A client of it that comes back at once, some times.
    pub(crate) fn client(&self) -> Client {
        let address = self.0.local_addr().unwrap();
        let base = Duration::from_millis(1);
        let retry = RetryPolicy { tries: 4, base, max: base * 4, ..RetryPolicy::default() };
        Client::new(format!("ws://{address}/ws")).retry(retry).seed(1).reply(TEST_TIMEOUT)
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> ServerConnection {
        let (stream, _) = soon(self.0.accept()).await.unwrap();
        ServerConnection(accept_async(stream).await.unwrap())
    }

    /// The next connection before it is let in.
    pub(crate) async fn accept_raw(&self) -> TcpStream {
        soon(self.0.accept()).await.unwrap().0
    }

    /// Whether anybody connects within this time.
    pub(crate) async fn is_called(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.0.accept()).await.is_ok()
    }

    /// A client that follows session `s`, and its connection, resumed.
    pub(crate) async fn attached(&self, client: Client) -> (ServerConnection, Session, Events) {
        let attaching = tokio::spawn(async move { client.attach("s", None).await });
        let mut call = self.accept().await;
        call.resume(0, json!({"status": "complete", "epoch": "e1"})).await;
        let (session, mut events) = soon(attaching).await.unwrap().unwrap();
        assert_eq!(next_event(&mut events).await.meta("status"), "complete");
        (call, session, events)
    }
}

/// One connection, from the server's side. Dropping it cuts the line.
pub(crate) struct ServerConnection(WebSocketStream<TcpStream>);

impl ServerConnection {
    pub(crate) async fn send(&mut self, frame: &Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    pub(crate) async fn say_raw(&mut self, message: Message) {
        self.0.send(message).await.unwrap();
    }

    /// The next command.
    pub(crate) async fn receive(&mut self) -> Value {
        loop {
            match soon(self.0.next()).await.expect("the line holds").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("a command was expected, {other:?} came"),
            }
        }
    }

    /// The code the client closes with; none if the line is just cut.
    pub(crate) async fn closed(&mut self) -> Option<u16> {
        loop {
            match soon(self.0.next()).await {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// Hears that the client comes back from `seq`, and answers with this.
    pub(crate) async fn resume(&mut self, seq: u64, metadata: Value) -> Value {
        let request = self.receive().await;
        assert_eq!(
            (&request["event"], &request["session_id"]),
            (&json!("user.reconnect"), &json!("s"))
        );
        assert_eq!(request["content"]["last_seq"], seq);
        self.answer(&request, "system.notice", metadata).await;
        request
    }

    /// Answers a command.
    pub(crate) async fn answer(&mut self, request: &Value, event: &str, metadata: Value) {
        let id = &request["command_id"];
        self.send(&json!({"event": event, "command_id": id, "metadata": metadata})).await;
    }

    /// A frame of the history of `s`.
    pub(crate) async fn frame(&mut self, seq: u64, prev: u64) {
        self.frame_of("e1", seq, prev).await;
    }

    pub(crate) async fn frame_of(&mut self, epoch: &str, seq: u64, prev: u64) {
        let frame = json!({
            "event": "agent.thought", "session_id": "s", "seq": seq, "prev": prev, "epoch": epoch,
            "content": format!("number {seq}"),
        });
        self.send(&frame).await;
    }

    /// Waits until the client has read everything.
    pub(crate) async fn is_read(&mut self) {
        self.say_raw(Message::Ping(Vec::new().into())).await;
        while !matches!(soon(self.0.next()).await.unwrap().unwrap(), Message::Pong(_)) {}
    }

    /// Resets the line: whoever writes next learns of it.
    pub(crate) fn reset(self) {
        self.0.get_ref().set_zero_linger().unwrap();
    }

    /// Says good-bye with this code.
    pub(crate) async fn bye(mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "for a test".into() };
        self.0.close(Some(frame)).await.unwrap();
        self.closed().await;
    }
}

/// The next event.
pub(crate) async fn next_event(events: &mut Events) -> Event {
    soon(events.next()).await.expect("events go on").expect("an event")
}

/// The next fault.
pub(crate) async fn failed(events: &mut Events) -> Fault {
    soon(events.next()).await.expect("events go on").expect_err("a fault")
}

/// The positions of the next frames.
pub(crate) async fn positions(events: &mut Events, count: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.len() < count {
        seqs.extend(next_event(events).await.seq);
    }
    seqs
}

/// The facts of a fault.
pub(crate) fn facts(fault: &Fault) -> Value {
    serde_json::to_value(fault.detail()).unwrap()
}
