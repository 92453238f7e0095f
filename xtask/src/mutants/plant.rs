//! Plants all mistakes of a file at once, each behind a number, so that one build serves them all. A function's body
//! becomes a choice between its original text and its texts with one mistake each.

use std::fmt::Write as _;
use std::ops::Range;

use serde::Deserialize;

/// A location in a file in the format of `cargo-mutants`: both fields count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct LineColumn {
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Span {
    pub(super) start: LineColumn,
    pub(super) end: LineColumn,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Function {
    pub(super) return_type: String,
    pub(super) span: Span,
}

/// A small mistake: `replacement` for the text at `span`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Mistake {
    pub(super) file: String,
    pub(super) package: String,
    pub(super) name: String,
    pub(super) function: Option<Function>,
    pub(super) span: Span,
    pub(super) replacement: String,
}

/// A planted mistake: its number, and its lines in the generated text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlantedMistake {
    pub(super) number: usize,
    pub(super) function: usize,
    pub(super) lines: Range<usize>,
}

/// The module added to every crate with mistakes: it selects the active mistake and logs the functions entered.
pub(super) fn switch(functions: usize) -> String {
    SWITCH.replace("FUNCTIONS", &functions.max(1).to_string())
}

/// Reads the environment once. Each function logs its first entry to a file, if one is configured.
const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(warnings)]
pub(crate) mod planted_mistakes {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    static REACHED: [AtomicBool; FUNCTIONS] = [const { AtomicBool::new(false) }; FUNCTIONS];
    static WHICH: OnceLock<(u32, Option<std::ffi::OsString>)> = OnceLock::new();
    pub(crate) fn at(function: usize) -> u32 {
        let (which, file) = WHICH.get_or_init(|| {
            let number = std::env::var("BUDAO_MISTAKE").ok().and_then(|text| text.parse().ok());
            (number.unwrap_or(u32::MAX), std::env::var_os("BUDAO_MISTAKE_REACHED"))
        });
        if let Some(file) = file {
            if !REACHED[function].swap(true, Ordering::Relaxed) {
                use std::io::Write as _;
                let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
                opened.and_then(|mut file| file.write_all(format!("{function}\n").as_bytes())).ok();
            }
        }
        *which
    }
}
"#;

/// A function with its mistakes, by number.
struct MistakeSwitch<'a> {
    /// The number of the function's first mistake, planted or not, so that it is stable when mistakes are removed.
    function: usize,
    body: Range<usize>,
    mistakes: Vec<(usize, &'a Mistake)>,
}

/// The text with those of its mistakes that `is_wanted`, by number. A mistake outside of any body, or in a nested
/// function, is left out.
pub(super) fn plant(
    text: &str,
    mistakes: &[(usize, &Mistake)],
    is_wanted: impl Fn(usize) -> bool,
) -> (String, Vec<PlantedMistake>) {
    let (mut out, mut planted) = (String::new(), Vec::new());
    let mut copied = 0;
    for mut choice in choices(text, mistakes) {
        let function = choice.function;
        choice.mistakes.retain(|(number, _)| is_wanted(*number));
        out += &text[copied..choice.body.start];
        write!(out, "{{ match crate::planted_mistakes::at({function}) {{").expect("a string");
        for (number, mistake) in &choice.mistakes {
            let start = out.matches('\n').count() + 2;
            let span = offset(text, mistake.span.start)..offset(text, mistake.span.end);
            let (before, after) =
                (&text[choice.body.start..span.start], &text[span.end..choice.body.end]);
            write!(out, "\n{number} => {before}{}{after},", mistake.replacement).expect("a string");
            let end = out.matches('\n').count() + 2;
            planted.push(PlantedMistake { number: *number, function, lines: start..end });
        }
        write!(out, "\n_ => {} }} }}", &text[choice.body.clone()]).expect("a string");
        copied = choice.body.end;
    }
    out += &text[copied..];
    (out, planted)
}

/// The functions that have mistakes, in order, without nested ones.
fn choices<'a>(text: &str, mistakes: &[(usize, &'a Mistake)]) -> Vec<MistakeSwitch<'a>> {
    let mut all: Vec<(Span, MistakeSwitch)> = Vec::new();
    for (number, mistake) in mistakes {
        let Some(function) = &mistake.function else { continue };
        if let Some((_, choice)) = all.iter_mut().find(|(span, _)| *span == function.span) {
            choice.mistakes.push((*number, mistake));
            continue;
        }
        let whole = offset(text, function.span.start)..offset(text, function.span.end);
        let Some(open) = body_start(&text[whole.clone()]) else { continue };
        // A `const fn` cannot read the environment.
        if text[whole.start..whole.start + open].contains("const fn ") {
            continue;
        }
        let body = whole.start + open..whole.end;
        let choice = MistakeSwitch { function: *number, body, mistakes: vec![(*number, mistake)] };
        all.push((function.span, choice));
    }
    all.sort_by_key(|(_, choice)| choice.body.start);
    let mut chosen: Vec<MistakeSwitch> = Vec::new();
    for (_, mut choice) in all {
        let body = choice.body.clone();
        let is_inside = |mistake: &Mistake| {
            offset(text, mistake.span.start) >= body.start
                && offset(text, mistake.span.end) <= body.end
        };
        choice.mistakes.retain(|(_, mistake)| is_inside(mistake));
        let is_apart = chosen.last().is_none_or(|last| last.body.end <= choice.body.start);
        if is_apart && !choice.mistakes.is_empty() {
            chosen.push(choice);
        }
    }
    chosen
}

fn offset(text: &str, at: LineColumn) -> usize {
    let line_start: usize = text.split_inclusive('\n').take(at.line - 1).map(str::len).sum();
    let line = text[line_start..].split('\n').next().unwrap_or_default();
    line_start + line.chars().take(at.column - 1).map(char::len_utf8).sum::<usize>()
}

/// Where a function's body begins: its first brace outside of parentheses, strings and comments.
fn body_start(function: &str) -> Option<usize> {
    let bytes = function.as_bytes();
    let (mut at, mut depth) = (0, 0_i32);
    while at < bytes.len() {
        let rest = &function[at..];
        at += match bytes[at] {
            b'{' if depth == 0 => return Some(at),
            b'(' | b'[' => {
                depth += 1;
                1
            }
            b')' | b']' => {
                depth -= 1;
                1
            }
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            b'"' => quoted(rest),
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    None
}

/// The length of a string literal, including both quotes.
fn quoted(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: (usize, usize), end: (usize, usize)) -> Span {
        let at = |(line, column)| LineColumn { line, column };
        Span { start: at(start), end: at(end) }
    }

    fn mistake(function: Span, at: Span, replacement: &str) -> Mistake {
        Mistake {
            file: String::new(),
            package: String::new(),
            name: String::new(),
            function: Some(Function { return_type: "-> bool".to_owned(), span: function }),
            span: at,
            replacement: replacement.to_owned(),
        }
    }

    #[test]
    fn a_body_becomes_a_choice_between_itself_and_its_mistakes() {
        let text = "/// Is it \"{\"?\n#[doc = \"{\"]\nfn is_one(n: [u8; { 2 }]) -> bool {\n    n[0] == 1\n}\n\nfn other() {}\n";
        let function = span((2, 1), (5, 2));
        let equal = mistake(function, span((4, 10), (4, 12)), "!=");
        let always = mistake(function, span((4, 5), (4, 14)), "true");
        let (out, planted) = plant(text, &[(6, &always), (7, &equal), (8, &always)], |it| it != 6);
        assert_eq!(
            out,
            "/// Is it \"{\"?\n#[doc = \"{\"]\nfn is_one(n: [u8; { 2 }]) -> bool { match crate::planted_mistakes::at(6) {\
             \n7 => {\n    n[0] != 1\n},\n8 => {\n    true\n},\n_ => {\n    n[0] == 1\n} } }\n\nfn other() {}\n"
        );
        let lines: Vec<_> = planted.iter().map(|one| (one.number, one.lines.clone())).collect();
        assert_eq!(lines, [(7, 4..7), (8, 7..10)]);
    }
}
