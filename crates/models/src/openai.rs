//! OpenAI-compatible chat completions, streamed: the official service and compatible servers (llama.cpp, vLLM,
//! Ollama, LiteLLM, gateways).
//!
//! Compatible servers omit fields and write them differently, so the decoder requires no field it can do without. The
//! client sends a key only if one is configured.

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
use http::{HeaderMap, header};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    Model, PieceStream, answer,
    endpoint::{Endpoint, EndpointConfig, secret_header},
};

pub(crate) use stream::Decoder;

/// The official base address, used if the specification names no other.
pub(crate) const BASE: &str = "https://api.openai.com";
/// The name of the setting that holds the API key.
pub(crate) const KEY: &str = "OPENAI_API_KEY";

/// A model behind an OpenAI-compatible server.
#[derive(Clone, Debug)]
pub struct OpenAi {
    model: String,
    endpoint: Endpoint,
    dialect: wire::Dialect,
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
            path: &["v1", "chat", "completions"],
            key,
            required_config: KEY,
        };
        let endpoint = Endpoint::new(setup, world, limits)?;
        let official = BASE.ends_with(&*endpoint.service.host);
        let dialect = if official { wire::Dialect::Official } else { wire::Dialect::Compatible };
        Ok(Self { model: model.to_owned(), endpoint, dialect })
    }

    fn headers(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.endpoint.service.key {
            let bearer = secret_header(&format!("Bearer {}", key.expose_secret()));
            let bearer = bearer.ok_or_else(|| {
                self.endpoint
                    .service
                    .fault(Kind::ModelAuthentication)
                    .with_cause("the key has characters no header may have")
            })?;
            headers.insert(header::AUTHORIZATION, bearer);
        }
        Ok(headers)
    }
}

#[async_trait]
impl Model for OpenAi {
    fn provider(&self) -> &str {
        "openai"
    }

    fn name(&self) -> &str {
        &self.model
    }

    fn gate_key(&self) -> GateKey {
        self.endpoint.gate_key.clone()
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let service = self.endpoint.service.clone();
        let body = wire::body(&self.model, &request, self.dialect);
        let (events, patience) = self
            .endpoint
            .post(&service, self.headers()?, body, (request.trace, request.span))
            .await?;
        let decoder = stream::Decoder::new(request.messages.len());
        Ok(answer::read(events, decoder, patience, service, &self.endpoint.limits))
    }
}

#[cfg(test)]
mod tests;
