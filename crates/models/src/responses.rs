//! OpenAI's Responses API, streamed.
//!
//! The service stores nothing: each request carries the whole history. Reasoning items come encrypted and go back in
//! their place; the service refuses them from elsewhere. If it refuses them or cannot encrypt them, the provider sends
//! the request once more without them. The refused request cost nothing.

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
    openai,
    request_body::{EncodedSessions, RequestBody},
    shape::{RefusedShape, ShapeForm},
    sse::SseEvents,
};

pub(crate) use stream::Decoder;
pub(crate) use wire::Reasoning;
use wire::ResponsesFormat;

/// The path of the Responses API.
pub(crate) const PATH: [&str; 2] = ["v1", "responses"];

/// A model behind OpenAI's Responses API.
#[derive(Clone, Debug)]
pub struct OpenAiResponses {
    model: String,
    endpoint: Endpoint,
    /// Set once the service has said that it cannot encrypt this model's reasoning.
    no_encryption: Arc<AtomicBool>,
    cache_key: CacheKey,
    shape: RefusedShape,
    encoded: EncodedSessions,
}

impl OpenAiResponses {
    /// Creates a model by its name. `base` is the server's address, with or without `/v1`; `None` means the official
    /// one.
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
            base: base.unwrap_or(openai::BASE),
            path: &PATH,
            query: None,
            key,
            key_header: KeyHeader::Bearer,
            required_config: openai::KEY,
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
        let (no_encryption, shape) = (Arc::default(), RefusedShape::default());
        let (cache_key, encoded) = (CacheKey::new(&endpoint), EncodedSessions::default());
        Ok(Self { model, endpoint, no_encryption, cache_key, shape, encoded })
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

    /// Sends the request, and once more without reasoning if the service refuses the reasoning in it.
    async fn post_reasoning(
        &self,
        request: &ModelRequest,
        form: ShapeForm,
    ) -> Result<(SseEvents, AnswerDeadlines), RequestError> {
        let trace = (request.trace, request.span);
        let known = match self.no_encryption.load(Ordering::Relaxed) {
            true => Reasoning::Unsupported,
            false => Reasoning::Sent,
        };
        let error = match self
            .endpoint
            .post(HeaderMap::new(), self.body(request, known, form), trace)
            .await
        {
            Err(error) if known == Reasoning::Sent => error,
            sent => return sent,
        };
        let Some(reasoning) = without_refused(&error) else { return Err(error) };
        tracing::warn!(
            model = %self.model, refusal = %error.fault,
            "the service refuses the reasoning of earlier answers; sending the request again without it"
        );
        let body = self.body(request, reasoning, form);
        let sent = self.endpoint.post(HeaderMap::new(), body, trace).await?;
        if reasoning == Reasoning::Unsupported {
            self.no_encryption.store(true, Ordering::Relaxed);
        }
        Ok(sent)
    }

    fn body(&self, request: &ModelRequest, reasoning: Reasoning, form: ShapeForm) -> RequestBody {
        let is_official = self.endpoint.is_at(openai::HOST);
        let has_cache_key = self.cache_key.is_sent();
        let format =
            ResponsesFormat { model: &self.model, reasoning, is_official, has_cache_key, form };
        self.encoded.body(&format, request)
    }
}

/// The format of requests to the official service.
#[cfg(feature = "probe")]
pub(crate) fn format(model: &str) -> ResponsesFormat<'_> {
    let (reasoning, form) = (Reasoning::Sent, ShapeForm::Native);
    ResponsesFormat { model, reasoning, is_official: true, has_cache_key: true, form }
}

/// What to send of reasoning after this refusal; `None` if the refusal is about something else.
fn without_refused(error: &RequestError) -> Option<Reasoning> {
    let response = error.response.as_ref()?;
    if response.is_complaint("", &["encrypted content is not supported"])
        || response.is_complaint("include", &[])
    {
        return Some(Reasoning::Unsupported);
    }
    let refused = response.is_complaint("invalid_encrypted_content", &[])
        || response.is_complaint("", &["reasoning", "without its required"])
        || response.is_complaint("", &["function_call", "without its required"]);
    refused.then_some(Reasoning::Dropped)
}

#[async_trait]
impl Model for OpenAiResponses {
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
        let service = self.endpoint.service.clone();
        let decoder = Decoder::new(request.messages.len());
        Ok(answer::read(events, decoder, patience, service, &self.endpoint.limits))
    }
}

#[cfg(test)]
mod tests;
