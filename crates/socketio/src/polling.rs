//! The polling transport: a long-polling GET receives packets, and one POST sends each batch.
//!
//! The GET runs in a task of its own, because dropping a request half-way would lose packets.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::StreamExt;
use reqwest::{Client, Response, Url, redirect};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Config, Error, Loss,
    engine::{ClientPacket, Handshake, ServerPacket},
    websocket::refusal,
};
use budao_core::world::World;

/// Separates the packets of one body.
const SEPARATOR: char = '\u{1e}';

/// Bytes that are read from the body of a refusal.
pub(crate) const ERROR_BYTES: usize = 64 * 1024;

/// The payload limit for servers that advertise none, in bytes.
const PAYLOAD_BYTES: usize = 1_000_000;

/// Packets that were received and not yet taken by the session.
const PACKETS_MAX: usize = 64;

/// Installs the process's TLS provider unless there is one already. Without a provider, building a client panics.
pub(crate) fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A session that was opened by polling and may still be upgraded.
#[derive(Debug)]
pub(crate) struct Polling {
    pub(crate) open: Handshake,
    client: Client,
    url: Url,
    bytes_max: usize,
}

/// Opens a session with one GET request.
pub(crate) async fn open(config: &Config) -> Result<Polling, Error> {
    let client = client(config)?;
    let unreachable = |error: reqwest::Error| Error::Unreachable(describe_error(&error));
    let response = client.get(config.address("polling", None)).send().await.map_err(unreachable)?;
    let bytes_max = config.limits.frame_bytes_max;
    if !response.status().is_success() {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = body(response, ERROR_BYTES, OverflowAction::Cut).await.unwrap_or_default();
        return Err(refusal(status, &headers, body));
    }
    let body = body(response, bytes_max, OverflowAction::Fail).await.map_err(Error::Lost)?;
    let first = body.split(SEPARATOR).next().unwrap_or_default();
    let open = Handshake::read(first)?;
    let url = config.address("polling", Some(&open.sid));
    Ok(Polling { open, client, url, bytes_max })
}

fn client(config: &Config) -> Result<Client, Error> {
    install_tls();
    let headers = config.headers.iter().cloned().collect();
    let builder = Client::builder()
        .user_agent(concat!("budao/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .default_headers(headers)
        .connect_timeout(config.limits.handshake);
    // Requests to this machine bypass the proxy.
    let host = config.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_here { builder.no_proxy() } else { builder }
        .build()
        .map_err(|error| Error::Address(describe_error(&error)))
}

/// The error and its sources, without the URL, which may contain secrets.
fn describe_error(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let line = error.to_string();
        let line = line.split(" for url (").next().unwrap_or_default();
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(line);
        next = error.source();
    }
    text
}

/// The reaction to a body that exceeds its limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverflowAction {
    Cut,
    Fail,
}

/// Reads the body as text, up to a limit.
pub(crate) async fn body(
    response: Response,
    bytes_max: usize,
    over: OverflowAction,
) -> Result<String, Loss> {
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.map_err(|error| Loss::Broken(describe_error(&error)))?);
        if bytes.len() > bytes_max {
            if over == OverflowAction::Fail {
                return Err(Loss::Broken(format!("a body of more than {bytes_max} bytes")));
            }
            bytes.truncate(bytes_max);
            break;
        }
    }
    match over {
        OverflowAction::Cut => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        OverflowAction::Fail => {
            String::from_utf8(bytes).map_err(|_| Loss::Broken("a body that is not UTF-8".into()))
        }
    }
}

impl Polling {
    /// Starts the task that polls for packets. It stops when the [`Poller`] is dropped.
    pub(crate) fn start(self, world: &World) -> (Poller, Poster) {
        let (sender, packet_queue) = mpsc::channel(PACKETS_MAX);
        let stop = CancellationToken::new();
        let timeout = self.open.silence_max() + Duration::from_secs(5);
        let (client, url, bytes_max) = (self.client.clone(), self.url.clone(), self.bytes_max);
        let is_over = stop.clone();
        world.spawn.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = is_over.cancelled() => {}
                () = poll(&client, &url, bytes_max, timeout, &sender) => {}
            }
        }));
        let payload_max = self.open.max_payload.unwrap_or(PAYLOAD_BYTES);
        let poster = Poster { client: self.client, url: self.url, payload_max, timeout };
        (Poller { packet_queue, _stop: stop.drop_guard() }, poster)
    }
}

/// Polls for packets until a request fails or the receiver is dropped.
async fn poll(
    client: &Client,
    url: &Url,
    bytes_max: usize,
    timeout: Duration,
    packet_queue: &mpsc::Sender<Result<ServerPacket, Loss>>,
) {
    loop {
        let body = match get(client, url, bytes_max, timeout).await {
            Ok(body) => body,
            Err(loss) => return drop(packet_queue.send(Err(loss)).await),
        };
        for packet in packets(&body) {
            let is_last = packet.is_err();
            if packet_queue.send(packet).await.is_err() || is_last {
                return;
            }
        }
    }
}

async fn get(
    client: &Client,
    url: &Url,
    bytes_max: usize,
    timeout: Duration,
) -> Result<String, Loss> {
    let response = client.get(url.clone()).timeout(timeout).send().await;
    let response = response.map_err(|error| Loss::Broken(describe_error(&error)))?;
    match response.status().as_u16() {
        200 => body(response, bytes_max, OverflowAction::Fail).await,
        status => Err(Loss::Broken(format!("polling was answered with HTTP status {status}"))),
    }
}

/// Decodes the packets of a body, in order.
pub(crate) fn packets(body: &str) -> impl Iterator<Item = Result<ServerPacket, Loss>> {
    body.split(SEPARATOR).map(read)
}

fn read(packet: &str) -> Result<ServerPacket, Loss> {
    match packet.strip_prefix('b') {
        Some(text) => STANDARD
            .decode(text)
            .map(|bytes| ServerPacket::Bytes(Bytes::from(bytes)))
            .map_err(|_| Loss::Broken("an attachment that is not base64".into())),
        None => ServerPacket::read(packet),
    }
}

/// The receiving half of the polling transport.
#[derive(Debug)]
pub(crate) struct Poller {
    packet_queue: mpsc::Receiver<Result<ServerPacket, Loss>>,
    _stop: DropGuard,
}

impl Poller {
    pub(crate) async fn next(&mut self) -> Result<ServerPacket, Loss> {
        let ended = || Err(Loss::Closed { code: None, reason: String::new() });
        self.packet_queue.recv().await.unwrap_or_else(ended)
    }
}

/// The sending half of the polling transport.
#[derive(Debug)]
pub(crate) struct Poster {
    client: Client,
    url: Url,
    payload_max: usize,
    timeout: Duration,
}

impl Poster {
    /// Sends packets in as few bodies as the server's payload limit allows.
    pub(crate) async fn send_packets(&mut self, packets: Vec<ClientPacket>) -> Result<(), Loss> {
        for body in bodies(packets, self.payload_max) {
            self.post(body).await?;
        }
        Ok(())
    }

    async fn post(&self, body: String) -> Result<(), Loss> {
        let request = self
            .client
            .post(self.url.clone())
            .header(http::header::CONTENT_TYPE, "text/plain;charset=UTF-8")
            .timeout(self.timeout)
            .body(body);
        let response =
            request.send().await.map_err(|error| Loss::Broken(describe_error(&error)))?;
        match response.status().as_u16() {
            200 => Ok(()),
            status => Err(Loss::Broken(format!("sending was answered with HTTP status {status}"))),
        }
    }
}

/// Joins packets into as few bodies as fit the limit. A packet above the limit gets a body of its own.
pub(crate) fn bodies(packets: Vec<ClientPacket>, bytes_max: usize) -> impl Iterator<Item = String> {
    let mut texts = packets.into_iter().flat_map(texts).peekable();
    std::iter::from_fn(move || {
        let mut body = texts.next()?;
        while let Some(text) = texts.next_if(|text| body.len() + 1 + text.len() <= bytes_max) {
            body.push(SEPARATOR);
            body.push_str(&text);
        }
        Some(body)
    })
}

/// The text form of a packet and its attachments in a body.
fn texts(packet: ClientPacket) -> Vec<String> {
    match packet {
        ClientPacket::Pong => vec!["3".into()],
        ClientPacket::Close => vec!["1".into()],
        ClientPacket::Message(encoding) => {
            let attachments = encoding.attachments.iter();
            let attachments = attachments.map(|bytes| format!("b{}", STANDARD.encode(bytes)));
            std::iter::once(format!("4{}", encoding.text)).chain(attachments).collect()
        }
    }
}
