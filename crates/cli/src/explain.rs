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
/// A code is what users and operators see (`ERR_TIMEOUT_001`). A number is what other programs are told: of
/// A2C-SMCP first, then of HTTP and JSON-RPC. A name is what stands in records (`deadline_passed`).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Code, number or name: `ERR_TIMEOUT_001`, `4101`, `deadline passed`
    #[arg(required_unless_present = "list", allow_negative_numbers = true, value_name = "WHAT")]
    what: Vec<String>,

    /// List the kinds, or those that have WHAT in code, name, title or numbers
    #[arg(long)]
    list: bool,

    /// Only kinds of this class
    #[arg(long, requires = "list", value_parser = one_of::<Category>())]
    category: Option<Category>,

    /// Only kinds where this one has the next move
    #[arg(long, requires = "list", value_parser = one_of::<Remedy>())]
    remedy: Option<Remedy>,

    /// Only kinds this loud
    #[arg(long, requires = "list", value_parser = one_of::<Severity>())]
    severity: Option<Severity>,

    /// Print JSON: an object for one kind, a list for several
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
        (Lang::En, 0) => "No kind of fault fits.".to_owned(),
        (Lang::En, 1) => "1 kind. `budao explain CODE` tells more.".to_owned(),
        (Lang::En, count) => format!("{count} kinds. `budao explain CODE` tells more about one."),
        (Lang::Zh, 0) => "没有符合的错误种类。".to_owned(),
        (Lang::Zh, count) => format!("共 {count} 种。用 `budao explain 代码` 查看详情。"),
    });
    Exit::Success
}

/// The hint that other kinds share the number.
fn also(number: i64, others: usize, lang: Lang) -> String {
    match lang {
        Lang::En => format!(
            "{number} is also a number of {others} other kinds: `budao explain --list {number}`."
        ),
        Lang::Zh => {
            format!("另有 {others} 种错误也用编号 {number}：`budao explain --list {number}`。")
        }
    }
}

/// The message for an unknown code, with suggestions.
fn unknown(what: &str, near: &Suggestions, lang: Lang, terminal: &Terminal) -> String {
    let mut text = match lang {
        Lang::En => format!("There is no code, number or name `{what}`.\n"),
        Lang::Zh => format!("没有 `{what}` 这个代码、编号或名称。\n"),
    };
    let lines = list::near(near, lang, terminal);
    if !lines.is_empty() {
        text.push_str(match lang {
            Lang::En => "\nDid you mean\n",
            Lang::Zh => "\n您要找的也许是\n",
        });
        text.push_str(&lines);
    }
    text.push_str(match lang {
        Lang::En => "\nAll of them: `budao explain --list`",
        Lang::Zh => "\n全部列表：`budao explain --list`",
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
