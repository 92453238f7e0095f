//! Tools made at run time from a name, a schema and a function.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::tool::{Failure, ToolSpec};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    contract::{CallContext, Reconciliation, Tool, ToolResult},
    typed::ToolOptions,
};

/// A tool made at run time. Its result is plain JSON; `{"ok": false, "error": …}` counts as a failure.
pub struct RawTool {
    spec: Arc<ToolSpec>,
    run: Box<ToolFn>,
    reconcile: Option<Box<ReconcileFn>>,
    once: Option<Arc<str>>,
}

type ReconcileFn =
    dyn Fn(Value, CallContext) -> BoxFuture<'static, Result<Reconciliation, Failure>> + Send + Sync;

type ToolFn = dyn Fn(Value, CallContext) -> BoxFuture<'static, ToolResult> + Send + Sync;

impl RawTool {
    /// Creates a tool with the default, careful options.
    pub fn new<F, R>(
        name: impl AsRef<str>,
        description: impl AsRef<str>,
        schema: Value,
        run: F,
    ) -> Self
    where
        F: Fn(Value, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = ToolResult> + Send + 'static,
    {
        let spec = ToolOptions::default().spec(name.as_ref(), description.as_ref(), schema);
        Self::from_spec(spec, run)
    }

    /// Creates a tool from a complete specification.
    pub fn from_spec<F, R>(spec: ToolSpec, run: F) -> Self
    where
        F: Fn(Value, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = ToolResult> + Send + 'static,
    {
        Self {
            spec: Arc::new(spec),
            run: Box::new(move |arguments, context| Box::pin(run(arguments, context))),
            reconcile: None,
            once: None,
        }
    }

    /// Sets the function that finds out what became of an interrupted call; see [`Tool::reconcile`].
    #[must_use]
    pub fn reconcile<F, R>(mut self, reconcile: F) -> Self
    where
        F: Fn(Value, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reconciliation, Failure>> + Send + 'static,
    {
        self.reconcile =
            Some(Box::new(move |arguments, context| Box::pin(reconcile(arguments, context))));
        self
    }

    /// Replaces the tool's options.
    #[must_use]
    pub fn options(mut self, options: ToolOptions) -> Self {
        self.once = options.once_argument();
        let spec =
            options.spec(&self.spec.name, &self.spec.description, (*self.spec.schema).clone());
        self.spec = Arc::new(spec);
        self
    }
}

impl fmt::Debug for RawTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawTool").field(&self.spec.name).finish()
    }
}

#[async_trait]
impl Tool for RawTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        (self.run)(arguments, context.clone()).await
    }

    fn once(&self) -> Option<Arc<str>> {
        self.once.clone()
    }

    fn can_reconcile(&self) -> bool {
        self.reconcile.is_some()
    }

    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        match &self.reconcile {
            Some(reconcile) => reconcile(arguments, context.clone()).await,
            None => Ok(Reconciliation::CannotTell),
        }
    }
}
