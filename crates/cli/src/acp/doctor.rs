//! `budao acp doctor`: checks everything the editor's agent needs, and writes nothing.

use std::{path::Path, time::Duration};

use budao_core::{Fault, Kind, Lang, fault::text, world::World};
use budao_journal::{Access, Inspection};
use budao_models::Models;
use budao_runtime::world;

use super::{EngineChoice, ServeArgs, claude, log};
use crate::{exit::Exit, program, setup, terminal::Terminal, texts::localize};

/// Time limit for `claude --version`.
const VERSION_MAX: Duration = Duration::from_secs(20);

/// The result of one check.
struct Finding {
    what: String,
    fine: bool,
    told: String,
}

/// Runs every check and prints one line each. The exit code is a failure if any check fails.
pub(super) async fn run(args: &ServeArgs, json: bool, lang: Lang, terminal: &Terminal) -> Exit {
    let world = world::system();
    let engine = args.engine();
    let is_native = !matches!(engine, Ok(EngineChoice::Claude(_)));
    let mut findings = vec![configuration(args, lang), describe_engine(engine, lang).await];
    if is_native {
        findings.push(models(args, &world, lang));
    } else {
        findings.push(login(lang));
    }
    findings.extend([choices(args, lang), journal(args, &world, lang).await, log_file(lang)]);
    let is_fine = findings.iter().all(|finding| finding.fine);
    for Finding { what, fine, told } in findings {
        if json {
            let found = serde_json::json!({ "what": what, "fine": fine, "told": told });
            terminal.data(&format!("{found}\n"));
            continue;
        }
        let mark = if fine {
            localize(lang, "ok", "正常")
        } else {
            localize(lang, "FAILED", "有问题")
        };
        terminal.data(&format!(
            "{}  {} {told}\n",
            crate::terminal::pad(mark, 6),
            terminal.strong(what)
        ));
    }
    if is_fine { Exit::Success } else { Exit::Failed }
}

fn finding(what: &str, found: Result<String, Fault>, lang: Lang) -> Finding {
    let what = what.to_owned();
    match found {
        Ok(told) => Finding { what, fine: true, told },
        Err(fault) => {
            let code = fault.row().code;
            let told = format!("{} (budao explain {code})", text::user_text(&fault, lang));
            Finding { what, fine: false, told }
        }
    }
}

fn configuration(args: &ServeArgs, lang: Lang) -> Finding {
    let told = args.config.load().map(|config| match lang {
        Lang::En => format!("valid; {} MCP servers", config.mcp.len()),
        Lang::Zh => format!("有效；{} 个 MCP 服务器", config.mcp.len()),
    });
    finding(localize(lang, "configuration", "配置"), told, lang)
}

/// The engine's name; for the CLI also its version and path.
async fn describe_engine(engine: Result<EngineChoice, Fault>, lang: Lang) -> Finding {
    let told = match engine {
        Ok(EngineChoice::Native) => Ok("native".to_owned()),
        Ok(EngineChoice::Claude(path)) => {
            let version = program::run(&path, &["--version".to_owned()], b"", VERSION_MAX).await;
            let version = version.map(|ended| ended.said).unwrap_or_default();
            Ok(format!("claude {} ({})", version.trim(), path.display()))
        }
        Err(fault) => Err(fault),
    };
    finding(localize(lang, "engine", "引擎"), told, lang)
}

fn login(lang: Lang) -> Finding {
    let told = claude::signed_in();
    let advice =
        localize(lang, "run `claude` and type `/login`", "请运行 `claude` 并输入 `/login`");
    Finding {
        what: localize(lang, "login", "登录").to_owned(),
        fine: told.is_some(),
        told: told.unwrap_or_else(|| advice.to_owned()),
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
    finding(localize(lang, "models", "模型"), opened, lang)
}

fn choices(args: &ServeArgs, lang: Lang) -> Finding {
    let told = args
        .permissions()
        .and_then(|permissions| args.execution_error().map(|_| permissions.mode.to_string()));
    finding(localize(lang, "permission", "权限"), told, lang)
}

/// Passes if the journal can be read, or if it can be created at its path.
async fn journal(args: &ServeArgs, world: &World, lang: Lang) -> Finding {
    let what = localize(lang, "journal", "日志库");
    let Ok(url) = args.journal.url() else {
        let told = localize(
            lang,
            "no home directory; use --journal URL",
            "没有主目录；请用 --journal URL",
        );
        return Finding { what: what.to_owned(), fine: false, told: told.to_owned() };
    };
    let is_default = args.journal.journal.is_none();
    let backends = setup::backends();
    let inspected = match backends.of(&url) {
        Ok(backend) => backend.inspect(&url).await,
        Err(fault) => Err(fault),
    };
    match inspected {
        Ok(Inspection { exists: true, .. }) => {}
        Ok(Inspection { file: Some(_), .. }) => return not_yet(what, Path::new(&url), lang),
        Ok(Inspection { file: None, .. }) => {
            let told = setup::url_without_secrets(&url);
            return Finding { what: what.to_owned(), fine: true, told };
        }
        // The default directory is created with the journal.
        Err(fault) if is_default && fault.kind() == Kind::NoJournal => {
            return not_yet(what, Path::new(&url), lang);
        }
        Err(fault) => return finding(what, Err(fault), lang),
    }
    let told = match backends.open(&url, Access::ReadOnly, world.clone()).await {
        Ok(journal) => {
            let found = journal.sessions(budao_journal::Filter::default()).await;
            journal.close().await;
            found.map(|_| setup::url_without_secrets(&url))
        }
        Err(fault) => Err(fault),
    };
    finding(what, told, lang)
}

/// A file that does not exist yet: the check passes if its nearest existing parent is a writable directory.
fn not_yet(what: &str, path: &Path, lang: Lang) -> Finding {
    let place = path.ancestors().skip(1).find(|place| place.exists());
    let fine = place.is_some_and(|place| {
        std::fs::metadata(place)
            .is_ok_and(|place| place.is_dir() && !place.permissions().readonly())
    });
    let told = match lang {
        Lang::En => format!("{} will be created", path.display()),
        Lang::Zh => format!("将创建 {}", path.display()),
    };
    Finding { what: what.to_owned(), fine, told }
}

fn log_file(lang: Lang) -> Finding {
    let what = localize(lang, "log file", "日志文件");
    match log::path() {
        Some(path) if path.exists() => {
            Finding { what: what.to_owned(), fine: true, told: path.display().to_string() }
        }
        Some(path) => not_yet(what, &path, lang),
        None => Finding {
            what: what.to_owned(),
            fine: false,
            told: localize(lang, "no home directory", "没有主目录").to_owned(),
        },
    }
}
