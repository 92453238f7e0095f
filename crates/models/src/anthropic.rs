//! Anthropic's Messages API, streamed.
//!
//! Thinking blocks, with their signatures, and unknown blocks (`redacted_thinking` and later additions) are sent back
//! unchanged, because the service verifies them.

mod stream;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind},
    gate::GateKey,
    limits::Limits,
    message::ModelRequest,
    world::World,
};
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    Model, PieceStream, answer,
    endpoint::{Endpoint, EndpointConfig, secret_header},
};

pub(crate) use stream::Decoder;

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
            key,
            required_config: KEY,
        };
        Ok(Self { model: model.to_owned(), endpoint: Endpoint::new(setup, world, limits)? })
    }

    fn headers(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        if let Some(key) = &self.endpoint.service.key {
            let key = secret_header(key.expose_secret()).ok_or_else(|| {
                self.endpoint
                    .service
                    .fault(Kind::ModelAuthentication)
                    .with_cause("the key has characters no header may have")
            })?;
            headers.insert("x-api-key", key);
        }
        Ok(headers)
    }
}

#[async_trait]
impl Model for Anthropic {
    fn provider(&self) -> &str {
        "anthropic"
    }

    fn name(&self) -> &str {
        &self.model
    }

    fn gate_key(&self) -> GateKey {
        self.endpoint.gate_key.clone()
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let service = self.endpoint.service.clone();
        let body = wire::body(&self.model, &request);
        let (events, patience) = self
            .endpoint
            .post(&service, self.headers()?, body, (request.trace, request.span))
            .await?;
        let decoder = stream::Decoder::default();
        Ok(answer::read(events, decoder, patience, service, &self.endpoint.limits))
    }
}

#[cfg(test)]
mod tests;
