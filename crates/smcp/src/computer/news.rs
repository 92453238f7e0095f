//! What the room hears when something of a server changes: its tools, its windows, its skills.
//!
//! One task follows each server until it is stopped. What comes together is told once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use budao_mcp::{ResourceNews, Server, State};
use budao_socketio::Payload;
use serde_json::json;
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

use super::{
    desk::Desk,
    desktop::{self, LIMIT},
};
use crate::{
    office::Office,
    wire::{Dialect, event::Tell},
};

/// Changes that come within this time are one.
const TOGETHER: Duration = Duration::from_millis(100);

/// Windows of a server that are followed.
const FOLLOWED_MAX: usize = 64;

/// Tells the room, if we are in one.
pub(super) async fn tell(desk: &Desk, office: &Office, news: Tell) {
    if office.wanted().get().is_none() {
        return;
    }
    let said = Payload::of(json!({ "computer": desk.config.place.name }));
    if let Err(error) = office.client().emit(news.into(), said).await {
        tracing::debug!(%error, ?news, "the room could not be told");
    }
}

/// What of a server was seen last.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    windows: BTreeSet<String>,
    skills: BTreeSet<String>,
    documents: BTreeSet<String>,
}

/// What a server's task wakes up for.
enum Woken {
    ByTools,
    ByResources(Result<ResourceNews, RecvError>),
    ForTheLastTime,
}

/// Follows a server until it is stopped.
pub(super) async fn follow(desk: Arc<Desk>, office: Office, server: Arc<Server>) {
    let (mut tools, mut resources) = (server.watch(), server.resource_news());
    let mut state = server.watch_state();
    // Whoever stops or drops the server must not wait for us.
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
                changed.map_or(Woken::ForTheLastTime, |()| Woken::ByTools)
            }
            news = resources.recv() => match news {
                Err(RecvError::Closed) => Woken::ForTheLastTime,
                news => Woken::ByResources(news),
            },
            _ = state.wait_for(|state| *state == State::Stopped) => Woken::ForTheLastTime,
        };
        match woken {
            Woken::ByTools => tell(&desk, &office, Tell::UpdateTools).await,
            Woken::ByResources(first) => {
                desk.world.clock.sleep(TOGETHER).await;
                let news = all(first, &mut resources);
                let before = seen;
                seen = if news.contains(&ResourceNews::Listed) {
                    look(&server).await.unwrap_or_default()
                } else {
                    before.clone()
                };
                spread(&desk, &office, &before, &seen, &news).await;
            }
            Woken::ForTheLastTime => {
                return spread(&desk, &office, &seen, &Seen::default(), &[]).await;
            }
        }
    }
}

/// Everything that has come meanwhile.
fn all(
    first: Result<ResourceNews, RecvError>,
    more: &mut broadcast::Receiver<ResourceNews>,
) -> Vec<ResourceNews> {
    let mut news = vec![first.unwrap_or(ResourceNews::Listed)];
    loop {
        match more.try_recv() {
            Ok(more) => news.push(more),
            Err(TryRecvError::Lagged(_)) => news.push(ResourceNews::Listed),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return news,
        }
    }
}

/// Tells the room what is not as it was.
async fn spread(desk: &Desk, office: &Office, before: &Seen, now: &Seen, news: &[ResourceNews]) {
    let is_touched = |scheme: &str| {
        let is_of =
            |it: &ResourceNews| matches!(it, ResourceNews::Updated(uri) if uri.starts_with(scheme));
        news.iter().any(is_of)
    };
    if now.windows != before.windows || is_touched("window://") {
        tell(desk, office, Tell::UpdateDesktop).await;
    }
    if now.skills != before.skills || is_touched("skill://") {
        tell(desk, office, Tell::UpdateSkills).await;
    }
    let has_documents = desk.config.place.dialect == Dialect::V02;
    if has_documents && (now.documents != before.documents || is_touched("dpe://")) {
        tell(desk, office, Tell::UpdateFinder).await;
    }
}

/// Looks what there is now, and asks to hear of changes. Nothing if the server is not there.
async fn look(server: &Weak<Server>) -> Option<Seen> {
    let server = server.upgrade()?;
    let windows = desktop::addresses(&server).await.ok()?;
    let skills = desktop::listed(&server, "skill://").await.ok()?;
    for uri in windows.iter().take(FOLLOWED_MAX) {
        if let Err(fault) = server.follow_resource(uri, LIMIT).await {
            tracing::debug!(uri, %fault, "a window cannot be followed");
        }
    }
    let documents = desktop::listed(&server, "dpe://").await.ok()?;
    let documents: BTreeSet<String> = documents.iter().map(|it| it["uri"].to_string()).collect();
    for uri in documents.iter().take(FOLLOWED_MAX) {
        let followed = server.follow_resource(uri.trim_matches('"'), LIMIT).await;
        if let Err(fault) = followed {
            tracing::debug!(uri, %fault, "a document cannot be followed");
        }
    }
    let skills = skills.iter().map(|it| format!("{} {}", it["uri"], it["_meta"]));
    Some(Seen { windows, skills: skills.collect(), documents })
}
