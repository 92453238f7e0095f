//! The explanation of a fault kind for the web page. All texts come from the catalog.

use crate::codes;
use std::collections::BTreeMap;

use budao_core::{
    Kind, Lang,
    fault::{Category, Detail, text},
};
use strum::VariantArray as _;

/// The texts and columns of one kind, in one language.
#[derive(Debug)]
pub(super) struct KindExplanation {
    pub(super) code: &'static str,
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) check: String,
    /// Labels and values for people: remedy, class, severity …
    pub(super) columns: Vec<(String, String)>,
    /// Labels and values for programs: codes, events, facts.
    pub(super) numbers: Vec<(String, String)>,
    pub(super) model: String,
    pub(super) user: String,
    pub(super) recommendations: Vec<String>,
    pub(super) model_advice: Vec<String>,
    pub(super) labels: Labels,
}

/// The headings of the page's sections.
#[derive(Debug)]
pub(super) struct Labels {
    pub(super) model: String,
    pub(super) user: String,
    pub(super) operator: String,
    pub(super) recommendations: String,
    pub(super) model_advice: String,
}

/// Finds a kind by its code (in any case) or its name.
pub(super) fn find(wanted: &str) -> Option<Kind> {
    let fits = |kind: &&Kind| {
        let row = kind.row();
        row.code.eq_ignore_ascii_case(wanted) || row.name == wanted
    };
    Kind::VARIANTS.iter().find(fits).copied()
}

/// The titles of all kinds as JSON, by name.
pub(super) fn titles(lang: Lang) -> String {
    let title = |kind: &Kind| (kind.row().name, text::of_kind(*kind, "title", lang));
    let titles: BTreeMap<&str, String> = Kind::VARIANTS.iter().map(title).collect();
    serde_json::to_string(&titles).expect("texts always serialise")
}

/// The texts of all categories as JSON, by name.
pub(super) fn categories(lang: Lang) -> String {
    let text = |category: &Category| {
        let name: &str = category.into();
        (name, column_text("category", name, lang))
    };
    let texts: BTreeMap<&str, String> = Category::VARIANTS.iter().map(text).collect();
    serde_json::to_string(&texts).expect("texts always serialise")
}

/// Who acts on a fault of each kind, as JSON by name.
pub(super) fn remedies(lang: Lang) -> String {
    let remedy =
        |kind: &Kind| (kind.row().name, column_text("remedy", kind.row().remedy.into(), lang));
    let remedies: BTreeMap<&str, String> = Kind::VARIANTS.iter().map(remedy).collect();
    serde_json::to_string(&remedies).expect("texts always serialise")
}

fn line(id: &str, lang: Lang) -> String {
    text::line(id, &Detail::new(), lang)
}

/// The catalog's text for a value of a column.
fn column_text(column: &str, value: &'static str, lang: Lang) -> String {
    line(&format!("word-{column}-{}", value.replace('_', "-")), lang)
}

impl KindExplanation {
    pub(super) fn of(kind: Kind, lang: Lang) -> Self {
        let row = kind.row();
        let translate = |attribute: &str| text::of_kind(kind, attribute, lang);
        let label = |id: &str| line(&format!("label-{id}"), lang);
        let yes_or_no = |yes: bool| label(if yes { "yes" } else { "no" });
        let mut facts: Vec<&'static str> = Vec::new();
        for fact in row.facts.iter().chain(row.context) {
            let name = fact.into();
            if !facts.contains(&name) {
                facts.push(name);
            }
        }
        let event: &'static str = row.event.into();
        let numbers = format!(
            "A2C-SMCP {}, HTTP {}, JSON-RPC {}",
            codes::smcp_code(kind),
            codes::http_status(kind),
            codes::json_rpc_code(kind)
        );
        Self {
            code: row.code,
            name: row.name,
            title: translate("title"),
            about: translate("about"),
            check: translate("check"),
            columns: vec![
                (label("remedy"), column_text("remedy", row.remedy.into(), lang)),
                (label("next"), column_text("next", row.next.into(), lang)),
                (label("category"), column_text("category", row.category.into(), lang)),
                (label("error-type"), column_text("error-type", row.error_type.into(), lang)),
                (label("severity"), column_text("severity", row.severity.into(), lang)),
                (label("strategy"), column_text("strategy", row.strategy.into(), lang)),
                (label("retryable"), yes_or_no(row.retryable)),
                (label("auto-retry"), yes_or_no(row.auto_retry)),
                (label("recoverable"), yes_or_no(row.recoverable)),
            ],
            numbers: vec![
                (label("numbers"), numbers),
                (label("event"), format!("{event} ({})", row.type_name)),
                (label("editor"), column_text("editor", row.editor.into(), lang)),
                (label("facts"), facts.join(", ")),
            ],
            model: translate("model"),
            user: translate("user"),
            recommendations: text::recommendations_of_kind(kind, lang),
            model_advice: text::model_advice_of_kind(kind, lang),
            labels: Labels {
                model: label("model"),
                user: label("user"),
                operator: label("operator"),
                recommendations: label("recommendations"),
                model_advice: label("model-advice"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_page_in_both_languages() {
        for kind in Kind::VARIANTS {
            for lang in Lang::VARIANTS {
                assert_eq!(find(kind.row().code), Some(*kind));
                let page = format!("{:?}", KindExplanation::of(*kind, *lang));
                assert!(!page.contains('⟨'), "{page}");
            }
        }
    }
}
