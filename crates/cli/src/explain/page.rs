//! The page of one kind, as text and as JSON.

use budao_core::{
    Kind, Lang,
    fault::{
        CatalogRow, Category, Detail, ErrorType, Fact, Next, Remedy, Severity, Strategy, text,
    },
};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use super::ProtocolNumbers;
use crate::{
    terminal::{Terminal, pad},
    texts::fill,
};

const INDENT: &str = "  ";

/// The page as text for the terminal.
pub(super) fn text(kind: Kind, lang: Lang, terminal: &Terminal) -> String {
    let page = Page { kind, row: kind.row(), lang, terminal };
    let of_kind = |attribute| text::of_kind(kind, attribute, lang);
    let (model_advice, recommendations) =
        (text::model_advice_of_kind(kind, lang), text::recommendations_of_kind(kind, lang));
    let parts = [
        page.head(),
        terminal.wrap(&of_kind("about"), ""),
        page.columns(),
        page.section("label-model", &of_kind("model")),
        page.advice("label-model-advice", &model_advice),
        page.section("label-user", &of_kind("user")),
        page.advice("label-recommendations", &recommendations),
        page.section("label-operator", &of_kind("check")),
        page.numbers(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}\n", parts.join("\n\n"))
}

struct Page<'a> {
    kind: Kind,
    row: &'static CatalogRow,
    lang: Lang,
    terminal: &'a Terminal,
}

impl Page<'_> {
    fn head(&self) -> String {
        let title = text::of_kind(self.kind, "title", self.lang);
        let area = self.row.code.split('_').nth(1).unwrap_or_default().to_lowercase();
        let area = self.line(&format!("area-{area}"));
        format!(
            "{}  {}\n{}",
            self.terminal.name(self.row.code),
            self.terminal.strong(title),
            self.terminal.faint(format!("{} · {area}", self.row.name))
        )
    }

    /// The catalog columns of the kind, each with its value and meaning.
    fn columns(&self) -> String {
        let row = self.row;
        self.table(&[
            ("label-remedy", self.word("remedy", row.remedy.into())),
            ("label-next", self.word("next", row.next.into())),
            ("label-category", self.named("category", row.category.into())),
            ("label-error-type", self.named("error-type", row.error_type.into())),
            ("label-severity", self.named("severity", row.severity.into())),
            ("label-strategy", self.named("strategy", row.strategy.into())),
            ("label-retryable", self.yes_or_no(row.retryable)),
            ("label-auto-retry", self.yes_or_no(row.auto_retry)),
            ("label-recoverable", self.yes_or_no(row.recoverable)),
        ])
    }

    /// The advice for one audience; empty if there is none.
    fn advice(&self, label: &str, advice: &[String]) -> String {
        if advice.is_empty() {
            return String::new();
        }
        let mut lines = vec![self.heading(label)];
        for (index, line) in advice.iter().enumerate() {
            let number = format!("{INDENT}{}. ", index + 1);
            lines.push(self.terminal.wrap_after(&number, line, "     "));
        }
        lines.join("\n")
    }

    fn numbers(&self) -> String {
        let row = self.row;
        let mut facts: Vec<&'static str> = Vec::new();
        for fact in row.facts.iter().chain(row.context) {
            let name = fact.into();
            if !facts.contains(&name) {
                facts.push(name);
            }
        }
        let ProtocolNumbers { smcp, http, json_rpc } = ProtocolNumbers::of(self.kind);
        let numbers = [
            smcp.map(|number| format!("A2C-SMCP {number}")),
            http.map(|number| format!("HTTP {number}")),
            json_rpc.map(|number| format!("JSON-RPC {number}")),
        ];
        let numbers: Vec<String> = numbers.into_iter().flatten().collect();
        let event: &'static str = row.event.into();
        let mut rows = Vec::new();
        if !numbers.is_empty() {
            rows.push(("label-numbers", numbers.join(", ")));
        }
        rows.extend([
            ("label-event", format!("{event} ({})", row.type_name)),
            ("label-editor", self.word("editor", row.editor.into())),
        ]);
        if !facts.is_empty() {
            rows.push(("label-facts", facts.join(", ")));
        }
        self.table(&rows)
    }

    fn section(&self, label: &str, text: &str) -> String {
        format!("{}\n{}", self.heading(label), self.terminal.wrap(text, INDENT))
    }

    fn heading(&self, label: &str) -> String {
        self.terminal.strong(self.line(label))
    }

    fn table(&self, rows: &[(&str, String)]) -> String {
        let labels: Vec<_> = rows.iter().map(|(label, _)| self.line(label)).collect();
        let widest = labels.iter().map(|label| label.width()).max().unwrap_or(0);
        let rest = " ".repeat(INDENT.len() + widest + 2);
        let lines = labels.iter().zip(rows).map(|(label, (_, value))| {
            let first = format!("{INDENT}{}  ", pad(label, widest));
            let wrapped = self.terminal.wrap_after(&first, value, &rest);
            // Coloured after wrapping, because colour codes have no width.
            wrapped.replacen(label, &self.terminal.faint(label), 1)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The meaning of a catalog value, for example `the user: decide, correct or sign in`.
    fn word(&self, column: &str, value: &'static str) -> String {
        self.line(&format!("word-{column}-{}", value.replace('_', "-")))
    }

    /// The catalog value followed by its meaning.
    fn named(&self, column: &str, value: &'static str) -> String {
        let meaning = self.word(column, value);
        fill(self.lang, "explain-meaning", &[("value", value.into()), ("meaning", meaning.into())])
    }

    fn yes_or_no(&self, yes: bool) -> String {
        self.line(if yes { "label-yes" } else { "label-no" })
    }

    fn line(&self, id: &str) -> String {
        text::line(id, &Detail::new(), self.lang)
    }
}

/// The page as JSON, for programs.
pub(super) fn json(kind: Kind, lang: Lang) -> String {
    pretty(&KindJson::of(kind, lang))
}

pub(super) fn pretty(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("words and numbers always serialise");
    format!("{text}\n")
}

/// Every catalog column and the texts in one language. A public format: fields are added, never renamed.
#[derive(Debug, Serialize)]
pub(super) struct KindJson {
    code: &'static str,
    name: &'static str,
    title: String,
    error_type: ErrorType,
    type_name: &'static str,
    category: Category,
    remedy: Remedy,
    next: Next,
    retryable: bool,
    recoverable: bool,
    auto_retry: bool,
    severity: Severity,
    strategy: Strategy,
    event: &'static str,
    #[serde(flatten)]
    numbers: ProtocolNumbers,
    editor: &'static str,
    context: &'static [Fact],
    facts: &'static [Fact],
    lang: Lang,
    about: String,
    model: String,
    user: String,
    recommendations: Vec<String>,
    model_advice: Vec<String>,
    check: String,
}

impl KindJson {
    pub(super) fn of(kind: Kind, lang: Lang) -> Self {
        let row = kind.row();
        let of_kind = |attribute: &str| text::of_kind(kind, attribute, lang);
        Self {
            code: row.code,
            name: row.name,
            title: of_kind("title"),
            error_type: row.error_type,
            type_name: row.type_name,
            category: row.category,
            remedy: row.remedy,
            next: row.next,
            retryable: row.retryable,
            recoverable: row.recoverable,
            auto_retry: row.auto_retry,
            severity: row.severity,
            strategy: row.strategy,
            event: row.event.into(),
            numbers: ProtocolNumbers::of(kind),
            editor: row.editor.into(),
            context: row.context,
            facts: row.facts,
            lang,
            about: of_kind("about"),
            model: of_kind("model"),
            user: of_kind("user"),
            recommendations: text::recommendations_of_kind(kind, lang),
            model_advice: text::model_advice_of_kind(kind, lang),
            check: of_kind("check"),
        }
    }
}
