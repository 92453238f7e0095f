//! Parses Markdown into elements, block by block.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::finder::element::{Category, Content};

/// The blocks of a text, in order. Blocks inside a quotation or a list become part of it.
pub(super) fn contents(text: &str) -> Vec<Content> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let mut reader = Reader::default();
    for event in Parser::new_ext(text, options) {
        reader.take(event);
    }
    reader.contents
}

#[derive(Default)]
struct Reader {
    contents: Vec<Content>,
    /// Text since the current block began.
    text: String,
    /// Nesting depth of lists and quotations; only the outermost becomes an element.
    depth: usize,
    list: Option<(bool, Vec<String>)>,
    code: Option<Option<String>>,
    table: Option<(Vec<String>, Vec<Vec<String>>)>,
    row: Vec<String>,
    image: Option<(String, usize)>,
    /// An image that becomes an element of its own if its paragraph has no other content.
    picture: Option<(String, String)>,
    formula: Option<String>,
    is_metadata: bool,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(_) if self.is_metadata => {}
            Event::Text(text) | Event::Code(text) | Event::InlineMath(text) => {
                self.push_text(&text);
            }
            Event::DisplayMath(text) => {
                self.formula = self.text.trim().is_empty().then(|| text.trim().to_owned());
                self.push_text(&text);
            }
            Event::SoftBreak | Event::HardBreak => self.push_text("\n"),
            Event::TaskListMarker(is_done) => self.push_text(if is_done { "[x] " } else { "[ ] " }),
            Event::Rule => self.push(Content::Separator),
            // The text inside of inline markup arrives as text events.
            Event::Html(_) | Event::InlineHtml(_) | Event::FootnoteReference(_) => {}
        }
    }

    fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
        if !text.trim().is_empty() && self.image.is_none() {
            self.picture = None;
        }
    }

    fn push(&mut self, content: Content) {
        if self.depth == 0 {
            self.contents.push(content);
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } if self.depth == 0 => self.text.clear(),
            Tag::Paragraph if self.depth == 0 => {
                self.text.clear();
                (self.picture, self.formula) = (None, None);
            }
            Tag::List(first) => {
                if self.depth == 0 {
                    self.list = Some((first.is_some(), Vec::new()));
                }
                self.depth += 1;
            }
            Tag::BlockQuote(_) => {
                if self.depth == 0 {
                    self.text.clear();
                }
                self.depth += 1;
            }
            Tag::Item => {
                if self.depth == 1 {
                    self.text.clear();
                } else {
                    self.text.push_str("\n- ");
                }
            }
            Tag::CodeBlock(sort) if self.depth == 0 => {
                self.text.clear();
                let language = match sort {
                    CodeBlockKind::Fenced(name) => Some(name.to_string()),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some(language.filter(|name| !name.is_empty()));
            }
            Tag::Table(_) => self.table = Some((Vec::new(), Vec::new())),
            Tag::TableCell if self.depth == 0 => self.text.clear(),
            Tag::Image { dest_url, .. } => {
                self.image = Some((dest_url.to_string(), self.text.len()));
            }
            Tag::MetadataBlock(_) => self.is_metadata = true,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) if self.depth == 0 => {
                let text = self.taken();
                self.push(Content::Heading(level as u8, text));
            }
            TagEnd::Paragraph if self.depth == 0 => self.paragraph(),
            TagEnd::Paragraph => self.text.push('\n'),
            TagEnd::Item if self.depth == 1 => {
                let text = self.taken();
                if let Some((_, items)) = &mut self.list {
                    items.push(text);
                }
            }
            TagEnd::List(_) => {
                self.depth -= 1;
                if self.depth == 0
                    && let Some((ordered, items)) = self.list.take()
                {
                    self.push(Content::List(ordered, items));
                }
            }
            TagEnd::BlockQuote(_) => {
                self.depth -= 1;
                if self.depth == 0 {
                    let text = self.taken();
                    self.push(Content::Other(Category::Annotation, text));
                }
            }
            TagEnd::CodeBlock => {
                if let Some(language) = self.code.take() {
                    let text = std::mem::take(&mut self.text);
                    self.push(Content::Code(language, text));
                }
            }
            TagEnd::TableCell => {
                let text = self.taken();
                self.row.push(text);
            }
            TagEnd::TableHead => {
                let row = std::mem::take(&mut self.row);
                if let Some((head, _)) = &mut self.table {
                    *head = row;
                }
            }
            TagEnd::TableRow => {
                let row = std::mem::take(&mut self.row);
                if let Some((_, rows)) = &mut self.table {
                    rows.push(row);
                }
            }
            TagEnd::Table => {
                if let Some((head, rows)) = self.table.take() {
                    self.push(Content::Table(head, rows));
                }
            }
            TagEnd::Image => {
                if let Some((url, from)) = self.image.take() {
                    let alt = self.text.get(from..).unwrap_or_default().trim().to_owned();
                    let is_alone =
                        self.text.get(..from).is_some_and(|before| before.trim().is_empty());
                    self.picture = is_alone.then_some((alt, url));
                }
            }
            TagEnd::MetadataBlock(_) => self.is_metadata = false,
            _ => {}
        }
    }

    /// Ends a paragraph. One that consists of a single image or formula becomes that element.
    fn paragraph(&mut self) {
        let text = self.taken();
        let content = match (self.picture.take(), self.formula.take()) {
            (Some((alt, url)), _) => Content::Image(alt, url),
            (None, Some(formula)) if formula == text => Content::Formula(formula),
            _ if text.is_empty() => return,
            _ => Content::Text(text),
        };
        self.push(content);
    }

    fn taken(&mut self) -> String {
        std::mem::take(&mut self.text).trim().to_owned()
    }
}
