//! Parses `dpe://host`, `/doc-ref`, `/doc-ref/pages/N` and `/doc-ref/elements/ID`, with their query parameters.
//!
//! Parsing is strict: an invalid address is refused with a reason.

use budao_core::fault::{Fact, Fault, Kind, Operation};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::element::Category;

/// Longest address, in bytes.
const URI_BYTES_MAX: usize = 2048;

/// Default number of pages in a list.
pub const LIMIT: usize = 20;
/// Largest number of pages or documents in a list.
pub const LIMIT_MAX: usize = 100;

/// Characters that stay unescaped in a path segment.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The address of a document or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The host part, which names the source of the documents.
    pub host: String,
    /// The document, page or element.
    pub part: UriTarget,
    /// The query parameters, with defaults for missing ones.
    pub options: ReadOptions,
}

/// The target of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriTarget {
    /// All documents of the host.
    Catalog,
    /// A document, by its `doc-ref`.
    Document(String),
    /// A page: the `doc-ref` and the page number, from 0.
    Page(String, u64),
    /// An element: the `doc-ref` and the element's id.
    Element(String, String),
}

/// The query parameters of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format of the answer.
    pub format: Format,
    /// Whether a document comes with the list of its pages; `depth=pages`.
    pub with_pages: bool,
    /// Pages to skip in the list.
    pub offset: usize,
    /// Pages in the list, from 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// The element categories to keep; empty keeps all.
    pub categories: Vec<Category>,
}

/// The format of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Format {
    /// Elements as structured data.
    Json,
    /// One text in Markdown.
    Markdown,
    /// One plain text without markup.
    Text,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            format: Format::Json,
            with_pages: false,
            offset: 0,
            limit: LIMIT,
            categories: Vec::new(),
        }
    }
}

impl Uri {
    /// Parses an address.
    ///
    /// # Errors
    /// Code 4204, with the reason.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        read(text).map_err(|reason| {
            Fault::new(Kind::DocumentUriInvalid, Operation::ReadDocument)
                .with(Fact::Uri, text.chars().take(200).collect::<String>())
                .with(Fact::Reason, reason)
        })
    }
}

/// Percent-encodes a path segment, so that parsing returns it unchanged.
#[must_use]
pub fn escaped(part: &str) -> String {
    utf8_percent_encode(part, PLAIN).to_string()
}

fn read(text: &str) -> Result<Uri, &'static str> {
    if text.len() > URI_BYTES_MAX {
        return Err("it is longer than 2048 bytes");
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has white space or control characters in it");
    }
    let rest = text.strip_prefix("dpe://").ok_or("it does not begin with dpe://")?;
    if rest.contains('#') {
        return Err("it has a fragment");
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut parts = path.split('/');
    let host = parts.next().unwrap_or_default();
    if host.is_empty() {
        return Err("the host is missing");
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !host.chars().all(is_name) {
        return Err("the host is no name");
    }
    let rest: Vec<&str> = parts.collect();
    Ok(Uri { host: host.to_owned(), part: part(&rest)?, options: options(query)? })
}

fn part(rest: &[&str]) -> Result<UriTarget, &'static str> {
    match rest {
        [] | [""] => Ok(UriTarget::Catalog),
        [document] => Ok(UriTarget::Document(decoded(document)?)),
        [document, "pages", number] => {
            let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_plain.then(|| number.parse().ok()).flatten();
            Ok(UriTarget::Page(
                decoded(document)?,
                number.ok_or("a page is a whole number from 0")?,
            ))
        }
        [document, "elements", id] => Ok(UriTarget::Element(decoded(document)?, decoded(id)?)),
        _ => Err("after the document comes pages/N or elements/ID"),
    }
}

fn decoded(part: &str) -> Result<String, &'static str> {
    if part.is_empty() {
        return Err("a part of it is empty");
    }
    let text = percent_decode_str(part).decode_utf8().map_err(|_| "a part of it is no text")?;
    if text.chars().any(char::is_control) {
        return Err("a part of it has control characters");
    }
    Ok(text.into_owned())
}

fn options(query: &str) -> Result<ReadOptions, &'static str> {
    let mut options = ReadOptions::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "format" => {
                options.format =
                    value.parse().map_err(|_| "format is one of json, markdown and text")?;
            }
            "depth" => {
                options.with_pages = match value {
                    "metadata" => false,
                    "pages" => true,
                    _ => return Err("depth is one of metadata and pages"),
                }
            }
            "offset" => options.offset = whole(value).ok_or("offset is a whole number from 0")?,
            "limit" => {
                options.limit = whole(value)
                    .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                    .ok_or("limit is a whole number from 1 to 100")?;
            }
            "categories" => {
                let listed = decoded(value)?;
                let known = listed.split(',').map(str::parse).collect::<Result<_, _>>();
                options.categories =
                    known.map_err(|_| "categories has a name that is no category")?;
            }
            // Unknown parameters are ignored, because later versions may add some.
            _ => {}
        }
    }
    Ok(options)
}

fn whole(text: &str) -> Option<usize> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::smcp_code;

    fn part_of(text: &str) -> UriTarget {
        Uri::parse(text).unwrap().part
    }

    #[test]
    fn four_levels_lead_to_four_parts() {
        assert_eq!(part_of("dpe://com.example.docs"), UriTarget::Catalog);
        assert_eq!(part_of("dpe://com.example.docs/"), UriTarget::Catalog);
        assert_eq!(part_of("dpe://h/rpt-2026"), UriTarget::Document("rpt-2026".into()));
        assert_eq!(part_of("dpe://h/rpt-2026/pages/12"), UriTarget::Page("rpt-2026".into(), 12));
        assert_eq!(
            part_of("dpe://h/d/elements/tbl-1"),
            UriTarget::Element("d".into(), "tbl-1".into())
        );
        assert_eq!(part_of("dpe://h/%E6%8A%A5%2F1"), UriTarget::Document("报/1".into()));
        assert_eq!(
            part_of(&format!("dpe://h/{}", escaped("报/1 ?"))),
            UriTarget::Document("报/1 ?".into())
        );
    }

    #[test]
    fn what_is_asked_along_is_read() {
        let uri =
            Uri::parse("dpe://h/d?depth=pages&offset=5&limit=100&format=markdown&x=y").unwrap();
        let expected = ReadOptions {
            format: Format::Markdown,
            with_pages: true,
            offset: 5,
            limit: 100,
            categories: vec![],
        };
        assert_eq!(uri.options, expected);
        let uri = Uri::parse("dpe://h/d/pages/0?categories=table,pivot_table").unwrap();
        assert_eq!(uri.options.categories, [Category::Table, Category::PivotTable]);
    }

    #[test]
    fn an_address_that_does_not_fit_is_4204_with_its_reason() {
        let long = format!("dpe://h/{}", "x".repeat(3000));
        for bad in [
            "",
            "dpe:",
            "dpe://",
            "dpe:///d",
            "http://h/d",
            "DPE://h/d",
            "dpe://h//pages/1",
            "dpe://h/d/pages",
            "dpe://h/d/pages/",
            "dpe://h/d/pages/-1",
            "dpe://h/d/pages/+1",
            "dpe://h/d/pages/1.5",
            "dpe://h/d/pages/99999999999999999999999",
            "dpe://h/d/elements/",
            "dpe://h/d/sheets/1",
            "dpe://h/d/pages/1/elements/2",
            "dpe://h/../x",
            "dpe://h/%00",
            "dpe://h/%ff",
            "dpe://h/a b",
            "dpe://h/d#x",
            "dpe://user@h/d",
            "dpe://h:80/d",
            "dpe://h/d?format=xml",
            "dpe://h/d?depth=all",
            "dpe://h/d?offset=-1",
            "dpe://h/d?offset=",
            "dpe://h/d?limit=0",
            "dpe://h/d?limit=101",
            "dpe://h/d?limit=ten",
            "dpe://h/d/pages/0?categories=poem",
            "dpe://h/d/pages/0?categories=",
            "dpe://h/d\n",
            long.as_str(),
        ] {
            let fault = Uri::parse(bad).unwrap_err();
            assert_eq!(smcp_code(fault.kind()), 4204, "{bad}");
            assert!(
                fault.detail().text(Fact::Reason).is_some_and(|reason| !reason.is_empty()),
                "{bad}"
            );
        }
    }
}
