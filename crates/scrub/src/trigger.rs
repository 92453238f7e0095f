//! Trigger search: one automaton over all triggers, run at four positions in parallel.
//!
//! Each step of an automaton waits for the previous step, and this latency dominates. Four walks through the quarters
//! of a block overlap their waits, which more than doubles the throughput. Text that arrives in short parts has another
//! search, see [`heads`].

mod heads;

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::{Anchored, MatchKind, StartKind, dfa};

use self::heads::TriggerHeads;

/// Bytes searched at once. Four quarters, their triggers and the automaton's hot states fit the cache.
pub(super) const BLOCK: usize = 16 * 1024;
const LANES: usize = 4;
/// Below this size, starting four walks costs more than it saves.
const LANES_MIN: usize = 1024;

/// An occurrence of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) trigger: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The automaton over all triggers.
pub(super) struct Triggers {
    automaton: dfa::DFA,
    heads: TriggerHeads,
    start: StateID,
    longest: usize,
}

impl Triggers {
    /// Builds the automaton; triggers match in any case.
    pub(super) fn new(literals: &[String]) -> Self {
        let automaton = dfa::DFA::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .start_kind(StartKind::Unanchored)
            .prefilter(false)
            .build(literals)
            .expect("the triggers are a fixed table of ours, and every test builds it");
        let start = automaton.start_state(Anchored::No).expect("built to start unanchored");
        let longest = literals.iter().map(String::len).max().unwrap_or(0);
        Self { automaton, heads: TriggerHeads::new(literals), start, longest }
    }

    /// Adds every trigger that starts at or after `start` and is complete wherever it starts. Returns where the search
    /// continues when more text arrives.
    pub(super) fn find_complete(&self, bytes: &[u8], start: usize, hits: &mut Vec<Hit>) -> usize {
        let end = bytes.len().saturating_sub(self.longest).max(start);
        if end > start {
            self.heads.find(bytes, start, end, hits);
        }
        end
    }

    /// Every trigger that ends in `bytes[start..end]` and starts at or after `floor`, ordered by end.
    pub(super) fn find(
        &self,
        bytes: &[u8],
        floor: usize,
        start: usize,
        end: usize,
        hits: &mut Vec<Hit>,
    ) {
        hits.clear();
        let quarter = (end - start) / LANES;
        if end - start < LANES_MIN {
            let state = self.warm(bytes, floor, start);
            self.walk(bytes, start, end, state, hits);
            return;
        }
        let starts: [usize; LANES] = std::array::from_fn(|lane| start + lane * quarter);
        let mut states = starts.map(|start| self.warm(bytes, floor, start));
        let mut seen: [Vec<(usize, StateID)>; LANES] = Default::default();
        let [first, second, third, fourth] = starts.map(|start| &bytes[start..start + quarter]);
        let quarters = first.iter().zip(second).zip(third).zip(fourth).enumerate();
        for (offset, (((&first, &second), &third), &fourth)) in quarters {
            let step = |state, byte| self.automaton.next_state(Anchored::No, state, byte);
            states[0] = step(states[0], first);
            states[1] = step(states[1], second);
            states[2] = step(states[2], third);
            states[3] = step(states[3], fourth);
            if states.iter().any(|&state| self.automaton.is_special(state)) {
                for lane in 0..LANES {
                    if self.automaton.is_special(states[lane]) {
                        seen[lane].push((starts[lane] + offset + 1, states[lane]));
                    }
                }
            }
        }
        for (end, state) in seen.into_iter().flatten() {
            self.report(end, state, hits);
        }
        self.walk(bytes, start + LANES * quarter, end, states[LANES - 1], hits);
    }

    /// The state at `start` of a walk that began at `floor`.
    fn warm(&self, bytes: &[u8], floor: usize, start: usize) -> StateID {
        let from = start.saturating_sub(self.longest).max(floor).min(start);
        bytes[from..start]
            .iter()
            .fold(self.start, |state, &byte| self.automaton.next_state(Anchored::No, state, byte))
    }

    fn walk(
        &self,
        bytes: &[u8],
        start: usize,
        end: usize,
        mut state: StateID,
        hits: &mut Vec<Hit>,
    ) {
        for (index, &byte) in bytes[start..end].iter().enumerate() {
            state = self.automaton.next_state(Anchored::No, state, byte);
            if self.automaton.is_special(state) {
                self.report(start + index + 1, state, hits);
            }
        }
    }

    fn report(&self, end: usize, state: StateID, hits: &mut Vec<Hit>) {
        if !self.automaton.is_match(state) {
            return;
        }
        for index in 0..self.automaton.match_len(state) {
            let trigger = self.automaton.match_pattern(state, index);
            let start = end - self.automaton.pattern_len(trigger);
            hits.push(Hit { trigger: trigger.as_usize(), start, end });
        }
    }
}
