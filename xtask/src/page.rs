//! Generated sections of a page: the text between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Replaces the text between the marks of this name.
///
/// # Errors
/// When the page does not have the marks.
pub(crate) fn replace(page: &Path, name: &str, text: &str) -> Result<()> {
    let before = fs::read_to_string(page).with_context(|| format!("read `{}`", page.display()))?;
    let after = put(&before, name, text)
        .with_context(|| format!("`{}` has no part `{name}`", page.display()))?;
    fs::write(page, after).with_context(|| format!("write `{}`", page.display()))?;
    println!("wrote the part `{name}` of {}", page.display());
    Ok(())
}

/// Returns whether the page has a section of this name.
///
/// # Errors
/// When the page cannot be read.
pub(crate) fn has(page: &Path, name: &str) -> Result<bool> {
    let text = fs::read_to_string(page).with_context(|| format!("read `{}`", page.display()))?;
    Ok(put(&text, name, "").is_some())
}

/// The page with another text between the marks of this name; none without the marks.
pub(crate) fn put(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some(format!("{head}{begin}\n{}\n\n{end}{tail}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_changes() {
        let page = "by hand\n<!-- a:begin -->\nold\n<!-- a:end -->\nby hand too\n";
        let once = put(page, "a", "new\n").unwrap();
        assert_eq!(once, "by hand\n<!-- a:begin -->\n\nnew\n\n<!-- a:end -->\nby hand too\n");
        assert_eq!(put(&once, "a", "new\n").unwrap(), once);
        assert_eq!(put(page, "b", "new"), None);
    }
}
