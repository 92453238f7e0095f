//! The test server on socketioxide, in this process.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use socketioxide::{
    SocketIo,
    adapter::LocalAdapter,
    extract::{AckSender, SocketRef},
    handler::{ConnectHandler as _, FromMessageParts as _, MessageHandler, Value as Data},
    socket::Socket,
};
use tokio::{net::TcpListener, task::JoinHandle};

pub(crate) struct Hub {
    port: u16,
    io: SocketIo,
    task: JoinHandle<()>,
}

impl Hub {
    pub(crate) async fn start(port: u16) -> Self {
        let (layer, io) =
            SocketIo::builder().max_buffer_size(100_000).max_payload(1_000_000).build_layer();
        // Handlers are registered before the client learns that it is connected.
        io.ns("/", (async |_: SocketRef| {}).with(open));
        io.ns("/locked", (async |_: SocketRef| {}).with(locked));
        let app = axum::Router::new().layer(layer);
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, io, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends every connection and stops listening.
    pub(crate) async fn stop(self) {
        self.io.close().await;
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn open(socket: SocketRef) -> Result<(), String> {
    socket.on_fallback(Events);
    Ok(())
}

async fn locked(
    socket: SocketRef,
    socketioxide::extract::TryData(auth): socketioxide::extract::TryData<Value>,
) -> Result<(), String> {
    let is_right = auth.is_ok_and(|auth| auth["token"] == "right");
    socket.on_fallback(Events);
    if is_right { Ok(()) } else { Err("wrong token".into()) }
}

/// Every event, in the order it came.
struct Events;

impl MessageHandler<LocalAdapter, Events> for Events {
    fn call(&self, socket: Arc<Socket>, mut data: Data, id: Option<i64>) {
        let Ok(ack) = AckSender::from_message_parts(&socket, &mut data, &id);
        let Data::Str(text, attachments) = data else { panic!("text") };
        let mut args: Vec<Value> = serde_json::from_str(&text).unwrap();
        let name = args.remove(0);
        match name.as_str().unwrap() {
            "echo" => ack.send(&VariadicArgs(args)).unwrap(),
            "swap" => {
                let bytes: Vec<_> = attachments.unwrap().into();
                ack.send(&(bytes[1].clone(), Deep { deep: bytes[0].clone() })).unwrap();
            }
            "ask" => drop(tokio::spawn(async move {
                let answer =
                    socket.emit_with_ack::<_, Value>("question", &VariadicArgs(args)).unwrap();
                ack.send(&answer.await.unwrap_or(json!("none"))).unwrap();
            })),
            "silent" => {}
            "later" => drop(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(args[0].as_u64().unwrap())).await;
                let _ = ack.send("late");
            })),
            "tell" => socket.emit("told", &args[0]).unwrap(),
            "kick" => socket.disconnect().unwrap(),
            other => panic!("an event nobody knows: {other}"),
        }
    }
}

#[derive(serde::Serialize)]
struct Deep {
    deep: bytes::Bytes,
}

/// Arguments that are sent one by one.
struct VariadicArgs(Vec<Value>);

impl serde::Serialize for VariadicArgs {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for value in &self.0 {
            tuple.serialize_element(value)?;
        }
        tuple.end()
    }
}
