//! Where words go: data to stdout, talk to stderr, in columns that fit.
//!
//! Nothing here panics when the other end is gone: `budao explain --list | head` ends quietly.

use std::{
    cell::Cell,
    fmt::Display,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
};

use console::{Style, Term};
use unicode_width::UnicodeWidthStr as _;

use crate::{exit::Exit, symbols};

/// Lines longer than this are hard to read, however wide the window is.
const COLUMNS_MAX: usize = 80;
const COLUMNS_MIN: usize = 40;
/// What `strong`, `name` and `faint` write: all that may change how a terminal looks.
const STYLES: [&str; 4] = ["\u{1b}[1m", "\u{1b}[36m", "\u{1b}[2m", "\u{1b}[0m"];

/// Stdout and stderr, and how they look.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// How wide a line may be.
    pub(crate) columns: usize,
    colours: bool,
    /// Somebody looks at stdout, and at stderr: text of strangers must not steer their screens.
    is_screen: [bool; 2],
    failed: Cell<bool>,
}

impl Terminal {
    /// As the environment has it: no colour unless stdout is a terminal that wants it.
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

    /// For text that goes elsewhere: no colour.
    pub(crate) fn plain() -> Self {
        let is_screen = [false, false];
        Self { columns: COLUMNS_MAX, colours: false, is_screen, failed: Cell::new(false) }
    }

    /// Does it want colour?
    pub(crate) fn has_colours(&self) -> bool {
        self.colours
    }

    /// Data, for stdout. A file or a pipe gets it as it is.
    pub(crate) fn data(&self, text: &str) {
        self.out(text, self.styles());
    }

    /// Words of a model, for stdout: not even our styles are theirs to write.
    pub(crate) fn words(&self, text: &str) {
        self.out(text, &[]);
    }

    fn styles(&self) -> &'static [&'static str] {
        if self.colours { &STYLES } else { &[] }
    }

    fn out(&self, text: &str, styles: &[&str]) {
        let [is_screen, _] = self.is_screen;
        let shown = if is_screen { symbols::harmless(text, styles) } else { text.into() };
        self.bytes(shown.as_bytes());
    }

    /// The same for what may be no text.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        // A reader that has seen enough is no failure of ours.
        if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
            self.failed.set(true);
        }
    }

    /// Talk, for stderr.
    pub(crate) fn say(&self, text: &str) {
        let [_, is_screen] = self.is_screen;
        let text = if is_screen { symbols::harmless(text, self.styles()) } else { text.into() };
        // If nobody listens there is nobody to tell.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// The last word on how it ended: what could not be written did not work.
    pub(crate) fn finish(&self, exit: Exit) -> Exit {
        if self.failed.get() && exit == Exit::Success {
            self.say("The answer could not be written.");
            return Exit::Failed;
        }
        exit
    }

    /// Important.
    pub(crate) fn strong(&self, text: impl Display) -> String {
        self.styled(Style::new().bold(), text)
    }

    /// A name one can type.
    pub(crate) fn name(&self, text: impl Display) -> String {
        self.styled(Style::new().cyan(), text)
    }

    /// Beside the point.
    pub(crate) fn faint(&self, text: impl Display) -> String {
        self.styled(Style::new().dim(), text)
    }

    fn styled(&self, style: Style, text: impl Display) -> String {
        style.force_styling(self.colours).apply_to(text).to_string()
    }

    /// A paragraph, indented.
    pub(crate) fn wrap(&self, text: &str, indent: &str) -> String {
        self.wrap_after(indent, text, indent)
    }

    /// A paragraph whose first line begins otherwise.
    pub(crate) fn wrap_after(&self, first: &str, text: &str, rest: &str) -> String {
        let options = textwrap::Options::new(self.columns)
            .initial_indent(first)
            .subsequent_indent(rest)
            .break_words(false);
        textwrap::fill(text, options)
    }
}

/// The text and blanks up to `columns`; a Chinese character takes two.
pub(crate) fn pad(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}
