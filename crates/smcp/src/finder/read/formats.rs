//! Markdown, web pages and PDF: the file types whose parsers are crates of others.

mod html;
mod markdown;
mod pdf;

use super::{ELEMENTS_MAX, ParsedDocument};
use crate::finder::element::{Content, paginate};

pub(super) use pdf::read as pdf;

pub(super) fn markdown(bytes: &[u8]) -> Result<ParsedDocument, &'static str> {
    Ok(paged(None, markdown::contents(&String::from_utf8_lossy(bytes))))
}

pub(super) fn html(bytes: &[u8]) -> Result<ParsedDocument, &'static str> {
    let (title, keywords, contents) = html::contents(&String::from_utf8_lossy(bytes));
    Ok(ParsedDocument { keywords, ..paged(title, contents) })
}

fn paged(title: Option<String>, mut contents: Vec<Content>) -> ParsedDocument {
    bound(&mut contents);
    let heading = contents.iter().find_map(|content| match content {
        Content::Heading(_, text) => Some(text.clone()),
        _ => None,
    });
    ParsedDocument { title: title.or(heading), keywords: Vec::new(), pages: paginate(contents) }
}

/// Cuts the contents at [`ELEMENTS_MAX`] and adds an element that says so.
fn bound(contents: &mut Vec<Content>) {
    if contents.len() > ELEMENTS_MAX {
        contents.truncate(ELEMENTS_MAX);
        contents
            .push(Content::Text(format!("… the document goes on beyond {ELEMENTS_MAX} elements")));
    }
}
