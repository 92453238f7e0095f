//! Parses web pages into their visible elements. Scripts are neither run nor shown.
//!
//! A tokenizer that follows the HTML standard splits the page; no tree is built. Where a closing tag may be omitted,
//! the next opening tag closes the element.

use html5gum::{DefaultEmitter, HtmlString, StartTag, Token, Tokenizer};

use crate::finder::element::{Category, Content};

/// Block elements: their start and end close the current paragraph.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "html",
    "main",
    "nav",
    "p",
    "section",
    "summary",
];

/// Elements whose content is not visible.
const UNSEEN: &[&str] = &["script", "style", "noscript", "template", "svg", "head"];

/// The title, the keywords, and the elements in order.
pub(super) fn contents(text: &str) -> (Option<String>, Vec<String>, Vec<Content>) {
    let mut emitter = DefaultEmitter::<()>::default();
    // The tokenizer then reads the content of scripts and styles as text, not as markup.
    emitter.naively_switch_states(true);
    let mut reader = Reader::default();
    for Ok(token) in Tokenizer::new_with_emitter(text, emitter) {
        match token {
            Token::StartTag(tag) => reader.begin(&tag),
            Token::EndTag(tag) => reader.end(&name(&tag.name)),
            Token::String(text) => reader.push_text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    reader.finish();
    (reader.title, reader.keywords, reader.contents)
}

fn name(name: &HtmlString) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[derive(Default)]
struct Reader {
    title: Option<String>,
    keywords: Vec<String>,
    contents: Vec<Content>,
    /// Text that belongs to no element yet.
    text_buffer: String,
    /// The element that is being read.
    gathering: Option<OpenElement>,
    /// The invisible tag and its nesting depth.
    unseen: Option<(String, usize)>,
    is_title: bool,
}

/// An element that is not closed yet: its tag, the nesting depth of that tag, and its content so far.
struct OpenElement {
    tag: String,
    open: usize,
    sort: ElementKind,
}

enum ElementKind {
    Heading(u8),
    List(bool, Vec<String>),
    Code,
    Table(Vec<String>, Vec<Vec<String>>, Option<Row>),
    Other(Category),
}

#[derive(Default)]
struct Row {
    cells: Vec<String>,
    is_head: bool,
}

impl Reader {
    fn begin(&mut self, tag: &StartTag<()>) {
        let name = name(&tag.name);
        if let Some((unseen, open)) = &mut self.unseen {
            *open += usize::from(*unseen == name);
        }
        self.is_title |= name == "title";
        if name == "meta" {
            self.meta(tag);
        }
        if self.unseen.is_some() {
            return;
        }
        if UNSEEN.contains(&name.as_str()) {
            self.unseen = Some((name, 1));
            return;
        }
        if self.gathering.is_some() {
            self.begin_inside(&name);
        } else {
            self.begin_outside(name, tag);
        }
    }

    fn begin_inside(&mut self, name: &str) {
        let line_text = one_line(&self.text_buffer);
        let Some(gathering) = &mut self.gathering else { return };
        gathering.open += usize::from(gathering.tag == name);
        match (&mut gathering.sort, name) {
            (ElementKind::List(_, items), "li") if gathering.open == 1 => {
                self.text_buffer.clear();
                if !line_text.is_empty() {
                    items.push(line_text);
                }
            }
            (ElementKind::Table(_, _, row), "td" | "th") => {
                self.text_buffer.clear();
                let row = row.get_or_insert_with(Row::default);
                if !line_text.is_empty() {
                    row.cells.push(line_text);
                }
                row.is_head |= name == "th";
            }
            (ElementKind::Table(head, rows, row), "tr") => {
                self.text_buffer.clear();
                end_row(head, rows, row.take(), line_text);
            }
            (ElementKind::Code, _) => {}
            _ => self.text_buffer.push(' '),
        }
    }

    fn begin_outside(&mut self, name: String, tag: &StartTag<()>) {
        let attr = |name: &str| {
            let value = tag.attributes.get(name.as_bytes());
            value.map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
        };
        let sort = match name.as_str() {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                ElementKind::Heading(name.as_bytes()[1] - b'0')
            }
            "ul" | "ol" => ElementKind::List(name == "ol", Vec::new()),
            "pre" => ElementKind::Code,
            "table" => ElementKind::Table(Vec::new(), Vec::new(), None),
            "form" => ElementKind::Other(Category::Form),
            "header" => ElementKind::Other(Category::Header),
            "footer" => ElementKind::Other(Category::Footer),
            "img" => return self.single(Content::Image(attr("alt"), attr("src"))),
            "hr" => return self.single(Content::Separator),
            "audio" => return self.single(Content::Other(Category::Audio, attr("src"))),
            "video" => return self.single(Content::Other(Category::Video, attr("src"))),
            "br" => return self.text_buffer.push(' '),
            _ if BLOCKS.contains(&name.as_str()) => return self.flush(),
            _ => return,
        };
        self.flush();
        self.gathering = Some(OpenElement { tag: name, open: 1, sort });
    }

    fn end(&mut self, name: &str) {
        if name == "title" {
            self.is_title = false;
        }
        if let Some((unseen, open)) = &mut self.unseen {
            *open -= usize::from(unseen == name);
            if *open == 0 {
                self.unseen = None;
            }
            return;
        }
        match &mut self.gathering {
            Some(gathering) if gathering.tag == name => {
                gathering.open -= 1;
                if gathering.open == 0 {
                    self.gathered();
                }
            }
            None if BLOCKS.contains(&name) => self.flush(),
            _ => {}
        }
    }

    fn push_text(&mut self, text: &str) {
        if self.is_title {
            self.title.get_or_insert_default().push_str(text);
        } else if self.unseen.is_none() {
            self.text_buffer.push_str(text);
        }
    }

    fn meta(&mut self, tag: &StartTag<()>) {
        let value = |name: &str| {
            tag.attributes.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value))
        };
        if value("name").is_some_and(|name| name.eq_ignore_ascii_case("keywords"))
            && let Some(listed) = value("content")
        {
            let text_buffer = listed.split(',').map(|word| word.trim().to_owned());
            self.keywords.extend(text_buffer.filter(|word| !word.is_empty()));
        }
    }

    fn single(&mut self, content: Content) {
        self.flush();
        self.contents.push(content);
    }

    fn flush(&mut self) {
        let text = one_line(&std::mem::take(&mut self.text_buffer));
        if !text.is_empty() {
            self.contents.push(Content::Text(text));
        }
    }

    /// Closes the element that is being read.
    fn gathered(&mut self) {
        let Some(gathering) = self.gathering.take() else { return };
        let raw = std::mem::take(&mut self.text_buffer);
        let line_text = one_line(&raw);
        self.contents.push(match gathering.sort {
            ElementKind::Heading(level) => Content::Heading(level, line_text),
            ElementKind::List(ordered, mut items) => {
                items.extend(Some(line_text).filter(|line_text| !line_text.is_empty()));
                Content::List(ordered, items)
            }
            ElementKind::Code => {
                Content::Code(None, raw.strip_prefix('\n').unwrap_or(&raw).to_owned())
            }
            ElementKind::Table(mut head, mut rows, row) => {
                end_row(&mut head, &mut rows, row, line_text);
                if head.is_empty() {
                    head = vec![String::new(); rows.iter().map(Vec::len).max().unwrap_or_default()];
                }
                Content::Table(head, rows)
            }
            ElementKind::Other(category) => Content::Other(category, line_text),
        });
    }

    fn finish(&mut self) {
        if self.gathering.is_some() {
            self.gathered();
        }
        self.flush();
        self.title =
            self.title.take().map(|title| one_line(&title)).filter(|title| !title.is_empty());
    }
}

fn end_row(head: &mut Vec<String>, rows: &mut Vec<Vec<String>>, row: Option<Row>, last: String) {
    let Some(mut row) = row else { return };
    row.cells.extend(Some(last).filter(|last| !last.is_empty()));
    if row.is_head && head.is_empty() && rows.is_empty() {
        *head = row.cells;
    } else {
        rows.push(row.cells);
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
