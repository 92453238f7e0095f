//! The projection: a readable picture of one session, and the reader of the AI SDK over many.

use budao_core::{Event, Lang, Record, event::Decision, session::Session};

use super::projector::{UiProjector, UiVersion};
use crate::front_end::{EventSink, Projection as _, generated};

fn chunks_of(version: UiVersion, records: &[Record]) -> Vec<(u64, String)> {
    let mut projector = UiProjector::new(version, &Session::default(), 0, Lang::En);
    let mut chunks = Vec::new();
    for record in records {
        let mut sink = EventSink::default();
        projector.project(record, &mut sink);
        let json = sink.into_json(Vec::new).into_iter();
        chunks.extend(json.map(|(json, _)| (record.seq, json)));
    }
    chunks
}

#[test]
fn a_session_as_chunks_of_the_ui_message_stream() {
    let records = generated::SessionGenerator::new(3).records;
    let lines = |version| {
        let chunks = chunks_of(version, &records).into_iter();
        chunks.map(|(seq, json)| format!("{seq} {json}")).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(lines(UiVersion::V7));
    let (six, seven) = (lines(UiVersion::V6), lines(UiVersion::V7));
    assert!(!six.contains("reset-step") && seven.contains("reset-step"));
    assert!(!six.contains("tool-approval-response"));
}

/// Reads streams, one JSON list of chunks a line, as `useChat` does; prints how many messages ended as their stream says.
const READER: &str = r#"
import { readUIMessageStream, uiMessageChunkSchema } from "ai";
import { createInterface } from "node:readline";
let read = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { chunks, text } = JSON.parse(line);
  for (const chunk of chunks) {
    const { success, error } = await uiMessageChunkSchema().validate(chunk);
    if (!success) throw error;
  }
  let message;
  let failure;
  const stream = new ReadableStream({ start(controller) { chunks.forEach((chunk) => controller.enqueue(chunk)); controller.close(); } });
  for await (const state of readUIMessageStream({ stream, onError: (error) => (failure = error), terminateOnError: false })) message = state;
  const ended = chunks.some(({ type }) => type === "error");
  if (failure !== undefined && !ended) throw failure;
  const seen = (message?.parts ?? []).filter(({ type }) => type === "text").map(({ text }) => text).join("");
  if (text !== null && seen !== text && !ended) throw new Error(`${JSON.stringify(seen)} is not ${JSON.stringify(text)}`);
  read++;
}
console.log(read);
"#;

#[test]
fn the_reader_of_the_sdk_accepts_generated_turns_and_shows_their_text() {
    for seeds in generated::seeds() {
        let (mut input, mut streams) = (String::new(), 0);
        for seed in seeds {
            let records = generated::SessionGenerator::new(seed).records;
            let last = records.last().map_or(0, |record| record.turn);
            let turn: Vec<Record> =
                records.iter().filter(|record| record.turn == last).cloned().collect();
            let text: String = turn.iter().filter_map(answer_text).collect();
            let is_abandoned =
                |record: &Record| matches!(record.event, Event::AnswerAbandoned { .. });
            for version in [UiVersion::V7, UiVersion::V6] {
                // Version 6 cannot take text back.
                let is_exact = version == UiVersion::V7 || !turn.iter().any(is_abandoned);
                let chunks: Vec<String> = chunks_of(version, &records)
                    .into_iter()
                    .filter(|(seq, _)| turn.iter().any(|record| record.seq == *seq))
                    .map(|(_, json)| json)
                    .collect();
                let text = serde_json::to_string(&is_exact.then_some(&text)).unwrap();
                input.push_str(&format!("{{\"chunks\":[{}],\"text\":{text}}}\n", chunks.join(",")));
                streams += 1;
            }
        }
        if let Some(output) = generated::run_client(READER, &input) {
            assert_eq!(output.trim(), streams.to_string());
        }
    }
}

#[test]
fn a_question_about_a_cap_has_one_end_however_it_is_answered() {
    for (decision, end) in
        [(Decision::Allow, "tool-output-available"), (Decision::Deny, "tool-output-denied")]
    {
        let records = generated::raised_cap("models.spending.turn", decision);
        for version in [UiVersion::V7, UiVersion::V6] {
            let chunks = chunks_of(version, &records);
            let ends: Vec<&str> = chunks
                .iter()
                .filter(|(_, json)| json.contains(r#""tool-output-"#))
                .map(|(_, json)| json.as_str())
                .collect();
            assert!(ends.len() == 1 && ends[0].contains(end), "{decision:?}: {ends:?}");
        }
    }
}

fn answer_text(record: &Record) -> Option<String> {
    match &record.event {
        Event::ModelAnswered { content, .. } => Some(budao_core::message::text_of(content)),
        _ => None,
    }
}

#[test]
fn every_started_message_is_finished() {
    for seed in 0..500 {
        let records = generated::SessionGenerator::new(seed).records;
        let mut open = false;
        for (seq, json) in chunks_of(UiVersion::V7, &records) {
            let is = |kind: &str| {
                json.starts_with(&format!(r#"{{"type":"{kind}""#))
                    || json.contains(&format!(r#""type":"{kind}"}}"#))
                    || json.contains(&format!(r#""type":"{kind}","#))
            };
            if is("start") {
                assert!(!open, "seed {seed}, record {seq}: {json}");
                open = true;
            }
            assert!(open, "seed {seed}, record {seq}: {json}");
            if is("finish") {
                open = false;
            }
        }
        assert!(!open, "seed {seed}");
    }
}

#[test]
fn an_event_costs_a_few_microseconds() {
    generated::check_cost("UI message stream", |records| chunks_of(UiVersion::V7, records).len());
}
