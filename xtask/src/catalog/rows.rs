//! Reads the rows of `catalog/faults.toml`. A missing cell, or one of the wrong type, is reported and read as empty, so
//! that one run finds every mistake.

use anyhow::{Context as _, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ROWS;

/// The whole definition file.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    pub(super) areas: Vec<String>,
    pub(super) facts: Vec<Fact>,
    pub(super) operations: Vec<Operation>,
    pub(super) kinds: Vec<Kind>,
}

/// A fact that a fault can carry.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) name: String,
    /// `text`, `number`, `list` or `json`.
    pub(super) shape: String,
    pub(super) about: String,
}

/// An operation during which a fault can happen.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) about: String,
}

/// One row. Words of a vocabulary are kept as written; `check` validates them.
#[derive(Debug, Default)]
pub(super) struct Kind {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) code: String,
    pub(super) error_type: String,
    pub(super) type_name: String,
    pub(super) category: String,
    pub(super) remedy: String,
    pub(super) next: String,
    pub(super) retryable: bool,
    pub(super) recoverable: bool,
    pub(super) auto_retry: bool,
    pub(super) severity: String,
    pub(super) strategy: String,
    pub(super) event: String,
    pub(super) smcp: u16,
    pub(super) smcp_home: bool,
    pub(super) http: u16,
    pub(super) json_rpc: i32,
    pub(super) editor: String,
    pub(super) context: Vec<String>,
    pub(super) always: Vec<String>,
    pub(super) facts: Vec<String>,
    pub(super) recommendations: usize,
    pub(super) model_advice: usize,
    pub(super) same_advice: bool,
}

impl Catalog {
    pub(super) fn read(text: &str, problems: &mut Vec<String>) -> Result<Self> {
        let document = DeTable::parse(text).with_context(|| format!("understand `{ROWS}`"))?;
        let mut top = Cells::new(text, "the file".to_owned(), document.get_ref(), problems);
        let areas = top.words("areas");
        let facts = top.tables("facts");
        let operations = top.tables("operations");
        let kinds = top.list("kind");
        top.nothing_else();
        Ok(Self {
            areas,
            facts: facts.into_iter().map(|entry| fact(text, entry, problems)).collect(),
            operations: operations
                .into_iter()
                .map(|(name, value)| operation(text, &name, value, problems))
                .collect(),
            kinds: kinds.iter().map(|row| kind(text, row, problems)).collect(),
        })
    }

    pub(super) fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.name == name)
    }
}

impl Kind {
    /// The area in the code: `TOOL` for `ERR_TOOL_004`.
    pub(super) fn area(&self) -> &str {
        self.code.split('_').nth(1).unwrap_or_default()
    }

    /// The kind and the cell, for an error message.
    pub(super) fn place(&self, cell: &str) -> String {
        format!("{ROWS}:{}: row `{}`, cell `{cell}`", self.line, self.name)
    }
}

fn fact(text: &str, (name, value): Entry<'_>, problems: &mut Vec<String>) -> Fact {
    let Some(table) = value.get_ref().as_table() else {
        let line = line_of(text, value);
        problems
            .push(format!("{ROWS}:{line}: fact `{name}`: must be a table with `type` and `about`"));
        return Fact { name, shape: "text".to_owned(), about: String::new() };
    };
    let mut cells = Cells::new(text, format!("fact `{name}`"), table, problems);
    cells.line = line_of(text, value);
    let (shape, about) = (cells.word("type"), cells.word("about"));
    cells.nothing_else();
    Fact { name, shape, about }
}

fn operation(
    text: &str,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Vec<String>,
) -> Operation {
    let about = value.get_ref().as_str().map(str::to_owned).unwrap_or_else(|| {
        let line = line_of(text, value);
        problems.push(format!("{ROWS}:{line}: operation `{name}`: must be a sentence"));
        String::new()
    });
    Operation { name: name.to_owned(), about }
}

fn kind(text: &str, row: &Spanned<DeValue<'_>>, problems: &mut Vec<String>) -> Kind {
    let line = line_of(text, row);
    let Some(table) = row.get_ref().as_table() else {
        problems.push(format!("{ROWS}:{line}: `kind` must be a table"));
        return Kind::default();
    };
    let name = table.get("name").and_then(|name| name.get_ref().as_str()).unwrap_or("?");
    let mut cells = Cells::new(text, format!("row `{name}`"), table, problems);
    cells.line = line;
    let kind = Kind {
        line,
        name: cells.word("name"),
        code: cells.word("code"),
        error_type: cells.word("error_type"),
        type_name: cells.word("type_name"),
        category: cells.word("category"),
        remedy: cells.word("remedy"),
        next: cells.word("next"),
        retryable: cells.flag("retryable"),
        recoverable: cells.flag("recoverable"),
        auto_retry: cells.flag("auto_retry"),
        severity: cells.word("severity"),
        strategy: cells.word("strategy"),
        event: cells.word("event"),
        smcp: cells.number("smcp"),
        smcp_home: cells.flag("smcp_home"),
        http: cells.number("http"),
        json_rpc: cells.number("json_rpc"),
        editor: cells.word("editor"),
        context: cells.words("context"),
        always: cells.words("always"),
        facts: cells.words("facts"),
        recommendations: cells.number("recommendations"),
        model_advice: cells.number("model_advice"),
        same_advice: cells.flag("same_advice"),
    };
    cells.nothing_else();
    kind
}

/// A key and its value.
type Entry<'a> = (String, &'a Spanned<DeValue<'a>>);

/// The cells of one table. Each cell is taken once; the remaining ones are reported as unknown.
struct Cells<'a, 'p> {
    text: &'a str,
    line: usize,
    subject: String,
    table: &'a DeTable<'a>,
    taken: Vec<&'static str>,
    problems: &'p mut Vec<String>,
}

impl<'a, 'p> Cells<'a, 'p> {
    fn new(
        text: &'a str,
        subject: String,
        table: &'a DeTable<'a>,
        problems: &'p mut Vec<String>,
    ) -> Self {
        Self { text, line: 1, subject, table, taken: Vec::new(), problems }
    }

    fn take(&mut self, cell: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.taken.push(cell);
        let value = self.table.get(cell);
        if value.is_none() {
            let (line, subject) = (self.line, &self.subject);
            self.problems.push(format!("{ROWS}:{line}: {subject}, cell `{cell}`: missing"));
        }
        value
    }

    fn wrong(&mut self, cell: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let (line, subject) = (line_of(self.text, value), &self.subject);
        self.problems.push(format!("{ROWS}:{line}: {subject}, cell `{cell}`: must be {wanted}"));
    }

    fn word(&mut self, cell: &'static str) -> String {
        let Some(value) = self.take(cell) else { return String::new() };
        match value.get_ref().as_str() {
            Some(word) if !word.is_empty() => word.to_owned(),
            _ => {
                self.wrong(cell, value, "a text that is not empty");
                String::new()
            }
        }
    }

    fn flag(&mut self, cell: &'static str) -> bool {
        let Some(value) = self.take(cell) else { return false };
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.wrong(cell, value, "true or false");
            false
        })
    }

    fn number<N: std::str::FromStr + Default>(&mut self, cell: &'static str) -> N {
        let Some(value) = self.take(cell) else { return N::default() };
        let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
        number.unwrap_or_else(|| {
            self.wrong(cell, value, "a whole number in range");
            N::default()
        })
    }

    fn words(&mut self, cell: &'static str) -> Vec<String> {
        let mut words = Vec::new();
        for value in self.list(cell) {
            match value.get_ref().as_str() {
                Some(word) => words.push(word.to_owned()),
                None => self.wrong(cell, value, "a list of texts"),
            }
        }
        words
    }

    fn list(&mut self, cell: &'static str) -> &'a [Spanned<DeValue<'a>>] {
        let Some(value) = self.take(cell) else { return &[] };
        match value.get_ref().as_array() {
            Some(list) => list,
            None => {
                self.wrong(cell, value, "a list");
                &[]
            }
        }
    }

    /// The entries of a table in file order, which is the order of the enum variants.
    fn tables(&mut self, cell: &'static str) -> Vec<Entry<'a>> {
        let Some(value) = self.take(cell) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.wrong(cell, value, "a table");
            return Vec::new();
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries.into_iter().map(|(key, value)| (key.get_ref().to_string(), value)).collect()
    }

    fn nothing_else(self) {
        for (key, value) in self.table {
            if !self.taken.contains(&key.get_ref().as_ref()) {
                let (line, subject) = (line_of(self.text, value), &self.subject);
                self.problems
                    .push(format!("{ROWS}:{line}: {subject}, cell `{key}`: no such column"));
            }
        }
    }
}

fn line_of<T>(text: &str, value: &Spanned<T>) -> usize {
    let start = value.span().start.min(text.len());
    text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1
}
