//! Model providers behind one small trait: Anthropic, OpenAI, Gemini, compatible servers, scripted and demo.
//!
//! A provider makes one request and reports its result. It never retries: the fault says whether a retry makes sense,
//! and the runtime owns the only retry loop. Callers use [`ask`], which enforces two guarantees for every provider:
//! nothing follows an end or an error, and a stream that stops without either becomes a fault.

mod answer;
mod anthropic;
mod cache_key;
mod demo;
mod endpoint;
pub mod event_source;
mod failure;
mod gemini;
mod images;
mod into_model;
mod openai;
#[cfg(feature = "probe")]
#[doc(hidden)]
pub mod probe;
mod registry;
mod request_body;
mod response_hints;
mod responses;
pub mod script;
mod shape;
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
    gate::GateKey,
    message::{ModelRequest, Piece},
};
use futures::stream::BoxStream;

pub use anthropic::Anthropic;
pub use demo::{Demo, Pace};
pub use gemini::Gemini;
pub use images::TextOnly;
pub use into_model::IntoModel;
pub use openai::OpenAi;
pub use registry::{Keys, Models};
pub use responses::OpenAiResponses;
pub use script::{Script, ScriptedModel};
pub use spec::{Spec, Vendor};
pub use stream_guard::{ask, require_end};

/// The pieces of an answer as they arrive. The stream ends with an error or with [`Piece::End`].
pub type PieceStream = BoxStream<'static, Result<Piece, Fault>>;

/// A model that answers requests with a stream of pieces.
#[async_trait]
pub trait Model: Send + Sync + fmt::Debug {
    /// The provider: `anthropic`, `openai`, `gemini`, `azure`, `bedrock`, `demo` or `script`.
    fn provider(&self) -> &str;

    /// The model's name as its provider knows it. Every fault includes it.
    fn name(&self) -> &str;

    /// Identifies the gate that admits requests: endpoint, model and credential. Never contains the credential.
    fn gate_key(&self) -> GateKey {
        GateKey {
            endpoint: self.provider().into(),
            model: self.name().into(),
            credential: "".into(),
        }
    }

    /// Whether the model takes images. If not, [`ask`] replaces each by a text that names it.
    fn takes_images(&self) -> bool {
        true
    }

    /// Sends the request and returns its answer. Dropping the stream cancels the request.
    ///
    /// # Errors
    /// The classified fault that kept the answer from starting.
    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault>;
}
