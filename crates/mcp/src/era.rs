//! The era of a server: how a connection to it begins, and which way of beginning is tried after another failed.
//!
//! Servers up to 2025-11-25 need a handshake. Servers of 2026-07-28 have none: every request is complete. A server does
//! not say beforehand which it is, so the first connection asks. The answer is remembered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::world::Clock;
use futures::future::BoxFuture;
use rmcp::{
    RoleClient,
    model::{
        ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, ProtocolVersion,
        RequestId, ServerJsonRpcMessage,
    },
    service::ClientLifecycleMode,
    transport::Transport,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Transport as ConfiguredTransport,
    error::{ServerError, chain, is_rejection},
};

/// How long the first connection waits for the answer to `server/discover`. An older server may ignore the request.
const PROBE: Duration = Duration::from_secs(2);

/// How a connection to a server begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// No handshake: protocol version 2026-07-28.
    Stateless,
    /// The handshake `initialize`: protocol versions up to 2025-11-25.
    Handshake,
    /// The handshake over the older HTTP+SSE transport, at a URL that was configured as streamable HTTP.
    EventStream,
}

/// One way to begin a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Ask with `server/discover`, and fall back to the handshake on the same connection.
    Probe,
    /// Begin as a server of this era.
    Known(Era),
}

impl Opening {
    /// The way to begin a connection to a server of a known era, or of an unknown one.
    pub(crate) fn first(transport: &ConfiguredTransport, known: Option<Era>) -> Self {
        match (transport, known) {
            (ConfiguredTransport::Sse(_), _) => Self::Known(Era::EventStream),
            (_, Some(era)) => Self::Known(era),
            (_, None) => Self::Probe,
        }
    }

    /// The way to try after this one failed; `None` if another way cannot help. A server that cannot be reached, wants a
    /// sign-in or is slow fails in every way.
    pub(crate) fn after(
        self,
        error: &ServerError,
        transport: &ConfiguredTransport,
        is_unanswered: bool,
    ) -> Option<Self> {
        let is_rejected = matches!(error, ServerError::Wire(error) if is_rejection(&**error));
        let is_refused = matches!(error, ServerError::Refused(_));
        let is_late = match error {
            ServerError::Wire(error) => {
                chain(&**error).any(<dyn std::error::Error>::is::<ProbeTimeout>)
            }
            _ => false,
        };
        let is_broken = matches!(error, ServerError::Lost | ServerError::Unclear(_));
        let next = match self {
            _ if matches!(transport, ConfiguredTransport::Sse(_)) => return None,
            Self::Probe | Self::Known(Era::Handshake) if is_rejected => Era::EventStream,
            // The server was not ready for the probe, and knows no handshake.
            Self::Probe if is_refused && is_unanswered => Era::Stateless,
            Self::Probe if is_broken || is_late => Era::Handshake,
            Self::Known(Era::Handshake) if is_refused => Era::Stateless,
            Self::Known(Era::Stateless) if is_refused || is_broken || is_rejected => Era::Handshake,
            Self::Known(Era::EventStream) if is_rejected => return Some(Self::Probe),
            Self::Probe | Self::Known(_) => return None,
        };
        Some(Self::Known(next))
    }

    pub(crate) fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Probe => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Known(Era::Stateless) => ClientLifecycleMode::Discover { preferred_versions },
            Self::Known(Era::Handshake | Era::EventStream) => ClientLifecycleMode::Initialize,
        }
    }
}

/// The server did not take `server/discover` in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeTimeout;

impl std::fmt::Display for ProbeTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no answer to server/discover within {} s", PROBE.as_secs())
    }
}

impl std::error::Error for ProbeTimeout {}

/// The error of a connection: the transport's own, or a probe without an answer.
#[derive(Debug)]
pub(crate) enum ConnectionError<E> {
    Transport(E),
    Probe(ProbeTimeout),
}

impl<E: std::error::Error> std::fmt::Display for ConnectionError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "{error}"),
            Self::Probe(error) => write!(f, "{error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ConnectionError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transport(error) => Some(error),
            Self::Probe(error) => Some(error),
        }
    }
}

/// A transport that reports its end at once, and answers `server/discover` in place of a server that does not.
///
/// Its end cancels `closed` before rmcp cleans up.
pub(crate) struct ObservedTransport<T> {
    wire: T,
    closed: CancellationToken,
    clock: Arc<dyn Clock>,
    probe: Option<PendingProbe>,
    /// How long a probe waits for its answer; for ever if absent.
    limit: Option<Duration>,
    /// The probe that was answered in place of the server; the server's own answer is dropped.
    answered: Option<RequestId>,
    progress: Arc<ProbeProgress>,
}

/// How far the probe of a connection got.
#[derive(Debug, Default)]
pub(crate) struct ProbeProgress {
    is_unanswered: AtomicBool,
    is_late: AtomicBool,
}

impl ProbeProgress {
    /// Whether the probe was answered in place of the server.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Ordering::Relaxed)
    }

    /// Whether the server answered the probe after all: it was only slow, and needs no handshake.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }
}

struct PendingProbe {
    id: RequestId,
    timeout: BoxFuture<'static, ()>,
}

impl<T> ObservedTransport<T> {
    pub(crate) fn new(
        wire: T,
        opening: Opening,
        closed: CancellationToken,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limit = (opening == Opening::Probe).then_some(PROBE);
        let progress = Arc::default();
        Self { wire, closed, clock, probe: None, limit, answered: None, progress }
    }

    /// How far the probe gets.
    pub(crate) fn progress(&self) -> Arc<ProbeProgress> {
        self.progress.clone()
    }

    /// The answer that rmcp takes for that of an older server.
    fn answer_probe(&mut self, id: RequestId) -> ServerJsonRpcMessage {
        self.answered = Some(id.clone());
        self.progress.is_unanswered.store(true, Ordering::Relaxed);
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, ProbeTimeout.to_string(), None);
        ServerJsonRpcMessage::error(error, Some(id))
    }
}

/// The id of an answer; `None` for other messages and for an error without one.
fn answered_id(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for ObservedTransport<T> {
    type Error = ConnectionError<T::Error>;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let mut limit = None;
        if let JsonRpcMessage::Request(request) = &message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && let Some(longest) = self.limit
        {
            let id = request.id.clone();
            self.probe = Some(PendingProbe { id, timeout: self.clock.sleep(longest) });
            limit = Some(self.clock.sleep(longest));
        }
        let sending = self.wire.send(message);
        async move {
            // An HTTP server can keep the request itself waiting. Such a connection cannot be used for a handshake.
            let limit = async move {
                match limit {
                    Some(limit) => limit.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                sent = sending => sent.map_err(ConnectionError::Transport),
                () = limit => Err(ConnectionError::Probe(ProbeTimeout)),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = match &mut self.probe {
                None => self.wire.receive().await,
                Some(probe) => tokio::select! {
                    biased;
                    message = self.wire.receive() => message,
                    () = &mut probe.timeout => {
                        let id = probe.id.clone();
                        self.probe = None;
                        return Some(self.answer_probe(id));
                    }
                },
            };
            let Some(message) = message else {
                self.closed.cancel();
                return None;
            };
            let id = answered_id(&message);
            if id.is_some() && id == self.answered.as_ref() {
                let is_result = matches!(message, JsonRpcMessage::Response(_));
                self.progress.is_late.fetch_or(is_result, Ordering::Relaxed);
                continue;
            }
            if self.probe.as_ref().is_some_and(|probe| id == Some(&probe.id)) {
                self.probe = None;
            }
            // Some servers answer a request that they do not understand under an id of their own.
            if let (Some(probe), JsonRpcMessage::Error(error)) = (&self.probe, &message) {
                let (id, error) = (probe.id.clone(), error.error.clone());
                self.probe = None;
                return Some(ServerJsonRpcMessage::error(error, Some(id)));
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.wire.close().await.map_err(ConnectionError::Transport)
    }
}

impl<T> Drop for ObservedTransport<T> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}
