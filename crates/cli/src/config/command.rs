//! `budao config`: shows the effective configuration, checks a file, and writes a template.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use budao_core::{
    Fault, Kind, Lang,
    fault::{Fact, Operation},
    limits::Limits,
};
use serde::Serialize;
use toml::{Table, Value};

use super::{Config, ConfigArgs, EnginesConfig, ModelsConfig, ServeConfig, layers};
use crate::{exit::Exit, log::Log, terminal::Terminal, texts::localize};

/// Show, check and create configuration files.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the effective configuration: defaults, then file, then environment. Secrets stay references
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print JSON instead of TOML
        #[arg(long)]
        json: bool,
    },
    /// Check every key, value and reference of a configuration file
    Check {
        /// The file to check [default: the file that would be used]
        file: Option<PathBuf>,
        #[command(flatten)]
        config: ConfigArgs,
        /// Print one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Create a configuration file with every key and its default
    Init {
        /// File to write, or `-` for stdout [default: config.toml in the user's configuration directory]
        file: Option<PathBuf>,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
}

/// Runs `budao config show`, `check` or `init`.
pub(crate) fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    match &args.action {
        Action::Show { config, json } => show(config, *json, terminal),
        Action::Check { file, config, json } => {
            let path = layers::file(file.as_deref().or(config.config.as_deref()));
            if let Some(exit) = report_problems(path.as_deref(), lang, terminal)? {
                return Ok(exit);
            }
            if *json {
                super::load(path.as_deref())?;
                let file = path.map(|path| path.display().to_string());
                terminal.data(&format!("{}\n", serde_json::json!({ "file": file, "valid": true })));
                return Ok(Exit::Success);
            }
            let Some(path) = path else {
                terminal.say(localize(lang, "config-no-configuration-file-found-the-defaults"));
                return Ok(Exit::Success);
            };
            super::load(Some(&path))?;
            let verdict = localize(lang, "config-is-valid");
            terminal.data(&format!("{} {verdict}\n", path.display()));
            Ok(Exit::Success)
        }
        Action::Init { file, force } => init(file.clone(), *force, lang, terminal),
    }
}

/// Prints every wrong key and value of the file if it has several.
fn report_problems(
    path: Option<&Path>,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Option<Exit>, Fault> {
    let Some(path) = path else { return Ok(None) };
    let problems = layers::problems(&super::read(path)?, path);
    if problems.len() < 2 {
        return Ok(None);
    }
    let exits: Vec<Exit> =
        problems.iter().map(|fault| crate::failed(fault, lang, terminal)).collect();
    Ok(exits.first().copied())
}

fn show(args: &ConfigArgs, json: bool, terminal: &Terminal) -> Result<Exit, Fault> {
    let path = layers::file(args.config.as_deref());
    let table = super::merged(path.as_deref())?;
    // `show` prints only a configuration that loads without a fault.
    super::load(path.as_deref())?;
    let mut merged = defaults()?;
    lay_over(&mut merged, table);
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&merged).map_err(|error| bug(&error))?)
    } else {
        let from = path.map_or("no file".to_owned(), |path| path.display().to_string());
        let body = toml::to_string(&merged).map_err(|error| bug(&error))?;
        format!("# {from}\n{body}")
    };
    terminal.data(&text);
    Ok(Exit::Success)
}

#[derive(Serialize)]
struct Defaults {
    lang: &'static str,
    model: &'static str,
    permission: &'static str,
    limits: Limits,
    models: ModelsConfig,
    engines: EnginesConfig,
    serve: ServeConfig,
    log: Log,
}

fn defaults() -> Result<Table, Fault> {
    let Config { limits, models, engines, serve, log, .. } = Config::default();
    let serve = serve.with_defaults();
    let (lang, model, permission) = ("en", "demo", "approval");
    let all = Defaults { lang, model, permission, limits, models, engines, serve, log };
    Table::try_from(all).map_err(|error| bug(&error))
}

fn lay_over(below: &mut Table, above: Table) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            (_, value) => drop(below.insert(name, value)),
        }
    }
}

fn bug(error: &(dyn std::error::Error + 'static)) -> Fault {
    Fault::new(Kind::Bug, Operation::LoadConfig).caused_by(error)
}

/// Every key with its default, commented out, so that unchanged keys follow later versions of the program.
fn template() -> Result<String, Fault> {
    let body = toml::to_string(&defaults()?).map_err(|error| bug(&error))?;
    let comment = |line: &str| match line {
        "" => String::new(),
        // A rate table needs both of its keys, so its header is commented out as well.
        head if head.starts_with("[serve.limits.") => format!("# {head}"),
        head if head.starts_with('[') => head.to_owned(),
        line => format!("# {line}"),
    };
    let body: Vec<String> = body.lines().map(comment).collect();
    Ok(format!("{HEAD}{}\n{TAIL}", body.join("\n")))
}

const HEAD: &str = "\
# Configuration of budao. Commented lines show the defaults.
# Precedence: flags, then environment (BUDAO_MODEL, BUDAO_LISTEN …, or any key: BUDAO__LIMITS__STEPS=5), then this
# file. Times are in milliseconds. Secrets are given by reference: \"${env:NAME}\" or \"${file:PATH}\".
# To check this file, run `budao config check`.

";

const TAIL: &str = r#"
# An MCP server whose tools are offered; can be repeated.
# [[mcp]]
# name = "files"
# transport = { type = "stdio", command = "files-server", args = ["--root", "."] }

# A room whose computers' tools are offered; can be repeated.
# [[smcp]]
# url = "https://hub.example"
# room = "office"
# token = "${env:BUDAO_ROOM_TOKEN}"

# The AG-UI agent of `--engine agui`.
# [engines.agui]
# url = "http://127.0.0.1:8000/agent"
# token = "${env:AGENT_TOKEN}"

# A collector for OpenTelemetry traces (OTLP over HTTP).
# [traces]
# endpoint = "http://127.0.0.1:4318"
# viewer = "https://tempo.example/trace/{trace}"

# URL that alerts about critical, unrecoverable or frequent faults are posted to.
# [alerts]
# webhook = "${env:BUDAO_ALERT_URL}"
"#;

fn init(
    file: Option<PathBuf>,
    force: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let text = template()?;
    if file.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        terminal.data(&text);
        return Ok(Exit::Success);
    }
    let path = file.or_else(layers::default_file).ok_or_else(|| {
        super::wrong("FILE", "a file, since there is no home directory", "nothing")
    })?;
    let unwritable = |error: &std::io::Error| {
        Fault::new(Kind::FilePermission, Operation::WriteFile)
            .with(Fact::Path, path.display().to_string())
            .caused_by(error)
    };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|error| unwritable(&error))?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let mut file = options.open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            super::wrong("FILE", "a new file, or --force", &path.display().to_string())
        }
        _ => unwritable(&error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| unwritable(&error))?;
    terminal.data(&format!("{}\n", path.display()));
    terminal.say(localize(lang, "config-created-with-every-key-and-its"));
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_to_start_from_is_right_and_so_is_every_line_of_it_that_is_commented_out() {
        let text = template().unwrap();
        super::super::parse(&text, Path::new("config.toml")).unwrap();
        let body = text.strip_prefix(HEAD).unwrap().strip_suffix(TAIL).unwrap();
        let open: Vec<&str> =
            body.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        super::super::parse(&open.join("\n"), Path::new("config.toml")).unwrap();
    }
}
