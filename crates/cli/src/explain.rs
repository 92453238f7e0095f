//! `budao explain`: the meaning of a fault code, its remedy, and recommendations.

mod find;
mod list;
mod page;

use budao_core::{
    Kind, Lang,
    fault::{Category, Remedy, Severity},
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::VariantArray;

use crate::{exit::Exit, terminal::Terminal};
use find::{LookupResult, Suggestions};

/// Explain a fault: by code, by number or by name
///
/// Users and operators see the code (`ERR_TIMEOUT_001`). Other programs see a number: numbers are looked up in A2C-SMCP
/// first, then in HTTP and JSON-RPC. Records contain the name (`deadline_passed`).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Code, number or name: `ERR_TIMEOUT_001`, `4101`, `deadline passed`
    #[arg(required_unless_present = "list", allow_negative_numbers = true, value_name = "WHAT")]
    what: Vec<String>,

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

/// Runs `budao explain`. An unknown code is a usage error and prints suggestions.
pub(crate) fn main(args: &Args, lang: Lang, terminal: &Terminal) -> Exit {
    let what = args.what.join(" ");
    if args.list {
        let kinds = find::filtered(args, &what);
        if !kinds.is_empty() || what.is_empty() {
            return show_list(&kinds, args.json, lang, terminal);
        }
    }
    match find::find(&what) {
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
            terminal.say(&unknown(&what, &near, lang, terminal));
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
    terminal.say(&match (lang, kinds.len()) {
        (Lang::En, 0) => "No kinds match.".to_owned(),
        (Lang::En, 1) => "1 kind. For details: `budao explain CODE`".to_owned(),
        (Lang::En, count) => format!("{count} kinds. For details: `budao explain CODE`"),
        (Lang::Zh, 0) => "没有匹配的错误种类。".to_owned(),
        (Lang::Zh, count) => format!("共 {count} 种。用 `budao explain 代码` 查看详情。"),
    });
    Exit::Success
}

/// The hint that other kinds share the number.
fn also(number: i64, others: usize, lang: Lang) -> String {
    match lang {
        Lang::En => format!(
            "{others} other kinds have the number {number} too: `budao explain --list {number}`"
        ),
        Lang::Zh => {
            format!("另有 {others} 种错误也用编号 {number}：`budao explain --list {number}`")
        }
    }
}

/// The message for an unknown code, with suggestions.
fn unknown(what: &str, near: &Suggestions, lang: Lang, terminal: &Terminal) -> String {
    let mut text = match lang {
        Lang::En => format!("Unknown code, number or name: `{what}`\n"),
        Lang::Zh => format!("未知的代码、编号或名称：`{what}`\n"),
    };
    let lines = list::near(near, lang, terminal);
    if !lines.is_empty() {
        text.push_str(match lang {
            Lang::En => "\nDid you mean:\n",
            Lang::Zh => "\n您要找的可能是：\n",
        });
        text.push_str(&lines);
    }
    text.push_str(match lang {
        Lang::En => "\nTo list all kinds: `budao explain --list`",
        Lang::Zh => "\n列出全部种类：`budao explain --list`",
    });
    text
}

/// A clap parser for the values of one catalog column.
fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantArray + Copy + Into<&'static str> + std::str::FromStr + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS.iter().map(|value| Into::<&'static str>::into(*value)))
        .try_map(|word| word.parse::<T>())
}
