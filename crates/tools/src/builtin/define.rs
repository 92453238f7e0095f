//! The trait that built-in tools implement, and its adapter to [`Tool`].

use std::{fmt, future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    tool::{Effect, Failure, ToolOrigin, ToolSpec},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    contract::{CallContext, Reconciliation, Tool, ToolResult},
    typed::schema_of,
};

/// A built-in tool with typed arguments.
pub(super) trait Builtin: Send + Sync + fmt::Debug + 'static {
    /// The name that the model calls.
    const NAME: &'static str;
    /// The description that the model reads.
    const ABOUT: &'static str;
    /// The effect of a call on the outside world.
    const EFFECT: Effect;
    /// True if a call may be repeated without harm.
    const IDEMPOTENT: bool;
    /// The operation that faults of this tool report.
    const OPERATION: Operation;

    /// The arguments; the schema is derived from this type.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The tool's own deadline; `None` uses the general limit.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Runs one call with decoded arguments.
    fn run(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = ToolResult> + Send;

    /// Whether [`Builtin::reconcile`] can find out what became of an interrupted call.
    const RECONCILES: bool = false;

    /// Finds out whether an interrupted call was done; see [`Tool::reconcile`].
    fn reconcile(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = Result<Reconciliation, Failure>> + Send {
        let _ = (args, context);
        async { Ok(Reconciliation::CannotTell) }
    }
}

/// Wraps a built-in tool as a [`Tool`] for the call path.
pub(super) fn erase<B: Builtin>(tool: B) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: B::NAME.into(),
        description: B::ABOUT.into(),
        schema: Arc::new(schema_of::<B::Args>()),
        effect: B::EFFECT,
        idempotent: B::IDEMPOTENT,
        confirm: false,
        // Repairs are safe if the tool changes nothing or if repeating a call changes nothing more.
        repair: B::IDEMPOTENT,
        deadline: tool.deadline(),
        output_bytes: None,
        source: ToolOrigin::Builtin,
    };
    Arc::new(BuiltinTool { tool, spec: Arc::new(spec) })
}

#[derive(Debug)]
struct BuiltinTool<B> {
    tool: B,
    spec: Arc<ToolSpec>,
}

#[async_trait]
impl<B: Builtin> Tool for BuiltinTool<B> {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        self.tool.run(decode::<B>(arguments)?, context).await
    }

    fn can_reconcile(&self) -> bool {
        B::RECONCILES
    }

    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        self.tool.reconcile(decode::<B>(arguments)?, context).await
    }
}

/// Decodes arguments. They have passed the schema, so a decoding error is a bug in the tool.
fn decode<B: Builtin>(arguments: Value) -> Result<B::Args, Failure> {
    serde_json::from_value(arguments)
        .map_err(|error| failure(Fault::new(Kind::Bug, B::OPERATION).caused_by(&error)))
}

/// A failure with this fault and without data or note.
pub(super) fn failure(fault: Fault) -> Failure {
    Failure { fault, data: None, note: None }
}

/// Runs blocking work off the async threads. On cancellation the work sees its token and decides itself whether to
/// stop, because a half-written file is worse than a late answer.
pub(super) async fn blocking<T: Send + 'static>(
    context: &CallContext,
    operation: Operation,
    work: impl FnOnce(&CancellationToken) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let cancel = context.cancel.clone();
    let task = tokio::task::spawn_blocking(move || {
        if cancel.is_cancelled() {
            return Err(cancelled(operation));
        }
        work(&cancel)
    });
    match task.await {
        Ok(done) => done,
        Err(error) => Err(failure(Fault::new(Kind::Bug, operation).caused_by(&error))),
    }
}

/// The failure of a call that was cancelled.
pub(super) fn cancelled(operation: Operation) -> Failure {
    failure(Fault::new(Kind::Cancelled, operation))
}
