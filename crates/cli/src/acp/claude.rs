//! The Claude CLI behind the editor bridge: its models, modes and sign-in, and the tool servers passed to it.

use async_trait::async_trait;
use budao_acp::{
    EditorOptions, EditorServices, EngineMode, ModelChoice, ServerTransport, SignIn, ToolServer,
};
use budao_claude::{Claude, DEFAULT_MODEL, permissions};
use budao_core::{
    Fault, Lang,
    event::SessionId,
    fault::{Fact, Kind, Operation},
    tool::Mode,
};
use budao_mcp::{McpServerConfig, Stdio, Transport};
use serde_json::{Map, Value, json};

use crate::texts::localize;

/// The models, modes and sign-in offered to the editor. An empty `models` offers the CLI's default, and the models
/// that the CLI reports once it runs. The CLI also reports the size of their context.
pub(super) fn editor_options(models: Vec<String>, lang: Lang) -> EditorOptions {
    let models_from_engine = models.is_empty();
    let models = if models.is_empty() { vec![DEFAULT_MODEL.to_owned()] } else { models };
    let sign_in = SignIn {
        id: "claude-login".to_owned(),
        name: localize(lang, "acp-sign-in-with-the-claude-cli").to_owned(),
        about: localize(lang, "acp-run-claude-in-a-terminal-type").to_owned(),
    };
    EditorOptions {
        engine: "claude".to_owned(),
        models: models.into_iter().map(|id| choice(id, lang)).collect(),
        models_from_engine,
        thinking: true,
        thinking_off: Some((permissions::THINKING.to_owned(), permissions::OFF.to_owned())),
        context_tokens: 0,
        commands: Vec::new(),
        sign_ins: vec![sign_in],
        modes: modes(lang).to_vec(),
        directories: Some(permissions::DIRECTORIES.to_owned()),
    }
}

/// The CLI's own permission modes. The CLI enforces them; the engine answers its remaining questions by the same
/// mode.
fn modes(lang: Lang) -> [EngineMode; 2] {
    let own = |id: &str, name: &str, about: &str| EngineMode {
        id: id.to_owned(),
        name: name.to_owned(),
        about: about.to_owned(),
        permissions: Mode::Approval,
        setting: (permissions::MODE.to_owned(), id.to_owned()),
    };
    [
        own(
            "acceptEdits",
            localize(lang, "acp-accept-edits"),
            localize(lang, "acp-edits-in-the-working-directories-run"),
        ),
        own(
            "dontAsk",
            localize(lang, "acp-dont-ask"),
            localize(lang, "acp-calls-that-would-have-to-ask"),
        ),
    ]
}

/// One entry of the editor's model list. The CLI's default model gets a translated name.
fn choice(id: String, lang: Lang) -> ModelChoice {
    let name = match id.as_str() {
        DEFAULT_MODEL => localize(lang, "acp-default").to_owned(),
        name => name.to_owned(),
    };
    ModelChoice::new(id, name)
}

/// The editor's host services when the Claude CLI is the engine.
#[derive(Debug)]
pub(super) struct ClaudeHost {
    pub(super) engine: Claude,
    /// MCP servers of the configuration, which every session gets.
    pub(super) configured: Vec<McpServerConfig>,
}

#[async_trait]
impl EditorServices for ClaudeHost {
    async fn tool_servers(
        &self,
        session: SessionId,
        servers: Vec<ToolServer>,
    ) -> Result<Vec<Fault>, Fault> {
        let configured = self.configured.iter().filter(|server| server.enabled).map(configured);
        let mut all: Map<String, Value> = configured.map(cli_server).collect();
        all.extend(servers.into_iter().map(cli_server));
        if all.is_empty() {
            self.engine.forget(session);
        } else {
            self.engine.tool_servers(session, all.into());
        }
        // The CLI starts the servers; the engine records those that fail.
        Ok(Vec::new())
    }

    async fn forget(&self, session: SessionId) {
        self.engine.forget(session);
    }

    /// The CLI reports its sign-in only with its first request, so this checks for a key or a credentials file.
    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        match signed_in() {
            Some(_) => Ok(()),
            None => Err(Fault::new(Kind::CredentialMissing, Operation::Authenticate)
                .with(Fact::Service, "Anthropic")
                .with(Fact::RequiredConfig, vec!["claude /login".to_owned()])),
        }
    }
}

/// The variable or file that signs the CLI in; absent if neither exists. Does not start the CLI.
pub(super) fn signed_in() -> Option<String> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"] {
        if set(name).is_some() {
            return Some(name.to_owned());
        }
    }
    let file = crate::claude::config_folder()?.join(".credentials.json");
    file.exists().then(|| file.display().to_string())
}

/// A server of the configuration, as if an editor had configured it.
fn configured(server: &McpServerConfig) -> ToolServer {
    let pairs = server.exposed_values();
    let transport = match &server.transport {
        Transport::Stdio(Stdio { command, args, .. }) => {
            ServerTransport::Stdio { command: command.clone(), args: args.clone(), env: pairs }
        }
        Transport::Http(at) => ServerTransport::Http { url: at.url.clone(), headers: pairs },
        Transport::Sse(at) => ServerTransport::Sse { url: at.url.clone(), headers: pairs },
    };
    ToolServer { name: server.name.clone(), transport }
}

/// A server in the format of the CLI's `mcpServers` setting: its name and its description.
fn cli_server(server: ToolServer) -> (String, Value) {
    let pairs = |pairs: Vec<(String, String)>| -> Map<String, Value> {
        pairs.into_iter().map(|(name, value)| (name, value.into())).collect()
    };
    let spec = match server.transport {
        ServerTransport::Stdio { command, args, env } => {
            json!({"type": "stdio", "command": command, "args": args, "env": pairs(env)})
        }
        ServerTransport::Http { url, headers } => {
            json!({"type": "http", "url": url, "headers": pairs(headers)})
        }
        ServerTransport::Sse { url, headers } => {
            json!({"type": "sse", "url": url, "headers": pairs(headers)})
        }
    };
    (server.name, spec)
}
