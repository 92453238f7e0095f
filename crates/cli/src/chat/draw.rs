//! Draws the conversation, the input and the status line, at any screen size.

use budao_core::{Lang, Timestamp, event::SessionId};
use budao_runtime::Question;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Position, Rect},
    text::{Line, Span},
    widgets::{Paragraph, Widget as _},
};

use super::{
    fault_details,
    keys::{InputMode, InputState},
    lines,
    view::View,
};
use crate::{
    form,
    screen::Theme,
    session_name::short,
    symbols::{cut, one_line, wrap},
    texts::{count, localize},
};

/// Maximum lines of the message being written.
const DRAFT_LINES: u16 = 6;
/// Maximum lines of a question, without its key hints.
const QUESTION_LINES: usize = 5;
/// Screens with fewer lines have no title line and no key hints.
const LOW: u16 = 9;

/// Everything drawing needs besides the [`View`] and the [`InputState`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawContext {
    /// None until the first message is sent.
    pub(crate) session: Option<SessionId>,
    pub(crate) now: Timestamp,
    pub(crate) theme: Theme,
    pub(crate) lang: Lang,
}

impl DrawContext {
    pub(crate) fn w(&self, id: &str) -> &'static str {
        localize(self.lang, id)
    }
}

/// Draws the whole screen. Returns how many lines of conversation fit.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    view: &View,
    input_state: &mut InputState,
    context: &DrawContext,
) -> usize {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return 1;
    }
    let is_low = area.height < LOW;
    let below = below(view, input_state, context, area);
    let [head, middle, rule, bottom, keys] = Layout::vertical([
        Constraint::Length(u16::from(!is_low)),
        Constraint::Min(1),
        Constraint::Length(u16::from(area.height > 2)),
        Constraint::Length(below.height()),
        Constraint::Length(u16::from(!is_low)),
    ])
    .areas(area);
    if !is_low {
        frame.render_widget(title(view, context, head.width), head);
        frame.render_widget(hints(view, input_state, context, keys.width), keys);
    }
    match input_state.mode {
        InputMode::FaultDetails { back } => {
            fault_details::draw(frame, middle, view, input_state, back, context);
        }
        InputMode::Compose | InputMode::DenyNote | InputMode::Form => {
            conversation(frame, middle, view, input_state, context);
        }
    }
    frame.render_widget(status(view, input_state, context, rule.width), rule);
    match below {
        BottomPane::Question(lines) => frame.render_widget(Paragraph::new(lines), bottom),
        BottomPane::Draft(_) => draft(frame, bottom, input_state, context),
    }
    usize::from(middle.height)
}

/// The area below the conversation: an open question, or the message draft with its height in lines.
enum BottomPane {
    Question(Vec<Line<'static>>),
    Draft(u16),
}

impl BottomPane {
    fn height(&self) -> u16 {
        match self {
            Self::Question(lines) => u16::try_from(lines.len()).unwrap_or(u16::MAX),
            Self::Draft(height) => *height,
        }
    }
}

fn below(view: &View, input_state: &InputState, context: &DrawContext, area: Rect) -> BottomPane {
    let most = (area.height / 3).clamp(1, DRAFT_LINES);
    if input_state.mode == InputMode::Compose && !view.questions.is_empty() {
        return BottomPane::Question(question(
            view,
            context,
            area.width.into(),
            (area.height / 2).into(),
        ));
    }
    let columns = usize::from(area.width).saturating_sub(2).max(1);
    let lines: usize =
        input_state.draft.lines().iter().map(|line| wrap(line, columns).len().max(1)).sum();
    BottomPane::Draft(u16::try_from(lines).unwrap_or(most).clamp(1, most))
}

fn title(view: &View, context: &DrawContext, columns: u16) -> Line<'static> {
    let id = context.session.map_or_else(|| context.w("chat-new").to_owned(), short);
    let what = view.settings.title.as_deref().map(one_line).unwrap_or_default();
    let mut text = format!(" budao · {} · {}", one_line(&view.settings.model), id);
    if !what.is_empty() {
        text.push_str(&format!(" · {what}"));
    }
    let columns = usize::from(columns);
    let mut text = cut(&text, columns);
    let blanks = columns.saturating_sub(unicode_width::UnicodeWidthStr::width(text.as_str()));
    text.push_str(&" ".repeat(blanks));
    Line::styled(text, context.theme.bar())
}

fn hints(
    view: &View,
    input_state: &InputState,
    context: &DrawContext,
    columns: u16,
) -> Line<'static> {
    let text = match input_state.mode {
        InputMode::FaultDetails { .. } => context.w("chat-other-faults-scroll-esc-back"),
        InputMode::Form => context.w("chat-one-value-a-line"),
        InputMode::DenyNote => context.w("chat-enter-deny-with-this-note-esc"),
        InputMode::Compose if !view.questions.is_empty() => context.w("chat-scroll-ctrl-t-faults"),
        InputMode::Compose if view.turn().is_some() => {
            context.w("chat-esc-stop-ctrl-t-faults-pgup")
        }
        InputMode::Compose => context.w("chat-enter-send-alt-enter-newline-ctrl"),
    };
    Line::styled(cut(text, columns.into()), context.theme.faint())
}

/// The status line between conversation and input.
fn status(
    view: &View,
    input_state: &InputState,
    context: &DrawContext,
    columns: u16,
) -> Line<'static> {
    let theme = context.theme;
    let (text, style) = match (&input_state.notice, view.turn()) {
        (Some(notice), _) => (one_line(notice), theme.warn()),
        (None, None) => (context.w("chat-ready").to_owned(), theme.good()),
        (None, Some(_)) if view.is_cancelled => {
            (context.w("chat-stopping").to_owned(), theme.warn())
        }
        (None, Some(_)) if !view.questions.is_empty() => {
            let open = view.questions.len() as u64;
            (count(context.lang, "count-questions-wait-for-you", open), theme.warn())
        }
        (None, Some(turn)) => (running(view, turn.started_at, turn.step, context), theme.name()),
    };
    let mut text = format!("─ {text} ");
    if input_state.scrolled > 0 {
        let below = count(context.lang, "count-lines-below", input_state.scrolled as u64);
        text.push_str(&format!("· ↓ {below} "));
    }
    let columns = usize::from(columns);
    let text = cut(&text, columns);
    let rest = columns.saturating_sub(unicode_width::UnicodeWidthStr::width(text.as_str()));
    Line::from(vec![Span::styled(text, style), Span::styled("─".repeat(rest), theme.faint())])
}

fn running(view: &View, since: Timestamp, step: u32, context: &DrawContext) -> String {
    let took = format!("{} s", context.now.since(since).as_secs());
    if let Some(due) = view.next_try() {
        let wait = lines::left(due, context.now);
        return format!("{} {wait}", context.w("chat-next-try-in"));
    }
    let step = count(context.lang, "chat-step", step.max(1).into());
    format!("{} {step} · {took}", lines::spinner(context.now))
}

fn question(view: &View, context: &DrawContext, columns: usize, most: usize) -> Vec<Line<'static>> {
    let Some(question) = view.questions.front() else { return Vec::new() };
    let theme = context.theme;
    let asked = form::elicitation_of(question);
    let keys = match &asked {
        Some(asked) if asked.url.is_some() => context.w("chat-y-opened-n-decline"),
        Some(_) => context.w("chat-y-answer-n-decline"),
        None => context.w("chat-y-yes-n-no-w-no"),
    };
    let mut lines = wrap(&question_text(question, context), columns);
    for field in asked.iter().flat_map(|asked| &asked.fields) {
        lines.extend(wrap(&one_line(&form::describe(field)), columns));
    }
    let room = most.saturating_sub(1).clamp(1, QUESTION_LINES);
    if lines.len() > room {
        lines.truncate(room);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} ……"), columns);
        }
    }
    let mut lines: Vec<_> =
        lines.into_iter().map(|line| Line::styled(line, theme.strong())).collect();
    lines.extend(wrap(keys, columns).into_iter().map(|line| Line::styled(line, theme.warn())));
    lines
}

/// A question in one line.
pub(super) fn question_text(question: &Question, context: &DrawContext) -> String {
    match form::elicitation_of(question) {
        Some(asked) => format!("? {}", one_line(&form::headline(&asked, context.lang))),
        None => format!(
            "? {} {} {}",
            context.w("chat-allow-call"),
            one_line(&question.tool),
            one_line(&question.arguments.to_string()),
        ),
    }
}

fn draft(frame: &mut Frame<'_>, area: Rect, input_state: &mut InputState, context: &DrawContext) {
    let is_word = input_state.mode == InputMode::DenyNote;
    let is_form = input_state.mode == InputMode::Form;
    let mark = if is_word || is_form { "✎ " } else { "› " };
    let [gutter, field] =
        Layout::horizontal([Constraint::Length(2.min(area.width)), Constraint::Min(0)]).areas(area);
    Span::styled(mark, context.theme.strong()).render(gutter, frame.buffer_mut());
    if field.width == 0 || field.height == 0 {
        return;
    }
    let empty = match () {
        () if is_word => context.w("chat-a-note-for-the-model"),
        () if is_form => context.w("chat-one-value-a-line"),
        () => context.w("chat-type-a-message"),
    };
    input_state.draft.set_placeholder_text(cut(empty, field.width.into()));
    input_state.draft.set_placeholder_style(context.theme.faint());
    frame.render_widget(&input_state.draft, field);
    if matches!(input_state.mode, InputMode::FaultDetails { .. }) {
        return;
    }
    let (at, top) = (input_state.draft.screen_cursor(), input_state.draft.scroll_offset());
    let row = u16::try_from(at.row).unwrap_or(0).saturating_sub(top.0).min(field.height - 1);
    let column = u16::try_from(at.col).unwrap_or(0).saturating_sub(top.1).min(field.width - 1);
    frame.set_cursor_position(Position::new(field.x + column, field.y + row));
}

/// Draws the end of the conversation, or the part scrolled back to. Limits `scrolled` to the lines there are.
fn conversation(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &View,
    input_state: &mut InputState,
    context: &DrawContext,
) {
    let (height, columns) = (usize::from(area.height), usize::from(area.width));
    let wanted = height.saturating_add(input_state.scrolled);
    let mut blocks: Vec<Vec<Line<'static>>> = Vec::new();
    let mut gathered = 0;
    for entry in view.entries.iter().rev() {
        if gathered >= wanted {
            break;
        }
        let lines = lines::of(entry, columns, context);
        gathered += lines.len();
        blocks.push(lines);
    }
    if gathered < wanted {
        let first = lines::beginning(view, columns, context);
        gathered += first.len();
        blocks.push(first);
        input_state.scrolled = input_state.scrolled.min(gathered.saturating_sub(height));
    }
    let lines: Vec<_> = blocks.into_iter().rev().flatten().collect();
    let end = lines.len().saturating_sub(input_state.scrolled);
    let visible = lines[end.saturating_sub(height)..end].to_vec();
    frame.render_widget(Paragraph::new(visible), area);
}
