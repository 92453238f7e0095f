//! Output of the program: data on stdout, messages on stderr, wrapped to the terminal's width.
//!
//! A closed pipe is not an error: `budao explain --list | head` ends quietly.

use std::{
    cell::Cell,
    fmt::Display,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
};

use budao_core::{Fault, Lang};
use console::{Style, Term};
use unicode_width::UnicodeWidthStr as _;

use crate::{exit::Exit, line_breaks, symbols, texts};

/// Maximum line width in columns, because longer lines are hard to read.
const COLUMNS_MAX: usize = 80;
const COLUMNS_MIN: usize = 40;
/// The escape sequences of `strong`, `name` and `faint`; on a terminal, all others are replaced.
const STYLES: [&str; 4] = ["\u{1b}[1m", "\u{1b}[36m", "\u{1b}[2m", "\u{1b}[0m"];

/// Stdout and stderr with their width and colours.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Line width in columns, 40 to 80.
    pub(crate) columns: usize,
    colours: bool,
    /// Whether stdout and stderr are terminals, where untrusted text must not act on the screen.
    is_screen: [bool; 2],
    failed: Cell<bool>,
}

impl Terminal {
    /// From the environment. Colours are on only if stdout is a terminal, `NO_COLOR` is unset and `TERM` is not
    /// `dumb`.
    pub(crate) fn from_env() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns =
            Term::stdout().size_checked().map_or(COLUMNS_MAX, |(_, columns)| columns.into());
        Self {
            columns: columns.clamp(COLUMNS_MIN, COLUMNS_MAX),
            colours: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb,
            is_screen: [io::stdout().is_terminal(), io::stderr().is_terminal()],
            failed: Cell::new(false),
        }
    }

    /// Without colours, for text that goes into a screen or a file.
    pub(crate) fn plain() -> Self {
        let is_screen = [false, false];
        Self { columns: COLUMNS_MAX, colours: false, is_screen, failed: Cell::new(false) }
    }

    /// True if output is coloured.
    pub(crate) fn has_colours(&self) -> bool {
        self.colours
    }

    /// Writes data to stdout. A file or a pipe receives it unchanged.
    pub(crate) fn data(&self, text: &str) {
        self.out(text, self.styles());
    }

    /// Writes text of a model to stdout; on a terminal, all control characters are replaced.
    pub(crate) fn words(&self, text: &str) {
        self.out(text, &[]);
    }

    /// Reports a tool server that did not start, with the end of its own error output.
    pub(crate) fn missing_server(&self, name: &str, fault: &Fault, lang: Lang) {
        let lines = texts::missing_server(fault, lang);
        for (index, line) in lines.iter().enumerate() {
            match index {
                0 => self.say(&format!("✗ {}: {line}", self.name(name))),
                _ => self.say(&self.faint(format!("  {line}"))),
            }
        }
    }

    fn styles(&self) -> &'static [&'static str] {
        if self.colours { &STYLES } else { &[] }
    }

    fn out(&self, text: &str, styles: &[&str]) {
        let [is_screen, _] = self.is_screen;
        let cleaned = if is_screen { symbols::harmless(text, styles) } else { text.into() };
        self.bytes(cleaned.as_bytes());
    }

    /// Writes bytes to stdout unchanged.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        // A reader that closes the pipe early is not an error.
        if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
            self.failed.set(true);
        }
    }

    /// Writes a message to stderr, with a line break.
    pub(crate) fn say(&self, text: &str) {
        let [_, is_screen] = self.is_screen;
        let text = if is_screen { symbols::harmless(text, self.styles()) } else { text.into() };
        // Errors are ignored; there is no other place to report them.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// The final exit code: a success becomes a failure if stdout could not be written.
    pub(crate) fn finish(&self, exit: Exit) -> Exit {
        if self.failed.get() && exit == Exit::Success {
            self.say("Writing to stdout failed.");
            return Exit::Failed;
        }
        exit
    }

    /// Important text, bold.
    pub(crate) fn strong(&self, text: impl Display) -> String {
        self.styled(Style::new().bold(), text)
    }

    /// A name the user can type, in cyan.
    pub(crate) fn name(&self, text: impl Display) -> String {
        self.styled(Style::new().cyan(), text)
    }

    /// Secondary text, dimmed.
    pub(crate) fn faint(&self, text: impl Display) -> String {
        self.styled(Style::new().dim(), text)
    }

    fn styled(&self, style: Style, text: impl Display) -> String {
        style.force_styling(self.colours).apply_to(text).to_string()
    }

    /// Wraps a paragraph, every line indented.
    pub(crate) fn wrap(&self, text: &str, indent: &str) -> String {
        self.wrap_after(indent, text, indent)
    }

    /// Wraps a paragraph whose first line starts with `first` and the others with `rest`.
    pub(crate) fn wrap_after(&self, first: &str, text: &str, rest: &str) -> String {
        let options = textwrap::Options::new(self.columns)
            .initial_indent(first)
            .subsequent_indent(rest)
            .word_separator(line_breaks::SEPARATOR)
            .break_words(false);
        textwrap::fill(text, options)
    }
}

/// Lines with aligned columns, after a line with their names.
pub(crate) fn table(names: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut all = vec![names.iter().map(ToString::to_string).collect()];
    all.extend(rows);
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row: &Vec<String>| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| pad(cell, *width));
        let line: Vec<String> = cells.collect();
        format!("{}\n", line.join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

/// The text padded with spaces to `columns`; a Chinese character takes two.
pub(crate) fn pad(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}
