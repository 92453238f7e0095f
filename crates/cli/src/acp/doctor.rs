//! `budao acp doctor`: checks everything the editor's agent needs, and writes nothing.

use std::{path::Path, sync::Arc, time::Duration};

use budao_core::{Fault, Kind, Lang, fault::text, world::World};
use budao_journal::{Access, Inspection};
use budao_mcp::{ServerSet, ServerState};
use budao_models::Models;
use budao_runtime::world;

use super::{EngineChoice, ServeArgs, claude, log};
use crate::{
    exit::Exit,
    program, setup,
    terminal::Terminal,
    texts::{count, fill, localize},
};

/// Time limit for `claude --version`.
const VERSION_MAX: Duration = Duration::from_secs(20);

/// Time limit for the start of the MCP servers.
const SERVERS_MAX: Duration = Duration::from_secs(15);

/// The things the doctor checks. `--json` prints the name in snake case, in every language.
#[derive(Clone, Copy, serde::Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum Check {
    Configuration,
    Engine,
    Login,
    Models,
    ToolServer,
    Permission,
    Journal,
    LogFile,
}

impl Check {
    fn label(self, lang: Lang) -> &'static str {
        localize(lang, &format!("doctor-{}", <&str>::from(self)))
    }
}

/// The result of one check, with what was found or what is wrong.
struct Finding {
    check: Check,
    ok: bool,
    detail: String,
}

/// Runs every check and prints one line each. The exit code is a failure if any check fails.
pub(super) async fn run(args: &ServeArgs, json: bool, lang: Lang, terminal: &Terminal) -> Exit {
    let world = world::system();
    let engine = args.engine();
    let is_native = matches!(engine, Ok(EngineChoice::Native));
    let is_claude = matches!(engine, Ok(EngineChoice::Claude(_)));
    let mut findings = vec![configuration(args, lang), describe_engine(engine, lang).await];
    if is_native {
        findings.push(models(args, &world, lang));
    }
    if is_claude {
        findings.push(login(lang));
    }
    if is_native || is_claude {
        findings.extend(tool_servers(args, &world, lang).await);
    }
    findings.extend([choices(args, lang), journal(args, &world, lang).await, log_file(lang)]);
    let is_ok = findings.iter().all(|finding| finding.ok);
    for finding in findings {
        terminal.data(&if json { finding.to_json() } else { finding.to_text(lang, terminal) });
    }
    if is_ok { Exit::Success } else { Exit::Failed }
}

impl Finding {
    fn of(check: Check, result: Result<String, Fault>, lang: Lang) -> Self {
        match result {
            Ok(detail) => Self { check, ok: true, detail },
            Err(fault) => {
                let code = fault.row().code;
                let detail = format!("{} (budao explain {code})", text::user_text(&fault, lang));
                Self { check, ok: false, detail }
            }
        }
    }

    fn to_json(&self) -> String {
        let Self { check, ok, detail } = self;
        format!("{}\n", serde_json::json!({ "check": check, "ok": ok, "detail": detail }))
    }

    fn to_text(&self, lang: Lang, terminal: &Terminal) -> String {
        let mark = if self.ok { localize(lang, "acp-ok") } else { localize(lang, "acp-failed") };
        let (mark, label) = (crate::terminal::pad(mark, 6), self.check.label(lang));
        format!("{mark}  {} {}\n", terminal.strong(label), self.detail)
    }
}

fn configuration(args: &ServeArgs, lang: Lang) -> Finding {
    let result = args
        .config
        .load()
        .map(|config| count(lang, "acp-configuration-valid", config.mcp.len() as u64));
    Finding::of(Check::Configuration, result, lang)
}

/// The engine's name; for the CLI also its version and path.
async fn describe_engine(engine: Result<EngineChoice, Fault>, lang: Lang) -> Finding {
    let result = match engine {
        Ok(EngineChoice::Native) => Ok("native".to_owned()),
        Ok(EngineChoice::Claude(path)) => {
            let version = program::run(&path, &["--version".to_owned()], b"", VERSION_MAX).await;
            let version = version.map(|ended| ended.output).unwrap_or_default();
            Ok(format!("claude {} ({})", version.trim(), path.display()))
        }
        Err(fault) => Err(fault),
    };
    Finding::of(Check::Engine, result, lang)
}

fn login(lang: Lang) -> Finding {
    let sign_in = claude::signed_in();
    let advice = localize(lang, "acp-run-claude-and-type-login");
    Finding {
        check: Check::Login,
        ok: sign_in.is_some(),
        detail: sign_in.unwrap_or_else(|| advice.to_owned()),
    }
}

/// Opens every model, which fails if its API key is missing. Sends no request.
fn models(args: &ServeArgs, world: &World, lang: Lang) -> Finding {
    let limits = args.config.load().map(|config| config.limits).unwrap_or_default();
    let models = Models::new(world.clone(), limits.into(), setup::keys().0);
    let wanted = args.models();
    let opened = wanted
        .iter()
        .try_for_each(|model| models.open(&Models::parse_spec(model)?).map(drop))
        .map(|()| wanted.join(", "));
    Finding::of(Check::Models, opened, lang)
}

/// Starts every configured MCP server for a moment. A server of an editor's settings is not known here.
async fn tool_servers(args: &ServeArgs, world: &World, lang: Lang) -> Vec<Finding> {
    let check = Check::ToolServer;
    let Ok(config) = args.config.load() else { return Vec::new() };
    let limits = Arc::new(config.limits);
    let environment = setup::server_environment(world, &limits, config.mcp_logins.as_deref());
    let opened = environment.and_then(|environment| ServerSet::open_in(config.mcp, &environment));
    let servers = match opened {
        Ok(servers) => servers,
        Err(fault) => return vec![Finding::of(check, Err(fault), lang)],
    };
    let failed = servers.ready(world, SERVERS_MAX).await;
    let findings = servers.iter().map(|server| {
        let fault = failed.iter().find(|(name, _)| name == server.name());
        let result = match (fault, server.state()) {
            (Some((_, fault)), _) => Err(fault.clone()),
            (None, ServerState::Ready { tools }) => {
                let args = [("server", server.name().into()), ("tools", tools.into())];
                Ok(fill(lang, "acp-server-tools", &args))
            }
            (None, _) => {
                let name = server.name();
                let late = localize(lang, "acp-still-starting");
                return Finding { check, ok: false, detail: format!("{name}: {late}") };
            }
        };
        Finding::of(check, result, lang)
    });
    let findings = findings.collect();
    servers.shutdown().await;
    findings
}

fn choices(args: &ServeArgs, lang: Lang) -> Finding {
    Finding::of(Check::Permission, Ok(args.permission.to_string()), lang)
}

/// Passes if the journal can be read, or if it can be created at its path.
async fn journal(args: &ServeArgs, world: &World, lang: Lang) -> Finding {
    let check = Check::Journal;
    let Ok(url) = args.journal.url() else {
        let detail = localize(lang, "acp-no-home-directory-use-journal-url");
        return Finding { check, ok: false, detail: detail.to_owned() };
    };
    let is_default = args.journal.journal.is_none();
    let backends = setup::backends();
    let inspected = match backends.of(&url) {
        Ok(backend) => backend.inspect(&url).await,
        Err(fault) => Err(fault),
    };
    match inspected {
        Ok(Inspection { exists: true, .. }) => {}
        Ok(Inspection { file: Some(_), .. }) => return not_yet(check, Path::new(&url), lang),
        Ok(Inspection { file: None, .. }) => {
            let detail = setup::url_without_secrets(&url);
            return Finding { check, ok: true, detail };
        }
        // The default directory is created with the journal.
        Err(fault) if is_default && fault.kind() == Kind::NoJournal => {
            return not_yet(check, Path::new(&url), lang);
        }
        Err(fault) => return Finding::of(check, Err(fault), lang),
    }
    let result = match backends.open(&url, Access::ReadOnly, world.clone()).await {
        Ok(journal) => {
            let found = journal.sessions(budao_journal::Filter::default()).await;
            journal.close().await;
            found.map(|_| setup::url_without_secrets(&url))
        }
        Err(fault) => Err(fault),
    };
    Finding::of(check, result, lang)
}

/// A file that does not exist yet: the check passes if its nearest existing parent is a writable directory.
fn not_yet(check: Check, path: &Path, lang: Lang) -> Finding {
    let parent = path.ancestors().skip(1).find(|parent| parent.exists());
    let ok = parent.is_some_and(|parent| {
        std::fs::metadata(parent)
            .is_ok_and(|parent| parent.is_dir() && !parent.permissions().readonly())
    });
    let path = path.display().to_string();
    let detail = fill(lang, "acp-will-be-created", &[("path", path.into())]);
    Finding { check, ok, detail }
}

fn log_file(lang: Lang) -> Finding {
    let check = Check::LogFile;
    match log::path() {
        Some(path) if path.exists() => {
            Finding { check, ok: true, detail: path.display().to_string() }
        }
        Some(path) => not_yet(check, &path, lang),
        None => {
            Finding { check, ok: false, detail: localize(lang, "acp-no-home-directory").to_owned() }
        }
    }
}
