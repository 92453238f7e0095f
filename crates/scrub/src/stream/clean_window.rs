//! Text of a stream in which no rule has found a secret, read once for all passes.
//!
//! As long as no pass changes anything, all passes read the same text and come to the same verdicts. Only their ends
//! differ, because a pass gets the text that the previous one has decided. The window keeps that text once, with an end
//! for each pass. It continues one search for triggers, and applies a rule when [`TRIGGER_MAX`] bytes follow, which is
//! once for most triggers. The passes take over when a rule finds something or stays undecided for long; the window takes
//! over from them when all that they hold is unchanged text.

use super::{PatternPass, UNDECIDED_TAIL, end_of_decided};
use crate::PASSES_MAX;
use crate::encoded_run;
use crate::replacement::Replacement;
use crate::rules::{self, READ_BEFORE_MAX, ScanScope, TAKEN_BEFORE_MAX, TRIGGER_MAX};
use crate::text::ScanText;
use crate::trigger::Hit;

/// New bytes that the window waits for before it looks at them. A shorter part costs no more than its copy.
const FRESH_MIN: usize = 64;
/// Bytes that may follow an undecided place, or be held by all passes together, in a window.
const UNDECIDED_MAX: usize = 1024;
/// Emitted bytes that are kept before they are removed together.
const EMITTED_MAX: usize = 2048;

/// Text in which no rule has found a secret.
#[derive(Default)]
pub(super) struct CleanWindow {
    /// Recently emitted text, for rules that look back, followed by the text that at least one pass holds.
    text: String,
    /// The end of the text that each pass has decided; the last pass has emitted its part.
    decided: [usize; PASSES_MAX],
    /// Where the search for triggers continues. Triggers before it are found.
    searched: usize,
    /// Undecided triggers, in the order of their starts.
    waiting: Vec<Hit>,
    /// Where the next long run may start.
    run_from: usize,
    /// What the first pass found harmless, and a later pass cannot know yet.
    harmless: Vec<HarmlessPlace>,
}

/// A place that the first pass found harmless.
struct HarmlessPlace {
    start: usize,
    /// The end of the text that the verdict depends on.
    end: usize,
}

/// Why a window cannot continue: a rule found something, or cannot decide.
#[derive(Debug)]
pub(super) struct PassesNeeded;

impl CleanWindow {
    /// Continues with the text that the passes hold, if none of them has changed any of it.
    pub(super) fn from_passes(passes: &[PatternPass; PASSES_MAX]) -> Option<Self> {
        let [first, second, third] = passes;
        let second_end = third.text.len();
        let first_end = second_end + second.held_bytes();
        let unchanged = third.held >= READ_BEFORE_MAX
            && second.unchanged >= second_end
            && first.unchanged >= first_end;
        let held: usize = passes.iter().map(PatternPass::held_bytes).sum();
        let swallowing = passes.iter().any(|pass| pass.swallowing.is_some());
        (unchanged && !swallowing && held <= UNDECIDED_MAX).then(|| Self {
            text: [&third.text, second.held_text(), first.held_text()].concat(),
            decided: [first_end, second_end, third.held],
            searched: third.held,
            run_from: third.held,
            ..Self::default()
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.text.len() - self.decided[PASSES_MAX - 1]
    }

    /// Takes the next part; emits what all passes have decided.
    pub(super) fn push(&mut self, piece: &str, out: &mut String) -> Result<(), PassesNeeded> {
        self.text.push_str(piece);
        if self.text.len() - self.searched < TRIGGER_MAX + FRESH_MIN {
            return Ok(());
        }
        self.advance(out)
    }

    /// Looks at the new text. A function of its own, because most parts of a stream need none of it.
    #[inline(never)]
    fn advance(&mut self, out: &mut String) -> Result<(), PassesNeeded> {
        let bytes = self.text.as_bytes();
        self.searched = rules::find_triggers(bytes, self.searched, &mut self.waiting);
        let open = self.judge()?;
        self.decide(open, out);
        self.forget_emitted();
        Ok(())
    }

    /// Judges the places that were found. Returns the start of the first one that is undecided.
    fn judge(&mut self) -> Result<usize, PassesNeeded> {
        let end = self.text.len();
        let text = ScanText::new(self.text.as_bytes());
        let mut judged = 0;
        for hit in &self.waiting {
            if rules::apply(&text, hit).is_some() {
                return Err(PassesNeeded);
            }
            let reach = text.take_reach();
            if reach > end {
                break;
            }
            self.harmless.push(HarmlessPlace { start: hit.start, end: reach });
            judged += 1;
        }
        self.waiting.drain(..judged);
        let run = judge_runs(&text, &mut self.run_from, &mut self.harmless)?;
        let waiting = self.waiting.first().map(|hit| hit.start);
        let open = waiting.into_iter().chain(run).min().unwrap_or(end).min(self.searched);
        if end - open > UNDECIDED_MAX { Err(PassesNeeded) } else { Ok(open) }
    }

    /// Moves the end of each pass, and emits what the last pass has decided. Undecided text starts at `open`.
    fn decide(&mut self, mut open: usize, out: &mut String) {
        let emitted = self.decided[PASSES_MAX - 1];
        let mut end = self.text.len();
        // The first pass knows every trigger before `open`. For the next one, a trigger may end in a replacement.
        let mut tail = TAKEN_BEFORE_MAX;
        for decided in &mut self.decided {
            *decided = end_of_decided(&self.text[..end], open, tail, *decided);
            tail = UNDECIDED_TAIL;
            // The next pass gets the text up to here, and cannot know a verdict that depends on more.
            end = *decided;
            let unknown = self.harmless.iter().filter(|place| place.end > end);
            open = unknown.map(|place| place.start).min().unwrap_or(end).min(end);
        }
        let [_, second, third] = self.decided;
        self.harmless.retain(|place| place.end > second);
        out.push_str(&self.text[emitted..third]);
    }

    /// Removes emitted text that no rule looks back at.
    fn forget_emitted(&mut self) {
        let emitted = self.decided[PASSES_MAX - 1];
        if emitted < EMITTED_MAX {
            return;
        }
        let start = self.text.floor_char_boundary(emitted - READ_BEFORE_MAX);
        self.text.drain(..start);
        self.decided.iter_mut().for_each(|end| *end -= start);
        self.searched -= start;
        self.run_from -= start;
        for hit in &mut self.waiting {
            hit.start -= start;
            hit.end -= start;
        }
        for place in &mut self.harmless {
            place.start -= start;
            place.end -= start;
        }
    }

    /// Ends the text, if no rule finds anything in it.
    pub(super) fn finish(&self, out: &mut String) -> Result<(), PassesNeeded> {
        let [first, _, emitted] = self.decided;
        if !rules::scan(&self.text, first, ScanScope::First).spans.is_empty() {
            return Err(PassesNeeded);
        }
        out.push_str(&self.text[emitted..]);
        Ok(())
    }

    /// Hands the text to the passes, each from its own end on; emits what they decide.
    pub(super) fn into_passes(self, out: &mut String) -> [PatternPass; PASSES_MAX] {
        let text = &self.text;
        let mut passes = self.decided.map(|end| {
            let start = text.floor_char_boundary(end.saturating_sub(READ_BEFORE_MAX));
            PatternPass::after(&text[start..end])
        });
        passes[0].eager = super::EAGER_MAX;
        let [first, second, third] = self.decided;
        for (from, part) in
            [(2, &text[third..second]), (1, &text[second..first]), (0, &text[first..])]
        {
            let through = passes[from..].iter_mut();
            out.push_str(&through.fold(part.to_owned(), |text, pass| pass.push(&text)));
        }
        passes
    }
}

/// Judges the long runs. Returns the start of the first one that is undecided.
fn judge_runs(
    text: &ScanText<'_>,
    from: &mut usize,
    harmless: &mut Vec<HarmlessPlace>,
) -> Result<Option<usize>, PassesNeeded> {
    let mut found: Vec<Replacement> = Vec::new();
    loop {
        let run = match encoded_run::find_run(text.bytes(), *from) {
            Ok(run) => run,
            Err(next) => {
                *from = next;
                return Ok(None);
            }
        };
        *from = run.start;
        let judged = rules::judge_run(text, &run, &mut found);
        if !found.is_empty() {
            return Err(PassesNeeded);
        }
        if judged.reach > text.len() {
            return Ok(Some(run.start));
        }
        harmless.push(HarmlessPlace { start: run.start, end: judged.reach });
        *from = judged.end;
    }
}
