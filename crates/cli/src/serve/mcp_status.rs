//! The state of the MCP servers of `budao serve`, for `/api/stats` and the page.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use budao_core::{Timestamp, world::World};
use budao_mcp::{McpServerConfig, ServerHandle, ServerSet, ServerState, Transport};
use budao_serve::CounterSource;
use serde_json::{Value, json};

/// The transport of each configured server, by the server's name.
pub(super) type Transports = BTreeMap<String, &'static str>;

/// What the states do not say: since when a server is in its state, and the code of its last fault.
#[derive(Clone, Debug)]
struct ServerHistory {
    state: &'static str,
    since: Timestamp,
    last_error: Option<&'static str>,
}

type Histories = Arc<Mutex<BTreeMap<String, ServerHistory>>>;

/// The transports of a configuration, read before the servers start.
pub(super) fn read_transports(servers: &[McpServerConfig]) -> Transports {
    let name = |transport: &Transport| match transport {
        Transport::Stdio(_) => "stdio",
        Transport::Http(_) => "http",
        Transport::Sse(_) => "sse",
    };
    servers.iter().map(|server| (server.name.clone(), name(&server.transport))).collect()
}

/// Follows every server's state until the server ends, and reports all of them.
pub(super) fn follow(
    servers: &Arc<ServerSet>,
    transports: Transports,
    world: &World,
) -> CounterSource {
    let histories = Histories::default();
    for server in servers.iter() {
        record(&histories, server.name(), &server.state(), world.clock.now());
        let (histories, clock) = (Arc::clone(&histories), Arc::clone(&world.clock));
        let (name, mut states) = (server.name().to_owned(), server.watch_state());
        tokio::spawn(async move {
            while states.changed().await.is_ok() {
                let state = states.borrow_and_update().clone();
                record(&histories, &name, &state, clock.now());
            }
        });
    }
    let servers = Arc::clone(servers);
    CounterSource::new(move || {
        let histories = histories.lock().unwrap_or_else(PoisonError::into_inner);
        servers.iter().map(|server| report_server(server, &transports, &histories)).collect()
    })
}

fn state_name(state: &ServerState) -> &'static str {
    match state {
        ServerState::Starting => "starting",
        ServerState::Ready { .. } => "connected",
        ServerState::Down { .. } => "down",
        ServerState::Stopped => "stopped",
    }
}

fn record(histories: &Histories, name: &str, state: &ServerState, now: Timestamp) {
    let code = match state {
        ServerState::Down { fault, .. } => Some(fault.row().code),
        _ => None,
    };
    let state = state_name(state);
    let mut histories = histories.lock().unwrap_or_else(PoisonError::into_inner);
    let known = histories.get(name);
    let since = known.filter(|known| known.state == state).map_or(now, |known| known.since);
    let last_error = code.or_else(|| known.and_then(|known| known.last_error));
    histories.insert(name.to_owned(), ServerHistory { state, since, last_error });
}

fn report_server(
    server: &ServerHandle,
    transports: &Transports,
    histories: &BTreeMap<String, ServerHistory>,
) -> Value {
    let (state, history) = (server.state(), histories.get(server.name()));
    let (tools, retry_in_ms) = match &state {
        ServerState::Ready { tools } => (Some(*tools), None),
        ServerState::Down { again_in, .. } => (None, again_in.map(|wait| wait.as_millis())),
        ServerState::Starting | ServerState::Stopped => (None, None),
    };
    json!({
        "name": server.name(),
        "transport": transports.get(server.name()),
        "state": state_name(&state),
        "since": history.map(|history| history.since.to_string()),
        "tools": tools,
        "retry_in_ms": retry_in_ms.and_then(|wait| u64::try_from(wait).ok()),
        "last_error": history.and_then(|history| history.last_error),
    })
}
