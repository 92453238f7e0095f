//! Catalog texts in the reader's language.
//!
//! Texts are Fluent messages in `catalog/{en,zh}.ftl`. An argument is a fact of the same name. An absent fact is passed
//! as the word `none`, and every `_ms` fact is also available as `_seconds`. A test renders every kind in every
//! language, so a missing or misspelt text fails the test, not the program.
//!
//! The texts of a kind are looked up once per language and cached. Lines of advice without arguments, which are most of
//! them, are borrowed from the catalog without formatting.

use std::{borrow::Cow, cell::OnceCell, sync::LazyLock};

use fluent_bundle::{FluentArgs, FluentAttribute, FluentValue};
use strum::VariantArray as _;

use super::{Advice, Detail, ErrorType, Fact, FactValue, Fault, Kind, Operation, Progress};
use crate::{
    fallback::ModelChangeReason,
    lang::Lang,
    texts::{TextBundle, TextCatalog},
};

/// The most lines of advice in one rendering.
const ADVICE_MAX: usize = 8;

static TEXTS: TextCatalog = TextCatalog::new(
    &[include_str!("../../catalog/en.ftl")],
    &[include_str!("../../catalog/zh.ftl")],
);

fn bundle(lang: Lang) -> &'static TextBundle {
    TEXTS.bundle(lang)
}

/// The sentence for the model.
#[must_use]
pub fn model_text(fault: &Fault, lang: Lang) -> String {
    FaultText::of(fault, lang).model()
}

/// The sentence for the user.
#[must_use]
pub fn user_text(fault: &Fault, lang: Lang) -> String {
    FaultText::of(fault, lang).user()
}

/// The summary in the operator's line, always English.
#[must_use]
pub fn summary(fault: &Fault) -> String {
    model_text(fault, Lang::En)
}

/// What people can do: advice for this fault first, then the catalog's general lines. Bounded in number, without
/// duplicates.
#[must_use]
pub fn recommendations(fault: &Fault, lang: Lang) -> Vec<Cow<'_, str>> {
    FaultText::of(fault, lang).recommendations()
}

/// What the model can do with its call, in the same order and bounds. Empty for kinds that never reach a model.
#[must_use]
pub fn model_advice(fault: &Fault, lang: Lang) -> Vec<Cow<'_, str>> {
    FaultText::of(fault, lang).model_advice()
}

/// The texts for one fault in one language. The facts are converted once for all of them.
#[derive(Debug)]
pub struct FaultText<'a> {
    fault: &'a Fault,
    lang: Lang,
    texts: &'static KindTexts,
    args: OnceCell<Box<FluentArgs<'a>>>,
}

impl<'a> FaultText<'a> {
    /// Prepares the texts for `fault` in `lang`.
    #[must_use]
    pub fn of(fault: &'a Fault, lang: Lang) -> Self {
        Self { fault, lang, texts: KindTexts::of(fault.kind(), lang), args: OnceCell::new() }
    }

    /// The sentence for the model.
    #[must_use]
    pub fn model(&self) -> String {
        self.with_doubt(&self.texts.model, "advice-may-still-run")
    }

    /// The sentence for the user.
    #[must_use]
    pub fn user(&self) -> String {
        self.with_doubt(&self.texts.user, "advice-may-still-run-user")
    }

    /// Renders a text and appends how far the work got, unless the kind's own texts say so.
    fn with_doubt(&self, text: &'static Template, doubt: &str) -> String {
        let mut text = self.render(text).into_owned();
        if self.begins_with_absent_fact(&text) {
            text = capitalised(text);
        }
        let doubt = match self.fault.progress() {
            Progress::Unconfirmed if self.is_doubtful() => doubt,
            Progress::Done => "advice-was-done",
            Progress::NotBegun if self.says_nothing_was_done() => "advice-nothing-done",
            _ => return text,
        };
        let space = if self.lang == Lang::En { " " } else { "" };
        format!("{text}{space}{}", line(doubt, &Detail::new(), self.lang))
    }

    /// Whether a text begins with the general words for a fact that the fault lacks.
    fn begins_with_absent_fact(&self, text: &str) -> bool {
        let lacking = self.fault.row().always.iter();
        let mut lacking = lacking.filter(|fact| self.fault.detail().get(**fact).is_none());
        lacking.any(|fact| text.starts_with(&absent(*fact, self.lang)))
    }

    /// Whether the outcome is unknown and the kind's own texts do not say so.
    fn is_doubtful(&self) -> bool {
        self.fault.is_outcome_unknown()
            && !matches!(self.fault.kind(), Kind::OutcomeUnknown | Kind::ToolAbandoned)
    }

    /// Whether a call that did nothing failed in a way that leaves it open whether it did something.
    fn says_nothing_was_done(&self) -> bool {
        let kind = self.fault.row().error_type;
        self.fault.operation() == Operation::ToolCall
            && !matches!(kind, ErrorType::Aborted | ErrorType::Validation)
    }

    /// What people can do: advice for this fault first, then the catalog's general lines. Bounded in number, without
    /// duplicates.
    #[must_use]
    pub fn recommendations(&self) -> Vec<Cow<'a, str>> {
        if self.fault.progress() == Progress::Done {
            return self.when_done(self.fault.user_advice(), "advice-was-done-user");
        }
        self.merge(self.fault.user_advice(), &self.general().recommendations)
    }

    /// What the model can do with its call, in the same order and bounds.
    #[must_use]
    pub fn model_advice(&self) -> Vec<Cow<'a, str>> {
        if self.fault.progress() == Progress::Done {
            return self.when_done(self.fault.model_advice(), "advice-was-done-model");
        }
        self.merge(self.fault.model_advice(), &self.general().model_advice)
    }

    /// Advice about work that was done: the general lines of a kind may recommend a repetition.
    fn when_done(&self, specific: &'a [Advice], general: &str) -> Vec<Cow<'a, str>> {
        let mut lines = self.merge(specific, &[]);
        lines.truncate(ADVICE_MAX - 1);
        lines.push(Cow::Owned(line(general, &Detail::new(), self.lang)));
        lines
    }

    /// The texts with the general lines. A kind may recommend a retry; for work that may still be running, checking its
    /// outcome comes first.
    fn general(&self) -> &'static KindTexts {
        if self.is_doubtful() && !self.fault.repeat().retryable {
            KindTexts::of(Kind::OutcomeUnknown, self.lang)
        } else {
            self.texts
        }
    }

    fn merge(&self, specific: &'a [Advice], general: &'static [Template]) -> Vec<Cow<'a, str>> {
        let specific = specific.iter().map(|advice| match advice {
            Advice::Known { advice, with } => {
                Cow::Owned(line(&format!("advice-{advice}"), with, self.lang))
            }
            Advice::Custom(text) => Cow::Borrowed(text.as_str()),
        });
        let general = general.iter().map(|text| self.render(text));
        let mut lines: Vec<Cow<'a, str>> = Vec::with_capacity(ADVICE_MAX / 2);
        for text in specific.chain(general) {
            if lines.len() < ADVICE_MAX && !lines.contains(&text) {
                lines.push(text);
            }
        }
        lines
    }

    fn render(&self, text: &'static Template) -> Cow<'static, str> {
        match text {
            Template::Ready(text) => Cow::Borrowed(text),
            Template::Filled(attribute) => {
                let args = self.args.get_or_init(|| Box::new(args_of(self.fault, self.lang)));
                Cow::Owned(fill(attribute, args, self.lang))
            }
        }
    }
}

/// The texts of one kind in one language.
#[derive(Debug)]
struct KindTexts {
    model: Template,
    user: Template,
    recommendations: Vec<Template>,
    model_advice: Vec<Template>,
}

#[derive(Debug)]
enum Template {
    /// A text without arguments.
    Ready(Cow<'static, str>),
    /// A text with arguments or with several lines.
    Filled(FluentAttribute<'static>),
}

impl KindTexts {
    fn of(kind: Kind, lang: Lang) -> &'static Self {
        static EN: LazyLock<Vec<KindTexts>> = LazyLock::new(|| KindTexts::all(Lang::En));
        static ZH: LazyLock<Vec<KindTexts>> = LazyLock::new(|| KindTexts::all(Lang::Zh));
        match lang {
            Lang::En => &EN[kind as usize],
            Lang::Zh => &ZH[kind as usize],
        }
    }

    /// The texts of all kinds, in catalog order.
    fn all(lang: Lang) -> Vec<Self> {
        let texts = |kind: &Kind| {
            let row = kind.row();
            let find = |attribute: &str| Template::find(row.message, attribute, lang);
            let list = |name: &str, count: usize| {
                (1..=count).map(|number| find(&format!("{name}-{number}"))).collect()
            };
            Self {
                model: find("model"),
                user: find("user"),
                recommendations: list("rec", row.recommendations),
                model_advice: list("next", row.model_advice),
            }
        };
        Kind::VARIANTS.iter().map(texts).collect()
    }
}

impl Template {
    fn find(id: &str, attribute: &str, lang: Lang) -> Self {
        let bundle = bundle(lang);
        let found = bundle.get_message(id).and_then(|message| message.get_attribute(attribute));
        let Some(found) = found else {
            return Self::Ready(format!("⟨{id}.{attribute}⟩").into());
        };
        match bundle.format_pattern(found.value(), None, &mut Vec::new()) {
            // Fluent returns a borrowed text when it needs no formatting.
            Cow::Borrowed(text) => Self::Ready(text.into()),
            Cow::Owned(_) => Self::Filled(found),
        }
    }
}

/// A text of a kind without a fault: `title`, `about`, `check`, `model`, `user`, `rec-1`, `next-1` …
#[must_use]
pub fn of_kind(kind: Kind, attribute: &str, lang: Lang) -> String {
    let row = kind.row();
    match Template::find(row.message, attribute, lang) {
        Template::Ready(text) => text.into_owned(),
        Template::Filled(found) => {
            let mut args = FluentArgs::new();
            for fact in row.facts {
                // A documentation page shows the name of the fact in place of its value.
                let name: &'static str = (*fact).into();
                args.set(name, format!("‹{name}›"));
                if let Some(name) = in_seconds(*fact) {
                    args.set(name, format!("‹{name}›"));
                }
            }
            fill(&found, &args, lang)
        }
    }
}

/// The kind's lines of advice for people, without a fault.
#[must_use]
pub fn recommendations_of_kind(kind: Kind, lang: Lang) -> Vec<String> {
    (1..=kind.row().recommendations).map(|n| of_kind(kind, &format!("rec-{n}"), lang)).collect()
}

/// The kind's lines of advice for the model, without a fault.
#[must_use]
pub fn model_advice_of_kind(kind: Kind, lang: Lang) -> Vec<String> {
    (1..=kind.row().model_advice).map(|n| of_kind(kind, &format!("next-{n}"), lang)).collect()
}

/// The operation as a phrase: "call the tool".
#[must_use]
pub fn of_operation(operation: Operation, lang: Lang) -> String {
    line(operation.message(), &Detail::new(), lang)
}

/// The runtime's own reasons for asking about a call or denying it, by message id.
const REASONS: [&str; 29] = [
    "reason-ask-list",
    "reason-deny-list",
    "reason-confirm",
    "reason-approval",
    "reason-readonly",
    "reason-plan",
    "reason-spending-cap",
    "reason-program",
    "reason-mode-plan",
    "reason-mode-dont-ask",
    "reason-room-role",
    "reason-room-name-fixed",
    "reason-room-second",
    "reason-room-name-taken",
    "reason-room-agent-only",
    "reason-room-own-name",
    "reason-token-role",
    "reason-token-rooms",
    "reason-token-missing",
    "reason-token-wrong",
    "reason-tool-changed-by-server",
    "reason-tool-changed",
    "reason-call-claimed",
    "reason-call-cancelled",
    "reason-call-not-claimed",
    "reason-call-has-result",
    "reason-call-over",
    "reason-call-other-attempt",
    "reason-call-not-offered",
];

/// The reason for asking about a call or denying it, in the reader's language.
///
/// The runtime's own reasons are recorded in English and translated here. A reason from a hook, a policy or another
/// program stays verbatim.
#[must_use]
pub fn reason(said: &str, lang: Lang) -> Cow<'_, str> {
    if lang == Lang::En {
        return Cow::Borrowed(said);
    }
    let told = REASONS.iter().find_map(|id| {
        let rest = said.strip_prefix(line(id, &Detail::new(), Lang::En).as_str())?;
        let about = if rest.is_empty() { rest } else { rest.strip_prefix(": ")? };
        let reason = line(id, &Detail::new(), lang);
        Some(if about.is_empty() { reason } else { format!("{reason}：{about}") })
    });
    told.map_or(Cow::Borrowed(said), Cow::Owned)
}

/// What settings expect, by message id. A longer phrase comes before its own beginning.
const EXPECTED: [&str; 38] = [
    "expected-plain-url",
    "expected-printed-address",
    "expected-set-or-readable",
    "expected-one-model",
    "expected-model-list",
    "expected-reference",
    "expected-no-home",
    "expected-public-key",
    "expected-explained-code",
    "expected-loopback",
    "expected-tool-name",
    "expected-http-host",
    "expected-hub-token",
    "expected-known-key",
    "expected-serve-address",
    "expected-creatable-file",
    "expected-machine-address",
    "expected-unused-name",
    "expected-text-or-list",
    "expected-bytes-32",
    "expected-fraction",
    "expected-http-address",
    "expected-readable-file",
    "expected-new-file",
    "expected-characters-32",
    "expected-toml",
    "expected-characters-8",
    "expected-text",
    "expected-whole-number",
    "expected-more-than-0",
    "expected-boolean",
    "expected-port",
    "expected-at-least-1",
    "expected-command",
    "expected-number",
    "expected-table",
    "expected-list",
    "expected-one-of",
];

/// What a setting expects, in the reader's language. The runtime's own phrases are recorded in English and translated
/// here, with what follows them; others stay verbatim.
#[must_use]
pub fn expected(said: &str, lang: Lang) -> Cow<'_, str> {
    if lang == Lang::En {
        return Cow::Borrowed(said);
    }
    let told = EXPECTED.iter().find_map(|id| {
        let rest = said.strip_prefix(line(id, &Detail::new(), Lang::En).as_str())?;
        // Names follow `one of`, and the parser's own words follow a colon.
        let is_list = *id == "expected-one-of" && rest.starts_with(" `");
        let is_whole = rest.is_empty() || rest.starts_with(": ") || is_list;
        let about = rest.trim_start_matches([':', ' ']);
        let phrase = line(id, &Detail::new(), lang);
        let told = if about.is_empty() { phrase } else { format!("{phrase}：{about}") };
        is_whole.then_some(told)
    });
    told.map_or(Cow::Borrowed(said), Cow::Owned)
}

/// Any other message of the catalog, by its id, with facts as arguments.
#[must_use]
pub fn line(id: &str, with: &Detail, lang: Lang) -> String {
    let mut args = FluentArgs::new();
    for (fact, value) in with.iter() {
        set_fact(&mut args, fact, fluent(value));
    }
    line_with(id, &args, lang)
}

/// That a session asks the model `to` in place of `from`, and why.
#[must_use]
pub fn model_changed(reason: ModelChangeReason, from: &str, to: &str, lang: Lang) -> String {
    let mut args = FluentArgs::new();
    args.set("reason", <&str>::from(reason));
    args.set("from", from);
    args.set("to", to);
    line_with("model-changed", &args, lang)
}

/// Any other message of the catalog, with arguments that are not facts.
#[must_use]
pub fn line_with(id: &str, args: &FluentArgs<'_>, lang: Lang) -> String {
    let bundle = bundle(lang);
    let Some(pattern) = bundle.get_message(id).and_then(|message| message.value()) else {
        return format!("⟨{id}⟩");
    };
    bundle.format_pattern(pattern, Some(args), &mut Vec::new()).into_owned()
}

/// Whether both languages have a message with this id.
#[must_use]
pub fn exists(id: &str) -> bool {
    bundle(Lang::En).has_message(id) && bundle(Lang::Zh).has_message(id)
}

fn fill(attribute: &FluentAttribute<'static>, args: &FluentArgs<'_>, lang: Lang) -> String {
    let mut text = String::with_capacity(128);
    bundle(lang)
        .write_pattern(&mut text, attribute.value(), Some(args), &mut Vec::new())
        .expect("a string takes everything");
    text
}

/// The words for an absent fact that every fault of its kind carries: "the service". A test keeps the runtime's own
/// faults complete; records of other versions and faults of other programs may not be.
fn absent(fact: Fact, lang: Lang) -> String {
    let name: &'static str = fact.into();
    line(&format!("absent-{}", name.replace('_', "-")), &Detail::new(), lang)
}

/// Begins a sentence with a capital letter.
fn capitalised(text: String) -> String {
    match text.chars().next() {
        Some(first) if first.is_ascii_lowercase() => {
            format!("{}{}", first.to_ascii_uppercase(), &text[1..])
        }
        _ => text,
    }
}

/// The facts that a fault's texts may use. An absent fact becomes `none`, or its general word if the kind always
/// carries it.
fn args_of<'a>(fault: &'a Fault, lang: Lang) -> FluentArgs<'a> {
    let row = fault.row();
    let mut args = FluentArgs::with_capacity(row.facts.len() + 2);
    for fact in row.facts {
        let value = match fault.detail().get(*fact) {
            _ if *fact == Fact::Mismatches && !fault.mismatches().is_empty() => {
                let lines: Vec<_> = fault.mismatches().iter().map(ToString::to_string).collect();
                FluentValue::from(lines.join("\n"))
            }
            Some(FactValue::Text(said)) if *fact == Fact::Reason => {
                FluentValue::from(reason(said, lang))
            }
            Some(FactValue::Text(said)) if *fact == Fact::Expected => {
                FluentValue::from(expected(said, lang))
            }
            Some(value) => fluent(value),
            None if row.always.contains(fact) => FluentValue::from(absent(*fact, lang)),
            None => FluentValue::from("none"),
        };
        set_fact(&mut args, *fact, value);
    }
    args
}

fn fluent(value: &FactValue) -> FluentValue<'_> {
    match value {
        FactValue::Number(number) => FluentValue::from(*number),
        FactValue::Text(text) => FluentValue::from(text.as_ref()),
        other => FluentValue::from(other.to_string()),
    }
}

fn set_fact<'a>(args: &mut FluentArgs<'a>, fact: Fact, value: FluentValue<'a>) {
    if let Some(name) = in_seconds(fact) {
        let seconds = match &value {
            FluentValue::Number(number) => seconds(number.value),
            other => other.clone(),
        };
        args.set(name, seconds);
    }
    let name: &'static str = fact.into();
    args.set(name, value);
}

/// The name of a millisecond fact in seconds: `timeout_ms` is also `timeout_seconds`.
fn in_seconds(fact: Fact) -> Option<&'static str> {
    static NAMES: LazyLock<Vec<Option<String>>> = LazyLock::new(|| {
        let seconds = |fact: &Fact| {
            let name: &'static str = fact.into();
            name.strip_suffix("_ms").map(|base| format!("{base}_seconds"))
        };
        Fact::VARIANTS.iter().map(seconds).collect()
    });
    NAMES[fact as usize].as_deref()
}

/// Converts milliseconds to readable seconds: whole seconds as a number, for plurals; short times with decimals.
fn seconds(millis: f64) -> FluentValue<'static> {
    let seconds = millis / 1000.0;
    FluentValue::from(if seconds >= 10.0 {
        seconds.round()
    } else if seconds >= 0.1 {
        (seconds * 10.0).round() / 10.0
    } else {
        seconds
    })
}
