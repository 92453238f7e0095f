//! Merges the layers of the configuration as TOML tables: the file, then the environment. clap applies the flags on
//! top.

use std::path::{Path, PathBuf};

use budao_core::{
    Fault, Kind,
    fault::{Advice, Detail, Fact, Operation},
};
use toml::{Table, Value};

/// The most problems of one file that are reported.
const PROBLEMS_MAX: usize = 32;
/// Prefix of environment variables that set any key: `BUDAO__LIMITS__STEPS=5`.
const ANY_KEY: &str = "BUDAO__";
/// Environment variables with a short name, and the key each sets.
const SHORT: [(&str, &str); 5] = [
    ("BUDAO_LANG", "lang"),
    ("BUDAO_MODEL", "model"),
    ("BUDAO_JOURNAL", "journal"),
    ("BUDAO_LISTEN", "serve.listen"),
    ("BUDAO_LOG", "log.level"),
];
/// Parts of key names whose values are secrets.
const SECRET: [&str; 7] =
    ["webhook", "token", "secret", "password", "authorization", "api_key", "api-key"];
/// Key names that contain such a part and are not secrets.
const NO_SECRET: [&str; 8] = [
    "token_file",
    "jwt_secret",
    "context_tokens",
    "turn_tokens",
    "model_between_tokens",
    "model_first_token",
    "max_turn_tokens",
    "tokens",
];

/// Path of the file: `named`, else the default path if it exists.
pub(super) fn file(named: Option<&Path>) -> Option<PathBuf> {
    let usual = || default_file().filter(|path| path.exists());
    named.map(Path::to_owned).or_else(usual)
}

/// `$XDG_CONFIG_HOME/budao/config.toml`, else `~/.config/budao/config.toml`.
pub(super) fn default_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(base.join("budao/config.toml"))
}

/// Parses the file's text and refuses secrets in it.
pub(super) fn table(text: &str, path: &Path) -> Result<Table, Fault> {
    let table: Table = text.parse().map_err(|error| at(text, path, &error))?;
    refuse_secrets(&table, "", text, path)?;
    Ok(table)
}

/// Every wrong key and value of a file's text, at most [`PROBLEMS_MAX`]. After each, its line is blanked and the rest
/// is checked; a wrong table is blanked up to the next one.
pub(super) fn problems(text: &str, path: &Path) -> Vec<Fault> {
    let (mut rest, mut found) = (text.to_owned(), Vec::new());
    while found.len() < PROBLEMS_MAX {
        let Err(error) = toml::from_str::<super::Config>(&rest) else { break };
        let Some(span) = error.span().filter(|span| blank(&mut rest, span)) else {
            // Nothing tells where it is: the file cannot be read at all.
            found.push(at(text, path, &error));
            break;
        };
        let line = text[..span.start].matches('\n').count() + 1;
        let location = format!("{}:{line}", path.display());
        let received = text.lines().nth(line - 1).unwrap_or_default();
        found.push(invalid_at(&location, error.message(), received));
    }
    found
}

/// Replaces the lines of a span with spaces, and those of its whole table if it begins at a header. Returns whether that
/// changed anything.
fn blank(text: &mut String, span: &std::ops::Range<usize>) -> bool {
    let (Some(before), Some(after)) = (text.get(..span.start), text.get(span.end..)) else {
        return false;
    };
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let is_header = text[begin..].trim_start().starts_with('[');
    let next = if is_header { after.find("\n[") } else { after.find('\n') };
    let end = next.map_or(text.len(), |at| span.end + at);
    let spaces: String =
        text[begin..end].chars().map(|it| if it == '\n' { '\n' } else { ' ' }).collect();
    let is_new = text[begin..end] != spaces;
    text.replace_range(begin..end, &pad(spaces, end - begin));
    is_new
}

/// Fills up to a length in bytes, so that later positions stay the same.
fn pad(mut spaces: String, bytes: usize) -> String {
    let missing = bytes.saturating_sub(spaces.len());
    spaces.insert_str(0, &" ".repeat(missing));
    spaces
}

/// The fault for a TOML error: its line, what was expected, and the nearest name if a name is unknown.
pub(super) fn at(text: &str, path: &Path, error: &toml::de::Error) -> Fault {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let location = format!("{}:{line}", path.display());
    invalid_at(&location, error.message(), text.lines().nth(line - 1).unwrap_or_default())
}

/// The fault for a parser message, with the nearest name as advice if a name is unknown.
pub(super) fn invalid_at(location: &str, message: &str, received: &str) -> Fault {
    let (found, expected) = expected(message);
    let unknown = found.strip_prefix("unknown field ").map(|name| name.trim_matches('`'));
    let written = || received.split_once('=').map(|(key, _)| key.trim());
    let location = match unknown.or_else(written) {
        Some(key) => format!("{location} `{key}`"),
        None => location.to_owned(),
    };
    let fault = super::wrong(&location, &expected, received);
    match nearest(message) {
        Some(name) => {
            let with = Detail::new().with(Fact::Nearest, format!("`{name}`"));
            fault.advise_user([Advice::Known { advice: "tool-nearest".into(), with }])
        }
        None => fault,
    }
}

/// Splits a parser message into what was found and what was expected; the latter completes "it must be".
fn expected(message: &str) -> (&str, String) {
    let is_usual = ["unknown ", "invalid type", "invalid value", "invalid length"]
        .iter()
        .any(|beginning| message.starts_with(beginning));
    let Some((found, expected)) = message.split_once(", expected ").filter(|_| is_usual) else {
        return ("", format!("TOML that can be read: {message}"));
    };
    let is_number = |name: &str| {
        let size = name.strip_prefix(['u', 'i']).unwrap_or_default();
        size == "size" || size.parse::<u8>().is_ok()
    };
    let words = match expected {
        name if is_number(name) => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        other => other,
    };
    (found, words.to_owned())
}

/// The expected name nearest to the one found; none if the edit distance is too large.
fn nearest(message: &str) -> Option<&str> {
    let mut names = message.split('`').skip(1).step_by(2);
    let found = names.next().filter(|_| message.starts_with("unknown "))?;
    let distance = |name: &&str| strsim::damerau_levenshtein(found, name);
    names.min_by_key(distance).filter(|name| distance(name) <= 1 + found.len() / 3)
}

/// Applies the environment variables to the table. Fails if a variable names a key below one that is not a table.
pub(super) fn overlay(table: &mut Table, variables: &[(String, String)]) -> Result<(), Fault> {
    for (name, value) in variables {
        let key = match SHORT.iter().find(|(short, _)| short == name) {
            Some((_, key)) => (*key).to_owned(),
            None => match name.strip_prefix(ANY_KEY) {
                Some(rest) => rest.to_lowercase().replace("__", "."),
                None => continue,
            },
        };
        let is_text = SHORT.iter().any(|(short, _)| short == name);
        set(table, &key, read_value(value, is_text))
            .ok_or_else(|| super::wrong(name, "a key of the configuration file", value))?;
    }
    Ok(())
}

/// Parses a number, a list or a truth value; anything else is a string.
fn read_value(text: &str, is_text: bool) -> Value {
    let parsed = || format!("value = {text}").parse::<Table>().ok()?.remove("value");
    let parsed = if is_text { None } else { parsed() };
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(table: &mut Table, key: &str, value: Value) -> Option<()> {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Some(());
    };
    let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    set(inner.as_table_mut()?, rest, value)
}

/// Replaces references with their values: `${env:NAME}`, `${file:PATH}`.
pub(super) fn resolve(value: &mut Value, key: &str) -> Result<(), Fault> {
    match value {
        Value::String(text) => {
            if let Some(found) = referred(text, key)? {
                *text = found;
            }
        }
        Value::Array(items) => {
            for item in items {
                resolve(item, key)?;
            }
        }
        Value::Table(table) => {
            for (name, inner) in table.iter_mut() {
                resolve(inner, &join(key, name))?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The text with its references replaced; none if it contains none.
fn referred(text: &str, key: &str) -> Result<Option<String>, Fault> {
    let Some((before, rest)) = text.split_once("${") else { return Ok(None) };
    let expected = "${env:NAME} or ${file:PATH}";
    let (reference, after) =
        rest.split_once('}').ok_or_else(|| super::wrong(key, expected, text))?;
    let value = match reference.split_once(':') {
        Some(("env", name)) => std::env::var(name).map_err(|_| missing(key, reference))?,
        Some(("file", path)) => {
            let read = std::fs::read_to_string(path);
            read.map_err(|error| missing(key, reference).caused_by(&error))?.trim().to_owned()
        }
        _ => return Err(super::wrong(key, expected, text)),
    };
    let after = referred(after, key)?.unwrap_or_else(|| after.to_owned());
    Ok(Some(format!("{before}{value}{after}")))
}

fn missing(key: &str, reference: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, "a variable that is set, or a file that can be read")
        .with(Fact::Received, format!("${{{reference}}}"))
        .advise_user([Advice::Known {
            advice: "reference-missing".into(),
            with: Detail::new().with(Fact::Received, format!("${{{reference}}}")),
        }])
}

fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Refuses secrets in plain text, so that the file can be shared.
fn refuse_secrets(table: &Table, key: &str, text: &str, path: &Path) -> Result<(), Fault> {
    for (name, value) in table {
        let key = join(key, name);
        let tables: Vec<&Table> = match value {
            Value::Table(inner) => vec![inner],
            Value::Array(items) => items.iter().filter_map(Value::as_table).collect(),
            _ => vec![],
        };
        for inner in tables {
            refuse_secrets(inner, &key, text, path)?;
        }
        let is_plain =
            value.as_str().is_some_and(|value| !value.is_empty() && !value.contains("${"));
        if is_plain && is_secret(name) {
            let line = text.lines().position(|line| line.contains(name.as_str()));
            let location = format!("{}:{}", path.display(), line.map_or(1, |line| line + 1));
            let fault =
                super::wrong(&location, "a reference to a secret, not the secret itself", &key);
            let with = Detail::new()
                .with(Fact::Field, name.clone())
                .with(Fact::Expected, "${env:NAME}\" or \"${file:PATH}");
            return Err(
                fault.advise_user([Advice::Known { advice: "write-reference".into(), with }])
            );
        }
    }
    Ok(())
}

/// True if the key's name suggests that its value is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    !NO_SECRET.contains(&name.as_str()) && SECRET.iter().any(|part| name.contains(part))
}
