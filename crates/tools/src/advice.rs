//! Advice for the model, derived from a fault: tool family × kind × facts.
//!
//! Precedence: the tool's own advice, then the program's rules, then the table in this file, then the catalog's
//! general lines. The number of lines is bounded and duplicates are dropped.

use std::{borrow::Cow, fmt, sync::Arc};

use budao_core::fault::{Advice, Detail, Fact, FactValue, Fault, Kind};

/// Maximum pieces of advice for the model on one fault.
const ADVICE_MAX: usize = 6;

/// A rule of the embedding program for advice to the model.
#[derive(Clone)]
pub struct AdviceRule(Arc<AdviceFn>);

type AdviceFn = dyn Fn(&str, &Fault) -> Option<Advice> + Send + Sync;

impl AdviceRule {
    /// Creates a rule from a function of the tool's name and the fault. `None` means no advice.
    pub fn new(make: impl Fn(&str, &Fault) -> Option<Advice> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Creates a rule for one kind of fault, for tools whose name starts with `family`.
    pub fn for_family(family: &'static str, kind: Kind, advice: impl Into<String>) -> Self {
        let advice = advice.into();
        Self::new(move |tool, fault| {
            let fits = tool.starts_with(family) && fault.kind() == kind;
            fits.then(|| Advice::Custom(advice.clone()))
        })
    }
}

impl fmt::Debug for AdviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdviceRule")
    }
}

/// Adds the matching advice of rules and table to a fault.
pub(crate) fn attach(fault: Fault, tool: &str, rules: &[AdviceRule]) -> Fault {
    let advice_before = fault.model_advice().len();
    let own = rules.iter().filter_map(|rule| (rule.0)(tool, &fault));
    let table = TABLE.iter().filter(|row| row.fits(tool, &fault)).map(|row| row.advice(&fault));
    let mut more: Vec<Advice> = Vec::new();
    for advice in own.chain(table) {
        if advice_before + more.len() < ADVICE_MAX
            && !more.contains(&advice)
            && !fault.model_advice().contains(&advice)
        {
            more.push(advice);
        }
    }
    fault.advise_model(more)
}

/// One row of the table: the tools and faults it applies to, and its advice.
struct AdviceRow {
    /// Prefix of the tool's name; empty for all tools.
    family: &'static str,
    kind: Kind,
    condition: Condition,
    /// Id of the catalog text, without `advice-`.
    advice: &'static str,
}

/// The condition on the fault's facts.
enum Condition {
    Always,
    Has(Fact),
    Number(Fact, i64),
    Contains(Fact, &'static [&'static str]),
    Rule(&'static str),
}

impl AdviceRow {
    fn fits(&self, tool: &str, fault: &Fault) -> bool {
        self.kind == fault.kind() && tool.starts_with(self.family) && self.condition.holds(fault)
    }

    /// The catalog text, with all facts of the fault as its variables.
    fn advice(&self, fault: &Fault) -> Advice {
        let mut with = Detail::new();
        for (fact, value) in fault.detail().iter() {
            if !matches!(fact, Fact::Example | Fact::StderrTail | Fact::StdoutTail) {
                with.set(fact, value.clone());
            }
        }
        if let Condition::Rule(rule) = self.condition
            && let Some(mismatch) = fault.mismatches().iter().find(|it| it.rule == rule)
        {
            with.set(Fact::Field, mismatch.dotted().into());
            if let Some(nearest) = &mismatch.nearest {
                with.set(Fact::Nearest, FactValue::List(vec![nearest.clone()]));
            }
        }
        Advice::Known { advice: Cow::Borrowed(self.advice), with }
    }
}

impl Condition {
    fn holds(&self, fault: &Fault) -> bool {
        let detail = fault.detail();
        match self {
            Self::Always => true,
            Self::Has(fact) => detail.get(*fact).is_some(),
            Self::Number(fact, wanted) => detail.number(*fact) == Some(*wanted),
            Self::Contains(fact, words) => detail.text(*fact).is_some_and(|text| {
                let text = text.to_lowercase();
                words.iter().any(|word| text.contains(word))
            }),
            Self::Rule(rule) => fault.mismatches().iter().any(|mismatch| mismatch.rule == *rule),
        }
    }
}

const fn row(
    family: &'static str,
    kind: Kind,
    condition: Condition,
    advice: &'static str,
) -> AdviceRow {
    AdviceRow { family, kind, condition, advice }
}

/// The built-in rules, most specific first.
const TABLE: &[AdviceRow] = &[
    row("", Kind::UnknownTool, Condition::Has(Fact::Nearest), "tool-nearest"),
    row("", Kind::InvalidArguments, Condition::Rule("additionalProperties"), "unknown-key"),
    row("", Kind::InvalidArguments, Condition::Rule("required"), "missing-key"),
    row("", Kind::InvalidArguments, Condition::Rule("enum"), "allowed-values"),
    row("", Kind::InvalidArguments, Condition::Has(Fact::Example), "follow-example"),
    row("fs_write", Kind::MalformedArguments, Condition::Always, "escape-content"),
    row("fs_edit", Kind::MalformedArguments, Condition::Always, "escape-content"),
    row("", Kind::FileNotFound, Condition::Has(Fact::NearestPath), "nearest-path"),
    row("fs_", Kind::FileNotFound, Condition::Always, "look-with-glob"),
    row("fs_", Kind::FileChanged, Condition::Always, "read-again"),
    row("fs_", Kind::EditNoMatch, Condition::Has(Fact::Line), "edit-closest-line"),
    row("fs_", Kind::EditNoMatch, Condition::Always, "edit-read-first"),
    row("fs_", Kind::EditSeveralMatches, Condition::Always, "edit-more-context"),
    row("fs_", Kind::OutsideWorkspace, Condition::Always, "relative-path"),
    row("fs_", Kind::NotAFile, Condition::Always, "list-directory"),
    row("fs_", Kind::FileNotText, Condition::Always, "binary-file"),
    row("bash_", Kind::ExitStatus, Condition::Number(Fact::ExitCode, 127), "command-not-found"),
    row(
        "bash_",
        Kind::ExitStatus,
        Condition::Number(Fact::ExitCode, 126),
        "command-not-executable",
    ),
    row("bash_", Kind::ExitStatus, Condition::Number(Fact::ExitCode, 137), "command-killed"),
    row(
        "bash_",
        Kind::ExitStatus,
        Condition::Contains(Fact::StderrTail, &["permission denied", "operation not permitted"]),
        "command-permission",
    ),
    row(
        "bash_",
        Kind::ExitStatus,
        Condition::Contains(Fact::StderrTail, &["no such file or directory"]),
        "command-path",
    ),
    row(
        "bash_",
        Kind::ExitStatus,
        Condition::Contains(
            Fact::StderrTail,
            &["syntax error", "unexpected token", "unterminated"],
        ),
        "command-syntax",
    ),
    row(
        "bash_",
        Kind::ExitStatus,
        Condition::Contains(
            Fact::StderrTail,
            &["could not resolve host", "network is unreachable"],
        ),
        "command-network",
    ),
    row("bash_", Kind::ExitStatus, Condition::Has(Fact::StderrTail), "read-stderr"),
    row("bash_", Kind::DeadlinePassed, Condition::Always, "command-background"),
    row("bash_", Kind::KilledBySignal, Condition::Always, "command-killed"),
    row("todo_", Kind::ConstraintViolated, Condition::Always, "todo-rules"),
    row("mcp__", Kind::ToolSaidNo, Condition::Always, "mcp-said-no"),
    row("mcp__", Kind::McpServerFailed, Condition::Always, "mcp-server"),
    row(
        "",
        Kind::LimitReached,
        Condition::Contains(Fact::LimitName, &["abandoned_calls"]),
        "too-many-abandoned",
    ),
];

/// The ids of all catalog texts that the table uses.
#[must_use]
pub fn texts() -> Vec<&'static str> {
    TABLE.iter().map(|row| row.advice).collect()
}
