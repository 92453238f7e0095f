//! Prompts for the children of a pipeline.

use std::fmt::Write as _;

use budao_core::{
    event::{Task, TaskEnd},
    fault::{Fault, text},
    lang::Lang,
    pipeline::Pipeline,
};

use crate::plan::TASKS_MAX;

/// The planner's prompt; includes the reason if its last answer was not a valid plan.
#[must_use]
pub fn planner(question: &str, refused: Option<&Fault>, lang: Lang) -> String {
    let mut prompt = format!(
        "Divide the work below into tasks that can be done side by side, each by somebody who sees \
         only its own prompt: at least 1, at most {TASKS_MAX}, and as few as make sense.\n\
         Answer with JSON and nothing else:\n\
         {{\"summary\": \"the plan in one sentence\", \"tasks\": [{{\"id\": \"1\", \"title\": \"a few \
         words\", \"prompt\": \"everything needed to do it\"}}]}}\n\n\
         The work:\n{question}"
    );
    if let Some(fault) = refused {
        let reason = text::model_text(fault, lang);
        let _infallible = write!(prompt, "\n\nAn earlier answer could not be used. {reason}");
    }
    prompt
}

/// A solver's prompt: the task as it was planned. From the second attempt on, it says so.
#[must_use]
pub fn solver(task: &Task, attempt: u32) -> String {
    let mut prompt = task.prompt.clone();
    if !task.extra.is_empty() {
        let extra = serde_json::to_string(&task.extra).unwrap_or_default();
        let _infallible = write!(prompt, "\n\nMore about this task: {extra}");
    }
    if attempt > 1 {
        let note = "An earlier one failed or was stopped; what it did may still be there.";
        let _infallible = write!(prompt, "\n\nThis is attempt {attempt} at this task. {note}");
    }
    prompt
}

/// The aggregator's prompt: the question, every result, and each failure with its reason. `room` is the most bytes of
/// all results together; each result is cut to its share, head and tail.
#[must_use]
pub fn aggregator(pipeline: &Pipeline, room: usize, lang: Lang) -> String {
    let (worked, failed) = pipeline.tally();
    let share = room / pipeline.tasks.len().max(1);
    let mut prompt = format!(
        "Answer the question below from the results of the tasks it was divided into. \
         {worked} worked, {failed} did not. Name what is missing because of those; do not make it \
         up.\n\nThe question:\n{}\n",
        pipeline.question
    );
    for state in &pipeline.tasks {
        let Task { id, title, .. } = &state.task;
        let _infallible = write!(prompt, "\n## Task {id}: {title}\n");
        let told = match &state.end {
            Some(TaskEnd::Completed { output }) => cut(output, share),
            Some(TaskEnd::Failed { fault }) => {
                format!("FAILED: {}", cut(&text::model_text(fault, lang), share))
            }
            Some(TaskEnd::Cancelled { reason }) => format!("CANCELLED: {}", cut(reason, share)),
            None => "NOT DONE".to_owned(),
        };
        prompt.push_str(&told);
        prompt.push('\n');
    }
    prompt
}

/// Cuts a text to about `most` bytes: head, tail, and the number of bytes left out between them.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = floor(text, most - most / 4);
    let tail = floor(text, text.len() - most / 4).max(head);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// The nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}
