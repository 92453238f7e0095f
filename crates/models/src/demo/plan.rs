//! Answers of the stages of a plan: tasks for the planner's prompt, and one text from the results of all tasks.
//!
//! A stage is known by its prompt alone, as any other model knows it. A solver's prompt is a plain request.

use serde_json::json;

use super::{
    replies,
    task::{self, DemoLanguage, Goal},
};

/// The beginnings of the prompts of a planner and of an aggregator, and the lines before their questions.
const PLANNER: (&str, &str) = ("Divide the work below into tasks", "\n\nThe work:\n");
const AGGREGATOR: (&str, &str) =
    ("Answer the question below from the results", "\n\nThe question:\n");
/// Follows the work if an earlier answer was not a plan.
const REFUSED: &str = "\n\nAn earlier answer could not be used.";
/// Follows a task's prompt from its second attempt on.
const REPEATED: &str = "\n\nThis is attempt ";
/// The longest title of a task, in characters.
const TITLE_CHARS_MAX: usize = 60;

/// The answer to the prompt of a planner or an aggregator; `None` for any other request.
pub(super) fn answer_stage(prompt: &str) -> Option<String> {
    answer_planner(prompt).or_else(|| answer_aggregator(prompt))
}

/// Whether the prompt belongs to a later attempt at its task.
pub(super) fn is_repeated(prompt: &str) -> bool {
    prompt.contains(REPEATED)
}

fn answer_planner(prompt: &str) -> Option<String> {
    let (begin, mark) = PLANNER;
    let (_, work) = prompt.strip_prefix(begin)?.split_once(mark)?;
    let work = work.split(REFUSED).next().unwrap_or(work).trim();
    let tongue = DemoLanguage::of(work);
    let parts = task::split_work(work);
    let tasks = parts.iter().zip(1..).map(|((clause, goal), number)| {
        let prompt = match goal {
            Some(Goal::FailOnce) => replies::name_failing_task(tongue),
            _ => clause.clone(),
        };
        json!({"id": number.to_string(), "title": shorten_title(clause), "prompt": prompt})
    });
    let tasks: Vec<_> = tasks.collect();
    Some(
        json!({"summary": replies::describe_plan(tasks.len(), tongue), "tasks": tasks}).to_string(),
    )
}

fn shorten_title(clause: &str) -> String {
    let title = clause.replace('\n', ", ");
    match title.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &title[..end]),
        None => title,
    }
}

fn answer_aggregator(prompt: &str) -> Option<String> {
    let (begin, mark) = AGGREGATOR;
    let (_, rest) = prompt.strip_prefix(begin)?.split_once(mark)?;
    let mut sections = rest.split("\n## Task ");
    let tongue = DemoLanguage::of(sections.next().unwrap_or_default());
    let results: Vec<(&str, &str)> = sections.filter_map(read_result).collect();
    Some(replies::combine_results(&results, tongue))
}

/// The title and the result of a section `1: title`, a line break, and the result.
fn read_result(section: &str) -> Option<(&str, &str)> {
    let (head, result) = section.split_once('\n').unwrap_or((section, ""));
    let (_, title) = head.split_once(": ")?;
    Some((title, result.trim()))
}
