//! `cargo xtask tidy --figures`: how much code there is, in the work tree and in commits.
//!
//! Counted are hand-written Rust lines of `crates/*/src` and `xtask` without comments, blank lines and test modules, the
//! lengths of functions, and the packages of the lock file. Formatted code makes this possible without a parser: a
//! block ends with the brace at its own indentation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::repo;

/// The longest file that people write.
pub(crate) const FILE_LINES_MAX: usize = 600;
/// The longest function of nine in ten, and of ninety-nine in a hundred.
const FUNCTION_LINES_MAX: [(usize, usize); 2] = [(90, 25), (99, 50)];

/// Counts of the hand-written sources.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    files: usize,
    /// Lines of code of each crate.
    code_lines: BTreeMap<String, usize>,
    /// Lines of each function, from its head to its closing brace.
    functions: Vec<usize>,
    /// Files above the limit, with their lengths.
    long_files: Vec<(String, usize)>,
    packages: usize,
}

/// Prints the figures of the commits, and of the work tree.
pub(crate) fn run(commits: &[String]) -> Result<()> {
    let root = repo::root();
    for commit in commits {
        println!("{}\n", Figures::of(&root, Some(commit))?.report(commit));
    }
    println!("{}", Figures::of(&root, None)?.report("work tree"));
    Ok(())
}

fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output().context("run `git`")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn listed(root: &Path, commit: Option<&str>) -> Result<Vec<String>> {
    let text = match commit {
        Some(commit) => git(root, &["ls-tree", "-r", "--name-only", commit])?,
        None => git(root, &["ls-files"])?,
    };
    Ok(text.lines().map(str::to_owned).collect())
}

fn content(root: &Path, commit: Option<&str>, path: &str) -> Result<String> {
    match commit {
        Some(commit) => git(root, &["show", &format!("{commit}:{path}")]),
        None => std::fs::read_to_string(root.join(path)).with_context(|| format!("read `{path}`")),
    }
}

/// Whether a program wrote the file.
pub(crate) fn is_generated(text: &str) -> bool {
    text.starts_with("// Generated")
}

fn is_counted(path: &str) -> bool {
    let mut parts = path.split('/');
    let is_product = parts.next() == Some("crates") && parts.nth(1) == Some("src");
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    path.ends_with(".rs") && (is_product || path.starts_with("xtask/")) && !is_test
}

impl Figures {
    fn of(root: &Path, commit: Option<&str>) -> Result<Self> {
        let (mut texts, mut packages) = (Vec::new(), 0);
        for path in listed(root, commit)? {
            if path == "Cargo.lock" {
                let text = content(root, commit, &path)?;
                packages = text.lines().filter(|line| *line == "[[package]]").count();
            } else if is_counted(&path) {
                let text = content(root, commit, &path)?;
                texts.push((path, text));
            }
        }
        Ok(Self { packages, ..Self::of_texts(&texts) })
    }

    /// The figures of files that are in memory, each with its path.
    pub(crate) fn of_texts<P: AsRef<str>>(texts: &[(P, String)]) -> Self {
        let texts = texts.iter().map(|(path, text)| (path.as_ref(), text.as_str()));
        let texts: Vec<(&str, &str)> = texts.filter(|(path, _)| is_counted(path)).collect();
        let tests: BTreeSet<String> =
            texts.iter().flat_map(|(path, text)| test_files(path, text)).collect();
        let mut figures = Self::default();
        for (path, text) in texts.into_iter().filter(|(path, _)| !tests.contains(*path)) {
            figures.add(path, text);
        }
        figures.functions.sort_unstable();
        figures
    }

    /// The length that this share of the functions does not exceed.
    fn function_lines(&self, percent: usize) -> usize {
        let index = self.functions.len().saturating_sub(1) * percent / 100;
        self.functions.get(index).copied().unwrap_or_default()
    }

    /// The limits on lengths of functions that do not hold.
    pub(crate) fn long_functions(&self) -> Vec<String> {
        let limits = FUNCTION_LINES_MAX.into_iter();
        limits
            .filter(|(percent, most)| self.function_lines(*percent) > *most)
            .map(|(percent, most)| {
                let lines = self.function_lines(percent);
                format!("functions: p{percent} is {lines} lines; at most {most} may be")
            })
            .collect()
    }

    fn add(&mut self, path: &str, text: &str) {
        if is_generated(text) {
            return;
        }
        let lines: Vec<&str> = product_lines(text).into_iter().map(|(_, line)| line).collect();
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let code = lines.iter().filter(is_code).count();
        self.files += 1;
        let name = path.trim_start_matches("crates/").split('/').next().unwrap_or_default();
        *self.code_lines.entry(name.to_owned()).or_default() += code;
        let length = text.lines().count();
        if length > FILE_LINES_MAX {
            self.long_files.push((path.to_owned(), length));
        }
        self.functions.extend(functions(&lines));
    }

    fn report(&self, name: &str) -> String {
        let long = self.long_files.iter().map(|(path, lines)| format!("\n  {path}: {lines}"));
        let crates = self.code_lines.iter().map(|(name, lines)| format!("\n  {name}: {lines}"));
        format!(
            "{name}: {} files, {} lines of code{}\n\
             functions: {}, p50 {}, p90 {}, p99 {} lines\n\
             packages in Cargo.lock: {}\n\
             files above {FILE_LINES_MAX} lines: {}{}",
            self.files,
            self.code_lines.values().sum::<usize>(),
            crates.collect::<String>(),
            self.functions.len(),
            self.function_lines(50),
            self.function_lines(90),
            self.function_lines(99),
            self.packages,
            self.long_files.len(),
            long.collect::<String>()
        )
    }
}

fn is_test_attribute(line: &str) -> bool {
    let line = line.trim_start();
    line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,")
}

/// The lines of a file without the items that are compiled for tests alone, each with its index.
///
/// An item ends with its head, or with a bracket at the indentation of its attribute, if a brace, semicolon or comma is last.
pub(crate) fn product_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = text.lines().enumerate();
    let mut kept = Vec::new();
    while let Some((index, line)) = lines.next() {
        if !is_test_attribute(line) {
            kept.push((index, line));
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let mut is_head = true;
        lines.find(|(_, line)| {
            let start = line.trim_start();
            if line.len() - start.len() != indent
                || start.starts_with("//")
                || start.starts_with('#')
            {
                return false;
            }
            let may_end = is_head || start.starts_with(['}', ')', ']']);
            is_head = false;
            may_end && line.ends_with(['}', ';', ','])
        });
    }
    kept
}

/// The files of modules that this file declares for tests alone.
fn test_files(path: &str, text: &str) -> Vec<String> {
    let folder = ["lib.rs", "main.rs", "mod.rs"].iter().find_map(|root| path.strip_suffix(root));
    let folder =
        folder.map_or_else(|| format!("{}/", path.trim_end_matches(".rs")), ToOwned::to_owned);
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.windows(2).filter(|pair| is_test_attribute(pair[0]));
    let name = |line: &str| Some(line.strip_suffix(';')?.rsplit_once("mod ")?.1.to_owned());
    declared.filter_map(|pair| name(pair[1])).map(|name| format!("{folder}{name}.rs")).collect()
}

/// The lengths of the functions with a body.
fn functions(lines: &[&str]) -> Vec<usize> {
    let mut lengths = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if !is_head(line.trim_start()) {
            continue;
        }
        let mut rest = lines[first..].iter().enumerate();
        let end = format!("{indent}}}");
        let last = rest.find(|(at, line)| {
            let is_one_line = *at == 0 && line.ends_with('}');
            let is_declared = line.ends_with(';') && line.starts_with(&format!("{indent})"));
            is_one_line || is_declared || **line == end
        });
        if let Some((at, line)) = last
            && !line.ends_with(';')
        {
            lengths.push(at + 1);
        }
    }
    lengths
}

fn is_head(line: &str) -> bool {
    let words = line.split_whitespace();
    let mut words = words.skip_while(|word| {
        word.starts_with("pub") || ["in", "async", "const", "unsafe", "extern"].contains(word)
    });
    words.next() == Some("fn") && !line.ends_with(';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_and_declarations_are_not() {
        let text = "fn a() {\n    b();\n}\n\nimpl X {\n    pub(crate) async fn c(\n        &self,\n    ) -> u8 {\n        1\n    }\n    \
                    fn d();\n    fn e() {}\n}\n";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(functions(&lines), [3, 5, 1]);
        let mut figures = Figures::default();
        figures.add(
            "crates/x/src/lib.rs",
            "//! Head.\n\nfn a() {\n    // why\n    b();\n}\n#[cfg(test)]\nmod t {}\n",
        );
        assert_eq!((figures.code_lines["x"], figures.files), (3, 1));
        let long = "fn a() {\n".to_owned() + &"    b();\n".repeat(60) + "}\n";
        let figures = Figures::of_texts(&[("crates/x/src/lib.rs", long)]);
        let expected = [
            "functions: p90 is 62 lines; at most 25 may be",
            "functions: p99 is 62 lines; at most 50 may be",
        ];
        assert_eq!(figures.long_functions(), expected);
        assert!(is_counted("xtask/src/main.rs") && !is_counted("crates/x/tests/it.rs"));
    }

    #[test]
    fn only_the_item_after_a_test_attribute_is_left_out() {
        let text = "//! Head.\n#[cfg(test)]\nmod tests;\nmod b;\n\n#[cfg(test)]\npub(crate) use tests::{\n    a,\n};\n\
                    struct X {\n    #[cfg(test)]\n    seen: u8,\n    shown: u8,\n}\n\
                    #[cfg(test)]\n// why;\n#[expect(x)]\nmod t {\n    const C: &str = \"\\\nx;\n\";\n}\nfn last() {}\n";
        let lines: Vec<&str> = product_lines(text).into_iter().map(|(_, line)| line).collect();
        let expected =
            ["//! Head.", "mod b;", "", "struct X {", "    shown: u8,", "}", "fn last() {}"];
        assert_eq!(lines, expected);
        assert_eq!(product_lines(text).last(), Some(&(22, "fn last() {}")));
    }

    #[test]
    fn a_file_that_is_declared_for_tests_is_not_counted() {
        let declares = "mod code;\n#[cfg(test)]\nmod testing;\n".to_owned();
        let nested = "#[cfg(test)]\nmod more;\n".to_owned();
        let code = || "fn a() {}\n".to_owned();
        let texts = [
            ("crates/x/src/lib.rs", declares),
            ("crates/x/src/testing.rs", code()),
            ("crates/x/src/code.rs", nested),
            ("crates/x/src/code/more.rs", code()),
            ("crates/x/src/more.rs", code()),
        ];
        let figures = Figures::of_texts(&texts);
        assert_eq!((figures.files, figures.code_lines["x"]), (3, 2));
    }
}
