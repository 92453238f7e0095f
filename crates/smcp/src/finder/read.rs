//! Parses a file into pages of elements. Text formats never fail; a PDF may, with a reason.

#[cfg(feature = "documents")]
mod formats;
#[cfg(not(feature = "documents"))]
#[path = "read/formats_missing.rs"]
mod formats;

use super::element::{Content, Page, number};

/// Lines on a page of plain text.
const PAGE_LINES: usize = 200;

/// Elements of a document. Further ones are left out, and the last element says so.
const ELEMENTS_MAX: usize = 50_000;

/// The file types that can be read, by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum FileType {
    /// Plain text, `.txt`.
    Txt,
    /// Markdown, `.md` or `.markdown`.
    #[strum(serialize = "markdown", to_string = "md")]
    Md,
    /// A web page, `.html` or `.htm`.
    #[strum(serialize = "htm", to_string = "html")]
    Html,
    /// A PDF file, `.pdf`. Only its text is read.
    Pdf,
}

impl FileType {
    /// The file type by the extension of a name; `None` if it cannot be read.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let (stem, ending) = name.rsplit_once('.')?;
        if stem.is_empty() {
            return None;
        }
        ending.to_ascii_lowercase().parse().ok()
    }
}

/// A parsed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedDocument {
    /// The title in the file; `None` if it has none.
    pub title: Option<String>,
    /// The keywords in the file.
    pub keywords: Vec<String>,
    /// The pages, at least one.
    pub pages: Vec<Page>,
}

/// Parses the bytes of a file.
///
/// # Errors
/// The reason why a PDF cannot be read, and for every type but plain text that this program was built without the
/// feature `documents`. Nothing else fails.
pub fn read(sort: FileType, bytes: &[u8]) -> Result<ParsedDocument, &'static str> {
    let mut parsed = match sort {
        FileType::Txt => plain(&String::from_utf8_lossy(bytes)),
        FileType::Md => formats::markdown(bytes)?,
        FileType::Html => formats::html(bytes)?,
        FileType::Pdf => formats::pdf(bytes)?,
    };
    if parsed.pages.is_empty() {
        parsed.pages.push(Page::default());
    }
    Ok(parsed)
}

/// Parses plain text: a page ends at a form feed or after [`PAGE_LINES`] lines, a paragraph at an empty line.
fn plain(text: &str) -> ParsedDocument {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut pages = Vec::new();
    for sheet in text.split('\u{c}') {
        let lines: Vec<&str> = sheet.lines().collect();
        for page in lines.chunks(PAGE_LINES) {
            pages.push(paragraphs(page));
        }
    }
    let mut left = ELEMENTS_MAX;
    pages.retain_mut(|page: &mut Vec<Content>| {
        page.truncate(left);
        left -= page.len();
        !page.is_empty()
    });
    ParsedDocument { title: None, keywords: Vec::new(), pages: number(pages) }
}

/// Groups lines into paragraphs, separated by empty lines.
fn paragraphs(lines: &[&str]) -> Vec<Content> {
    lines
        .split(|line| line.trim().is_empty())
        .filter(|lines| !lines.is_empty())
        .map(|lines| Content::Text(lines.join("\n")))
        .collect()
}

#[cfg(test)]
#[cfg(feature = "documents")]
mod tests {
    use super::*;

    fn to_json(sort: FileType, text: &str) -> String {
        let parsed = read(sort, text.as_bytes()).unwrap();
        let mut out = format!("title: {:?}\nkeywords: {:?}\n", parsed.title, parsed.keywords);
        for (index, page) in parsed.pages.iter().enumerate() {
            out.push_str(&format!("page {index}: {:?}\n", page.title));
            for element in &page.elements {
                out.push_str(&format!("  {} {:?}\n", element.id, element.content));
            }
        }
        out
    }

    #[test]
    fn plain_text_has_paragraphs_and_pages() {
        insta::assert_snapshot!(to_json(
            FileType::Txt,
            "\u{feff}one\nstill one\n\n\ntwo\n\u{c}three\n"
        ));
        let long = "line\n\n".repeat(250);
        assert_eq!(read(FileType::Txt, long.as_bytes()).unwrap().pages.len(), 3);
    }

    #[test]
    fn markdown_has_every_sort_of_element() {
        let text = "before\n\n# Report\n\nWords with *stress*, `code` and [a link](https://a.example).\n\n\
                    1. one\n2. two\n   - inner\n\n- [x] done\n\n```rust\nfn main() {}\n```\n\n\
                    | k | v |\n|---|---|\n| a | 1 |\n\n![a cat](cat.png)\n\n---\n\n## Next\n\n> said\n\n\
                    $$E = mc^2$$\n\n<b>raw</b>\n\n    indented\n";
        insta::assert_snapshot!(to_json(FileType::Md, text));
    }

    #[test]
    fn a_web_page_has_what_is_seen_and_not_its_scripts() {
        let text = "<html><head><title>The page</title><meta name=keywords content='one, two'>\
                    <style>p{}</style></head><body><script>alert(1)</script><header>top</header><h1>Big</h1>\
                    <p>Some <b>bold</b>\n words<br>here</p>loose<ul><li>a<li>b</ul><ol><li>1</ol><pre>x\n  y</pre>\
                    <table><tr><th>k<th>v<tr><td>a<td>1</table><img src=c.png alt=cat><hr><form>Name<input></form>\
                    <h2>Small</h2><video src=v.mp4></video><noscript>no</noscript><footer>end</footer></body></html>";
        insta::assert_snapshot!(to_json(FileType::Html, text));
    }

    #[test]
    fn rubbish_is_read_as_far_as_it_goes() {
        let deep = "<div>".repeat(20_000);
        let quotes = "> ".repeat(5_000);
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for sort in [FileType::Txt, FileType::Md, FileType::Html] {
            for bad in [b"".as_slice(), b"\0\0\0", deep.as_bytes(), quotes.as_bytes(), &bytes] {
                assert!(!read(sort, bad).unwrap().pages.is_empty());
            }
        }
    }

    #[test]
    fn the_extension_decides_the_type_of_a_file() {
        assert_eq!(FileType::of("a.MD"), Some(FileType::Md));
        assert_eq!(FileType::of("a.markdown").map(<&str>::from), Some("md"));
        assert_eq!(FileType::of("a.htm").map(<&str>::from), Some("html"));
        for other in ["a", ".md", "a.exe", "a.", "md"] {
            assert_eq!(FileType::of(other), None, "{other}");
        }
    }
}
