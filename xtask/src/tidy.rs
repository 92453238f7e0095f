//! Rules about the repository's files that no compiler checks: no machine-specific path, no unfinished work, a header
//! on each source file, no dead link.
//!
//! An exception is a row in `xtask/tidy.toml` with a reason. A row that no longer excuses a finding is itself an error.

mod dependencies;
mod texts;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::figures::{self, Figures};
use crate::repo;

/// Invented user names whose home folders may appear in samples.
const INVENTED: &[&str] = &["alice", "bob", "carol", "user", "username", "you", "me", "dev"];

/// Larger text files are data and are not checked.
const TEXT_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default, rename = "except")]
    rows: Vec<Exception>,
    /// Type names that several crates may define.
    #[serde(default, rename = "shared-name")]
    shared_names: Vec<SharedName>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedName {
    name: String,
    /// Read by people only.
    #[expect(dead_code, reason = "it must be written, and is for the reader")]
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: Rule,
    /// A file, or a folder with a trailing slash.
    under: String,
    /// For readers only; the field is required.
    #[expect(dead_code, reason = "it must be written, and is for the reader")]
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    /// No absolute path of a home folder or of the machine a file was written on.
    MachinePath,
    /// No disabled test and no code left for later.
    Unfinished,
    /// Each source file begins with a header.
    ModuleHeader,
    /// Links between our own documents have an existing target.
    DeadLink,
    /// A type is a noun, not a participle, question word or preposition.
    TypeName,
    /// A field is a noun, not a question word.
    FieldName,
    /// A test's name is a plain statement.
    TestName,
    /// A doc comment has more than two words.
    ShortDoc,
    /// A header has at most twelve lines of prose.
    LongHeader,
    /// Only the journal names its SQLite implementation.
    Backend,
    /// Texts for people are Fluent messages, not literals in two languages.
    InlineText,
    /// A source file that people write has at most 600 lines.
    LongFile,
}

/// A place that breaks a rule. Line 0 means the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    rule: Rule,
    message: String,
}

/// Checks every tracked file. Returns a summary, or an error that lists all findings.
pub(crate) fn check(root: &Path) -> Result<String> {
    let exceptions: Exceptions = repo::read_table(root, "tidy.toml")?;
    let files = repo::tracked_files(root)?;
    let mut texts = Vec::new();
    for file in &files {
        let bytes = fs::read(root.join(file)).with_context(|| format!("read `{file}`"))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if text.len() <= TEXT_BYTES_MAX {
            texts.push((file.as_str(), text));
        }
    }
    let exists = |path: &str| root.join(path).exists();
    let findings = texts.iter().flat_map(|(file, text)| inspect(file, text, exists)).collect();
    let (findings, idle) = excuse(findings, &exceptions.rows);
    let mut wrong: Vec<String> = findings.iter().map(ToString::to_string).collect();
    wrong.extend(shared_names(&texts, &exceptions.shared_names));
    wrong.extend(dependencies::unused(&texts));
    wrong.extend(Figures::of_texts(&texts).long_functions());
    wrong.extend(texts::unused_messages(&texts));
    wrong.extend(idle.iter().map(|row| {
        format!(
            "xtask/tidy.toml: the exception of `{}` from {:?} excuses nothing",
            row.under, row.rule
        )
    }));
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(format!("{} files", files.len()))
}

/// Type names that several crates define, although neither the glossary nor a row of `tidy.toml` has them.
fn shared_names(texts: &[(&str, String)], rows: &[SharedName]) -> Vec<String> {
    let mut names = words::TypeNames::default();
    let mut glossary = "";
    for (file, text) in texts {
        if needs_header(file) {
            names.add(file, text);
        }
        if *file == "docs/glossary.md" {
            glossary = text;
        }
    }
    let allowed: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.unexplained(glossary, &allowed)
}

/// Removes excused findings, and returns the exceptions that excused none.
fn excuse(findings: Vec<Finding>, rows: &[Exception]) -> (Vec<Finding>, Vec<&Exception>) {
    let covers = |row: &Exception, finding: &Finding| {
        let is_under = if row.under.ends_with('/') {
            finding.file.starts_with(&row.under)
        } else {
            finding.file == row.under
        };
        row.rule == finding.rule && is_under
    };
    let idle =
        rows.iter().filter(|row| !findings.iter().any(|finding| covers(row, finding))).collect();
    let left = findings
        .into_iter()
        .filter(|finding| !rows.iter().any(|row| covers(row, finding)))
        .collect();
    (left, idle)
}

/// Applies all rules to one file. `exists` checks paths relative to the root.
fn inspect(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let finding = |line: usize, rule: Rule, message: String| Finding {
        file: file.to_owned(),
        line,
        rule,
        message,
    };
    let mut findings = Vec::new();
    let is_rust = has_extension(file, "rs");
    for (index, line) in text.lines().enumerate() {
        if let Some(path) = machine_path(line) {
            findings.push(finding(index + 1, Rule::MachinePath, format!("holds `{path}`")));
        }
        if is_rust && names_sqlite(file, line) {
            let message = "names `Sqlite`; open a journal from its URL".to_owned();
            findings.push(finding(index + 1, Rule::Backend, message));
        }
        if is_rust && let Some(mark) = unfinished(line) {
            findings.push(finding(index + 1, Rule::Unfinished, format!("holds `{mark}`")));
        }
    }
    let lines = text.lines().count();
    if is_rust && lines > figures::FILE_LINES_MAX && !figures::is_generated(text) {
        let message = format!("has {lines} lines; at most {} may be", figures::FILE_LINES_MAX);
        findings.push(finding(0, Rule::LongFile, message));
    }
    if needs_header(file) && !has_header(text) {
        let message = "does not begin with a header (`//!`) that says what it is".to_owned();
        findings.push(finding(0, Rule::ModuleHeader, message));
    }
    if is_rust {
        let names = words::test_names(text).into_iter();
        findings.extend(names.map(|(line, message)| finding(line, Rule::TestName, message)));
    }
    if needs_header(file) {
        findings.extend(inspect_words(file, text));
    }
    if has_extension(file, "md") {
        for (line, link) in links(text) {
            let dead = resolve(file, &link).is_some_and(|path| !exists(&path));
            if dead {
                findings.push(finding(
                    line,
                    Rule::DeadLink,
                    format!("links to `{link}`: not there"),
                ));
            }
        }
    }
    findings
}

/// Applies the rules about names, comments and texts to one source file.
fn inspect_words(file: &str, text: &str) -> Vec<Finding> {
    let finding = |line: usize, rule: Rule, message: String| Finding {
        file: file.to_owned(),
        line,
        rule,
        message,
    };
    let mut findings = Vec::new();
    let rule = |rule| move |(line, message)| finding(line, rule, message);
    findings.extend(words::banned_names(text).into_iter().map(rule(Rule::TypeName)));
    findings.extend(words::question_fields(text).into_iter().map(rule(Rule::FieldName)));
    findings.extend(words::short_docs(text).into_iter().map(rule(Rule::ShortDoc)));
    for line in texts::inline_texts(file, text) {
        let message = "has a text in Chinese; make it a message in the crate's `words`".to_owned();
        findings.push(finding(line, Rule::InlineText, message));
    }
    if let Some(lines) = words::long_header(text) {
        let message = format!("has a header of {lines} lines");
        findings.push(finding(0, Rule::LongHeader, message));
    }
    findings
}

/// Does a file outside of the journal name its SQLite implementation?
fn names_sqlite(file: &str, line: &str) -> bool {
    let is_own = file.starts_with("crates/journal/") || file.starts_with("xtask/src/tidy");
    let is_word = |word: &str| word == "Sqlite" || word == "SqliteOptions";
    !is_own && line.split(|c: char| !c.is_alphanumeric()).any(is_word)
}

fn has_extension(file: &str, extension: &str) -> bool {
    Path::new(file).extension().is_some_and(|found| found == extension)
}

/// The first machine-specific absolute path in a line: a home folder, or the working folder of a build machine. `/home`
/// in the middle of a URL does not count.
fn machine_path(line: &str) -> Option<String> {
    for top in ["home", "Users", "root", "work", "farm"] {
        let needle = format!("/{top}/");
        for (at, _) in line.match_indices(&needle) {
            let before = line[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_.-~})]>/*".contains(c)) {
                continue;
            }
            let rest = &line[at + needle.len()..];
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || "_.-".contains(*c)).collect();
            let is_home = matches!(top, "home" | "Users");
            if is_home && (name.is_empty() || INVENTED.contains(&name.as_str())) {
                continue;
            }
            return Some(format!("{needle}{name}"));
        }
    }
    None
}

/// Marks of unfinished work. Written in two halves here, so that this file does not find itself.
fn unfinished(line: &str) -> Option<&'static str> {
    let marks = [concat!("#[ign", "ore"), concat!("to", "do!("), concat!("unimpl", "emented!(")];
    marks.into_iter().find(|mark| line.contains(mark))
}

/// Returns whether a file needs a header. Sources do, except a file called `tests.rs`.
fn needs_header(file: &str) -> bool {
    let is_source = file.split('/').any(|folder| folder == "src");
    has_extension(file, "rs") && is_source && !file.ends_with("/tests.rs")
}

/// True if the file begins with its header, after plain comments and crate attributes.
fn has_header(text: &str) -> bool {
    text.lines()
        .map(str::trim_start)
        .find(|line| {
            let is_comment = line.starts_with("//") && !line.starts_with("//!");
            !line.is_empty() && !is_comment && !line.starts_with("#!")
        })
        .is_some_and(|line| line.starts_with("//!"))
}

/// All link targets in a Markdown text with their lines, outside of code: `[a](target)`, `[a]: target`.
fn links(text: &str) -> BTreeSet<(usize, String)> {
    let mut found = BTreeSet::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if fence.is_some() || mark.is_some() {
            continue;
        }
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            found.extend(target(&line[at + 2..], ')').map(|link| (index + 1, link)));
        }
        if line.starts_with('[')
            && !line.starts_with("[^")
            && let Some((_, rest)) = line.split_once("]: ")
        {
            found.extend(target(rest.trim_start(), ' ').map(|link| (index + 1, link)));
        }
    }
    found
}

/// The line with inline `code` blanked out.
fn without_code(line: &str) -> String {
    let mut parts = line.split('`');
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let (Some(_code), Some(after)) = (parts.next(), parts.next()) {
        text.push(' ');
        text.push_str(after);
    }
    text
}

/// A link's target: `path`, `<path with spaces>` or `path "title"`, up to `end`.
fn target(text: &str, end: char) -> Option<String> {
    let raw = if let Some(angled) = text.strip_prefix('<') {
        angled.split_once('>').map(|(path, _)| path)?
    } else {
        text.split([end, ' ']).next()?
    };
    (!raw.is_empty()).then(|| raw.to_owned())
}

/// The path relative to the root that a link in `file` points to; `None` for a URL, or for a link within the same
/// document.
fn resolve(file: &str, link: &str) -> Option<String> {
    let path = link.split(['#', '?']).next().unwrap_or_default();
    let has_scheme = path.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    if path.is_empty() || has_scheme {
        return None;
    }
    if let Some(from_root) = path.strip_prefix('/') {
        return Some(from_root.to_owned());
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    Some(format!("{folder}/{path}").trim_start_matches('/').to_owned())
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{} {}", self.file, self.message),
            line => write!(f, "{}:{line} {}", self.file, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(file: &str, text: &str) -> Vec<String> {
        let exists = |path: &str| ["docs/there.md", "docs/../README.md", "LICENSE"].contains(&path);
        inspect(file, text, exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finds_paths_of_a_machine() {
        let home = format!("let p = \"/{}/jane/.ssh\";", "home");
        assert_eq!(messages("a.txt", &home), [format!("a.txt:1 holds `/{}/jane`", "home")]);
        for top in ["work", "root", "farm"] {
            let line = format!("see\n/{top}/main/x");
            assert_eq!(messages("a.txt", &line), [format!("a.txt:2 holds `/{top}/main`")]);
        }
    }

    #[test]
    fn invented_homes_and_other_folders_are_fine() {
        let fine = [
            format!("/{}/alice/notes", "home"),
            format!("/{}/", "home"),
            format!("https://example.org/{}/page", "work"),
            format!("src/{}/mod.rs", "root"),
            "/workspace/x, /homely/x, ~/x".to_owned(),
        ];
        for line in fine {
            assert_eq!(messages("a.txt", &line), [""; 0], "{line}");
        }
    }

    #[test]
    fn only_the_journal_names_its_sqlite_implementation() {
        let line = "//! Header of the file.\nuse budao_journal::sqlite::Sqlite;\n";
        let message = ["crates/serve/tests/x.rs:2 names `Sqlite`; open a journal from its URL"];
        assert_eq!(messages("crates/serve/tests/x.rs", line), message);
        assert!(messages("crates/journal/src/x.rs", line).is_empty());
        assert!(messages("crates/serve/src/x.rs", "//! Where SQLite is used.\n").is_empty());
    }

    #[test]
    fn finds_unfinished_work_in_rust_only() {
        let line = format!("{}!()", concat!("to", "do"));
        assert_eq!(messages("tests/a.rs", &line).len(), 1);
        assert_eq!(messages("notes.md", &line), [""; 0]);
        assert_eq!(messages("tests/a.rs", concat!("#[ign", "ore = \"slow\"]")).len(), 1);
    }

    #[test]
    fn a_source_file_begins_with_its_header() {
        let wants = "crates/x/src/a.rs does not begin with a header (`//!`) that says what it is";
        assert_eq!(messages("crates/x/src/a.rs", "use std::fs;\n//! late\n"), [wants]);
        assert_eq!(messages("crates/x/src/a.rs", ""), [wants]);
        assert_eq!(messages("crates/x/src/a.rs", "//! What it is.\n"), [""; 0]);
        assert_eq!(
            messages("crates/x/src/a.rs", "// @generated\n#![expect(x)]\n\n//! It.\n"),
            [""; 0]
        );
        assert_eq!(messages("crates/x/tests/a.rs", "use std::fs;\n"), [""; 0]);
        assert_eq!(messages("crates/x/src/a/tests.rs", "use super::*;\n"), [""; 0]);
    }

    #[test]
    fn a_source_file_is_divided_before_it_is_too_long() {
        let long = "//! It.\n".to_owned() + &"use a;\n".repeat(600);
        let expected = ["crates/x/tests/a.rs has 601 lines; at most 600 may be"];
        assert_eq!(messages("crates/x/tests/a.rs", &long), expected);
        assert!(messages("crates/x/src/a.rs", &format!("// Generated\n{long}")).is_empty());
    }

    #[test]
    fn follows_links_to_our_own_files() {
        let text = "[a](there.md) [b](../README.md#top \"t\") [c](https://x.y/z) [d](#here) [e](/LICENSE)\n\
                    ![f](gone.png) and `[g](code.md)`\n```\n[h](fenced.md)\n```\n[i]: <gone too.md>\n";
        assert_eq!(
            messages("docs/a.md", text),
            [
                "docs/a.md:2 links to `gone.png`: not there",
                "docs/a.md:6 links to `gone too.md`: not there"
            ]
        );
    }

    #[test]
    fn an_exception_excuses_its_rule_and_folder_only() {
        let exceptions: Exceptions = toml::from_str(
            "[[except]]\nrule = \"unfinished\"\nunder = \"a/\"\nreason = \"r\"\n\
             [[except]]\nrule = \"dead-link\"\nunder = \"a/b.md\"\nreason = \"r\"\n",
        )
        .unwrap();
        let finding = |file: &str| Finding {
            file: file.to_owned(),
            line: 1,
            rule: Rule::Unfinished,
            message: String::new(),
        };
        let (left, idle) = excuse(vec![finding("a/x.rs"), finding("ab/x.rs")], &exceptions.rows);
        assert_eq!(left, [finding("ab/x.rs")]);
        assert_eq!(idle.iter().map(|row| row.under.as_str()).collect::<Vec<_>>(), ["a/b.md"]);
    }
}
