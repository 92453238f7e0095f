//! Model providers: Anthropic, OpenAI-compatible, scripted, demo, all behind one small trait.
//!
//! A provider asks once and tells truthfully what came of it. It never tries again by itself: the
//! fault says whether a repeat makes sense, and the runtime owns the only retry loop there is. Whoever
//! asks a model does it through [`ask`], which keeps the two promises no provider may forget: nothing
//! follows an end or an error, and a stream that stops without saying why is a fault.

mod answer;
mod anthropic;
mod demo;
mod endpoint;
mod failure;
mod fallback;
mod openai;
#[doc(hidden)]
pub mod probe;
mod registry;
mod response_hints;
pub mod script;
mod spec;
mod sse;
mod stream_guard;
#[cfg(test)]
mod testing;
mod wire;

use std::fmt;

use async_trait::async_trait;
use budao_core::{
    fault::Fault,
    message::{ModelRequest, Piece},
};
use futures::stream::BoxStream;

pub use anthropic::Anthropic;
pub use demo::{Demo, Pace};
pub use fallback::Fallback;
pub use openai::OpenAi;
pub use registry::{Keys, Models};
pub use script::{Script, ScriptedModel};
pub use spec::Spec;
pub use stream_guard::{ask, whole};

/// An answer as it comes in. An error ends it, and so does [`Piece::End`].
pub type PieceStream = BoxStream<'static, Result<Piece, Fault>>;

/// Something that answers.
#[async_trait]
pub trait Model: Send + Sync + fmt::Debug {
    /// `anthropic`, `openai`, `demo`, `script`: retry budget and breaker are kept per provider.
    fn provider(&self) -> &str;

    /// The model's name, as its provider knows it. It goes into every fault.
    fn name(&self) -> &str;

    /// Starts an answer. Dropping the stream stops the request.
    ///
    /// # Errors
    /// Whatever keeps the answer from starting, classified.
    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault>;
}
