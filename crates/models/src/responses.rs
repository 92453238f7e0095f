//! OpenAI's Responses API, streamed.
//!
//! The service stores nothing: each request carries the whole history. Reasoning items come encrypted and go back in
//! their place; the service refuses them from elsewhere. If it refuses them or cannot encrypt them, the provider sends
//! the request once more without them, and likewise without an effort that it refuses. A refused request cost nothing.

mod stream;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
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
use wire::{Effort, ResponsesFormat};
pub(crate) use wire::{Reasoning, ReasoningParts};

/// The path of the Responses API.
pub(crate) const PATH: [&str; 2] = ["v1", "responses"];
/// The fields that a refusal of an effort names.
const EFFORT_FIELDS: [&str; 3] = ["reasoning.effort", "reasoning", "reasoning.summary"];

/// A model behind OpenAI's Responses API.
#[derive(Clone, Debug)]
pub struct OpenAiResponses {
    model: String,
    endpoint: Endpoint,
    /// Set once the service has said that it cannot encrypt this model's reasoning.
    no_encryption: Arc<AtomicBool>,
    /// The efforts that the service has refused for this model, as the bits of [`Effort`]s.
    refused_efforts: Arc<AtomicU8>,
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
        let (cache_key, encoded) = (CacheKey::new(&endpoint), EncodedSessions::default());
        Ok(Self {
            model,
            endpoint,
            no_encryption: Arc::default(),
            refused_efforts: Arc::default(),
            cache_key,
            shape: RefusedShape::default(),
            encoded,
        })
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

    /// Sends the request, and once more for each part about reasoning that the service refuses: an effort, or the
    /// reasoning of earlier answers.
    async fn post_reasoning(
        &self,
        request: &ModelRequest,
        form: ShapeForm,
    ) -> Result<(SseEvents, AnswerDeadlines), RequestError> {
        let trace = (request.trace, request.span);
        let mut parts = self.known_parts(request);
        // Bounded: each round sends fewer parts.
        loop {
            let body = self.body(request, parts, form);
            let error = match self.endpoint.post(HeaderMap::new(), body, trace).await {
                Err(error) => error,
                sent => {
                    self.remember(parts, request);
                    return sent;
                }
            };
            let Some(fewer) = parts.without_refused(&error) else { return Err(error) };
            tracing::warn!(
                model = %self.model, refusal = %error.fault, without = fewer.missing_beside(parts),
                "the service refuses a part of the request; sending the request again without it"
            );
            parts = fewer;
        }
    }

    /// The parts that the service has not refused for this model.
    fn known_parts(&self, request: &ModelRequest) -> ReasoningParts {
        let earlier = match self.no_encryption.load(Ordering::Relaxed) {
            true => Reasoning::Unsupported,
            false => Reasoning::Sent,
        };
        let refused = self.refused_efforts.load(Ordering::Relaxed);
        let is_known = |tokens| refused & Effort::of(tokens).bit() == 0;
        ReasoningParts { earlier, has_effort: request.thinking_tokens.is_some_and(is_known) }
    }

    /// Remembers what an accepted request had to leave out, except earlier reasoning, which is refused one by one.
    fn remember(&self, parts: ReasoningParts, request: &ModelRequest) {
        if parts.earlier == Reasoning::Unsupported {
            self.no_encryption.store(true, Ordering::Relaxed);
        }
        if let (Some(tokens), false) = (request.thinking_tokens, parts.has_effort) {
            self.refused_efforts.fetch_or(Effort::of(tokens).bit(), Ordering::Relaxed);
        }
    }

    fn body(&self, request: &ModelRequest, parts: ReasoningParts, form: ShapeForm) -> RequestBody {
        let format = ResponsesFormat {
            model: &self.model,
            parts,
            is_official: self.endpoint.is_at(openai::HOST),
            has_cache_key: self.cache_key.is_sent(),
            form,
        };
        self.encoded.body(&format, request)
    }
}

/// The format of requests to the official service.
#[cfg(feature = "probe")]
pub(crate) fn format(model: &str) -> ResponsesFormat<'_> {
    let parts = ReasoningParts { earlier: Reasoning::Sent, has_effort: true };
    let form = ShapeForm::Native;
    ResponsesFormat { model, parts, is_official: true, has_cache_key: true, form }
}

impl ReasoningParts {
    /// The parts to send after this refusal; `None` if it is about something else, or about a part that was not sent.
    fn without_refused(self, error: &RequestError) -> Option<Self> {
        let response = error.response.as_ref()?;
        let names = |name| response.is_complaint(name, &[]);
        if self.has_effort && EFFORT_FIELDS.into_iter().any(names) {
            return Some(Self { has_effort: false, ..self });
        }
        if self.earlier != Reasoning::Sent {
            return None;
        }
        if response.is_complaint("include", &["encrypted content is not supported"]) {
            return Some(Self { earlier: Reasoning::Unsupported, ..self });
        }
        let refused = names("invalid_encrypted_content")
            || response.is_complaint("", &["reasoning", "without its required"])
            || response.is_complaint("", &["function_call", "without its required"]);
        refused.then_some(Self { earlier: Reasoning::Dropped, ..self })
    }

    /// The name of what these parts leave out of `more`, for the log.
    fn missing_beside(self, more: Self) -> &'static str {
        if self.has_effort == more.has_effort {
            "the reasoning of earlier answers"
        } else {
            "an effort"
        }
    }
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
