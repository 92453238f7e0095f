//! In a program without the feature `documents`: Markdown, web pages and PDF are refused with a reason.

use super::ParsedDocument;

const MISSING: &str = "this program was built without reading of documents: cargo install budao-cli --features documents";

pub(super) fn markdown(_: &[u8]) -> Result<ParsedDocument, &'static str> {
    Err(MISSING)
}

pub(super) fn html(_: &[u8]) -> Result<ParsedDocument, &'static str> {
    Err(MISSING)
}

pub(super) fn pdf(_: &[u8]) -> Result<ParsedDocument, &'static str> {
    Err(MISSING)
}
