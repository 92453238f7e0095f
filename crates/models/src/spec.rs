//! Model specifications on a command line or in a file: `anthropic:…`, `openai:…@URL`, `demo`, `script:…`.

use std::{fmt, path::PathBuf, str::FromStr};

use budao_core::fault::{Fact, Fault, Kind, Operation};

use crate::{anthropic, demo::Pace, openai};

/// The valid forms of a specification, for faults shown to users.
const FORMS: &str = "anthropic:NAME, openai:NAME, openai:NAME@URL, openai-chat:NAME@URL, demo, demo:fast or script:FILE";

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
}

impl Vendor {
    /// All vendors.
    pub const ALL: [Self; 3] = [Self::Anthropic, Self::OpenAi, Self::OpenAiChat];

    /// The word before the colon of a specification.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiChat => "openai-chat",
        }
    }

    /// The name of the setting that holds the API key.
    #[must_use]
    pub fn key_setting(self) -> &'static str {
        match self {
            Self::Anthropic => anthropic::KEY,
            Self::OpenAi | Self::OpenAiChat => openai::KEY,
        }
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
                let (name, url) = name_and_url(rest).ok_or_else(|| unknown(text))?;
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
    let near = |name: &&str| strsim::osa_distance(&provider, name);
    let known = Vendor::ALL.into_iter().map(Vendor::prefix).chain(["demo", "script"]);
    let found = known.min_by_key(near).filter(|name| near(name) <= 3)?;
    Some(match (found, rest) {
        ("demo", _) => {
            if strsim::osa_distance(rest, "fast") <= 2 { "demo:fast" } else { "demo" }.into()
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
    fn a_password_in_a_mistyped_url_is_not_repeated() {
        let fault = "opnai:x@http://me:hunter2@host/v1".parse::<Spec>().unwrap_err();
        assert!(!format!("{fault:?}").contains("hunter2"));
    }
}
