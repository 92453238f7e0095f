//! The words of the catalog, in the reader's language.
//!
//! Texts are Fluent messages in `catalog/{en,zh}.ftl`. An argument is a fact of the same name; an absent
//! one is passed as the word `none`, and every `_ms` fact is also there as `_seconds`. A test renders
//! every kind in every language, so a text that is missing or misspelt fails there, not here.

use std::{borrow::Cow, sync::OnceLock};

use fluent_bundle::{FluentArgs, FluentResource, FluentValue, concurrent::FluentBundle};

use super::{Advice, Detail, Fact, FactValue, Fault, Kind, Operation};
use crate::lang::Lang;

type Bundle = FluentBundle<FluentResource>;

/// Most recommendations anybody reads.
const RECOMMENDATIONS_MAX: usize = 8;

fn bundle(lang: Lang) -> &'static Bundle {
    static EN: OnceLock<Bundle> = OnceLock::new();
    static ZH: OnceLock<Bundle> = OnceLock::new();
    let load = |text: &str, id| {
        let resource = FluentResource::try_new(text.to_owned())
            .unwrap_or_else(|(_, errors)| panic!("the catalog's texts are checked: {errors:?}"));
        let mut bundle = Bundle::new_concurrent(vec![id]);
        bundle.set_use_isolating(false);
        bundle.add_resource(resource).expect("ids in the catalog's texts are unique");
        bundle
    };
    match lang {
        Lang::En => EN.get_or_init(|| {
            load(
                include_str!("../../../../catalog/en.ftl"),
                unic_langid::LanguageIdentifier::default(),
            )
        }),
        Lang::Zh => ZH.get_or_init(|| {
            let zh = "zh".parse().expect("`zh` is a language tag");
            load(include_str!("../../../../catalog/zh.ftl"), zh)
        }),
    }
}

/// What the model reads: the facts in one sentence.
#[must_use]
pub fn for_model(fault: &Fault, lang: Lang) -> String {
    of_fault(fault, "model", lang)
}

/// What the user reads.
#[must_use]
pub fn for_user(fault: &Fault, lang: Lang) -> String {
    of_fault(fault, "user", lang)
}

/// What stands in the operator's line.
#[must_use]
pub fn summary(fault: &Fault) -> String {
    for_model(fault, Lang::En)
}

/// What to do, specific first, then the catalog's general lines; bounded, nothing said twice.
#[must_use]
pub fn recommendations(fault: &Fault, lang: Lang) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let general = (1..=fault.row().recommendations)
        .map(|number| of_fault(fault, REC[number.min(REC.len() - 1)], lang));
    let specific = fault.advice().iter().map(|advice| match advice {
        Advice::Known { advice, with } => line(&format!("advice-{advice}"), with, lang),
        Advice::Said(text) => text.clone(),
    });
    for text in specific.chain(general) {
        if lines.len() < RECOMMENDATIONS_MAX && !lines.contains(&text) {
            lines.push(text);
        }
    }
    lines
}

const REC: [&str; 9] =
    ["rec-1", "rec-1", "rec-2", "rec-3", "rec-4", "rec-5", "rec-6", "rec-7", "rec-8"];

/// One of a kind's texts without a fault at hand: `title`, `about`, `check`, `model`, `user`, `rec-1` …
#[must_use]
pub fn of_kind(kind: Kind, attribute: &str, lang: Lang) -> String {
    let row = kind.row();
    let mut args = FluentArgs::new();
    for fact in row.facts {
        // A reader of the page sees the name of the fact where its value would stand.
        let name: &'static str = (*fact).into();
        set_arg(&mut args, name, FluentValue::from(format!("‹{name}›")));
    }
    attribute_text(&id_of(row.name), attribute, &args, lang)
}

/// What we were doing, as a phrase: "call the tool".
#[must_use]
pub fn of_operation(operation: Operation, lang: Lang) -> String {
    let name: &'static str = operation.into();
    line(&format!("op-{}", id_of(name)), &Detail::new(), lang)
}

/// Any other message of the catalog, by its id.
#[must_use]
pub fn line(id: &str, with: &Detail, lang: Lang) -> String {
    let mut args = FluentArgs::new();
    for (fact, value) in with.iter() {
        set_fact(&mut args, fact, Some(value));
    }
    line_with(id, &args, lang)
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

/// Is there such a message in both languages?
#[must_use]
pub fn exists(id: &str) -> bool {
    bundle(Lang::En).has_message(id) && bundle(Lang::Zh).has_message(id)
}

fn of_fault(fault: &Fault, attribute: &str, lang: Lang) -> String {
    let row = fault.row();
    let mut args = FluentArgs::with_capacity(row.facts.len() + 2);
    for fact in row.facts {
        if *fact == Fact::Mismatches && !fault.mismatches().is_empty() {
            let lines: Vec<_> = fault.mismatches().iter().map(ToString::to_string).collect();
            args.set("mismatches", lines.join("\n"));
        } else {
            set_fact(&mut args, *fact, fault.detail().get(*fact));
        }
    }
    attribute_text(&id_of(row.name), attribute, &args, lang)
}

fn attribute_text(id: &str, attribute: &str, args: &FluentArgs<'_>, lang: Lang) -> String {
    let bundle = bundle(lang);
    let pattern = bundle.get_message(id).and_then(|message| message.get_attribute(attribute));
    match pattern {
        Some(attribute) => {
            bundle.format_pattern(attribute.value(), Some(args), &mut Vec::new()).into_owned()
        }
        None => format!("⟨{id}.{attribute}⟩"),
    }
}

fn set_fact<'a>(args: &mut FluentArgs<'a>, fact: Fact, value: Option<&'a FactValue>) {
    let name: &'static str = fact.into();
    let value = match value {
        None => FluentValue::from("none"),
        Some(FactValue::Number(number)) => FluentValue::from(*number),
        Some(FactValue::Text(text)) => FluentValue::from(text.as_ref()),
        Some(other) => FluentValue::from(other.to_string()),
    };
    set_arg(args, name, value);
}

fn set_arg<'a>(args: &mut FluentArgs<'a>, name: &'static str, value: FluentValue<'a>) {
    if let Some(base) = name.strip_suffix("_ms") {
        let seconds = match &value {
            FluentValue::Number(number) => seconds(number.value),
            other => other.clone(),
        };
        args.set(format!("{base}_seconds"), seconds);
    }
    args.set(name, value);
}

/// Milliseconds as seconds that read well: whole ones as a number, for plurals; others with a decimal.
fn seconds(millis: f64) -> FluentValue<'static> {
    let seconds = millis / 1000.0;
    if seconds >= 10.0 || (seconds.fract() == 0.0) {
        FluentValue::from(seconds.round())
    } else {
        FluentValue::from((seconds * 10.0).round() / 10.0)
    }
}

fn id_of(name: &str) -> Cow<'_, str> {
    if name.contains('_') { Cow::Owned(name.replace('_', "-")) } else { Cow::Borrowed(name) }
}
