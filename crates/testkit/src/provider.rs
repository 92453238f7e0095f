//! A scripted model service on loopback: it can pace, cut, stall, corrupt or refuse its answers.
//!
//! It plays one [`Reply`] per request, in order, records each request, and counts clients that disconnect early. Tests
//! of both wire formats use it: it sends bytes without interpreting them ([`crate::sse`] builds the events).

use std::{
    collections::VecDeque,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use bytes::Bytes;
use futures::stream;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// Upper bound for the body of a request; a larger body is read as empty.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// The scripted answer to one request: status, headers, and the steps of the body.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    beats: Vec<ResponseStep>,
    delay: Duration,
    silent: bool,
}

#[derive(Clone, Debug)]
enum ResponseStep {
    Send(Bytes),
    Wait(Duration),
    Stall,
    Cut,
}

impl Reply {
    /// An event stream of these events, each in its own packet, that ends normally.
    #[must_use]
    pub fn events(events: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self::stream().then(events)
    }

    /// An event stream without events; add them with [`Reply::then`].
    #[must_use]
    pub fn stream() -> Self {
        Self::status(200).header("content-type", "text/event-stream")
    }

    /// An answer with this status and an empty body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            beats: Vec::new(),
            delay: Duration::ZERO,
            silent: false,
        }
    }

    /// An error response with a JSON body.
    #[must_use]
    pub fn refuse(status: u16, body: &Value) -> Self {
        Self::status(status).header("content-type", "application/json").bytes(body.to_string())
    }

    /// Never sends a response, not even a status; the connection stays open.
    #[must_use]
    pub fn silence() -> Self {
        Self { silent: true, ..Self::status(200) }
    }

    /// Waits this long, in real time, before it sends the status.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Adds a header. An invalid name or value is dropped without an error.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Appends events, each in its own packet.
    #[must_use]
    pub fn then(self, events: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        events.into_iter().fold(self, |reply, event| reply.bytes(event.as_ref().to_owned()))
    }

    /// Appends these bytes as one packet.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.beat(ResponseStep::Send(bytes.into()))
    }

    /// Appends a wait, in real time.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.beat(ResponseStep::Wait(wait))
    }

    /// Inserts this wait, in real time, before every packet added so far.
    #[must_use]
    pub fn paced(mut self, wait: Duration) -> Self {
        self.beats =
            self.beats.into_iter().flat_map(|beat| [ResponseStep::Wait(wait), beat]).collect();
        self
    }

    /// Sends nothing more and keeps the connection open.
    #[must_use]
    pub fn stall(self) -> Self {
        self.beat(ResponseStep::Stall)
    }

    /// Ends the body with an error, so that the connection breaks.
    #[must_use]
    pub fn cut(self) -> Self {
        self.beat(ResponseStep::Cut)
    }

    fn beat(mut self, beat: ResponseStep) -> Self {
        self.beats.push(beat);
        self
    }
}

/// One request as the service received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The path of the URL, without the query.
    pub path: String,
    /// All headers of the request.
    pub headers: HeaderMap,
    /// The parsed body; null if it is not JSON.
    pub body: Value,
}

/// A running service. Dropping it stops the server task.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// Computes a reply from the request.
type ResponseFn = Box<dyn Fn(&ReceivedRequest) -> Reply + Send + Sync>;

struct Shared {
    /// Used instead of `replies`. Requests are then not recorded, because there may be very many.
    answerer: Option<ResponseFn>,
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<ReceivedRequest>>,
    reached: watch::Sender<usize>,
    hung_up: watch::Sender<usize>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("reached", &self.reached).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provider {
    /// Starts a service on a free loopback port. Requests beyond the last reply get status 500.
    ///
    /// # Panics
    /// If no loopback port can be bound.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::begin(Ipv4Addr::LOCALHOST.into(), None, replies.into_iter().collect()).await
    }

    /// Starts a service that computes every reply from its request.
    ///
    /// # Panics
    /// If no loopback port can be bound.
    pub async fn answering(
        answerer: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::answering_at(Ipv4Addr::LOCALHOST.into(), answerer).await
    }

    /// The same at a free port of this address, for clients on other machines of a network.
    ///
    /// # Panics
    /// When the address is not one of this machine.
    pub async fn answering_at(
        host: IpAddr,
        answerer: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::begin(host, Some(Box::new(answerer)), VecDeque::new()).await
    }

    async fn begin(host: IpAddr, answerer: Option<ResponseFn>, replies: VecDeque<Reply>) -> Self {
        let listener = TcpListener::bind((host, 0)).await.expect("an address of this machine");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            answerer,
            replies: Mutex::new(replies),
            asked: Mutex::default(),
            reached: watch::Sender::new(0),
            hung_up: watch::Sender::new(0),
        });
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, app).await.ok();
        });
        Self { address, shared, server }
    }

    /// The loopback address and port the service listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as a base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Appends a reply to the queue.
    pub fn push(&self, reply: Reply) {
        lock(&self.shared.replies).push_back(reply);
    }

    /// All requests received so far, oldest first; empty for a service made with [`Provider::answering`].
    #[must_use]
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.asked).clone()
    }

    /// Waits until the service has received this many requests in all.
    pub async fn reached(&self, times: usize) {
        let mut seen = self.shared.reached.subscribe();
        seen.wait_for(|count| *count >= times).await.ok();
    }

    /// Waits until this many clients have disconnected before the end of their response.
    pub async fn hung_up(&self, times: usize) {
        let mut seen = self.shared.hung_up.subscribe();
        seen.wait_for(|count| *count >= times).await.ok();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, REQUEST_BYTES).await.unwrap_or_default();
    let asked = ReceivedRequest {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let reply = match &shared.answerer {
        Some(answerer) => Some(answerer(&asked)),
        None => {
            lock(&shared.asked).push(asked);
            lock(&shared.replies).pop_front()
        }
    };
    // Only now: who waits for a request also reads it.
    shared.reached.send_modify(|count| *count += 1);
    let reply = reply.unwrap_or_else(|| Reply::status(500).bytes("the test has no more replies"));
    let line = ConnectionGuard { shared, done: false };
    if reply.silent {
        std::future::pending::<()>().await;
    }
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    let mut response = Response::new(Body::from_stream(play(reply.beats.into(), line)));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or_default();
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) =
            (axum::http::HeaderName::try_from(name), axum::http::HeaderValue::try_from(value))
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Counts a client as disconnected if it is dropped before the response was complete.
struct ConnectionGuard {
    shared: Arc<Shared>,
    done: bool,
}

impl ConnectionGuard {
    /// Marks the response as complete.
    fn finish(mut self) {
        self.done = true;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if !self.done {
            self.shared.hung_up.send_modify(|count| *count += 1);
        }
    }
}

fn play(
    beats: VecDeque<ResponseStep>,
    line: ConnectionGuard,
) -> impl stream::Stream<Item = Result<Bytes, io::Error>> + Send {
    stream::unfold((beats, line), |(mut beats, mut line)| async move {
        loop {
            // Flushes the previous chunk as a packet of its own.
            tokio::task::yield_now().await;
            match beats.pop_front() {
                Some(ResponseStep::Send(bytes)) => return Some((Ok(bytes), (beats, line))),
                Some(ResponseStep::Wait(wait)) => tokio::time::sleep(wait).await,
                Some(ResponseStep::Stall) => std::future::pending().await,
                Some(ResponseStep::Cut) => {
                    line.done = true;
                    beats.clear();
                    return Some((Err(io::Error::other("cut")), (beats, line)));
                }
                None => {
                    line.finish();
                    return None;
                }
            }
        }
    })
}
