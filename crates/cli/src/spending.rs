//! `budao spending`: what was spent today, in total, by tenant and by key; raises a cap for the day.
//!
//! Ledgers are notes in the journal, so this works beside running servers and on any journal.

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
    spending::{Ledger, LedgerAmount, LedgerScope, SpendingConfig, day_of, shown_amount},
};
use budao_journal::Journal;
use budao_runtime::{LEDGER_INDEX, world};
use serde_json::json;

use crate::{
    config::ConfigArgs,
    exit::Exit,
    setup::JournalArgs,
    terminal::{Terminal, pad},
    texts::{fill, localize},
};

/// How often a change is tried while servers change the same ledger.
const TRIES: u32 = 200;

/// The width of the names of ledgers.
const SCOPE_WIDTH: usize = 28;

/// Show what was spent today (UTC): in total, by tenant and by API key; raise a cap for the day.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per ledger on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    journal: JournalArgs,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add to the caps of a ledger for today; a turn that stopped at the cap can then be retried
    Raise(RaiseArgs),
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("more").required(true).multiple(true).args(["amount", "tokens"])))]
struct RaiseArgs {
    /// The ledger, as the list and the fault name it: all, tenant/NAME or key/HASH
    scope: String,
    /// The money to add, in the currency of the prices: 5, or '5 USD'
    amount: Option<String>,
    /// The tokens to add
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
}

/// Runs `budao spending`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let config = args.config.load()?.limits.spending;
    let raise = args.action.as_ref().map(|Action::Raise(raise)| raise.read(&config)).transpose()?;
    let arguments = if raise.is_some() { args.journal.existing() } else { args.journal.to_read() };
    let world = world::system();
    let journal = arguments.open(&world).await?;
    let day = day_of(world.clock.now());
    let found = match raise {
        Some((scope, more)) => change(&*journal, &scope, (&day, &config.currency), more).await,
        None => all(&*journal, (&day, &config.currency)).await,
    };
    journal.close().await;
    let found = found?;
    for (name, ledger) in &found {
        terminal.data(&line(name, ledger, args.json, lang));
    }
    if found.is_empty() && !args.json {
        terminal.say(localize(lang, "spending-none"));
    }
    Ok(Exit::Success)
}

impl RaiseArgs {
    fn read(&self, config: &SpendingConfig) -> Result<(LedgerScope, LedgerAmount), Fault> {
        let scope = LedgerScope::of(&self.scope).ok_or_else(|| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "scope")
                .with(Fact::Expected, "all, tenant/NAME or key/HASH")
                .with(Fact::Received, self.scope.chars().take(80).collect::<String>())
        })?;
        let cost = self.amount.as_deref().map(|text| {
            config.read_amount(text).map_err(|_| {
                let expected = format!("an amount above 0 in {}", config.currency);
                Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, "AMOUNT")
                    .with(Fact::Expected, expected)
                    .with(Fact::Received, text.chars().take(80).collect::<String>())
            })
        });
        let cost = cost.transpose()?;
        let (cost, tokens) = (cost.unwrap_or_default(), self.tokens.unwrap_or_default());
        Ok((scope, LedgerAmount { cost, tokens }))
    }
}

type NamedLedgers = Vec<(String, Ledger)>;

/// The ledgers that have counted something today.
async fn all(journal: &dyn Journal, today: (&str, &str)) -> Result<NamedLedgers, Fault> {
    let names = journal.note(LEDGER_INDEX).await?.map(|note| note.body).unwrap_or_default();
    let mut names: Vec<String> = serde_json::from_slice(&names).unwrap_or_default();
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let Some(scope) = LedgerScope::of(&name) else { continue };
        let Some(note) = journal.note(&scope.note()).await? else { continue };
        let ledger = Ledger::read(&note.body, today.0, today.1);
        if ledger.requests > 0 {
            found.push((name, ledger));
        }
    }
    Ok(found)
}

async fn change(
    journal: &dyn Journal,
    scope: &LedgerScope,
    today: (&str, &str),
    more: LedgerAmount,
) -> Result<NamedLedgers, Fault> {
    let by = std::env::var("USER").unwrap_or_else(|_| "operator".to_owned());
    for _ in 0..TRIES {
        let note = journal.note(&scope.note()).await?;
        let version = note.as_ref().map_or(0, |note| note.version);
        let body = note.map(|note| note.body).unwrap_or_default();
        let mut ledger = Ledger::read(&body, today.0, today.1);
        ledger.raise(&by, more);
        if journal.set_note(&scope.note(), version, ledger.body()).await?.is_some() {
            return Ok(vec![(scope.name(), ledger)]);
        }
    }
    Err(Fault::new(Kind::LimitReached, Operation::SubmitCommand)
        .with(Fact::LimitName, "ledger_tries")
        .with(Fact::Limit, u64::from(TRIES)))
}

fn line(name: &str, ledger: &Ledger, is_json: bool, lang: Lang) -> String {
    if is_json {
        return format!("{}\n", json!({ "scope": name, "ledger": ledger }));
    }
    let amount = |amount: LedgerAmount| {
        let tokens = amount.tokens.to_string();
        let cost = shown_amount(amount.cost, &ledger.currency);
        fill(lang, "spending-amount", &[("cost", cost.into()), ("tokens", tokens.into())])
    };
    let args = [
        ("scope", pad(name, SCOPE_WIDTH).into()),
        ("spent", amount(ledger.spent).into()),
        ("reserved", amount(ledger.reserved).into()),
        ("requests", ledger.requests.to_string().into()),
    ];
    let mut line = format!("{}  {}", ledger.day, fill(lang, "spending-line", &args));
    if ledger.estimated != LedgerAmount::default() {
        let args = [("amount", amount(ledger.estimated).into())];
        line.push_str(&fill(lang, "spending-estimated", &args));
    }
    if ledger.raised != LedgerAmount::default() {
        let by = ledger.raised_by.clone();
        let args = [("amount", amount(ledger.raised).into()), ("by", by.into())];
        line.push_str("  ");
        line.push_str(&fill(lang, "spending-raised", &args));
    }
    line + "\n"
}
