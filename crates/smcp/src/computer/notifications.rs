//! Notifies the room when a server's tools, windows, skills or documents change.
//!
//! One task follows each server until it stops. Resource changes within a short time cause one notification.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use budao_mcp::{ResourceChange, ServerHandle, ServerState};
use budao_socketio::Payload;
use serde_json::json;
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

use super::{
    desktop::{self, LIMIT},
    state::ComputerState,
};
use crate::{
    membership::Membership,
    wire::{Dialect, event::NotificationEvent},
};

/// Resource changes within this time are combined.
const TOGETHER: Duration = Duration::from_millis(100);

/// Windows, and documents, of a server that are subscribed to.
const FOLLOWED_MAX: usize = 64;

/// Sends a notification to the room, if the computer is in one.
pub(super) async fn send(
    computer_state: &ComputerState,
    membership: &Membership,
    news: NotificationEvent,
) {
    if membership.target_room().get().is_none() {
        return;
    }
    let payload = Payload::of(json!({ "computer": computer_state.config.member.name }));
    if let Err(error) = membership.client().emit(news.into(), payload).await {
        tracing::debug!(%error, event = ?news, "notifying room failed");
    }
}

/// The resources of a server at the last check.
#[derive(Clone, Debug, Default, PartialEq)]
struct ServerSnapshot {
    windows: BTreeSet<String>,
    skills: BTreeSet<String>,
    documents: BTreeSet<String>,
}

/// An event that wakes the task of a server.
enum WatchEvent {
    ToolsChanged,
    ResourcesChanged(Result<ResourceChange, RecvError>),
    Stopped,
}

/// Follows a server until it stops.
pub(super) async fn follow(
    computer_state: Arc<ComputerState>,
    membership: Membership,
    server: Arc<ServerHandle>,
) {
    let (mut tools, mut resources) = (server.watch(), server.resource_changes());
    let mut state = server.watch_state();
    // The task holds a weak reference, so that it does not keep the server alive.
    let server = {
        let weak = Arc::downgrade(&server);
        drop(server);
        weak
    };
    let mut seen = look(&server).await.unwrap_or_default();
    loop {
        let woken = tokio::select! {
            biased;
            changed = tools.changed() => {
                changed.map_or(WatchEvent::Stopped, |()| WatchEvent::ToolsChanged)
            }
            news = resources.recv() => match news {
                Err(RecvError::Closed) => WatchEvent::Stopped,
                news => WatchEvent::ResourcesChanged(news),
            },
            _ = state.wait_for(|state| *state == ServerState::Stopped) => WatchEvent::Stopped,
        };
        match woken {
            WatchEvent::ToolsChanged => {
                send(&computer_state, &membership, NotificationEvent::UpdateTools).await;
            }
            WatchEvent::ResourcesChanged(first) => {
                computer_state.world.clock.sleep(TOGETHER).await;
                let news = all(first, &mut resources);
                let before = seen;
                seen = if news.contains(&ResourceChange::Listed) {
                    look(&server).await.unwrap_or_default()
                } else {
                    before.clone()
                };
                publish_changes(&computer_state, &membership, &before, &seen, &news).await;
            }
            WatchEvent::Stopped => {
                return publish_changes(
                    &computer_state,
                    &membership,
                    &seen,
                    &ServerSnapshot::default(),
                    &[],
                )
                .await;
            }
        }
    }
}

/// Collects all changes that have arrived meanwhile.
fn all(
    first: Result<ResourceChange, RecvError>,
    more: &mut broadcast::Receiver<ResourceChange>,
) -> Vec<ResourceChange> {
    let mut news = vec![first.unwrap_or(ResourceChange::Listed)];
    loop {
        match more.try_recv() {
            Ok(more) => news.push(more),
            Err(TryRecvError::Lagged(_)) => news.push(ResourceChange::Listed),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return news,
        }
    }
}

/// Notifies the room of the differences between two snapshots, and of updated resources.
async fn publish_changes(
    computer_state: &ComputerState,
    membership: &Membership,
    before: &ServerSnapshot,
    now: &ServerSnapshot,
    news: &[ResourceChange],
) {
    let is_touched = |scheme: &str| {
        let is_of = |it: &ResourceChange| matches!(it, ResourceChange::Updated(uri) if uri.starts_with(scheme));
        news.iter().any(is_of)
    };
    if now.windows != before.windows || is_touched("window://") {
        send(computer_state, membership, NotificationEvent::UpdateDesktop).await;
    }
    if now.skills != before.skills || is_touched("skill://") {
        send(computer_state, membership, NotificationEvent::UpdateSkills).await;
    }
    let has_documents = computer_state.config.member.dialect == Dialect::V02;
    if has_documents && (now.documents != before.documents || is_touched("dpe://")) {
        send(computer_state, membership, NotificationEvent::UpdateFinder).await;
    }
}

/// Lists the server's resources and subscribes to their changes. `None` if the server is gone or does not answer.
async fn look(server: &Weak<ServerHandle>) -> Option<ServerSnapshot> {
    let server = server.upgrade()?;
    let windows = desktop::addresses(&server).await.ok()?;
    let skills = desktop::listed(&server, "skill://").await.ok()?;
    for uri in windows.iter().take(FOLLOWED_MAX) {
        if let Err(fault) = server.follow_resource(uri, LIMIT).await {
            tracing::debug!(uri, %fault, "subscribing to window failed");
        }
    }
    let documents = desktop::listed(&server, "dpe://").await.ok()?;
    let documents: BTreeSet<String> = documents.iter().map(|it| it["uri"].to_string()).collect();
    for uri in documents.iter().take(FOLLOWED_MAX) {
        let followed = server.follow_resource(uri.trim_matches('"'), LIMIT).await;
        if let Err(fault) = followed {
            tracing::debug!(uri, %fault, "subscribing to document failed");
        }
    }
    let skills = skills.iter().map(|it| format!("{} {}", it["uri"], it["_meta"]));
    Some(ServerSnapshot { windows, skills: skills.collect(), documents })
}
