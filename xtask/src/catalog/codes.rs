//! Generates the error numbers of protocols, in the crates that speak them: A2C-SMCP, HTTP, JSON-RPC.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::camel;
use super::rows::{Catalog, Kind};

/// A protocol's column of the catalog as a function from kinds to numbers.
struct Column {
    function: &'static str,
    about: &'static str,
    number_type: &'static str,
    number: fn(&Kind) -> i32,
}

const SMCP: Column = Column {
    function: "smcp_code",
    about: "The A2C-SMCP error number; several kinds may share one.",
    number_type: "u16",
    number: |kind| i32::from(kind.smcp),
};
const HTTP: Column = Column {
    function: "http_status",
    about: "The HTTP status of an answer that reports the fault.",
    number_type: "u16",
    number: |kind| i32::from(kind.http),
};
const JSON_RPC: Column = Column {
    function: "json_rpc_code",
    about: "The JSON-RPC error code.",
    number_type: "i32",
    number: |kind| kind.json_rpc,
};

/// The generated files before formatting, by path.
pub(super) fn sources(catalog: &Catalog) -> BTreeMap<&'static str, String> {
    let smcp = format!("{}{}", table(catalog, "pub", &SMCP), homes(catalog));
    let others =
        "`http_status` is this crate's own; the page shows the numbers of other protocols.";
    let serve: String = [("pub", &HTTP), ("pub(crate)", &SMCP), ("pub(crate)", &JSON_RPC)]
        .map(|(visibility, column)| table(catalog, visibility, column))
        .concat();
    BTreeMap::from([
        (
            "crates/smcp/src/codes.rs",
            head("The A2C-SMCP error number of each kind of fault.") + &smcp,
        ),
        (
            "crates/serve/src/codes.rs",
            head(&format!("The HTTP status of each kind of fault.\n//!\n//! {others}")) + &serve,
        ),
        (
            "crates/acp/src/codes.rs",
            head("The JSON-RPC error code of each kind of fault.")
                + &table(catalog, "pub", &JSON_RPC),
        ),
    ])
}

fn head(about: &str) -> String {
    format!(
        "// Generated from catalog/faults.toml by `cargo xtask codegen`. Do not edit.\n\n//! {about}\n\n\
         use budao_core::Kind;\n"
    )
}

fn table(catalog: &Catalog, visibility: &str, column: &Column) -> String {
    let Column { function, about, number_type, number } = column;
    let mut by_number: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for kind in &catalog.kinds {
        by_number.entry(number(kind)).or_default().push(format!("Kind::{}", camel(&kind.name)));
    }
    let mut out = format!(
        "\n/// {about}\n#[must_use]\n{visibility} const fn {function}(kind: Kind) -> {number_type} {{\n\
         match kind {{\n"
    );
    for (number, kinds) in by_number {
        _ = writeln!(out, "{} => {number},", kinds.join(" | "));
    }
    out + "}\n}\n"
}

fn homes(catalog: &Catalog) -> String {
    let homes = catalog.kinds.iter().filter(|kind| kind.smcp_home);
    let homes: Vec<String> = homes.map(|kind| format!("Kind::{}", camel(&kind.name))).collect();
    format!(
        "\n/// Whether this kind documents its A2C-SMCP number; exactly one kind per number does.\n\
         #[must_use]\npub const fn is_smcp_home(kind: Kind) -> bool {{\nmatches!(kind, {})\n}}\n",
        homes.join(" | ")
    )
}
