//! Starts the work that is due once a batch is durable, and stops work that no longer is.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use budao_core::{
    event::{Origin, SessionId},
    fault::{Fact, Fault},
    session::{CallState, Session},
    time::Timestamp,
    turn::{Input, Work as TurnWork},
};
use budao_engine::Batch;
use budao_pipeline::Work;
use tokio::sync::oneshot;

use super::{NativeDecider, RunningWork};
use crate::{check, model, runtime::RuntimeShared, work};

impl NativeDecider {
    /// Starts work that is due and stops work that is no longer due.
    pub(super) fn start_due_work(&mut self) {
        let due = budao_pipeline::due(&self.session, &self.shared.limits);
        self.running.retain(|(work, running)| running.is_call || due.contains(work));
        self.running.retain(|(work, _)| !is_over(work, &self.session));
        if self.is_parked || self.session.turn.as_ref().is_some_and(|turn| turn.cancelling) {
            let calls = self.running.iter().filter(|(_, running)| running.is_call);
            calls.for_each(|(_, call)| call.cancel.cancel());
        }
        if self.is_parked {
            return;
        }
        for work in due {
            if !self.is_running(&work) {
                let running = self.perform(work.clone());
                self.running.push((work, running));
            }
        }
        // Work that is not due any more gives its place at the gate up.
        self.tools.admission = None;
    }

    /// The end of the patience of an unobserved turn that only waits at its gate.
    pub(super) fn wait_end(&self) -> Option<Timestamp> {
        let turn = self.session.turn.as_ref()?;
        // The requests of a session below another one follow the observers of that one while they are loaded.
        let is_child =
            matches!(self.session.origin, Some(Origin::Call { .. } | Origin::Stage { .. }));
        let is_idle = turn.wait.is_held && !turn.cancelling && !self.is_parked && !is_child;
        let (mut ends, mut has_request) = (None, false);
        for (work, _) in self.running.iter().filter(|_| is_idle) {
            match work {
                Work::Turn(TurnWork::Model { .. }) => has_request = true,
                Work::Turn(TurnWork::Wake { at, .. }) => ends = Some(*at),
                _ => return None,
            }
        }
        ends.filter(|_| has_request && !self.shared.observers.is_observed(self.id))
    }

    /// Leaves the waiting request to its gate.
    pub(super) fn suspend_wait(&mut self) -> Option<Duration> {
        let (end, now) = (self.wait_end()?, self.shared.world.clock.now());
        let review = model::next_review(&self.shared.limits, &self.session, now);
        let wake_at = review.map_or(end, |review| review.min(end));
        let key = self.shared.models.model(self.session.model()).ok()?.gate_key();
        if !self.shared.gates.suspend(self.id, &key, self.session.head, wake_at) {
            return None;
        }
        self.running.clear();
        Some(end.since(now) + self.shared.limits.lease)
    }

    /// Stops a request that waits at a gate, so that it asks again with the session's new settings.
    pub(super) fn stop_held_request(&mut self) {
        if self.session.turn.as_ref().is_some_and(|turn| turn.wait.is_held) {
            let waits = |work: &Work| {
                matches!(work, Work::Turn(TurnWork::Model { .. } | TurnWork::Compact { .. }))
            };
            self.running.retain(|(work, _)| !waits(work));
        }
    }

    /// Tells the gateways of this process whether the turn waits for its service.
    pub(super) fn report_waiting(&mut self) {
        let turn = self.session.turn.as_ref();
        let is_waiting = turn.is_some_and(|turn| turn.wait.since.is_some());
        if std::mem::replace(&mut self.is_waiting, is_waiting) != is_waiting {
            self.shared.observers.set_waiting(self.id, is_waiting);
        }
    }

    fn is_running(&self, work: &Work) -> bool {
        self.running.iter().any(|(known, _)| known == work)
    }

    /// Checks calls in the batch that requested them if no check has to wait. That saves an append.
    pub(super) fn check_at_once(&mut self, batch: &mut Batch) {
        let asks_others = !self.shared.hooks.is_empty() || self.shared.policy.is_some();
        if asks_others || self.is_parked {
            return;
        }
        let due = budao_pipeline::due(&self.session, &self.shared.limits);
        let check = due.into_iter().find(|work| matches!(work, Work::Turn(TurnWork::Check { .. })));
        let check = check.filter(|work| !self.is_running(work));
        let Some(Work::Turn(TurnWork::Check { turn, calls })) = check else { return };
        let (shared, tools, session) = (&self.shared, &mut self.tools, &self.session);
        let checked =
            AssertUnwindSafe(|| check::check_without_wait(shared, tools, session, &calls));
        // If the check is impossible here or panics, it runs as ordinary work after the commit.
        if let Ok(Some(verdicts)) = std::panic::catch_unwind(checked) {
            self.step(Input::CallsChecked { turn, verdicts }, batch);
        }
    }

    pub(super) fn perform(&mut self, work: Work) -> RunningWork {
        let work_context = self.work_context();
        work::start(work_context, work, &self.session, &mut self.tools)
    }

    pub(super) fn work_context(&self) -> work::WorkContext {
        work::WorkContext {
            shared: Arc::clone(&self.shared),
            runtime: self.runtime.clone(),
            session: self.id,
            depth: self.session.depth(),
            signals: self.signals.clone(),
            generation: self.generation,
            known: Arc::clone(&self.known),
            slots: Arc::clone(&self.slots),
        }
    }
}

/// Has this call ended, or started another attempt?
fn is_over(work: &Work, session: &Session) -> bool {
    let Work::Turn(TurnWork::Call { turn, call, attempt }) = work else { return false };
    let running = session
        .turn
        .as_ref()
        .filter(|current| current.number == *turn)
        .and_then(|current| current.call(call))
        .is_some_and(
            |call| matches!(&call.state, CallState::Started { attempt: now, .. } if now == attempt),
        );
    !running
}

impl Drop for NativeDecider {
    fn drop(&mut self) {
        self.shared.observers.session_unloaded(self.id, self.generation);
    }
}

impl RuntimeShared {
    /// Holds the gate of a waiting turn as its records say, so that a restart makes no burst of requests.
    pub(super) fn restore_hold(&self, session: &Session) {
        let Some(wait) = session.turn.as_ref().map(|turn| &turn.wait) else { return };
        let (Some(_), Some(fault)) = (wait.since, &wait.fault) else { return };
        // A wait between two tries concerns other sessions only if the service asked for it.
        if !wait.is_held && fault.detail().get(Fact::WaitMs).is_none() {
            return;
        }
        if let Ok(model) = self.models.model(session.model()) {
            let until = wait.until.unwrap_or_else(|| self.world.clock.now());
            self.gates.restore(&model.gate_key(), fault, until);
        }
    }

    /// Runs every clean-up once, before one more attempt. A slow clean-up continues in the background,
    /// because the lease must be renewed.
    pub(super) async fn clean_up(&self, fault: &Fault) {
        tracing::warn!(%fault, "cleaning up before retry");
        for clean_up in &self.clean_ups {
            let (clean_up, limit) = (Arc::clone(clean_up), self.limits.lease_renewal);
            let (done, is_done) = oneshot::channel();
            self.world.spawn.spawn(Box::pin(async move {
                clean_up.clean_up().await;
                // The receiver is gone if the clean-up exceeded its time.
                let _ = done.send(());
            }));
            tokio::select! {
                biased;
                done = is_done => if done.is_err() { tracing::warn!("clean-up panicked") },
                () = self.world.clock.sleep(limit) => tracing::warn!("clean-up is slow"),
            }
        }
    }

    /// Notifies the tool source of the end of a session, so that it stops programs that its tools left running.
    pub(super) fn release_tools(self: &Arc<Self>, session: SessionId) {
        let shared = Arc::clone(self);
        self.world.spawn.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = shared.tools.session_ended(session) => {}
                () = shared.world.clock.sleep(shared.limits.tool_deadline) => {
                    tracing::warn!(%session, "tool source is slow to release an ended session");
                }
            }
        }));
    }
}
