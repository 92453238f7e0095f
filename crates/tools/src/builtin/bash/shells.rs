//! Background shells: their owners, states and output.
//!
//! A shell belongs to one session and one process. Its id contains a random number drawn once per process and a
//! checksum over that number, a counter and the session. So the registry can tell an id from an earlier process from
//! an invented one without storing old ids.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use budao_core::{
    event::SessionId,
    fault::{Detail, Fact, Fault, Kind, Operation, text},
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    BACKGROUND_BYTES,
    capture::{Capture, Excerpt},
    child::{CommandResult, EndReason, RunningCommand},
    too_many,
};
use crate::contract::{CallContext, ToolResult, content_hash};

/// Maximum running shells per session.
const RUNNING_MAX: usize = 8;
/// Maximum running shells of all sessions.
const RUNNING_MAX_ALL: usize = 128;
/// Finished shells per session whose output is kept.
const FINISHED_MAX: usize = 16;

/// The background shells of a set of tools. Cheap to clone; dropping the last clone ends every shell.
#[derive(Clone, Default)]
pub struct Shells(Arc<Registry>);

#[derive(Default)]
struct Registry {
    inner: Mutex<ShellTable>,
}

#[derive(Default)]
struct ShellTable {
    nonce: Option<u32>,
    issued: u32,
    shells: BTreeMap<u32, Arc<Shell>>,
}

impl fmt::Debug for Shells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shells").field("known", &self.lock().shells.len()).finish()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        for shell in inner.shells.values() {
            shell.cancel.cancel();
        }
    }
}

/// One background shell, running or finished.
#[derive(Debug)]
pub(super) struct Shell {
    id: String,
    session: SessionId,
    cancel: CancellationToken,
    output: Mutex<Capture>,
    state: watch::Sender<ShellState>,
}

/// The state of a background shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShellState {
    Running,
    Exited { code: i32 },
    Killed { signal: Option<i32> },
    Stopped(EndReason),
}

impl ShellState {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited { .. } => "exited",
            Self::Killed { .. } => "killed",
            Self::Stopped(EndReason::Deadline) => "timed_out",
            Self::Stopped(_) => "stopped",
        }
    }

    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Exited { code } => Some(*code),
            Self::Running | Self::Killed { .. } | Self::Stopped(_) => None,
        }
    }

    pub(super) fn signal(&self) -> Option<i32> {
        match self {
            Self::Killed { signal } => *signal,
            Self::Running | Self::Exited { .. } | Self::Stopped(_) => None,
        }
    }

    fn of(finish: &CommandResult) -> Self {
        match (finish.reason, finish.ended.code) {
            (EndReason::Exited, Some(code)) => Self::Exited { code },
            (EndReason::Exited, None) => Self::Killed { signal: finish.ended.signal },
            (reason, _) => Self::Stopped(reason),
        }
    }
}

impl Shell {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The state, the output within `room` JSON bytes, and the total output in bytes.
    pub(super) fn look(&self, room: usize) -> (ShellState, Excerpt, u64) {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        (self.state.borrow().clone(), output.shown(room), output.total())
    }

    /// Ends the shell and waits until its processes are gone.
    pub(super) async fn stop(&self) {
        self.cancel.cancel();
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        drop(state.wait_for(|state| *state != ShellState::Running).await);
    }

    fn is_running(&self) -> bool {
        *self.state.borrow() == ShellState::Running
    }

    async fn watch(self: Arc<Self>, running: RunningCommand, timeout: Option<Duration>) {
        let finish = running
            .finish(timeout, &self.cancel, |_, bytes| {
                self.output.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            })
            .await;
        self.state.send_replace(ShellState::of(&finish));
    }
}

impl Shells {
    /// Ends and removes every shell of a session.
    pub async fn end_session(&self, session: SessionId) {
        let ended: BTreeMap<u32, Arc<Shell>> =
            self.lock().shells.extract_if(.., |_, shell| shell.session == session).collect();
        futures::future::join_all(ended.values().map(|shell| shell.stop())).await;
    }

    /// Ends and removes every shell of every session.
    pub async fn end_all(&self) {
        let ended = std::mem::take(&mut self.lock().shells);
        futures::future::join_all(ended.values().map(|shell| shell.stop())).await;
    }

    /// Finds a session's shell by its id.
    pub(super) fn find(
        &self,
        id: &str,
        session: SessionId,
        operation: Operation,
    ) -> Result<Arc<Shell>, Fault> {
        let inner = self.lock();
        let known = ShellId::parse(id).filter(|known| known.check == check(known, session));
        let fault = |kind| Fault::new(kind, operation).with(Fact::ShellId, id.to_owned());
        match known {
            Some(known) if inner.nonce == Some(known.nonce) => {
                inner.shells.get(&known.count).cloned().ok_or_else(|| fault(Kind::ShellLost))
            }
            Some(_) => Err(fault(Kind::ShellLost)),
            None => {
                let running = inner.running_of(session);
                let fault = fault(Kind::ShellUnknown);
                Err(if running.is_empty() { fault } else { fault.with(Fact::Allowed, running) })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ShellTable> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, context: &CallContext) -> Result<Arc<Shell>, Fault> {
        let mut inner = self.lock();
        let session = context.session;
        let running = inner.running_of(session);
        let all = inner.shells.values().filter(|shell| shell.is_running()).count();
        if running.len() >= RUNNING_MAX || all >= RUNNING_MAX_ALL {
            let limit = if running.len() >= RUNNING_MAX { RUNNING_MAX } else { RUNNING_MAX_ALL };
            return Err(too_many(limit, running));
        }
        inner.forget_oldest_finished(session);
        let nonce = *inner.nonce.get_or_insert((context.world.entropy.bits() >> 32) as u32);
        inner.issued += 1;
        let mut id = ShellId { nonce, count: inner.issued, check: 0 };
        id.check = check(&id, session);
        let shell = Arc::new(Shell {
            id: id.to_string(),
            session,
            cancel: CancellationToken::new(),
            output: Mutex::new(Capture::new(BACKGROUND_BYTES)),
            state: watch::Sender::new(ShellState::Running),
        });
        inner.shells.insert(id.count, shell.clone());
        Ok(shell)
    }
}

impl ShellTable {
    fn running_of(&self, session: SessionId) -> Vec<String> {
        let own = self.shells.values().filter(|shell| shell.session == session);
        own.filter(|shell| shell.is_running()).map(|shell| shell.id.clone()).collect()
    }

    fn forget_oldest_finished(&mut self, session: SessionId) {
        let finished: Vec<u32> = self
            .shells
            .iter()
            .filter(|(_, shell)| shell.session == session && !shell.is_running())
            .map(|(count, _)| *count)
            .collect();
        for count in finished.iter().take((finished.len() + 1).saturating_sub(FINISHED_MAX)) {
            self.shells.remove(count);
        }
    }
}

/// Moves a running command to the background. The result contains its shell id.
pub(super) fn keep(
    shells: &Shells,
    running: RunningCommand,
    command: &str,
    timeout: Option<Duration>,
    context: &CallContext,
) -> ToolResult {
    // If the limit is reached, dropping `running` ends the command.
    let shell = shells.add(context).map_err(super::failure)?;
    context.world.spawn.spawn(Box::pin(shell.clone().watch(running, timeout)));
    let command = super::budget::head(command, 120).to_owned();
    let with = Detail::new().with(Fact::Command, command);
    let message = text::line("advice-shell-started", &with, context.lang);
    Ok(json!({ "background": true, "shell_id": shell.id, "message": message }))
}

/// A shell id, written as `sh_<nonce>_<count>_<check>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShellId {
    nonce: u32,
    count: u32,
    check: u16,
}

impl fmt::Display for ShellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sh_{:08x}_{}_{:04x}", self.nonce, self.count, self.check)
    }
}

impl ShellId {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("sh_")?.split('_');
        let nonce = u32::from_str_radix(parts.next()?, 16).ok()?;
        let count = parts.next()?.parse().ok()?;
        let check = u16::from_str_radix(parts.next()?, 16).ok()?;
        let id = Self { nonce, count, check };
        (parts.next().is_none() && id.to_string() == text).then_some(id)
    }
}

/// A checksum that binds an id to its session: ids of other sessions and invented ids do not match.
fn check(id: &ShellId, session: SessionId) -> u16 {
    let hash = content_hash(format!("{:08x}/{}/{session}", id.nonce, id.count).as_bytes());
    u16::from_str_radix(&hash[..4], 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_the_process_that_made_it() {
        let session: SessionId = "0190c9c5-0000-7000-8000-000000000001".parse().unwrap();
        let other: SessionId = "0190c9c5-0000-7000-8000-000000000002".parse().unwrap();
        let mut id = ShellId { nonce: 0xfeed, count: 3, check: 0 };
        id.check = check(&id, session);
        let shells = Shells::default();
        let kind =
            |id: &str, session| shells.find(id, session, Operation::ReadShell).unwrap_err().kind();
        assert_eq!(ShellId::parse(&id.to_string()), Some(id));
        assert_eq!(
            kind(&id.to_string(), session),
            Kind::ShellLost,
            "an earlier process gave it out"
        );
        assert_eq!(kind(&id.to_string(), other), Kind::ShellUnknown, "not to this session");
        for made_up in ["1", "sh_1", "sh_0000feed_3_0000", "sh_0000feed_3", "sh_0000feed_03_0000"] {
            assert_eq!(kind(made_up, session), Kind::ShellUnknown, "{made_up}");
        }
    }
}
