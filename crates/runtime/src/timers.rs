//! Timers of a session for the tools that its calls run.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use budao_core::{
    engine::Engine as _,
    event::{Answer, Command, CommandBody, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    timer::{Timer, TimerId, TimerRequest},
};
use budao_tools::SessionTimers;
use tokio::sync::oneshot;

use crate::{runtime::Runtime, session_memory::SessionMemory};

/// Sets and cancels timers with commands of the call: a call that runs again after a crash repeats its commands, and a
/// repeated command has no second effect.
#[derive(Debug)]
pub(crate) struct CallTimers {
    pub(crate) runtime: Runtime,
    pub(crate) session: SessionId,
    pub(crate) call: CallId,
    pub(crate) known: Arc<Mutex<SessionMemory>>,
}

impl CallTimers {
    /// Submits a command on the task of the session host: a tool may run on a thread without its timers.
    async fn submit(&self, action: &str, timer: &TimerId, body: CommandBody) -> Result<(), Fault> {
        let id = format!("call-{}-{action}-{timer}", self.call);
        let command = Command::new(id, format!("call {}", self.call), body);
        let (runtime, session) = (self.runtime.clone(), self.session);
        let (reply, answered) = oneshot::channel();
        self.runtime.shared.world.spawn.spawn(Box::pin(async move {
            // The receiver is gone only if the call was dropped.
            drop(reply.send(runtime.submit(session, command).await));
        }));
        let gone = || Fault::new(Kind::ShuttingDown, Operation::SetTimer);
        match answered.await.map_err(|_| gone())?? {
            Answer::Accepted { .. } => Ok(()),
            Answer::Rejected { fault } => Err(fault),
        }
    }

    fn list_timers(&self) -> Vec<Timer> {
        self.known.lock().expect("no code panics while holding this").timers()
    }
}

#[async_trait]
impl SessionTimers for CallTimers {
    fn all(&self) -> Vec<Timer> {
        self.list_timers()
    }

    async fn set(
        &self,
        timer: TimerId,
        when: TimerRequest,
        message: String,
    ) -> Result<Timer, Fault> {
        let body = CommandBody::SetTimer { timer: Some(timer.clone()), when, message };
        self.submit("set", &timer, body).await?;
        let set = self.list_timers().into_iter().find(|known| known.timer == timer);
        // It may have fired for the last time, or been cancelled, since.
        set.ok_or_else(|| {
            Fault::new(Kind::UnknownTimer, Operation::SetTimer).with(Fact::Timer, timer.to_string())
        })
    }

    async fn cancel(&self, timer: TimerId) -> Result<(), Fault> {
        let body = CommandBody::CancelTimer { timer: timer.clone() };
        self.submit("cancel", &timer, body).await
    }
}
