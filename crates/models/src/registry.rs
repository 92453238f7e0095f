//! Creates models from their specifications.

use std::{collections::BTreeMap, fmt, sync::Arc};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use reqwest::Url;
use secrecy::SecretString;

use crate::{
    Anthropic, Demo, Gemini, Model, OpenAi, OpenAiResponses, Script, Spec, TextOnly,
    endpoint::{EndpointConfig, KeyHeader},
    openai, responses,
    spec::Vendor,
};

/// The API keys of this process, by the names of their settings. They are never shown or written.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<&'static str, SecretString>);

impl Keys {
    /// Reads the key of every vendor, for example from the environment. An empty one counts as none.
    #[must_use]
    pub fn read(setting: impl Fn(&str) -> Option<String>) -> Self {
        let read = |vendor: Vendor| {
            let key = setting(vendor.key_setting()).filter(|key| !key.is_empty())?;
            Some((vendor.key_setting(), key.into()))
        };
        Self(Vendor::ALL.into_iter().filter_map(read).collect())
    }

    /// Sets the key of a vendor.
    #[must_use]
    pub fn with(mut self, vendor: Vendor, key: impl Into<SecretString>) -> Self {
        self.0.insert(vendor.key_setting(), key.into());
        self
    }

    fn get(&self, vendor: Vendor) -> Option<&SecretString> {
        self.0.get(vendor.key_setting())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
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
        let key = self.keys.get(vendor).cloned();
        if key.is_none() && url.is_none_or(is_official) {
            return Err(Fault::new(Kind::CredentialMissing, Operation::LoadConfig)
                .with(Fact::Service, vendor.prefix())
                .with(Fact::RequiredConfig, vec![vendor.key_setting().to_owned()]));
        }
        Ok(key)
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
        Vendor::Gemini => Arc::new(Gemini::new(name, url, key, world, limits)?),
        Vendor::Azure | Vendor::Bedrock => {
            relayed(vendor, name, url.unwrap_or_default(), key, (world, limits))?
        }
    })
}

/// Creates a model that a cloud offers through another vendor's API, with its own address and key.
fn relayed(
    vendor: Vendor,
    model: &str,
    base: &str,
    key: Option<SecretString>,
    (world, limits): (&World, Arc<Limits>),
) -> Result<Arc<dyn Model>, Fault> {
    let setup = |path: &'static [&'static str]| EndpointConfig {
        provider: vendor.prefix(),
        model,
        base,
        path,
        query: None,
        key,
        key_header: if vendor == Vendor::Azure {
            KeyHeader::Named("api-key")
        } else {
            KeyHeader::Bearer
        },
        required_config: vendor.key_setting(),
    };
    let ends_with = |end: &str| base.trim_end_matches('/').ends_with(end);
    Ok(match vendor {
        Vendor::Azure if ends_with("/chat/completions") => {
            let path = &["openai", "v1", "chat", "completions"];
            Arc::new(OpenAi::open(setup(path), world, limits)?)
        }
        Vendor::Azure => {
            let path = &["openai", "v1", "responses"];
            Arc::new(OpenAiResponses::open(setup(path), world, limits)?)
        }
        _ if model.starts_with("anthropic.") || model.contains(".anthropic.") => {
            let path = &["anthropic", "v1", "messages"];
            Arc::new(Anthropic::open(setup(path), world, limits)?)
        }
        _ if ends_with("/responses") || model.starts_with("openai.") => {
            Arc::new(OpenAiResponses::open(setup(&responses::PATH), world, limits)?)
        }
        _ => Arc::new(OpenAi::open(setup(&openai::PATH), world, limits)?),
    })
}

/// Whether an address is a vendor's own, which answers nothing without a key.
fn is_official(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let ends = [".azure.com", ".api.aws", ".amazonaws.com", ".googleapis.com"];
    host == openai::HOST || ends.iter().any(|end| host.ends_with(end))
}

/// Whether an address is asked by the Responses API: OpenAI's own, and one that names that API at its end.
pub(crate) fn has_responses(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let path = url.path().trim_end_matches('/');
    let is_official = url.host_str() == Some(openai::HOST) && !path.ends_with("/chat/completions");
    is_official || path.ends_with("/responses")
}
