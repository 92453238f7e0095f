//! The name of the session in requests, by which OpenAI's APIs find the cache of its earlier requests.
//!
//! OpenAI's own service and Azure get it. Some deployments in Azure refuse the field, and a deployment's name does not
//! tell which model it is, so the answer decides.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    endpoint::{Endpoint, RequestError},
    failure::ErrorResponse,
    openai,
    spec::Vendor,
};

/// The field's name.
const FIELD: &str = "prompt_cache_key";

/// Whether requests of a model have the field.
#[derive(Clone, Debug)]
pub(crate) struct CacheKey(Arc<AtomicBool>);

impl CacheKey {
    /// The field for a model at this endpoint.
    pub(crate) fn new(endpoint: &Endpoint) -> Self {
        let is_azure = endpoint.service.provider == Vendor::Azure.prefix();
        Self(Arc::new(AtomicBool::new(is_azure || endpoint.is_at(openai::HOST))))
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether the service refused a request for this field, so that it can be sent once more without it. No later
    /// request has it.
    pub(crate) fn is_refused(&self, error: &RequestError) -> bool {
        let complains = |response: &ErrorResponse| response.is_complaint(FIELD, &[FIELD]);
        let is_refused = error.response.as_ref().is_some_and(complains);
        is_refused && self.0.swap(false, Ordering::Relaxed)
    }
}
