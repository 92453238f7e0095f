//! Anthropic's Messages API, streamed.
//!
//! Thinking blocks, with their signatures, and unknown blocks (`redacted_thinking` and later additions) are sent back
//! unchanged, because the service verifies them.

mod stream;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    fault::Fault, gate::GateKey, limits::Limits, message::ModelRequest, world::World,
};
use http::{HeaderMap, HeaderValue};
use secrecy::SecretString;

use crate::{
    Model, PieceStream, answer,
    endpoint::{Endpoint, EndpointConfig, KeyHeader},
    request_body::EncodedSessions,
    shape::{refuses_shape, shape_refused},
};

#[cfg(feature = "probe")]
pub(crate) use stream::Decoder;
pub(crate) use wire::AnthropicFormat;

/// The official base address, used if the specification names no other.
pub(crate) const BASE: &str = "https://api.anthropic.com";
/// The name of the setting that holds the API key.
pub(crate) const KEY: &str = "ANTHROPIC_API_KEY";
/// The value of the `anthropic-version` header.
const VERSION: &str = "2023-06-01";

/// A model behind Anthropic's Messages API.
#[derive(Clone, Debug)]
pub struct Anthropic {
    model: String,
    endpoint: Endpoint,
    encoded: EncodedSessions,
}

impl Anthropic {
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
        let setup = EndpointConfig {
            provider: "anthropic",
            model,
            base: base.unwrap_or(BASE),
            path: &["v1", "messages"],
            query: None,
            key,
            key_header: KeyHeader::Named("x-api-key"),
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
        Ok(Self { model, endpoint, encoded: EncodedSessions::default() })
    }
}

#[async_trait]
impl Model for Anthropic {
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
        let service = self.endpoint.service.clone();
        let body = self.encoded.body(&AnthropicFormat { model: &self.model }, &request);
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        let sent = self.endpoint.post(headers, body, (request.trace, request.span)).await;
        let (events, patience) = sent.map_err(|error| {
            let is_shape = request.answer.is_some() && refuses_shape(&error);
            if is_shape { shape_refused(error) } else { error }
        })?;
        let decoder = stream::Decoder::default();
        Ok(answer::read(events, decoder, patience, service, &self.endpoint.limits))
    }
}

#[cfg(test)]
mod tests;
