//! Google's Gemini API, streamed.
//!
//! The service signs what the model thought before a call or a text, and refuses a call of the running turn without
//! its signature. Signatures are kept as opaque blocks in front of what they sign. For calls that another service's
//! model made, the provider sends the value that the service accepts in place of a signature, once it asks for one.

mod plain;
mod stream;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use budao_core::{
    fault::Fault, gate::GateKey, limits::Limits, message::ModelRequest, world::World,
};
use http::HeaderMap;
use secrecy::SecretString;

use crate::{
    Model, PieceStream,
    answer::{self, AnswerDeadlines},
    endpoint::{Endpoint, EndpointConfig, KeyHeader, RequestError},
    request_body::EncodedSessions,
    shape::{RefusedShape, ShapeForm},
    sse::SseEvents,
};

pub(crate) use stream::Decoder;
pub(crate) use wire::GeminiFormat;

/// The official base address, used if the specification names no other.
const BASE: &str = "https://generativelanguage.googleapis.com";
/// The name of the setting that holds the API key.
pub(crate) const KEY: &str = "GEMINI_API_KEY";

/// A model behind Google's Gemini API.
#[derive(Clone, Debug)]
pub struct Gemini {
    model: String,
    endpoint: Endpoint,
    /// Set once the service has missed a signature; calls without one then carry the value it accepts instead.
    wants_signatures: Arc<AtomicBool>,
    shape: RefusedShape,
    encoded: EncodedSessions,
}

impl Gemini {
    /// Creates a model by its name. `base` is the service's address; `None` means the official one.
    ///
    /// # Errors
    /// `configuration_wrong` if `base` is not a usable address.
    pub fn new(
        model: &str,
        base: Option<&str>,
        key: Option<SecretString>,
        world: &World,
        limits: Arc<Limits>,
    ) -> Result<Self, Fault> {
        let method = format!("{model}:streamGenerateContent");
        let setup = EndpointConfig {
            provider: "gemini",
            model,
            base: base.unwrap_or(BASE),
            path: &["v1beta", "models", &method],
            query: Some("alt=sse"),
            key,
            key_header: KeyHeader::Named("x-goog-api-key"),
            required_config: KEY,
        };
        let endpoint = Endpoint::new(setup, world, limits)?;
        let (wants_signatures, shape) = (Arc::default(), RefusedShape::default());
        let encoded = EncodedSessions::default();
        Ok(Self { model: model.to_owned(), endpoint, wants_signatures, shape, encoded })
    }

    /// Sends the request, and once more with values in place of signatures if the service misses one.
    async fn post(
        &self,
        request: &ModelRequest,
        form: ShapeForm,
    ) -> Result<(SseEvents, AnswerDeadlines), RequestError> {
        let trace = (request.trace, request.span);
        let known = self.wants_signatures.load(Ordering::Relaxed);
        let format = GeminiFormat { substitute: known, form };
        let body = self.encoded.body(&format, request);
        let error = match self.endpoint.post(HeaderMap::new(), body, trace).await {
            Err(error) if !known && misses_signature(&error) => error,
            sent => return sent,
        };
        tracing::warn!(
            model = %self.model, refusal = %error.fault,
            "the service misses signatures of earlier calls; sending the request again with their substitute"
        );
        let format = GeminiFormat { substitute: true, form };
        let body = self.encoded.body(&format, request);
        let sent = self.endpoint.post(HeaderMap::new(), body, trace).await?;
        self.wants_signatures.store(true, Ordering::Relaxed);
        Ok(sent)
    }
}

fn misses_signature(error: &RequestError) -> bool {
    let response = error.response.as_ref();
    response.is_some_and(|response| response.is_complaint("", &["missing", "thought_signature"]))
}

#[async_trait]
impl Model for Gemini {
    fn provider(&self) -> &str {
        self.endpoint.service.provider
    }

    fn name(&self) -> &str {
        &self.model
    }

    fn gate_key(&self) -> GateKey {
        self.endpoint.gate_key.clone()
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        // Most models of the service take no schema of the answer beside tools.
        let preferred = if request.tools.len() > 1 { ShapeForm::Tool } else { ShapeForm::Native };
        let post = |form| self.post(&request, form);
        let (events, patience) = self.shape.send(&request, preferred, post).await?;
        let service = self.endpoint.service.clone();
        let decoder = Decoder::new(request.messages.len());
        Ok(answer::read(events, decoder, patience, service, &self.endpoint.limits))
    }
}

#[cfg(test)]
mod tests;
