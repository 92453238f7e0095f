//! Extracts the text of each page of a PDF. Decompressed size is limited, and a panic of the parser is caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lopdf::{Document, LoadOptions};

use crate::finder::{
    element::number,
    read::{ParsedDocument, paragraphs},
};

/// Bytes that a compressed stream may expand to; a small crafted file could otherwise exhaust memory.
const UNPACKED_MAX: usize = 32 << 20;

/// Pages of a file.
const PAGES_MAX: usize = 10_000;

/// Characters of a page.
const PAGE_CHARS_MAX: usize = 1 << 20;

pub(in crate::finder::read) fn read(bytes: &[u8]) -> Result<ParsedDocument, &'static str> {
    if !bytes.starts_with(b"%PDF-") {
        return Err("it does not begin as a PDF does");
    }
    // A crafted file can make the parser panic.
    catch_unwind(AssertUnwindSafe(|| extract(bytes))).unwrap_or(Err(DAMAGED))
}

const DAMAGED: &str = "it is damaged";

fn extract(bytes: &[u8]) -> Result<ParsedDocument, &'static str> {
    let options = LoadOptions::with_max_decompressed_size(UNPACKED_MAX);
    let document = Document::load_mem_with_options(bytes, options).map_err(|_| DAMAGED)?;
    if document.is_encrypted() {
        return Err("it is locked with a password");
    }
    let numbers: Vec<u32> = document.get_pages().into_keys().take(PAGES_MAX).collect();
    if numbers.is_empty() {
        return Err(DAMAGED);
    }
    let mut is_any_read = false;
    let pages = numbers.into_iter().map(|page| {
        // A page that cannot be read becomes an empty page; the others are kept.
        let text = document.extract_text_with_limit(&[page], UNPACKED_MAX);
        is_any_read |= text.is_ok();
        let text: String = text.unwrap_or_default().chars().take(PAGE_CHARS_MAX).collect();
        paragraphs(&text.lines().collect::<Vec<_>>())
    });
    let pages = number(pages.collect());
    if is_any_read {
        Ok(ParsedDocument { pages, ..ParsedDocument::default() })
    } else {
        Err(DAMAGED)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::finder::element::Content;

    /// Builds a PDF with one page for each text.
    pub(crate) fn pdf(pages: &[&str]) -> Vec<u8> {
        let mut objects = vec!["<</Type/Catalog/Pages 2 0 R>>".to_owned()];
        let kids: Vec<String> =
            (0..pages.len()).map(|index| format!("{} 0 R", 4 + index * 2)).collect();
        objects.push(format!("<</Type/Pages/Count {}/Kids[{}]>>", pages.len(), kids.join(" ")));
        objects.push(
            "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
        );
        for (index, text) in pages.iter().enumerate() {
            objects.push(format!(
                "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>/Contents {} 0 R>>",
                5 + index * 2
            ));
            let stream = format!("BT /F1 12 Tf 50 700 Td ({text}) Tj ET");
            objects.push(format!("<</Length {}>>\nstream\n{stream}\nendstream", stream.len()));
        }
        let mut file = b"%PDF-1.4\n".to_vec();
        let mut offsets = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            offsets.push(file.len());
            write!(file, "{} 0 obj\n{object}\nendobj\n", index + 1).unwrap();
        }
        let start = file.len();
        write!(file, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).unwrap();
        for offset in offsets {
            writeln!(file, "{offset:010} 00000 n ").unwrap();
        }
        write!(
            file,
            "trailer\n<</Size {}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n",
            objects.len() + 1
        )
        .unwrap();
        file
    }

    #[test]
    fn each_page_has_its_text() {
        let parsed = read(&pdf(&["The first page", "The second page"])).unwrap();
        let texts: Vec<_> = parsed
            .pages
            .iter()
            .flat_map(|page| &page.elements)
            .map(|e| e.content.clone())
            .collect();
        assert_eq!(
            texts,
            [Content::Text("The first page".into()), Content::Text("The second page".into())]
        );
        assert_eq!(parsed.pages.len(), 2);
    }

    /// A compressed stream of spaces, about a thousand times smaller than its content.
    fn bomb(bytes: usize) -> Vec<u8> {
        let mut stream = lopdf::Stream::new(lopdf::Dictionary::new(), vec![b' '; bytes]);
        stream.compress().unwrap();
        stream.content
    }

    #[test]
    fn a_page_that_unpacks_without_end_is_refused_before_it_does() {
        let bomb = bomb(UNPACKED_MAX * 2);
        assert!(bomb.len() < UNPACKED_MAX / 100);
        let whole = pdf(&["@@"]);
        let at = memchr::memmem::find(&whole, b"<</Length").unwrap();
        let end = memchr::memmem::find(&whole, b"endstream").unwrap();
        let head = format!("<</Length {}/Filter/FlateDecode>>\nstream\n", bomb.len());
        let file = [&whole[..at], head.as_bytes(), &bomb, b"\n", &whole[end..]].concat();
        assert_eq!(read(&file), Err(DAMAGED));
    }

    #[test]
    fn nesting_without_end_is_no_way_to_the_end_of_the_stack() {
        for (open, close) in [("[", "]"), ("<<", ">>"), ("(", ")"), ("<</A ", ">>")] {
            let deep = format!("{}{}", open.repeat(100_000), close.repeat(100_000));
            let file = format!(
                "%PDF-1.4\n1 0 obj\n{deep}\nendobj\ntrailer\n<</Root 1 0 R>>\nstartxref\n9\n%%EOF"
            );
            assert!(read(file.as_bytes()).is_err(), "{open}");
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_and_nothing_worse() {
        let whole = pdf(&["words"]);
        assert_eq!(read(b"hello"), Err("it does not begin as a PDF does"));
        assert!(read(b"%PDF-").is_err() && read(b"%PDF-1.4\n%%EOF").is_err());
        // Truncated or corrupted files are read or refused; no panic escapes.
        for at in (0..whole.len()).step_by(7) {
            let _ = read(&whole[..at]);
            let mut changed = whole.clone();
            changed[at] ^= 0x5a;
            let _ = read(&changed);
        }
        // Objects that refer to each other in a circle.
        let circle = String::from_utf8(whole)
            .unwrap()
            .replace("/Parent 2 0 R", "/Parent 4 0 R")
            .replace("/Kids[4 0 R]", "/Kids[2 0 R]");
        let _ = read(circle.as_bytes());
    }
}
