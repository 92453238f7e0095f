//! OpenAI-compatible chat completions, streamed: compatible servers (llama.cpp, vLLM, Ollama, LiteLLM, gateways), and
//! the official service on request. [`crate::OpenAiResponses`] is the official service's newer API.
//!
//! Compatible servers omit fields and write them differently, so the decoder requires no field it can do without. The
//! client sends a key only if one is configured.

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
    cache_key::CacheKey,
    endpoint::{Endpoint, EndpointConfig, KeyHeader, RequestError},
    failure::ErrorResponse,
    request_body::EncodedSessions,
    shape::{RefusedShape, ShapeForm},
    spec::Vendor,
    sse::SseEvents,
};

#[cfg(feature = "probe")]
pub(crate) use stream::Decoder;
use wire::ChatFormat;

/// The official base address, used if the specification names no other.
pub(crate) const BASE: &str = "https://api.openai.com";
/// The host of the official service.
pub(crate) const HOST: &str = "api.openai.com";
/// The path of chat completions.
pub(crate) const PATH: [&str; 3] = ["v1", "chat", "completions"];
/// The name of the setting that holds the API key.
pub(crate) const KEY: &str = "OPENAI_API_KEY";

/// A model behind an OpenAI-compatible server.
#[derive(Clone, Debug)]
pub struct OpenAi {
    model: String,
    endpoint: Endpoint,
    dialect: wire::Dialect,
    /// Set once the service has refused tools for this model unless it does not reason.
    no_reasoning: Arc<AtomicBool>,
    cache_key: CacheKey,
    shape: RefusedShape,
    encoded: EncodedSessions,
}

impl OpenAi {
    /// Creates a model by its name. `base` is the server's address, with or without `/v1` (`http://localhost:8080`);
    /// `None` means the official one.
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
        let setup = EndpointConfig {
            provider: "openai",
            model,
            base: base.unwrap_or(BASE),
            path: &PATH,
            query: None,
            key,
            key_header: KeyHeader::Bearer,
            required_config: KEY,
        };
        Self::open(setup, world, limits)
    }

    /// Creates a model behind this endpoint.
    pub(crate) fn open(
        setup: EndpointConfig<'_>,
        world: &World,
        limits: Arc<Limits>,
    ) -> Result<Self, Fault> {
        let model = setup.model.to_owned();
        let endpoint = Endpoint::new(setup, world, limits)?;
        // Azure serves the models of the official service, of which the newer ones refuse `max_tokens`.
        let official = endpoint.is_at(HOST) || endpoint.service.provider == Vendor::Azure.prefix();
        let dialect = if official { wire::Dialect::Official } else { wire::Dialect::Compatible };
        let (no_reasoning, shape) = (Arc::default(), RefusedShape::default());
        let (cache_key, encoded) = (CacheKey::new(&endpoint), EncodedSessions::default());
        Ok(Self { model, endpoint, dialect, no_reasoning, cache_key, shape, encoded })
    }

    fn format(&self, no_reasoning: bool, form: ShapeForm) -> ChatFormat<'_> {
        let (dialect, has_cache_key) = (self.dialect, self.cache_key.is_sent());
        ChatFormat { model: &self.model, dialect, has_cache_key, no_reasoning, form }
    }

    /// Sends the request, and once more without the key of the cache if the service does not know that field.
    async fn post(
        &self,
        request: &ModelRequest,
        form: ShapeForm,
    ) -> Result<(SseEvents, AnswerDeadlines), RequestError> {
        match self.post_reasoning(request, form).await {
            Err(error) if self.cache_key.is_refused(&error) => {
                tracing::warn!(
                    model = %self.model, refusal = %error.fault,
                    "the service refuses prompt_cache_key; sending the request again without it"
                );
                self.post_reasoning(request, form).await
            }
            sent => sent,
        }
    }

    /// Sends the request. If the service refuses tools for a model that reasons, sends it once more without reasoning,
    /// and so every later request. The refused request cost nothing.
    async fn post_reasoning(
        &self,
        request: &ModelRequest,
        form: ShapeForm,
    ) -> Result<(SseEvents, AnswerDeadlines), RequestError> {
        let trace = (request.trace, request.span);
        let known = self.no_reasoning.load(Ordering::Relaxed);
        let body = self.encoded.body(&self.format(known, form), request);
        let error = match self.endpoint.post(HeaderMap::new(), body, trace).await {
            Err(error) if !known && !request.tools.is_empty() && refuses_tools(&error) => error,
            sent => return sent,
        };
        tracing::warn!(
            model = %self.model, refusal = %error.fault,
            "the model takes no tools while it reasons; sending the request again with reasoning_effort none"
        );
        let body = self.encoded.body(&self.format(true, form), request);
        let sent = self.endpoint.post(HeaderMap::new(), body, trace).await?;
        self.no_reasoning.store(true, Ordering::Relaxed);
        Ok(sent)
    }
}

/// The format of requests to a compatible server.
#[cfg(feature = "probe")]
pub(crate) fn format(model: &str) -> ChatFormat<'_> {
    let dialect = wire::Dialect::Compatible;
    let (has_cache_key, form) = (false, ShapeForm::Native);
    ChatFormat { model, dialect, has_cache_key, no_reasoning: false, form }
}

/// True if the service refused the request because the model cannot have tools and reason.
fn refuses_tools(error: &RequestError) -> bool {
    let complains = |response: &ErrorResponse| response.is_complaint("", &["tools", "reasoning"]);
    error.response.as_ref().is_some_and(complains)
}

#[async_trait]
impl Model for OpenAi {
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
        let post = |form| self.post(&request, form);
        let (events, patience) = self.shape.send(&request, ShapeForm::Native, post).await?;
        let decoder = stream::Decoder::new(request.messages.len());
        let service = self.endpoint.service.clone();
        Ok(answer::read(events, decoder, patience, service, &self.endpoint.limits))
    }
}

#[cfg(test)]
mod tests;
