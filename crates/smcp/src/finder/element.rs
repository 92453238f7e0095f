//! Documents as pages of elements, and how an element is shown.

use serde::Serialize;
use serde_json::{Value, json};

/// Characters of a summary.
const SUMMARY_CHARS: usize = 120;

/// The sorts of element the protocol names.
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

/// What an element says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A paragraph.
    Text(String),
    /// A heading and its level, from 1.
    Heading(u8, String),
    /// Items, numbered or not.
    List(bool, Vec<String>),
    /// Code, and its language if it is named.
    Code(Option<String>, String),
    /// A head and rows.
    Table(Vec<String>, Vec<Vec<String>>),
    /// A picture: what it shows, and where it is.
    Image(String, String),
    /// A formula.
    Formula(String),
    /// A line across.
    Separator,
    /// Something else, by its sort and its words.
    Other(Category, String),
}

/// A unit of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Unique in its document.
    pub id: String,
    /// What it says.
    pub content: Content,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its first heading.
    pub title: Option<String>,
    /// What is on it.
    pub elements: Vec<Element>,
}

impl Content {
    /// Of which sort it is.
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

    /// In a few words.
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

    /// As data.
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

    /// As Markdown, by the protocol's rules.
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
                // A fence longer than any in the text.
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

    /// As plain text.
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

    /// What ids of its sort begin with.
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

/// The first words, on one line.
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

/// Pages of what was read in order: a page begins with each heading of the first or second level.
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

/// Gives every element its id: the sort and a number, in the order of the document.
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
        let shown: Vec<Value> = samples()
            .iter()
            .map(|content| json!({
                "category": content.category(), "summary": content.summary(), "json": content.json(),
                "markdown": content.markdown(), "text": content.text(),
            }))
            .collect();
        insta::assert_json_snapshot!(shown);
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
