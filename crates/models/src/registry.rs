//! Creates models from their specifications.

use std::{fmt, sync::Arc};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use reqwest::Url;
use secrecy::SecretString;

use crate::{
    Anthropic, Demo, Model, OpenAi, OpenAiResponses, Script, Spec, TextOnly, openai, spec::Vendor,
};

/// The API keys of this process. They are never shown or written.
#[derive(Clone, Default)]
pub struct Keys {
    /// The value of `ANTHROPIC_API_KEY`; `None` if it is not set.
    pub anthropic: Option<SecretString>,
    /// The value of `OPENAI_API_KEY`; `None` if it is not set.
    pub openai: Option<SecretString>,
}

impl Keys {
    /// One key for every service: for a program that asks a single one.
    #[must_use]
    pub fn same(key: impl Into<String>) -> Self {
        let key = Some(key.into()).filter(|key| !key.is_empty()).map(SecretString::from);
        Self { anthropic: key.clone(), openai: key }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |key: &Option<SecretString>| if key.is_some() { "set" } else { "not set" };
        f.debug_struct("Keys")
            .field("anthropic", &has(&self.anthropic))
            .field("openai", &has(&self.openai))
            .finish()
    }
}

/// Creates models. A model connects on its first request, not when it is created.
#[derive(Clone, Debug)]
pub struct Models {
    world: World,
    limits: Arc<Limits>,
    keys: Keys,
    text_only: Vec<Spec>,
}

impl Models {
    /// Creates a registry with these keys. Its models use `world` for time and obey `limits`.
    #[must_use]
    pub fn new(world: World, limits: Arc<Limits>, keys: Keys) -> Self {
        Self { world, limits, keys, text_only: Vec::new() }
    }

    /// Names models that take no images; their requests have a text in place of each.
    #[must_use]
    pub fn text_only(mut self, specs: Vec<Spec>) -> Self {
        self.text_only = specs;
        self
    }

    /// Parses a specification: `anthropic:NAME`, `openai:NAME`, `openai-chat:NAME@URL`, `demo`, `demo:fast`, `script:FILE`.
    ///
    /// # Errors
    /// `configuration_wrong`, with the nearest valid specification.
    pub fn parse_spec(text: &str) -> Result<Spec, Fault> {
        text.parse()
    }

    /// Creates the model that a specification names.
    ///
    /// # Errors
    /// `credential_missing` if an official service needs a key and none is set; `configuration_wrong` if an address
    /// or a script is not usable.
    pub fn open(&self, spec: &Spec) -> Result<Arc<dyn Model>, Fault> {
        let (world, limits) = (&self.world, self.limits.clone());
        let model: Arc<dyn Model> = match spec {
            Spec::Hosted { vendor, name, url } => {
                let key = self.key(*vendor, url.as_deref())?;
                hosted(*vendor, name, url.as_deref(), key, (world, limits))?
            }
            Spec::Demo { pace } => Arc::new(Demo::new(*pace, world.clock.clone())),
            Spec::Script { path } => {
                let script = Script::load(path)?.into_model(world.clock.clone());
                Arc::new(script.from_place(spec.to_string()).limits((*limits).clone()))
            }
        };
        Ok(if self.text_only.contains(spec) { Arc::new(TextOnly(model)) } else { model })
    }

    /// The key for a service. The official services require one; other servers may work without.
    fn key(&self, vendor: Vendor, url: Option<&str>) -> Result<Option<SecretString>, Fault> {
        let key = match vendor {
            Vendor::Anthropic => &self.keys.anthropic,
            Vendor::OpenAi | Vendor::OpenAiChat => &self.keys.openai,
        };
        if key.is_none() && url.is_none() {
            return Err(Fault::new(Kind::CredentialMissing, Operation::LoadConfig)
                .with(Fact::Service, vendor.prefix())
                .with(Fact::RequiredConfig, vec![vendor.key_setting().to_owned()]));
        }
        Ok(key.clone())
    }
}

/// Creates a model of a vendor or of a compatible server.
fn hosted(
    vendor: Vendor,
    name: &str,
    url: Option<&str>,
    key: Option<SecretString>,
    (world, limits): (&World, Arc<Limits>),
) -> Result<Arc<dyn Model>, Fault> {
    Ok(match vendor {
        Vendor::Anthropic => Arc::new(Anthropic::new(name, url, key, world, limits)?),
        Vendor::OpenAi if url.is_none_or(has_responses) => {
            Arc::new(OpenAiResponses::new(name, url, key, world, limits)?)
        }
        Vendor::OpenAi | Vendor::OpenAiChat => {
            Arc::new(OpenAi::new(name, url, key, world, limits)?)
        }
    })
}

/// Whether an address is asked by the Responses API: OpenAI's own, and one that names that API at its end.
fn has_responses(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let path = url.path().trim_end_matches('/');
    let is_official = url.host_str() == Some(openai::HOST) && !path.ends_with("/chat/completions");
    is_official || path.ends_with("/responses")
}
