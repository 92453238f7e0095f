//! Creates models from their specifications.

use std::{fmt, sync::Arc};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use secrecy::SecretString;

use crate::{Anthropic, Demo, Model, OpenAi, Script, Spec, TextOnly, anthropic, openai};

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

    /// Parses a specification: `anthropic:NAME`, `openai:NAME@URL`, `demo`, `demo:fast`, `script:FILE`.
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
            Spec::Anthropic { name, url } => {
                let url = url.as_deref();
                let key = key(&self.keys.anthropic, url, "anthropic", anthropic::KEY)?;
                Arc::new(Anthropic::new(name, url, key, world, limits)?)
            }
            Spec::OpenAi { name, url } => {
                let url = url.as_deref();
                let key = key(&self.keys.openai, url, "openai", openai::KEY)?;
                Arc::new(OpenAi::new(name, url, key, world, limits)?)
            }
            Spec::Demo { pace } => Arc::new(Demo::new(*pace, world.clock.clone())),
            Spec::Script { path } => {
                let script = Script::load(path)?.into_model(world.clock.clone());
                Arc::new(script.from_place(spec.to_string()).limits((*limits).clone()))
            }
        };
        Ok(if self.text_only.contains(spec) { Arc::new(TextOnly(model)) } else { model })
    }
}

/// The key for a service. The official services require one; other servers may work without.
fn key(
    key: &Option<SecretString>,
    url: Option<&str>,
    service: &'static str,
    setting: &'static str,
) -> Result<Option<SecretString>, Fault> {
    if key.is_none() && url.is_none() {
        return Err(Fault::new(Kind::CredentialMissing, Operation::LoadConfig)
            .with(Fact::Service, service)
            .with(Fact::RequiredConfig, vec![setting.to_owned()]));
    }
    Ok(key.clone())
}
