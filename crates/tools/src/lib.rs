//! Typed tools: registry, validation, repair, isolated execution, and the built-in set.
//!
//! An author writes a function ([`tool`]) or a struct ([`TypedTool`]). The model gets a schema, and every mistake
//! comes back as a fault it can act on. [`call`] covers a call up to the point where it may run, [`run`] from there
//! to its one outcome.
//!
//! ```
//! use budao_tools::{Toolbox, tool};
//!
//! /// Adds two numbers.
//! #[tool(read_only)]
//! async fn add(
//!     /// The first.
//!     a: i64,
//!     /// The second.
//!     b: i64,
//! ) -> i64 {
//!     a + b
//! }
//!
//! let toolbox = Toolbox::builder().add(add)?.build();
//! assert_eq!(&*toolbox.specs()[0].description, "Adds two numbers.");
//! # Ok::<(), budao_core::Fault>(())
//! ```

extern crate self as budao_tools;

pub mod advice;
pub mod builtin;
pub mod call;
pub mod child;
pub mod contract;
pub mod digest;
mod error;
mod example;
mod explain;
mod final_answer;
pub mod hooks;
pub mod isolation;
pub mod launch;
mod once;
mod outcome;
mod output;
pub mod parse;
pub mod policy;
pub mod pool;
mod raw;
mod reconcile;
mod reconcile_rule;
mod repair;
pub mod run;
pub mod schema;
pub mod suggestions;
mod tolerant;
mod toolbox;
pub mod typed;
mod violations;

pub use budao_derive::tool;
pub use call::CheckedCall;
pub use contract::{
    Blobs, CallContext, Memory, NoTimers, Note, NoteSender, Reconciliation, Sample, SampleRequest,
    SessionTimers, Tool, ToolResult,
};
pub use error::ToolError;
pub use explain::MISMATCHES_MAX;
pub use final_answer::{FINAL_ANSWER, FinalAnswer, ShapedAnswer};
pub use raw::RawTool;
pub use reconcile_rule::{AnswerTest, ReconcileRule, RuleValue};
pub use toolbox::{Builder, NAME_BYTES_MAX, Toolbox};
pub use typed::{ToolOptions, TypedTool};

/// Re-exports for the code that [`tool`] generates.
#[doc(hidden)]
pub mod made {
    pub use schemars;
    pub use serde;
    pub use serde_json::Value;
}
