//! Lists of kinds: a table, suggestions, and JSON.

use budao_core::{Kind, Lang, fault::text};
use unicode_width::UnicodeWidthStr as _;

use super::{
    ProtocolNumbers,
    find::Suggestions,
    page::{KindJson, pretty},
};
use crate::terminal::{Terminal, pad};

/// A table with a header row; empty without kinds. Its column values are accepted by the filters.
pub(super) fn text(kinds: &[Kind], lang: Lang, terminal: &Terminal) -> String {
    let mut rows = vec![["CODE", "CATEGORY", "REMEDY", "TITLE"].map(str::to_owned)];
    rows.extend(kinds.iter().map(|kind| {
        let row = kind.row();
        let title = text::of_kind(*kind, "title", lang);
        [row.code.to_owned(), row.category.to_string(), row.remedy.to_string(), title]
    }));
    let widths: [usize; 3] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or(0));
    let mut table = String::new();
    for (index, row) in rows.iter().enumerate() {
        let [code, category, remedy] =
            std::array::from_fn(|column| pad(&row[column], widths[column]));
        let line = if index == 0 {
            terminal.faint(format!("{code}  {category}  {remedy}  {}", row[3]))
        } else {
            format!("{}  {category}  {remedy}  {}", terminal.name(code), row[3])
        };
        table.push_str(&line);
        table.push('\n');
    }
    if kinds.is_empty() { String::new() } else { table }
}

/// One line per suggestion: the code or number to type, and the title.
pub(super) fn near(near: &Suggestions, lang: Lang, terminal: &Terminal) -> String {
    let line = |kind: &Kind, subject: &str| {
        let title = text::of_kind(*kind, "title", lang);
        format!("  {}  {title} ({})\n", terminal.name(subject), kind.row().name)
    };
    match near {
        Suggestions::Numbers(kinds) => {
            let number = |kind: &Kind| ProtocolNumbers::of(*kind).all().next().unwrap_or_default();
            kinds.iter().map(|kind| line(kind, &number(kind).to_string())).collect()
        }
        Suggestions::Names(kinds) => {
            let widest = kinds.iter().map(|kind| kind.row().code.len()).max().unwrap_or(0);
            kinds.iter().map(|kind| line(kind, &pad(kind.row().code, widest))).collect()
        }
    }
}

/// The kinds as a JSON list of [`KindJson`].
pub(super) fn json(kinds: &[Kind], lang: Lang) -> String {
    let pages: Vec<_> = kinds.iter().map(|kind| KindJson::of(*kind, lang)).collect();
    pretty(&pages)
}
