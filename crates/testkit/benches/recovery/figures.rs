//! The four figures of one system in one storm, and their bars.

use budao_testkit::{
    bench::{Better, Measurement, emit},
    storm::{ServiceLog, Storm},
};

use crate::Outcome;

/// The last answer may come this much later than is possible.
const TIME_BAR: f64 = 1.25;

/// What one system did in one storm.
#[derive(Debug)]
pub(crate) struct Figures {
    system: String,
    outcome: Outcome,
    requests: usize,
    needed: usize,
    /// Seconds from the first request to the end of the last answer.
    time: f64,
}

impl Figures {
    pub(crate) fn new(system: &str, storm: &Storm, outcome: Outcome, log: &ServiceLog) -> Self {
        Self {
            system: system.to_owned(),
            outcome,
            requests: log.requests,
            needed: log.needed(storm),
            time: log.last_answer.as_secs_f64(),
        }
    }

    /// Prints a line for people and one for each figure. A time exists only if all turns finished, a count of calls only
    /// if there are calls.
    pub(crate) fn emit(&self, storm: &Storm) {
        if let Some(reason) = &self.outcome.unsupported {
            println!("  {}: NOT SUPPORTED, SKIPPED: {reason}", self.system);
            return;
        }
        let share = 100.0 * self.outcome.finished as f64 / storm.turns as f64;
        let requests = self.requests as f64 / self.needed.max(1) as f64;
        println!("  {}: {}", self.system, self.summary(storm));
        self.line(storm, "finished", (share, "% of turns"), 100.0, Better::Higher);
        self.line(storm, "requests", (requests, "x needed"), storm.requests_bar, Better::Lower);
        if self.outcome.finished == storm.turns {
            let time = self.time / storm.best_time().as_secs_f64();
            self.line(storm, "time", (time, "x best"), TIME_BAR, Better::Lower);
        }
        if storm.steps > 1 {
            let twice = self.outcome.twice as f64;
            self.line(storm, "twice", (twice, "calls"), 0.0, Better::Lower);
        }
    }

    fn summary(&self, storm: &Storm) -> String {
        let causes = self.outcome.causes.iter().map(|(cause, count)| format!("{count} × {cause}"));
        let causes: Vec<String> = causes.collect();
        let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
        format!(
            "{} of {} turns in {:.1} s (best {:.1}), {} requests ({} needed), failed: {causes}",
            self.outcome.finished,
            storm.turns,
            self.time,
            storm.best_time().as_secs_f64(),
            self.requests,
            self.needed,
        )
    }

    fn line(
        &self,
        storm: &Storm,
        what: &str,
        (value, unit): (f64, &str),
        bar: f64,
        better: Better,
    ) {
        let is_ours = self.system == "budao";
        let bench = match is_ours {
            true => format!("recovery/{}_{what}", storm.name),
            false => format!("peer/{}/recovery_{}_{what}", self.system, storm.name),
        };
        let note = (what == "finished").then(|| self.summary(storm));
        let (unit, bar) = (unit.to_owned(), is_ours.then_some(bar));
        emit(&Measurement { bench, value, unit, bar, better, low: None, high: None, note });
    }
}
