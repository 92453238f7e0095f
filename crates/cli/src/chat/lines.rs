//! Renders each chat entry as lines of a given width.

use budao_core::{Timestamp, event::Decision, fault::text};
use ratatui::{
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    draw::{DrawContext, question_text},
    view::{CallEnd, CallView, ChatEntry, DeliveryState, FaultView, QuestionReply, View},
};
use crate::{
    symbols::{cut, one_line, wrap},
    texts::fill,
    transcript::seconds,
};

/// Maximum lines of a thought; the last ones are shown.
const THOUGHT_LINES: usize = 4;
/// Maximum lines of a running call's output; the last ones are shown.
const OUTPUT_LINES: usize = 3;
/// Frames of the progress spinner.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The spinner frame for this time; it changes every 100 ms.
pub(super) fn spinner(now: Timestamp) -> char {
    let at = usize::try_from(now.as_millis().div_euclid(100).rem_euclid(10)).unwrap_or(0);
    SPINNER[at]
}

/// Time until `due`, rounded down to 0.1 s, such as `1.4 s`.
pub(super) fn left(due: Timestamp, now: Timestamp) -> String {
    let millis = u64::try_from(due.since(now).as_millis()).unwrap_or(0);
    format!("{}.{} s", millis / 1_000, millis % 1_000 / 100)
}

/// The lines above the first entry: a pointer to earlier records, or a greeting in an empty conversation.
pub(super) fn beginning(view: &View, columns: usize, context: &DrawContext) -> Vec<Line<'static>> {
    let text = if view.dropped > 0 {
        let id = context.session.map(|session| session.to_string()).unwrap_or_default();
        fill(context.lang, "chat-earlier-messages", &[("id", id.into())])
    } else if view.entries.is_empty() {
        context.w("chat-no-messages-yet-to-try-the").to_owned()
    } else {
        return Vec::new();
    };
    plain(&text, columns, context.theme.faint())
}

/// The lines of one entry.
pub(super) fn of(entry: &ChatEntry, columns: usize, context: &DrawContext) -> Vec<Line<'static>> {
    let theme = context.theme;
    match entry {
        ChatEntry::UserMessage { text, state, .. } => you(text, *state, columns, context),
        ChatEntry::Text { text, is_void: false, .. } => {
            plain(text.trim_end(), columns, Style::new())
        }
        ChatEntry::Text { text, is_void: true, .. } => {
            marked("⌫ ", text.trim_end(), columns, theme.faint())
        }
        ChatEntry::Thought { text, is_void, .. } => {
            let mark = if *is_void { "⌫ " } else { "∴ " };
            let mut lines = marked(mark, text.trim_end(), columns, theme.faint());
            let from = lines.len().saturating_sub(THOUGHT_LINES);
            lines.split_off(from)
        }
        ChatEntry::Call(call) => of_call(call, columns, context),
        ChatEntry::Question { question, reason, answer } => {
            let text = question_text(question, context);
            let text = text.trim_start_matches("? ");
            let mut lines = vec![line_of("? ", text, columns, theme.strong())];
            lines.extend(reply(reason, answer, columns, context));
            lines
        }
        ChatEntry::Fault(fault_view) => fault(fault_view, "✗ ", columns, context),
        ChatEntry::Retry { next, of, due, is_over } => {
            let mut text = format!("{} {next}/{of}", context.w("chat-try"));
            if !is_over {
                let wait = left(*due, context.now);
                text.push_str(&format!(" {} {wait}", context.w("chat-in")));
            }
            marked("↻ ", &text, columns, theme.warn())
        }
        ChatEntry::Notice(text) => plain(text, columns, theme.faint()),
        ChatEntry::End { line, .. } => plain(line, columns, theme.faint()),
    }
}

fn you(
    text: &str,
    state: DeliveryState,
    columns: usize,
    context: &DrawContext,
) -> Vec<Line<'static>> {
    let theme = context.theme;
    let mut lines = vec![Line::default()];
    lines.extend(marked("› ", text, columns, theme.strong()));
    let note = match state {
        DeliveryState::Accepted => return lines,
        DeliveryState::Pending => context.w("chat-queued"),
        DeliveryState::Withdrawn => context.w("chat-withdrawn"),
    };
    lines.extend(marked("  ", note, columns, theme.faint()));
    lines
}

fn of_call(call: &CallView, columns: usize, context: &DrawContext) -> Vec<Line<'static>> {
    let theme = context.theme;
    let (mark, style) = match (&call.end, call.since) {
        (Some(CallEnd { fault: None, .. }), _) => ("✓ ".to_owned(), theme.good()),
        (Some(CallEnd { fault: Some(_), .. }), _) => ("✗ ".to_owned(), theme.bad()),
        (None, Some(_)) => (format!("{} ", spinner(context.now)), theme.name()),
        (None, None) => ("○ ".to_owned(), theme.faint()),
    };
    let took = match (&call.end, call.since) {
        (Some(end), Some(_)) => seconds(end.duration_ms),
        (None, Some(since)) => {
            seconds(u64::try_from(context.now.since(since).as_millis()).unwrap_or(0) / 100 * 100)
        }
        _ => String::new(),
    };
    let mut notes = vec![took];
    if call.attempt > 1 {
        notes.push(format!("{} {}", context.w("chat-try-2"), call.attempt));
    }
    if call.repaired > 0 {
        notes.push(format!("{} {}", context.w("chat-repaired"), call.repaired));
    }
    let notes = notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join(" · ");
    let head = cut(&call.tool, columns.saturating_sub(mark.width()));
    let room = columns.saturating_sub(mark.width() + head.width() + 1 + notes.width() + 1);
    let mut spans = vec![Span::styled(mark, style), Span::styled(head, theme.name())];
    if room > 3 {
        spans.push(Span::raw(format!(" {}", cut(&call.arguments, room))));
    }
    spans.push(Span::styled(format!(" {notes}"), theme.faint()));
    let mut lines = vec![Line::from(spans)];
    lines.extend(below_call(call, columns, context));
    lines
}

/// The lines below a call: its running output, its result, or its fault.
fn below_call(call: &CallView, columns: usize, context: &DrawContext) -> Vec<Line<'static>> {
    let theme = context.theme;
    match &call.end {
        None if call.output.is_empty() => Vec::new(),
        None => {
            let mut lines = marked("  │ ", call.output.trim_end(), columns, theme.faint());
            let from = lines.len().saturating_sub(OUTPUT_LINES);
            lines.split_off(from)
        }
        Some(CallEnd { fault: Some(fault_view), .. }) => fault(fault_view, "  ", columns, context),
        Some(CallEnd { gave, .. }) if gave.is_empty() => Vec::new(),
        Some(CallEnd { gave, .. }) => vec![line_of("  → ", gave, columns, theme.faint())],
    }
}

fn fault(
    fault_view: &FaultView,
    mark: &str,
    columns: usize,
    context: &DrawContext,
) -> Vec<Line<'static>> {
    let row = fault_view.fault.row();
    let tool_prefix = match &fault_view.tool {
        Some(tool) if mark == "✗ " => format!("{tool}: "),
        _ => String::new(),
    };
    let mut sentence =
        format!("{} {tool_prefix}{}", row.code, text::user_text(&fault_view.fault, context.lang));
    if fault_view.is_given_up {
        sentence.push_str(&format!(" ({})", context.w("chat-not-recovered")));
    }
    marked(mark, &sentence, columns, context.theme.bad())
}

fn reply(
    reason: &str,
    answer: &QuestionReply,
    columns: usize,
    context: &DrawContext,
) -> Vec<Line<'static>> {
    let theme = context.theme;
    let (text, style) = match answer {
        QuestionReply::None => (one_line(&text::reason(reason, context.lang)), theme.faint()),
        QuestionReply::Expired => (context.w("chat-no-answer-in-time").to_owned(), theme.bad()),
        QuestionReply::Answered { decision, by, note } => {
            let (word, style) = match decision {
                Decision::Allow => (context.w("chat-yes"), theme.good()),
                Decision::Deny => (context.w("chat-no"), theme.bad()),
            };
            let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            (format!("{word} · {by}{note}"), style)
        }
    };
    marked("  ", &text, columns, style)
}

fn plain(text: &str, columns: usize, style: Style) -> Vec<Line<'static>> {
    wrap(text, columns).into_iter().map(|line| Line::styled(line, style)).collect()
}

/// Puts `mark` before the first line and indents the others; a mark with `│` is repeated on every line.
fn marked(mark: &str, text: &str, columns: usize, style: Style) -> Vec<Line<'static>> {
    let blanks = if mark.contains('│') { mark.to_owned() } else { " ".repeat(mark.width()) };
    let lines = wrap(text, columns.saturating_sub(mark.width())).into_iter().enumerate();
    lines
        .map(|(at, line)| {
            let before = if at == 0 { mark } else { &blanks };
            Line::styled(format!("{before}{line}"), style)
        })
        .collect()
}

/// A single line, cut at `columns`.
fn line_of(mark: &str, text: &str, columns: usize, style: Style) -> Line<'static> {
    Line::styled(cut(&format!("{mark}{text}"), columns), style)
}
