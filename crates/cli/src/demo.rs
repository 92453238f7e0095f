//! `budao demo`: five acts in about a minute. Each act runs real processes of this program, and its claims are
//! checked against the records they wrote. Only the narration is prepared.

mod act;
mod cut;
mod plays;
mod relay;
mod runner;

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation, text},
};
use serde_json::json;

use self::{
    act::{Act, Claim},
    runner::DemoRunner,
};
use crate::{exit::Exit, terminal::Terminal, texts::localize};

/// Time limit of one act; a longer one counts as failed.
const ACT: Duration = Duration::from_secs(60);

/// Pause before each act on a terminal, to read its introduction.
const READING: Duration = Duration::from_secs(2);

/// Show in one minute how agents recover from failures; needs no network and no key.
///
/// Five acts: an agent corrects a wrong tool call, a rate-limited request is retried, a client reconnects without losing
/// events, a killed process is replaced in the middle of a turn, and the sessions are replayed from the journal. The
/// exit code is 0 if every check passed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per act on stdout
    #[arg(long)]
    json: bool,
}

/// Each claim of an act, and whether it held.
pub(crate) type CheckedClaims = Vec<(Claim, bool)>;

/// Runs all acts. The exit code is a failure if any claim did not hold.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let mut stage = DemoRunner::build(lang, terminal, !args.json)?;
    let is_watched = !args.json && io::stdout().is_terminal();
    let guide = Narrator { lang, terminal };
    if !args.json {
        guide.welcome(&stage);
    }
    let mut good = 0;
    for (index, act) in Act::ALL.into_iter().enumerate() {
        if !args.json {
            guide.announce(index, act);
        }
        if is_watched {
            tokio::time::sleep(READING).await;
        }
        let began = Instant::now();
        let played = tokio::time::timeout(ACT, stage.play(act)).await.unwrap_or_else(|_| {
            Err(Fault::new(Kind::DeadlinePassed, Operation::RunCommand).with(Fact::TimeoutMs, ACT))
        });
        good += usize::from(is_good(act, &played));
        match args.json {
            true => guide.report(act, &played, &stage, began.elapsed()),
            false => guide.conclude(act, &played),
        }
    }
    if !args.json {
        guide.farewell(&stage, good);
    }
    Ok(if good == Act::ALL.len() { Exit::Success } else { Exit::Failed })
}

/// An act passes if every one of its claims was checked and held.
fn is_good(act: Act, played: &Result<CheckedClaims, Fault>) -> bool {
    let claimed = act.claims().iter().map(|claim| (*claim, true));
    played.as_ref().is_ok_and(|checked| claimed.eq(checked.iter().copied()))
}

/// Prints the text between the acts, or one JSON object per act.
struct Narrator<'a> {
    lang: Lang,
    terminal: &'a Terminal,
}

impl Narrator<'_> {
    fn line(&self, text: &str) {
        self.terminal.data(&format!("{text}\n"));
    }

    fn paragraph(&self, text: &str) {
        self.line(&self.terminal.wrap(text, ""));
    }

    fn welcome(&self, stage: &DemoRunner<'_>) {
        self.paragraph(localize(self.lang, "demo-five-failures-and-the-recovery-from"));
        let words = localize(self.lang, "demo-journal");
        self.line(&format!("{words} {}", stage.journal().display()));
    }

    fn announce(&self, index: usize, act: Act) {
        let title = format!("{}/{}  {}", index + 1, Act::ALL.len(), act.title(self.lang));
        self.line(&format!("\n{}", self.terminal.strong(title)));
        self.paragraph(act.beforehand(self.lang));
        self.line("");
    }

    fn conclude(&self, act: Act, played: &Result<CheckedClaims, Fault>) {
        self.line("");
        match played {
            Ok(checked) => {
                for (claim, ok) in checked {
                    let mark = if *ok { "✓" } else { "✗" };
                    self.line(&format!("{mark} {}", claim.words(self.lang)));
                }
            }
            Err(fault) => self.line(&format!(
                "✗ {} {}",
                self.terminal.strong(fault.row().code),
                text::user_text(fault, self.lang)
            )),
        }
        self.paragraph(act.look_at(self.lang));
    }

    /// Prints the act's result as one JSON object.
    fn report(
        &self,
        act: Act,
        played: &Result<CheckedClaims, Fault>,
        stage: &DemoRunner<'_>,
        took: Duration,
    ) {
        let checks = played.as_ref().map(|checked| {
            checked
                .iter()
                .map(|(claim, ok)| (<&str>::from(claim).to_owned(), (*ok).into()))
                .collect::<serde_json::Map<_, _>>()
        });
        let line = json!({
            "act": <&str>::from(act),
            "ok": is_good(act, played),
            "checks": checks.unwrap_or_default(),
            "fault": played.as_ref().err().map(|fault| fault.row().code),
            "session": stage.session_of(act),
            "journal": stage.journal(),
            "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
        self.line(&line.to_string());
    }

    fn farewell(&self, stage: &DemoRunner<'_>, good: usize) {
        let words = localize(self.lang, "demo-acts-passed");
        let count = format!("\n{good}/{} {words}", Act::ALL.len());
        self.line(&self.terminal.strong(count));
        let journal = stage.journal().display().to_string();
        self.paragraph(localize(self.lang, "demo-the-records-stay-in-that-folder"));
        self.line(&format!("  budao sessions --journal {journal} list"));
        if let Some(session) = stage.session_of(Act::Kill) {
            self.line(&format!("  budao replay --journal {journal} {session}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_all_acts_in_both_languages() {
        let render_guide = |lang: Lang| {
            let act = |act: Act| {
                let claims =
                    act.claims().iter().map(|claim| format!("  ✓ {}\n", claim.words(lang)));
                let claims: String = claims.collect();
                let (before, after) = (act.beforehand(lang), act.look_at(lang));
                format!("{}\n{before}\n{claims}{after}\n\n", act.title(lang))
            };
            Act::ALL.into_iter().map(act).collect::<String>()
        };
        insta::assert_snapshot!("guide_en", render_guide(Lang::En));
        insta::assert_snapshot!("guide_zh", render_guide(Lang::Zh));
    }

    #[test]
    fn an_act_is_good_only_if_everything_claimed_of_it_was_checked_and_is_so() {
        let fault = Fault::new(Kind::DeadlinePassed, Operation::RunCommand);
        let all = |ok: bool| vec![(Claim::NoGaps, true), (Claim::SameAsHappened, ok)];
        assert!(is_good(Act::Replay, &Ok(all(true))));
        assert!(!is_good(Act::Replay, &Ok(all(false))));
        assert!(!is_good(Act::Replay, &Ok(vec![(Claim::NoGaps, true)])));
        assert!(!is_good(Act::Replay, &Ok(Vec::new())));
        assert!(!is_good(Act::Replay, &Err(fault)));
    }
}
