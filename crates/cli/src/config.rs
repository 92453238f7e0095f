//! The configuration file, as far as running a session needs it: limits, MCP servers and rooms.
//!
//! Flags are stronger than the environment, the environment than the file.

use std::path::{Path, PathBuf};

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
    limits::Limits,
};
use budao_mcp::Config as McpConfig;
use budao_serve::Limits as ServeLimits;
use serde::Deserialize;

use crate::smcp::Room;

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "BUDAO_CONFIG")]
    config: Option<PathBuf>,

    /// An MCP server whose tools are offered: NAME=COMMAND or NAME=URL; may be given several times
    #[arg(long = "mcp", value_name = "NAME=WHERE")]
    mcp: Vec<String>,
}

/// What a configuration file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Bounds that differ from the usual ones.
    pub(crate) limits: Limits,
    /// MCP servers.
    pub(crate) mcp: Vec<McpConfig>,
    /// Rooms whose computers' tools are offered.
    pub(crate) smcp: Vec<Room>,
    /// Bounds of `budao serve`.
    pub(crate) serve: ServeLimits,
}

impl ConfigArgs {
    /// The file, if one is named, and what the flags add to it.
    pub(crate) fn load(&self) -> Result<Config, Fault> {
        let mut config = match &self.config {
            Some(path) => read(path)?,
            None => Config::default(),
        };
        for text in &self.mcp {
            config.mcp.push(server(text)?);
        }
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Config, Fault> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        wrong("--config", "a file that can be read", &path.display().to_string()).caused_by(&error)
    })?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Config, Fault> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let place = format!("{}:{line}", path.display());
        wrong(&place, error.message(), text.lines().nth(line - 1).unwrap_or_default())
    })
}

/// `NAME=COMMAND ARG…`, or `NAME=http://…`.
fn server(text: &str) -> Result<McpConfig, Fault> {
    let expected = "NAME=COMMAND or NAME=URL";
    let (name, place) = text.split_once('=').ok_or_else(|| wrong("--mcp", expected, text))?;
    if place.starts_with("http://") || place.starts_with("https://") {
        return Ok(McpConfig::http(name, place));
    }
    let words = shell_words::split(place).map_err(|_| wrong("--mcp", expected, text))?;
    let (command, args) = words.split_first().ok_or_else(|| wrong("--mcp", expected, text))?;
    Ok(McpConfig::stdio(name, command, args))
}

fn wrong(key: &str, expected: &str, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, received.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let text = "[limits]\nsteps = 5\nstpes = 6\n";
        let fault = parse(text, Path::new("budao.toml")).unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong);
        assert_eq!(fault.detail().text(Fact::ConfigKey), Some("budao.toml:3"));
        let told = budao_core::fault::text::for_user(&fault, budao_core::Lang::En);
        assert!(told.contains("unknown field `stpes`"), "{told}");
    }

    #[test]
    fn limits_and_servers_are_read() {
        let text = "[limits]\nsteps = 5\n[[mcp]]\nname = \"files\"\n\
                    transport = { type = \"stdio\", command = \"files-server\" }\n";
        let config = parse(text, Path::new("budao.toml")).unwrap();
        assert_eq!(config.limits.steps, 5);
        assert_eq!(config.mcp[0].name, "files");
    }

    #[test]
    fn a_server_on_the_command_line_is_a_command_or_an_address() {
        assert!(server("a=npx server --flag 'two words'").is_ok());
        assert!(server("a=http://127.0.0.1:1/mcp").is_ok());
        for bad in ["", "name", "a=", "a='unclosed"] {
            assert!(server(bad).is_err(), "{bad}");
        }
    }
}
