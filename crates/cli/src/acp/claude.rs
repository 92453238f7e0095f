//! The Claude CLI behind the editor bridge: where it is, what it offers, and what it is handed.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use budao_acp::{Choice, Host, Offer, Reach, SignIn, ToolServer};
use budao_claude::{
    Claude, Config, Program,
    find::{Search, find},
};
use budao_core::{
    Fault, Lang,
    event::SessionId,
    fault::{Fact, Kind, Operation},
    limits::Limits,
    scrub::Scrubber,
    seams::World,
};
use budao_journal::Journal;
use serde_json::{Map, Value, json};

use crate::{holder, wiring, words::say};

/// Tokens its models can read.
const CONTEXT_TOKENS: u64 = 200_000;

/// Where the CLI is: told, in the environment, or on the path.
pub(super) fn program(given: Option<PathBuf>) -> Result<PathBuf, Fault> {
    find(&Search {
        given,
        executable: std::env::var_os("CLAUDE_CODE_EXECUTABLE"),
        path: std::env::var_os("PATH"),
    })
}

/// An engine that runs the CLI at this place.
pub(super) fn engine(
    program: PathBuf,
    journal: Arc<dyn Journal>,
    world: &World,
    limits: Limits,
) -> Claude {
    let scrubber = Scrubber::with_secrets(wiring::keys().1);
    let mut launcher = Program::new(program, world.clone());
    launcher.scrubber = scrubber.clone();
    let mut config = Config::new(journal, world.clone(), Arc::new(launcher));
    config.limits = limits;
    config.scrubber = scrubber;
    config.holder = holder::name();
    config.census = Arc::new(holder::Processes);
    // An editor opens a session to use it: the CLI starts while its user types.
    config.ahead = true;
    Claude::new(config)
}

/// What the editor may choose from. The CLI knows its models by short names.
pub(super) fn offer(models: Vec<String>, lang: Lang) -> Offer {
    let models = if models.is_empty() {
        ["", "sonnet", "opus", "haiku"].map(str::to_owned).to_vec()
    } else {
        models
    };
    let sign_in = SignIn {
        id: "claude-login".to_owned(),
        name: say(lang, "Sign in with the Claude CLI", "用 Claude CLI 登录").to_owned(),
        about: say(
            lang,
            "Run `claude` in a terminal, type `/login`, then try again.",
            "请在终端运行 `claude`，输入 `/login`，然后重试。",
        )
        .to_owned(),
    };
    Offer {
        engine: "claude".to_owned(),
        models: models.into_iter().map(choice).collect(),
        thinking: true,
        context_tokens: CONTEXT_TOKENS,
        commands: Vec::new(),
        sign_ins: vec![sign_in],
    }
}

/// The CLI's own choice is to be told no model at all.
fn choice(id: String) -> Choice {
    let name = if id.is_empty() { "Default".to_owned() } else { id.clone() };
    Choice { id, name }
}

/// What is done for the editor when the CLI is the engine.
#[derive(Debug)]
pub(super) struct Hosted(pub(super) Claude);

#[async_trait]
impl Host for Hosted {
    async fn tool_servers(
        &self,
        session: SessionId,
        servers: Vec<ToolServer>,
    ) -> Result<(), Fault> {
        if servers.is_empty() {
            self.0.forget(session);
        } else {
            self.0.tool_servers(session, servers_of(servers));
        }
        Ok(())
    }

    async fn forget(&self, session: SessionId) {
        self.0.forget(session);
    }

    /// Whether the CLI is signed in shows only when it is asked something; there is a file to look for.
    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        match signed_in() {
            Some(_) => Ok(()),
            None => Err(Fault::new(Kind::CredentialMissing, Operation::Authenticate)
                .with(Fact::Service, "Anthropic")
                .with(Fact::RequiredConfig, vec!["claude /login".to_owned()])),
        }
    }
}

/// How the CLI is signed in, as far as can be seen without asking it.
pub(super) fn signed_in() -> Option<String> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"] {
        if set(name).is_some() {
            return Some(name.to_owned());
        }
    }
    let directory = set("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".claude")))?;
    let file = directory.join(".credentials.json");
    file.exists().then(|| file.display().to_string())
}

/// The servers as the CLI's `mcpServers` has them.
fn servers_of(servers: Vec<ToolServer>) -> Value {
    let pairs = |pairs: Vec<(String, String)>| -> Map<String, Value> {
        pairs.into_iter().map(|(name, value)| (name, value.into())).collect()
    };
    let server = |server: ToolServer| {
        let said = match server.reach {
            Reach::Stdio { command, args, env } => {
                json!({"type": "stdio", "command": command, "args": args, "env": pairs(env)})
            }
            Reach::Http { url, headers } => {
                json!({"type": "http", "url": url, "headers": pairs(headers)})
            }
            Reach::Sse { url, headers } => {
                json!({"type": "sse", "url": url, "headers": pairs(headers)})
            }
        };
        (server.name, said)
    };
    Value::Object(servers.into_iter().map(server).collect())
}
