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
    hands: &mut InputState,
    back: usize,
    sight: &DrawContext,
) {
    let all = view.faults().count();
    let Some(told) = view.faults().rev().nth(back) else { return };
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let title = text::of_kind(told.fault.kind(), "title", sight.lang);
    let place = format!("{}/{all}", all - back);
    let line = cut(&format!("{} {title} · {place}", told.fault.row().code), head.width.into());
    frame.render_widget(Line::styled(line, sight.look.strong()), head);
    let tellings = [model(told, sight), user(told, sight), operator(told, sight)];
    if area.width >= WIDE {
        let columns: [Rect; 3] =
            Layout::horizontal([Constraint::Fill(1); 3]).spacing(2).areas(body);
        let lines = tellings.map(|telling| telling.lines(columns[0].width.into(), sight));
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
        hands.told_from = hands.told_from.min(longest.saturating_sub(body.height.into()));
        for (lines, area) in lines.into_iter().zip(columns) {
            show(frame, area, lines, hands.told_from);
        }
        return;
    }
    let lines: Vec<_> =
        tellings.into_iter().flat_map(|telling| telling.lines(body.width.into(), sight)).collect();
    hands.told_from = hands.told_from.min(lines.len().saturating_sub(body.height.into()));
    show(frame, body, lines, hands.told_from);
}

fn show(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, from: usize) {
    let shown: Vec<_> = lines.into_iter().skip(from).take(area.height.into()).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

/// The rendering for one audience: a heading and its paragraphs.
struct AudienceText {
    to: &'static str,
    said: Vec<String>,
}

impl AudienceText {
    fn lines(self, columns: usize, sight: &DrawContext) -> Vec<Line<'static>> {
        let mut lines = vec![Line::styled(cut(self.to, columns), sight.look.name())];
        for said in self.said {
            lines.extend(wrap(&said, columns).into_iter().map(Line::raw));
        }
        lines.push(Line::default());
        lines
    }
}

fn model(told: &FaultView, sight: &DrawContext) -> AudienceText {
    let said = match &told.model {
        Some(json) => pretty(json),
        None => {
            sight.w("nothing: none of its calls failed", "未告知：不是模型的调用失败").to_owned()
        }
    };
    AudienceText { to: localize(sight.lang, "to the model", "告知模型"), said: vec![said] }
}

fn user(told: &FaultView, sight: &DrawContext) -> AudienceText {
    let event: &'static str = told.fault.row().event.into();
    let said = vec![event.to_owned(), text::user_text(&told.fault, sight.lang)];
    AudienceText { to: localize(sight.lang, "to the user", "告知用户"), said }
}

fn operator(told: &FaultView, sight: &DrawContext) -> AudienceText {
    let fault = &told.fault;
    let mut said = vec![fault.to_string()];
    said.extend(fault.causes().iter().map(|cause| format!("← {cause}")));
    said.push(text::of_kind(fault.kind(), "check", sight.lang));
    if fault.trace().is_some() {
        said.push(format!("trace {}", fault.trace()));
    }
    said.push(format!("seq {} · turn {}", told.seq, told.turn));
    said.push(format!("budao explain {}", fault.row().code));
    AudienceText { to: localize(sight.lang, "to the operator", "告知运维"), said }
}

fn pretty(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| json.to_owned())
}
