//! One fault as rendered for model, user and operator: in three columns on a wide screen, else one below the other.

use budao_core::fault::text;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::Line,
    widgets::Paragraph,
};

use super::{
    draw::DrawContext,
    keys::InputState,
    view::{FaultView, View},
};
use crate::{
    symbols::{cut, wrap},
    texts::localize,
};

/// Minimum screen width, in columns, for the three side by side.
const WIDE: u16 = 90;

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &View,
    input_state: &mut InputState,
    back: usize,
    context: &DrawContext,
) {
    let all = view.faults().count();
    let Some(view_of_fault) = view.faults().rev().nth(back) else { return };
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let title = text::of_kind(view_of_fault.fault.kind(), "title", context.lang);
    let position = format!("{}/{all}", all - back);
    let line =
        cut(&format!("{} {title} · {position}", view_of_fault.fault.row().code), head.width.into());
    frame.render_widget(Line::styled(line, context.theme.strong()), head);
    let columns_by_audience = [
        model(view_of_fault, context),
        user(view_of_fault, context),
        operator(view_of_fault, context),
    ];
    if area.width >= WIDE {
        let columns: [Rect; 3] =
            Layout::horizontal([Constraint::Fill(1); 3]).spacing(2).areas(body);
        let lines = columns_by_audience
            .map(|audience_text| audience_text.lines(columns[0].width.into(), context));
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
        input_state.told_from =
            input_state.told_from.min(longest.saturating_sub(body.height.into()));
        for (lines, area) in lines.into_iter().zip(columns) {
            show(frame, area, lines, input_state.told_from);
        }
        return;
    }
    let lines: Vec<_> = columns_by_audience
        .into_iter()
        .flat_map(|audience_text| audience_text.lines(body.width.into(), context))
        .collect();
    input_state.told_from =
        input_state.told_from.min(lines.len().saturating_sub(body.height.into()));
    show(frame, body, lines, input_state.told_from);
}

fn show(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, from: usize) {
    let visible: Vec<_> = lines.into_iter().skip(from).take(area.height.into()).collect();
    frame.render_widget(Paragraph::new(visible), area);
}

/// The rendering for one audience: a heading and its paragraphs.
struct AudienceText {
    to: &'static str,
    paragraphs: Vec<String>,
}

impl AudienceText {
    fn lines(self, columns: usize, context: &DrawContext) -> Vec<Line<'static>> {
        let mut lines = vec![Line::styled(cut(self.to, columns), context.theme.name())];
        for paragraphs in self.paragraphs {
            lines.extend(wrap(&paragraphs, columns).into_iter().map(Line::raw));
        }
        lines.push(Line::default());
        lines
    }
}

fn model(view_of_fault: &FaultView, context: &DrawContext) -> AudienceText {
    let paragraphs = match &view_of_fault.model {
        Some(json) => pretty(json),
        None => context.w("chat-nothing-none-of-its-calls-failed").to_owned(),
    };
    AudienceText { to: localize(context.lang, "chat-to-the-model"), paragraphs: vec![paragraphs] }
}

fn user(view_of_fault: &FaultView, context: &DrawContext) -> AudienceText {
    let event: &'static str = view_of_fault.fault.row().event.into();
    let paragraphs = vec![event.to_owned(), text::user_text(&view_of_fault.fault, context.lang)];
    AudienceText { to: localize(context.lang, "chat-to-the-user"), paragraphs }
}

fn operator(view_of_fault: &FaultView, context: &DrawContext) -> AudienceText {
    let fault = &view_of_fault.fault;
    let mut paragraphs = vec![fault.to_string()];
    paragraphs.extend(fault.causes().iter().map(|cause| format!("← {cause}")));
    paragraphs.push(text::of_kind(fault.kind(), "check", context.lang));
    if fault.trace().is_some() {
        paragraphs.push(format!("trace {}", fault.trace()));
    }
    paragraphs.push(format!("seq {} · turn {}", view_of_fault.seq, view_of_fault.turn));
    paragraphs.push(format!("budao explain {}", fault.row().code));
    AudienceText { to: localize(context.lang, "chat-to-the-operator"), paragraphs }
}

fn pretty(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| json.to_owned())
}
