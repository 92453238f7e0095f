//! A list of models: if one cannot answer, the request goes to the next.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    gate::GateKey,
    message::ModelRequest,
};

use crate::{Model, PieceStream};

/// Sends each request to the first model. If that fails before the first piece and a retry would not help, the
/// request goes to the next model. Transient faults are left to the runtime's retries.
#[derive(Debug)]
pub struct Fallback {
    models: Vec<Arc<dyn Model>>,
}

impl Fallback {
    /// Creates a fallback that tries `models` in this order.
    #[must_use]
    pub fn new(models: Vec<Arc<dyn Model>>) -> Self {
        Self { models }
    }
}

#[async_trait]
impl Model for Fallback {
    fn provider(&self) -> &str {
        self.models.first().map_or("fallback", |model| model.provider())
    }

    fn name(&self) -> &str {
        self.models.first().map_or("fallback", |model| model.name())
    }

    fn gate_key(&self) -> GateKey {
        match self.models.first() {
            Some(model) => model.gate_key(),
            None => GateKey { endpoint: "".into(), model: "".into(), credential: "".into() },
        }
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let mut last = Fault::new(Kind::UnknownModel, Operation::ModelRequest);
        for model in &self.models {
            let request = ModelRequest { model: model.name().to_owned(), ..request.clone() };
            match model.stream(request).await {
                Err(fault) if !fault.may_auto_retry() => {
                    tracing::warn!(model = model.name(), %fault, "model failed, trying next model");
                    last = fault;
                }
                answered => return answered,
            }
        }
        Err(last)
    }
}
