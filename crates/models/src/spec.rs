//! Model specifications on a command line or in a file: `anthropic:…`, `openai:…@URL`, `demo`, `script:…`.

use std::{fmt, path::PathBuf, str::FromStr};

use budao_core::fault::{Fact, Fault, Kind, Operation};

use crate::{anthropic, demo::Pace, gemini, openai, registry};

/// The valid forms of a specification, for faults shown to users.
const FORMS: &str = "anthropic:NAME, openai:NAME, openai:NAME@URL, openai-chat:NAME@URL, gemini:NAME, azure:DEPLOYMENT@URL, bedrock:NAME@REGION, demo, demo:fast or script:FILE";

/// The party that serves a model over the network, and the API it is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's own service by the Responses API; a server at another address by chat completions, unless the address
    /// ends with `/responses`.
    OpenAi,
    /// Chat completions, at any address.
    OpenAiChat,
    /// Google's Gemini API.
    Gemini,
    /// A deployment in Azure by the Responses API, or by chat completions if the address ends with them.
    Azure,
    /// A model on Amazon Bedrock: Anthropic's by the Messages API, OpenAI's by the Responses API, others by chat
    /// completions.
    Bedrock,
}

impl Vendor {
    /// All vendors, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Anthropic, Self::OpenAi, Self::OpenAiChat, Self::Gemini, Self::Azure, Self::Bedrock];

    /// The word before the colon of a specification.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiChat => "openai-chat",
            Self::Gemini => "gemini",
            Self::Azure => "azure",
            Self::Bedrock => "bedrock",
        }
    }

    /// The name of the setting that holds the API key.
    #[must_use]
    pub fn key_setting(self) -> &'static str {
        match self {
            Self::Anthropic => anthropic::KEY,
            Self::OpenAi | Self::OpenAiChat => openai::KEY,
            Self::Gemini => gemini::KEY,
            Self::Azure => "AZURE_OPENAI_API_KEY",
            Self::Bedrock => "AWS_BEARER_TOKEN_BEDROCK",
        }
    }

    /// Whether a specification must have an address, because the vendor has none that serves everybody.
    fn needs_url(self) -> bool {
        matches!(self, Self::Azure | Self::Bedrock)
    }
}

/// A parsed model specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A model that a vendor or a compatible server offers over the network.
    Hosted {
        /// The vendor, which decides the API and the key.
        vendor: Vendor,
        /// The model's name as the service knows it, for example `claude-sonnet-4-5`.
        name: String,
        /// An address to use instead of the official one.
        url: Option<String>,
    },
    /// The built-in model that needs no network.
    Demo {
        /// How fast the model streams its answer.
        pace: Pace,
    },
    /// A script file.
    Script {
        /// The path of the script file, as given.
        path: PathBuf,
    },
}

impl Spec {
    /// Whether the provider passes a thinking budget on. Chat completions have no common field for it.
    #[must_use]
    pub fn takes_thinking(&self) -> bool {
        match self {
            Self::Hosted { vendor: Vendor::OpenAi, url, .. } => {
                url.as_deref().is_none_or(registry::has_responses)
            }
            Self::Hosted { vendor, .. } => *vendor != Vendor::OpenAiChat,
            Self::Demo { .. } | Self::Script { .. } => false,
        }
    }
}

impl FromStr for Spec {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let text = text.trim();
        let (provider, rest) = match text.split_once(':') {
            Some((provider, rest)) => (provider, Some(rest.trim())),
            None => (text, None),
        };
        let vendor = Vendor::ALL.into_iter().find(|vendor| vendor.prefix() == provider);
        match (provider, rest.filter(|rest| !rest.is_empty())) {
            (_, Some(rest)) if let Some(vendor) = vendor => {
                let found = name_and_url(rest).map(|(name, url)| match vendor {
                    Vendor::Bedrock if url.is_none() => name_and_region(&name),
                    _ => (name, url),
                });
                let found = found.filter(|(_, url)| url.is_some() || !vendor.needs_url());
                let (name, url) = found.ok_or_else(|| unknown(text))?;
                Ok(Self::Hosted { vendor, name, url })
            }
            ("demo", None) if rest.is_none() => Ok(Self::Demo { pace: Pace::Reading }),
            ("demo", Some("fast")) => Ok(Self::Demo { pace: Pace::Fast }),
            ("script", Some(path)) => Ok(Self::Script { path: path.into() }),
            _ => Err(unknown(text)),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosted { vendor, name, url } => {
                let at = url.as_ref().map(|url| format!("@{url}")).unwrap_or_default();
                write!(f, "{}:{name}{at}", vendor.prefix())
            }
            Self::Demo { pace: Pace::Reading } => f.write_str("demo"),
            Self::Demo { pace: Pace::Fast } => f.write_str("demo:fast"),
            Self::Script { path } => write!(f, "script:{}", path.display()),
        }
    }
}

/// Splits `NAME` or `NAME@URL`. A name may contain `@`, so the URL starts at `@http`.
fn name_and_url(text: &str) -> Option<(String, Option<String>)> {
    let at = text.find("@http://").or_else(|| text.find("@https://"));
    let (name, url) = match at {
        Some(at) => (&text[..at], Some(text[at + 1..].to_owned())),
        None => (text, None),
    };
    (!name.trim().is_empty()).then(|| (name.trim().to_owned(), url))
}

/// Splits `NAME@REGION` of Bedrock, for example `openai.gpt-x@us-east-1`, and makes the region an address.
fn name_and_region(text: &str) -> (String, Option<String>) {
    let is_region = |region: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        region.contains('-') && region.chars().all(known)
    };
    match text.rsplit_once('@') {
        Some((name, region)) if !name.is_empty() && is_region(region) => {
            (name.to_owned(), Some(format!("https://bedrock-mantle.{region}.api.aws")))
        }
        _ => (text.to_owned(), None),
    }
}

fn unknown(text: &str) -> Fault {
    let received = without_password(text);
    let fault = Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, "model")
        .with(Fact::Expected, format!("{FORMS}, and `{received}` is none of them"))
        .with(Fact::Received, received);
    match nearest(text) {
        Some(nearest) => fault.with(Fact::Nearest, vec![nearest]),
        None => fault,
    }
}

/// The input, with the rest of a URL hidden if it contains user information.
fn without_password(text: &str) -> String {
    match text.split_once("://") {
        Some((before, after)) if after.contains('@') => format!("{before}://…"),
        _ => text.chars().take(200).collect(),
    }
}

/// The valid specification nearest to an invalid one.
fn nearest(text: &str) -> Option<String> {
    let (provider, rest) = text.split_once(':').unwrap_or((text, ""));
    let provider = provider.to_ascii_lowercase();
    // Some bare model names identify their provider.
    if text.starts_with("claude") {
        return Some(format!("anthropic:{text}"));
    }
    if ["gpt-", "o1", "o3", "o4", "llama", "qwen"].iter().any(|start| text.starts_with(start)) {
        return Some(format!("openai:{text}"));
    }
    if text.starts_with("gemini-") {
        return Some(format!("gemini:{text}"));
    }
    let near = |name: &&str| strsim::osa_distance(&provider, name);
    let known = Vendor::ALL.into_iter().map(Vendor::prefix).chain(["demo", "script"]);
    let found = known.min_by_key(near).filter(|name| near(name) <= 3)?;
    Some(match (found, rest) {
        ("demo", _) => {
            if strsim::osa_distance(rest, "fast") <= 2 { "demo:fast" } else { "demo" }.into()
        }
        ("azure", rest) if !rest.contains('@') => {
            let name = if rest.is_empty() { "DEPLOYMENT" } else { rest };
            format!("azure:{name}@https://RESOURCE.openai.azure.com")
        }
        ("bedrock", rest) if !rest.contains("://") => {
            let name = rest.split('@').next().filter(|name| !name.is_empty());
            format!("bedrock:{}@REGION", name.unwrap_or("NAME"))
        }
        (name, "") => format!("{name}:{}", if name == "script" { "FILE" } else { "NAME" }),
        (name, rest) if rest.contains("://") => format!("{name}:{}", without_password(rest)),
        (name, rest) => format!("{name}:{rest}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_and_writes_itself() {
        for text in [
            "anthropic:claude-x",
            "anthropic:claude-x@https://gateway.example/anthropic",
            "openai:gpt-x",
            "openai-chat:gpt-x",
            "openai-chat:gpt-x@https://gateway.example",
            "openai:qwen2.5:7b@http://localhost:11434/v1",
            "openai:publishers/claude@20250101@http://localhost:1",
            "gemini:gemini-x",
            "azure:mine@https://res.openai.azure.com",
            "bedrock:anthropic.claude-x@https://bedrock-mantle.us-east-1.api.aws",
            "demo",
            "demo:fast",
            "script:demo/first.toml",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_unknown_one_is_answered_with_the_nearest() {
        for (text, meant) in [
            ("antropic:claude-x", Some("anthropic:claude-x")),
            ("claude-x", Some("anthropic:claude-x")),
            ("gpt-x", Some("openai:gpt-x")),
            ("gemini-x", Some("gemini:gemini-x")),
            ("azure:mine", Some("azure:mine@https://RESOURCE.openai.azure.com")),
            ("bedrock:openai.gpt-x", Some("bedrock:openai.gpt-x@REGION")),
            ("bedrock:x@Not A Region", Some("bedrock:x@REGION")),
            ("Demo", Some("demo")),
            ("demo:fsat", Some("demo:fast")),
            ("demo:", Some("demo")),
            ("openai:", Some("openai:NAME")),
            ("script:", Some("script:FILE")),
            ("openai:@http://localhost", Some("openai:@http://localhost")),
            ("", None),
            ("something-else-entirely", None),
        ] {
            let fault = text.parse::<Spec>().unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{text}");
            let nearest = fault.detail().get(Fact::Nearest).map(ToString::to_string);
            assert_eq!(nearest.as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn a_region_is_an_address() {
        let spec: Spec = "bedrock:openai.gpt-x@eu-west-1".parse().unwrap();
        assert_eq!(
            spec.to_string(),
            "bedrock:openai.gpt-x@https://bedrock-mantle.eu-west-1.api.aws"
        );
    }

    #[test]
    fn a_password_in_a_mistyped_url_is_not_repeated() {
        let fault = "opnai:x@http://me:hunter2@host/v1".parse::<Spec>().unwrap_err();
        assert!(!format!("{fault:?}").contains("hunter2"));
    }
}
