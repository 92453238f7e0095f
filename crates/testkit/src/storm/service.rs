//! The service of a storm: an OpenAI-compatible endpoint on loopback that streams or not, and counts its requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Storm,
    weather::{ANSWER_TIME, Failure, NEWS_DELAY, RESPONSE_DELAY, ServiceState, Verdict, Weather},
};
use crate::{
    provider::{Provider, ReceivedRequest, Reply},
    sse::{ModelOutput, openai},
};

/// A running service.
#[derive(Debug)]
pub struct StormService {
    provider: Provider,
    log: Arc<Mutex<Recorder>>,
}

#[derive(Debug)]
struct Recorder {
    started: Option<Instant>,
    state: ServiceState,
    log: ServiceLog,
}

/// The requests of one client, as a service counted them. Times are since the first request.
#[derive(Clone, Debug, Default)]
pub struct ServiceLog {
    /// All requests, however they ended.
    pub requests: usize,
    /// The steps of turns that were answered.
    pub answers: BTreeSet<(usize, usize)>,
    /// Failures that were dealt to turns.
    pub dealt: usize,
    /// Foreseeable refusals by outage; `None` is the limit of capacity.
    refusals: BTreeMap<Option<usize>, Refusals>,
    /// When the last answer of a step that had none ended.
    pub last_answer: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Refusals {
    first: Duration,
    /// Requests that arrived before a client could know of the first refusal.
    in_flight: usize,
    later: usize,
}

impl ServiceLog {
    /// Counts a request that arrived `now` for a step of a turn, with what the service did.
    pub fn record(&mut self, now: Duration, key: (usize, usize), verdict: Verdict) {
        self.requests += 1;
        match verdict {
            Verdict::Answer => {
                if self.answers.insert(key) {
                    self.last_answer = now + ANSWER_TIME;
                }
            }
            Verdict::Dealt(_) => self.dealt += 1,
            Verdict::Refused(_, outage) => {
                let first = Refusals { first: now, ..Refusals::default() };
                let refusals = self.refusals.entry(outage).or_insert(first);
                let is_news = now < refusals.first + NEWS_DELAY;
                *(if is_news { &mut refusals.in_flight } else { &mut refusals.later }) += 1;
            }
        }
    }

    /// The requests an ideal client would have sent for the same answers, at most those that were sent.
    #[must_use]
    pub fn needed(&self, storm: &Storm) -> usize {
        let probes = storm.probes();
        let refusals = self.refusals.iter().map(|(outage, refusals)| match outage {
            None => refusals.in_flight,
            Some(outage) => match probes.get(*outage) {
                Some(probes) => refusals.in_flight + refusals.later.min(*probes),
                None => 0,
            },
        });
        self.answers.len() + self.dealt + refusals.sum::<usize>()
    }

    /// Adds the requests of another endpoint whose first request came `later` than ours.
    pub fn merge(&mut self, other: &Self, later: Duration) {
        self.requests += other.requests;
        self.dealt += other.dealt;
        self.answers.extend(&other.answers);
        self.last_answer = self.last_answer.max(other.last_answer + later);
    }
}

impl StormService {
    /// Starts a service in this weather, on a free loopback port. Its time begins with its first request.
    ///
    /// # Panics
    /// If no loopback port can be bound.
    pub async fn start(weather: Weather, steps: usize) -> Self {
        let recorder = Recorder {
            started: None,
            state: ServiceState::new(weather),
            log: ServiceLog::default(),
        };
        let log = Arc::new(Mutex::new(recorder));
        let shared = log.clone();
        let answer = move |request: &ReceivedRequest| respond(&shared, request, steps);
        Self { provider: Provider::answering(answer).await, log }
    }

    /// The base URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.provider.url()
    }

    /// The requests so far.
    #[must_use]
    pub fn log(&self) -> ServiceLog {
        lock(&self.log).log.clone()
    }

    /// When the first request came.
    #[must_use]
    pub fn started(&self) -> Option<Instant> {
        lock(&self.log).started
    }
}

fn lock(log: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn respond(recorder: &Mutex<Recorder>, request: &ReceivedRequest, steps: usize) -> Reply {
    let Some((turn, step)) = turn_and_step(&request.body) else {
        return Reply::refuse(400, &error("no message with `turn-` and a number"));
    };
    let verdict = {
        let mut recorder = lock(recorder);
        let now = recorder.started.get_or_insert_with(Instant::now).elapsed();
        let verdict = recorder.state.decide(now, turn, step);
        recorder.log.record(now, (turn, step), verdict);
        verdict
    };
    let answer = PlannedAnswer::new(&request.body, turn, step + 1 < steps);
    match verdict {
        Verdict::Answer => answer.whole(),
        Verdict::Dealt(failure) | Verdict::Refused(failure, _) => answer.failing(failure),
    }
    .after(RESPONSE_DELAY)
}

/// The turn that a request belongs to, and the number of tool results it has.
fn turn_and_step(body: &Value) -> Option<(usize, usize)> {
    let messages = body["messages"].as_array()?;
    let step = messages.iter().filter(|message| message["role"] == "tool").count();
    let question =
        messages.iter().filter(|message| message["role"] == "user").find_map(|message| {
            let text = message["content"].to_string();
            let digits = text.split_once("turn-")?.1;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok()
        })?;
    Some((question, step))
}

/// The tool of a client and its arguments, whose effect is one more line or entry with the turn's number: `bash_run`
/// appends to the file `ledger` of the workspace, `effect` is left to the client.
#[must_use]
pub fn tool_effect(body: &Value, turn: usize) -> (&'static str, Value) {
    let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
    if tools.iter().any(|tool| tool["function"]["name"] == "bash_run") {
        ("bash_run", json!({"cmd": format!("echo {turn} >> ledger")}))
    } else {
        ("effect", json!({"number": turn}))
    }
}

fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "server_error", "code": null}})
}

/// The answer to one request, before any failure.
struct PlannedAnswer {
    /// The events of a stream; for a client that wants none, the halves of one body.
    parts: Vec<String>,
    is_stream: bool,
}

impl PlannedAnswer {
    fn new(body: &Value, turn: usize, has_call: bool) -> Self {
        let is_stream = body["stream"] == true;
        let text = format!("turn-{turn} is done, all of it");
        let output = if has_call {
            let (name, arguments) = tool_effect(body, turn);
            ModelOutput::call(&format!("call_{turn}"), name, &arguments)
        } else {
            ModelOutput::text(&text)
        };
        let parts = if is_stream { openai(&[output]) } else { halves(&completion(&output)) };
        Self { parts, is_stream }
    }

    fn head(&self) -> Reply {
        if self.is_stream {
            Reply::stream()
        } else {
            Reply::status(200).header("content-type", "application/json")
        }
    }

    /// The first half of the events at once, the others at the end of the answer's time.
    fn whole(&self) -> Reply {
        let (first, second) = self.parts.split_at(self.parts.len() / 2);
        self.head().then(first).wait(ANSWER_TIME - RESPONSE_DELAY).then(second)
    }

    fn failing(&self, failure: Failure) -> Reply {
        match failure {
            Failure::Status(status, hint) => {
                let reply =
                    Reply::refuse(status, &error("the service cannot take this request now"));
                match hint {
                    Some(seconds) => reply.header("retry-after", &seconds.to_string()),
                    None => reply,
                }
            }
            Failure::Page => Reply::status(502)
                .header("content-type", "text/html")
                .bytes("<html><body><h1>502 Bad Gateway</h1></body></html>"),
            Failure::Cut(position) => {
                let whole = self.parts.iter().take(position / 2);
                let rest = self.parts.get(position / 2).filter(|_| position % 2 == 1);
                let half = rest.map(|event| halves(event).swap_remove(0));
                self.head().then(whole).then(half).cut()
            }
        }
    }
}

/// Two halves, each with whole characters.
fn halves(text: &str) -> Vec<String> {
    let middle = text.floor_char_boundary(text.len() / 2);
    let (first, second) = text.split_at(middle);
    vec![first.to_owned(), second.to_owned()]
}

/// A chat completion for a client that asked for no stream.
fn completion(output: &ModelOutput) -> String {
    let (message, reason) = match output {
        ModelOutput::Call(id, name, arguments) => {
            let function = json!({"name": name, "arguments": arguments.concat()});
            let call = json!({"id": id, "type": "function", "function": function});
            (json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
        }
        ModelOutput::Text(parts) | ModelOutput::Thinking(parts, _) => {
            (json!({"role": "assistant", "content": parts.concat()}), "stop")
        }
    };
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19});
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [choice], "usage": usage})
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{CALL_POSITIONS, Pace, WORD_POSITIONS};
    use super::*;

    fn request(turn: usize, results: usize, is_stream: bool) -> Value {
        let mut messages = vec![json!({"role": "user", "content": format!("turn-{turn}")})];
        messages.extend((0..results).map(|_| json!({"role": "tool", "content": "done"})));
        json!({"messages": messages, "stream": is_stream})
    }

    #[test]
    fn a_request_names_its_turn_and_its_results_the_step() {
        assert_eq!(turn_and_step(&request(17, 1, true)), Some((17, 1)));
        assert_eq!(turn_and_step(&json!({"messages": [{"role": "user", "content": "hi"}]})), None);
    }

    #[test]
    fn the_positions_of_a_cut_cover_the_whole_answer() {
        let call = PlannedAnswer::new(&request(3, 0, true), 3, true);
        assert_eq!(call.parts.len() * 2, CALL_POSITIONS);
        let words = PlannedAnswer::new(&request(3, 1, true), 3, false);
        assert_eq!(words.parts.len() * 2, WORD_POSITIONS);
    }

    #[test]
    fn without_a_stream_the_answer_is_one_completion() {
        let answer = PlannedAnswer::new(&request(3, 0, false), 3, true);
        let body: Value = serde_json::from_str(&answer.parts.concat()).unwrap();
        let call = &body["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(
            (call["name"].as_str(), call["arguments"].as_str()),
            (Some("effect"), Some(r#"{"number":3}"#))
        );
    }

    #[test]
    fn only_what_could_not_be_foreseen_is_needed() {
        let storms = Storm::all(Pace::Usual);
        let outage = storms.iter().find(|storm| storm.name == "outage").unwrap();
        let mut log = ServiceLog::default();
        let refused = Verdict::Refused(Failure::Status(503, None), Some(0));
        let at = Duration::from_millis;
        for (now, count) in [(0, 4), (50, 3), (150, 20)] {
            (0..count).for_each(|turn| log.record(at(now), (turn, 0), refused));
        }
        log.record(at(45_000), (0, 0), Verdict::Answer);
        log.record(at(46_000), (0, 0), Verdict::Answer);
        assert_eq!(log.requests, 29);
        assert_eq!(log.needed(outage), 1 + 7 + 14);
        assert_eq!(log.last_answer, at(45_000) + ANSWER_TIME);
    }
}
