//! How a built-in tool is written: typed arguments, a function, and what it says about itself.

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
    contract::{CallContext, Tool, ToolResult},
    typed::schema_of,
};

/// A built-in tool as it is written.
pub(super) trait Builtin: Send + Sync + fmt::Debug + 'static {
    /// What the model calls it.
    const NAME: &'static str;
    /// What the model reads about it.
    const ABOUT: &'static str;
    /// What a call does to the world.
    const EFFECT: Effect;
    /// May a call be repeated without harm?
    const IDEMPOTENT: bool;
    /// What a call is, in a fault.
    const OPERATION: Operation;

    /// Its arguments.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// Its own deadline.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Runs one call.
    fn run(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = ToolResult> + Send;
}

/// The tool as the call path sees it.
pub(super) fn erase<B: Builtin>(tool: B) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: B::NAME.into(),
        description: B::ABOUT.into(),
        schema: Arc::new(schema_of::<B::Args>()),
        effect: B::EFFECT,
        idempotent: B::IDEMPOTENT,
        confirm: false,
        // A repaired slip can do no harm where nothing is changed, or where a repeat changes nothing more.
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
        // The schema has passed, so a type that still disagrees with it is our mistake.
        let args = serde_json::from_value(arguments)
            .map_err(|error| failure(Fault::new(Kind::Bug, B::OPERATION).caused_by(&error)))?;
        self.tool.run(args, context).await
    }
}

/// A fault as a failed call, with nothing besides.
pub(super) fn failure(fault: Fault) -> Failure {
    Failure { fault, data: None, note: None }
}

/// Runs blocking work off the async threads. When the call is cancelled the work is told so, and what it
/// does with it is its own affair: a half-written file is worse than a late answer.
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

/// The answer of a call that was told to stop.
pub(super) fn cancelled(operation: Operation) -> Failure {
    failure(Fault::new(Kind::Cancelled, operation))
}
