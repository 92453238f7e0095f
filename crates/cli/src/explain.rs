//! `budao explain`: the meaning of a fault code, its remedy, and recommendations.

mod find;
mod list;
mod page;

use budao_core::{
    Kind, Lang,
    fault::{Category, Remedy, Severity},
};

use crate::{
    acp,
    choices::one_of,
    exit::Exit,
    serve, smcp,
    terminal::Terminal,
    texts::{count, fill, localize},
};
use find::{LookupResult, Suggestions};

/// Explain a fault: by code, by number or by name
///
/// Users and operators see the code (`ERR_TIMEOUT_001`). Other programs see a number: numbers are looked up in A2C-SMCP
/// first, then in HTTP and JSON-RPC. Records contain the name (`deadline_passed`).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Code, number or name: `ERR_TIMEOUT_001`, `4101`, `deadline passed`
    #[arg(required_unless_present = "list", allow_negative_numbers = true, value_name = "WHAT")]
    query: Vec<String>,

    /// List all kinds, or those with WHAT in their code, name, title or numbers
    #[arg(long)]
    list: bool,

    /// List only kinds of this category
    #[arg(long, requires = "list", value_parser = one_of::<Category>())]
    category: Option<Category>,

    /// List only kinds with this remedy: who has the next move
    #[arg(long, requires = "list", value_parser = one_of::<Remedy>())]
    remedy: Option<Remedy>,

    /// List only kinds of this severity
    #[arg(long, requires = "list", value_parser = one_of::<Severity>())]
    severity: Option<Severity>,

    /// Print JSON on stdout: an object for one kind, a list for several
    #[arg(long)]
    json: bool,
}

/// The numbers that protocols have for a kind, from the parts of this program that speak them.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct ProtocolNumbers {
    #[serde(skip_serializing_if = "Option::is_none")]
    smcp: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_rpc: Option<i32>,
}

impl ProtocolNumbers {
    fn of(kind: Kind) -> Self {
        Self {
            smcp: smcp::code(kind),
            http: serve::http_status(kind),
            json_rpc: acp::json_rpc_code(kind),
        }
    }

    /// The A2C-SMCP number.
    fn smcp(self) -> Option<i64> {
        self.smcp.map(i64::from)
    }

    fn all(self) -> impl Iterator<Item = i64> {
        let others = [self.http.map(i64::from), self.json_rpc.map(i64::from)];
        self.smcp().into_iter().chain(others.into_iter().flatten())
    }
}

/// Runs `budao explain`. An unknown code is a usage error and prints suggestions.
pub(crate) fn main(args: &Args, lang: Lang, terminal: &Terminal) -> Exit {
    let query = args.query.join(" ");
    if args.list {
        let kinds = find::filtered(args, &query);
        if !kinds.is_empty() || query.is_empty() {
            return show_list(&kinds, args.json, lang, terminal);
        }
    }
    match find::find(&query) {
        LookupResult::One(kind) if args.json => terminal.data(&page::json(kind, lang)),
        LookupResult::One(kind) => terminal.data(&page::text(kind, lang, terminal)),
        LookupResult::PrimaryNumber { kind, .. } if args.json => {
            terminal.data(&page::json(kind, lang));
        }
        LookupResult::PrimaryNumber { kind, number, others } => {
            terminal.data(&page::text(kind, lang, terminal));
            if others > 0 {
                terminal.say(&also(number, others, lang));
            }
        }
        LookupResult::Several(kinds) => return show_list(&kinds, args.json, lang, terminal),
        LookupResult::None(near) => {
            terminal.say(&unknown(&query, &near, lang, terminal));
            return Exit::Usage;
        }
    }
    Exit::Success
}

fn show_list(kinds: &[Kind], json: bool, lang: Lang, terminal: &Terminal) -> Exit {
    if json {
        terminal.data(&list::json(kinds, lang));
        return Exit::Success;
    }
    terminal.data(&list::text(kinds, lang, terminal));
    terminal.say(&count(lang, "explain-kinds", kinds.len() as u64));
    Exit::Success
}

/// The hint that other kinds share the number.
fn also(number: i64, others: usize, lang: Lang) -> String {
    fill(lang, "explain-also", &[("others", others.into()), ("number", number.to_string().into())])
}

/// The message for an unknown code, with suggestions.
fn unknown(query: &str, near: &Suggestions, lang: Lang, terminal: &Terminal) -> String {
    let mut text = fill(lang, "explain-unknown", &[("what", query.into())]);
    text.push('\n');
    let lines = list::near(near, lang, terminal);
    if !lines.is_empty() {
        text.push_str(&format!("\n{}\n{lines}", localize(lang, "explain-did-you-mean")));
    }
    format!("{text}\n{}", localize(lang, "explain-to-list-all-kinds"))
}
