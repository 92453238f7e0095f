//! Documents as pages of elements, and the rendering of an element.

use serde::Serialize;
use serde_json::{Value, json};

/// Characters of a summary.
const SUMMARY_CHARS: usize = 120;

/// The element categories of the protocol.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "they say what they are")]
pub enum Category {
    Text,
    Heading,
    List,
    Code,
    Table,
    PivotTable,
    Chart,
    Diagram,
    Image,
    Formula,
    Link,
    Annotation,
    Header,
    Footer,
    Separator,
    Audio,
    Video,
    Form,
    Widget,
}

/// The content of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A paragraph of text.
    Text(String),
    /// A heading: its level, from 1, and its text.
    Heading(u8, String),
    /// A list: whether it is numbered, and its items.
    List(bool, Vec<String>),
    /// A code block: its language if known, and its text.
    Code(Option<String>, String),
    /// A table: its header cells and its rows.
    Table(Vec<String>, Vec<Vec<String>>),
    /// An image: its alternative text and its address.
    Image(String, String),
    /// A formula, in its source notation.
    Formula(String),
    /// A horizontal rule.
    Separator,
    /// Any other element: its category and its text.
    Other(Category, String),
}

/// A unit of a page that can be addressed by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The id, unique in its document: a prefix for the category, and a number.
    pub id: String,
    /// The content to render.
    pub content: Content,
}

/// A page of a document. Pages are numbered from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The first heading of the page; `None` if it has none.
    pub title: Option<String>,
    /// The elements in reading order.
    pub elements: Vec<Element>,
}

impl Content {
    /// The protocol's category of this content.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Text(_) => Category::Text,
            Self::Heading(..) => Category::Heading,
            Self::List(..) => Category::List,
            Self::Code(..) => Category::Code,
            Self::Table(..) => Category::Table,
            Self::Image(..) => Category::Image,
            Self::Formula(_) => Category::Formula,
            Self::Separator => Category::Separator,
            Self::Other(category, _) => *category,
        }
    }

    /// The first words on one line, at most 120 characters.
    #[must_use]
    pub fn summary(&self) -> String {
        let text = match self {
            Self::Text(text)
            | Self::Heading(_, text)
            | Self::Formula(text)
            | Self::Other(_, text) => text.clone(),
            Self::List(_, items) => items.join("; "),
            Self::Code(_, text) => text.lines().next().unwrap_or_default().to_owned(),
            Self::Table(head, rows) => {
                format!("{} ({}×{})", head.join(", "), rows.len(), head.len())
            }
            Self::Image(alt, url) => {
                if alt.is_empty() {
                    url.clone()
                } else {
                    alt.clone()
                }
            }
            Self::Separator => String::new(),
        };
        short(&text)
    }

    /// Renders the content as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Other(_, text) => json!({ "text": text }),
            Self::Heading(level, text) => json!({ "level": level, "text": text }),
            Self::List(ordered, items) => json!({ "ordered": ordered, "items": items }),
            Self::Code(language, text) => json!({ "language": language, "text": text }),
            Self::Table(head, rows) => json!({
                "headers": head, "rows": rows, "total_rows": rows.len(), "total_columns": head.len(),
            }),
            Self::Image(alt, url) => json!({ "alt": alt, "url": url }),
            Self::Formula(expression) => json!({ "expression": expression }),
            Self::Separator => json!({}),
        }
    }

    /// Renders the content as Markdown, by the protocol's rules.
    #[must_use]
    pub fn markdown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Heading(level, text) => {
                format!("{} {text}", "#".repeat(usize::from(*level).clamp(1, 6)))
            }
            Self::List(ordered, items) => {
                let mark = |index: usize| {
                    if *ordered { format!("{}.", index + 1) } else { "-".to_owned() }
                };
                let lines =
                    items.iter().enumerate().map(|(index, item)| format!("{} {item}", mark(index)));
                lines.collect::<Vec<_>>().join("\n")
            }
            Self::Code(language, text) => {
                // The fence must be longer than any run of backticks in the text.
                let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
                let fence = "`".repeat(longest.max(2) + 1);
                format!(
                    "{fence}{}\n{}\n{fence}",
                    language.as_deref().unwrap_or_default(),
                    text.trim_end_matches('\n')
                )
            }
            Self::Table(head, rows) => table(head, rows),
            Self::Image(alt, url) => format!("![{alt}]({url})"),
            Self::Formula(expression) => format!("$ {expression} $"),
            Self::Separator => "---".to_owned(),
            Self::Other(category, _) => {
                format!("[{}: {}]", <&str>::from(*category), self.summary())
            }
        }
    }

    /// Renders the content as plain text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text)
            | Self::Heading(_, text)
            | Self::Formula(text)
            | Self::Code(_, text)
            | Self::Other(_, text) => text.clone(),
            Self::List(_, items) => items.join("\n"),
            Self::Table(head, rows) => {
                let lines = std::iter::once(head).chain(rows).map(|row| row.join("\t"));
                lines.collect::<Vec<_>>().join("\n")
            }
            Self::Image(alt, _) => alt.clone(),
            Self::Separator => String::new(),
        }
    }

    /// The prefix of element ids of this category.
    fn prefix(&self) -> &'static str {
        match self.category() {
            Category::Heading => "h",
            Category::Text => "txt",
            Category::Table => "tbl",
            Category::Image => "img",
            other => other.into(),
        }
    }
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let cell = |text: &String| text.replace('|', "\\|").replace('\n', " ");
    let line =
        |row: &[String]| format!("| {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
    let mut lines = vec![line(head), format!("|{}", " --- |".repeat(head.len().max(1)))];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

/// The first words of a text, on one line.
pub(super) fn short(text: &str) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
        if words.chars().count() > SUMMARY_CHARS {
            let mut cut: String = words.chars().take(SUMMARY_CHARS).collect();
            cut.push('…');
            return cut;
        }
    }
    words
}

/// Splits contents into pages. Every heading of level 1 or 2 starts a page.
#[cfg(any(feature = "documents", test))]
pub(super) fn paginate(contents: Vec<Content>) -> Vec<Page> {
    let mut pages = Vec::new();
    let mut page = Vec::new();
    for content in contents {
        let begins = matches!(content, Content::Heading(1 | 2, _));
        if begins && !page.is_empty() {
            pages.push(std::mem::take(&mut page));
        }
        page.push(content);
    }
    if !page.is_empty() {
        pages.push(page);
    }
    number(pages)
}

/// Assigns ids: the category's prefix and a number, counted through the document.
pub(super) fn number(pages: Vec<Vec<Content>>) -> Vec<Page> {
    let mut counts = std::collections::BTreeMap::<&'static str, usize>::new();
    let mut named = |content: Content| {
        let prefix = content.prefix();
        let count = counts.entry(prefix).or_default();
        *count += 1;
        Element { id: format!("{prefix}-{count:03}"), content }
    };
    pages
        .into_iter()
        .map(|contents| {
            let title = contents.iter().find_map(|content| match content {
                Content::Heading(_, text) => Some(text.clone()),
                _ => None,
            });
            Page { title, elements: contents.into_iter().map(&mut named).collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    fn samples() -> Vec<Content> {
        vec![
            Content::Heading(2, "Title".into()),
            Content::Text("Words of a paragraph.".into()),
            Content::List(true, vec!["one".into(), "two".into()]),
            Content::List(false, vec!["a".into()]),
            Content::Code(Some("rust".into()), "let fence = \"```\";".into()),
            Content::Table(vec!["k".into(), "v".into()], vec![vec!["a|b".into(), "1".into()]]),
            Content::Image("a cat".into(), "cat.png".into()),
            Content::Formula("E = mc^2".into()),
            Content::Separator,
            Content::Other(Category::Form, "your name".into()),
        ]
    }

    #[test]
    fn there_are_nineteen_sorts_and_each_is_known_by_its_name() {
        assert_eq!(Category::VARIANTS.len(), 19);
        for category in Category::VARIANTS {
            assert_eq!(<&str>::from(*category).parse::<Category>(), Ok(*category));
        }
    }

    #[test]
    fn an_element_is_shown_in_three_forms() {
        let rendered: Vec<Value> = samples()
            .iter()
            .map(|content| json!({
                "category": content.category(), "summary": content.summary(), "json": content.json(),
                "markdown": content.markdown(), "text": content.text(),
            }))
            .collect();
        insta::assert_json_snapshot!(rendered);
    }

    #[test]
    fn a_page_begins_with_a_heading_and_ids_are_unique_in_the_document() {
        let heading = |level, text: &str| Content::Heading(level, text.into());
        let text = |text: &str| Content::Text(text.into());
        let pages = paginate(vec![
            text("before"),
            heading(1, "A"),
            text("a"),
            heading(3, "A.1"),
            heading(2, "B"),
            text("b"),
        ]);
        let titles: Vec<_> = pages.iter().map(|page| page.title.as_deref()).collect();
        assert_eq!(titles, [None, Some("A"), Some("B")]);
        let ids: Vec<_> = pages
            .iter()
            .flat_map(|page| &page.elements)
            .map(|element| element.id.as_str())
            .collect();
        assert_eq!(ids, ["txt-001", "h-001", "txt-002", "h-002", "h-003", "txt-003"]);
    }
}
