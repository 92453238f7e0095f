//! Generates `_catalog.py` of the Python package: the code of every kind, and who has the next move.

use std::fmt::Write as _;

use super::rows::Catalog;

const HEAD: &str = "\
# Generated from catalog/faults.toml by `cargo xtask codegen`. Do not edit.
\"\"\"The kinds of fault: the permanent code of each, and who has the next move.\"\"\"

KINDS: dict[str, tuple[str, str]] = {
";

/// The generated file.
pub(super) fn source(catalog: &Catalog) -> String {
    let mut out = HEAD.to_owned();
    for kind in &catalog.kinds {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "    \"{}\": (\"{}\", \"{}\"),", kind.name, kind.code, kind.remedy);
    }
    out.push_str("}\n");
    out
}
