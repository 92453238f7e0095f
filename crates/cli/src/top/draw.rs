//! Draws a snapshot on the screen, or renders it as text.

use budao_core::{Lang, Timestamp, event::Settings};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{Paragraph, Sparkline},
};

use super::poll::{EventLine, GateRow, KindCount, SessionRow, Snapshot, UserCount};
use crate::{
    chat::{ago, state},
    nodes,
    screen::Theme,
    session_name::short,
    symbols::{cut, one_line, wrap},
    terminal::{Terminal, pad},
    texts::{count, fill, localize},
    transcript::{clock, seconds},
};

/// Minimum width, in columns, for sessions and faults side by side.
const WIDE: u16 = 100;
/// Screens with fewer lines show only the numbers and the sessions.
const LOW: u16 = 14;

/// Scroll state of the screen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrollPosition {
    /// Number of sessions scrolled past.
    pub(crate) from: usize,
    /// True if the server did not answer the last poll; the screen shows the snapshot before it.
    pub(crate) is_away: bool,
}

/// Draws a snapshot, or a notice before the first one. Limits `scroll.from` to the sessions there are.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    seen: Option<&Snapshot>,
    scroll: &mut ScrollPosition,
    theme: Theme,
    lang: Lang,
) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let Some(seen) = seen else {
        let words = localize(lang, "top-reading-the-journal");
        frame.render_widget(Line::raw(cut(words, area.width.into())), area);
        return;
    };
    let is_low = area.height < LOW;
    let numbers = wrap(&numbers(seen, lang), area.width.into());
    let most = if is_low { 1 } else { 3 };
    let rows = u16::try_from(numbers.len().min(most)).unwrap_or(1);
    let [head, counts, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Min(0),
        Constraint::Length(u16::from(!is_low)),
    ])
    .areas(area);
    frame.render_widget(title(seen, scroll.is_away, lang, theme, head.width), head);
    let numbers: Vec<_> = numbers.into_iter().map(Line::raw).collect();
    frame.render_widget(Paragraph::new(numbers), counts);
    if is_low {
        return sessions(frame, body, seen, scroll, theme, lang);
    }
    let hints = localize(lang, "top-q-quit-w-window-sessions");
    frame.render_widget(Line::styled(cut(hints, keys.width.into()), theme.faint()), keys);
    if area.width >= WIDE {
        let [above, below] =
            Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(body);
        let [left, right] =
            Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).spacing(2).areas(above);
        sessions(frame, left, seen, scroll, theme, lang);
        faults(frame, right, seen, theme, lang);
        return events(frame, below, seen, theme, lang);
    }
    let [first, second, third] =
        Layout::vertical([Constraint::Fill(3), Constraint::Fill(2), Constraint::Fill(2)])
            .areas(body);
    sessions(frame, first, seen, scroll, theme, lang);
    faults(frame, second, seen, theme, lang);
    events(frame, third, seen, theme, lang);
}

/// The snapshot as text, for `--once`.
pub(crate) fn render_text(seen: &Snapshot, lang: Lang, terminal: &Terminal) -> String {
    let mut text = format!("{}\n", numbers(seen, lang));
    let mut section = |name: &str, rows: Vec<String>| {
        text.push_str(&format!("\n{}\n", terminal.strong(name)));
        let nothing = localize(lang, "top-none").to_owned();
        for row in if rows.is_empty() { vec![nothing] } else { rows } {
            text.push_str(&format!("  {}\n", row.trim_end()));
        }
    };
    let rows = seen.sessions.iter().take(20);
    section(words(lang).sessions, rows.map(|row| session(row, seen.at, true, lang)).collect());
    if !seen.nodes.is_empty() {
        section(words(lang).nodes, nodes::table(&seen.nodes, lang));
    }
    if !seen.numbers.gates.is_empty() {
        section(words(lang).gates, seen.numbers.gates.iter().map(|row| gate(row, lang)).collect());
    }
    section(words(lang).faults, seen.numbers.kinds.iter().map(|row| kind(row, lang)).collect());
    if !seen.numbers.by_user.is_empty() {
        let rows = seen.numbers.by_user.iter().take(10);
        section(words(lang).users, rows.map(|row| affected(row, lang)).collect());
    }
    let events = match seen.from {
        Some(_) => vec![words(lang).untold.to_owned()],
        None => seen.events.iter().take(10).map(event).collect(),
    };
    section(words(lang).events, events);
    text
}

struct ScreenLabels {
    sessions: &'static str,
    nodes: &'static str,
    faults: &'static str,
    gates: &'static str,
    users: &'static str,
    events: &'static str,
    /// Shown instead of events when the snapshot comes from a server.
    untold: &'static str,
}

fn words(lang: Lang) -> ScreenLabels {
    ScreenLabels {
        sessions: localize(lang, "top-sessions"),
        nodes: localize(lang, "top-nodes"),
        faults: localize(lang, "top-faults-by-code"),
        gates: localize(lang, "top-model-services"),
        users: localize(lang, "top-faults-by-user"),
        events: localize(lang, "top-last-events"),
        untold: localize(lang, "top-not-available-remotely-see-the-servers"),
    }
}

fn title(seen: &Snapshot, is_away: bool, lang: Lang, theme: Theme, columns: u16) -> Line<'static> {
    let at = clock(seen.at);
    let waiting = seen.waiting_for_decision.into();
    let run_live =
        fill(lang, "top-counts", &[("running", seen.running.into()), ("waiting", waiting)]);
    let from = seen.from.as_ref().map(|from| format!(" · {from}")).unwrap_or_default();
    let away = if is_away { localize(lang, "top-does-not-answer") } else { "" };
    let nodes = nodes::summary(&seen.nodes, lang);
    let text = cut(&format!(" budao top · {at} · {run_live}{nodes}{from}{away}"), columns.into());
    Line::styled(pad(&text, columns.into()), theme.bar())
}

/// Turns, calls, faults and retries within the window, as one line.
fn numbers(seen: &Snapshot, lang: Lang) -> String {
    let numbers = &seen.numbers;
    let share = numbers.retries.success_rate.map(|rate| format!(" ({:.0} %)", rate * 100.0));
    let time = |millis: Option<u64>| millis.map_or_else(|| "–".to_owned(), seconds);
    let retries = format!("{}{}", numbers.retries.attempts, share.unwrap_or_default());
    let recovery = [numbers.recovery_ms.p50, numbers.recovery_ms.p90].map(time);
    let shown = [
        ("top-last", numbers.window.clone()),
        ("top-turns", numbers.turns.to_string()),
        ("top-steps", numbers.steps.to_string()),
        ("top-calls", numbers.calls.to_string()),
        ("top-faults", numbers.faults.to_string()),
        ("top-retries", retries),
        ("top-recovery", format!("p50 {} p90 {}", recovery[0], recovery[1])),
    ];
    let named = |(id, value): &(&str, String)| format!("{} {value}", localize(lang, id));
    let mut parts: Vec<String> = shown.iter().map(named).collect();
    if numbers.doubts_open > 0 {
        parts.push(format!("{} {}", localize(lang, "top-doubts"), numbers.doubts_open));
    }
    if !numbers.complete {
        parts.push(localize(lang, "top-still-counting").to_owned());
    }
    parts.join(" · ")
}

fn heading(frame: &mut Frame<'_>, area: Rect, name: &str, theme: Theme) -> Rect {
    let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let columns = usize::from(head.width);
    let text = cut(&format!("─ {name} "), columns);
    let rule = columns.saturating_sub(unicode_width::UnicodeWidthStr::width(text.as_str()));
    let line =
        vec![Span::styled(text, theme.strong()), Span::styled("─".repeat(rule), theme.faint())];
    frame.render_widget(Line::from(line), head);
    rest
}

fn sessions(
    frame: &mut Frame<'_>,
    area: Rect,
    seen: &Snapshot,
    scroll: &mut ScrollPosition,
    theme: Theme,
    lang: Lang,
) {
    let rest =
        if area.height > 3 { heading(frame, area, words(lang).sessions, theme) } else { area };
    let height = usize::from(rest.height);
    scroll.from = scroll.from.min(seen.sessions.len().saturating_sub(height));
    let is_roomy = rest.width >= 50;
    let rows = seen.sessions.iter().skip(scroll.from).take(height).map(|row| {
        let text = cut(&session(row, seen.at, is_roomy, lang), rest.width.into());
        Line::styled(text, style(row, theme))
    });
    show(frame, rest, rows.collect(), theme, lang);
}

fn style(row: &SessionRow, theme: Theme) -> Style {
    use budao_journal::SessionState;
    match row.summary.state {
        _ if row.is_interrupted() => theme.bad(),
        SessionState::Running => theme.good(),
        SessionState::WaitingForDecision => theme.warn(),
        SessionState::Failed => theme.bad(),
        SessionState::Idle | SessionState::Closed => Style::new(),
    }
}

fn session(row: &SessionRow, now: Timestamp, is_roomy: bool, lang: Lang) -> String {
    let summary = &row.summary;
    let doing = if row.is_interrupted() {
        localize(lang, "top-cut-off")
    } else {
        state(summary.state, lang)
    };
    let name = summary.title.as_deref().map(one_line).unwrap_or_default();
    let since = ago(summary.updated_at, now, lang);
    if !is_roomy {
        return format!("{} {name}", pad(doing, 8));
    }
    let turns = count(lang, "turn-number", summary.turns);
    let code = summary.last_code.as_deref().unwrap_or_default();
    let user = summary.labels.get(Settings::OWNER).map(|user| one_line(user)).unwrap_or_default();
    let user = if user.is_empty() { user } else { format!(" {user}") };
    format!(
        "{} {} {} {}{user} {code} {name}",
        pad(doing, 8),
        pad(&since, 7),
        short(summary.session),
        pad(&turns, 8),
    )
}

fn faults(frame: &mut Frame<'_>, area: Rect, seen: &Snapshot, theme: Theme, lang: Lang) {
    let rest = heading(frame, area, words(lang).faults, theme);
    let has_chart = rest.height > 3 && seen.numbers.faults > 0;
    let [chart, list] =
        Layout::vertical([Constraint::Length(if has_chart { 2 } else { 0 }), Constraint::Min(0)])
            .areas(rest);
    if has_chart {
        let sums = seen.numbers.buckets.iter().map(|bucket| bucket.by_kind.values().sum::<u64>());
        let sums: Vec<u64> = sums.collect();
        let from = sums.len().saturating_sub(chart.width.into());
        frame.render_widget(Sparkline::default().data(&sums[from..]).style(theme.bad()), chart);
    }
    let held = seen.numbers.gates.iter().filter(|row| row.is_held());
    let held = held.map(|row| Line::styled(cut(&gate(row, lang), list.width.into()), theme.bad()));
    let rows = seen.numbers.kinds.iter().map(|row| {
        let style = if row.not_recovered > 0 { theme.bad() } else { Style::new() };
        Line::styled(cut(&kind(row, lang), list.width.into()), style)
    });
    show(frame, list, held.chain(rows).collect(), theme, lang);
}

/// The state of a gate: what it admits, why it is held and until when.
fn gate(row: &GateRow, lang: Lang) -> String {
    let state = match row.is_held() {
        true => localize(lang, "top-held"),
        false => localize(lang, "top-open"),
    };
    let names = [one_line(&row.endpoint), one_line(&row.model)];
    let mut text = state.to_owned();
    for name in names.iter().filter(|name| !name.is_empty()) {
        text.push_str(&format!(" {name}"));
    }
    let mut part = |part: String| text.push_str(&format!(" · {part}"));
    if let Some(reason) = &row.reason {
        part(one_line(reason));
    }
    part(format!("{} {}", row.waiting, localize(lang, "top-waiting")));
    part(format!("{} {}", row.in_flight, localize(lang, "top-under-way")));
    if let Some(until) = row.until.as_deref().and_then(|until| until.parse().ok()) {
        part(format!("{} {}", localize(lang, "top-until"), clock(until)));
    }
    if let Some(code) = &row.last_error {
        part(one_line(code));
    }
    text
}

fn affected(row: &UserCount, lang: Lang) -> String {
    let not_recovered = localize(lang, "top-not-recovered");
    format!("{:>5} {} · {not_recovered} {}", row.count, one_line(&row.user), row.not_recovered)
}

fn kind(row: &KindCount, lang: Lang) -> String {
    let mut text = format!("{:>5} {} {}", row.count, pad(&row.code, 16), row.kind);
    if row.recovered > 0 {
        text.push_str(&format!(" · {} {}", localize(lang, "top-recovered"), row.recovered));
    }
    if row.not_recovered > 0 {
        text.push_str(&format!(" · {} {}", localize(lang, "top-not-recovered"), row.not_recovered));
    }
    text
}

fn events(frame: &mut Frame<'_>, area: Rect, seen: &Snapshot, theme: Theme, lang: Lang) {
    let rest = heading(frame, area, words(lang).events, theme);
    if seen.from.is_some() {
        let line = Line::styled(cut(words(lang).untold, rest.width.into()), theme.faint());
        return frame.render_widget(line, rest);
    }
    let rows = seen.events.iter().map(|happened| {
        let style = match happened.line.chars().next() {
            Some('✗') => theme.bad(),
            Some('↻' | '?') => theme.warn(),
            Some('✓') => theme.good(),
            _ => Style::new(),
        };
        Line::styled(cut(&event(happened), rest.width.into()), style)
    });
    show(frame, rest, rows.collect(), theme, lang);
}

fn event(happened: &EventLine) -> String {
    format!("{} {} {}", clock(happened.at), short(happened.session), happened.line)
}

fn show(frame: &mut Frame<'_>, area: Rect, rows: Vec<Line<'_>>, theme: Theme, lang: Lang) {
    let nothing = vec![Line::styled(localize(lang, "top-none"), theme.faint())];
    let rows = if rows.is_empty() { nothing } else { rows };
    frame.render_widget(Paragraph::new(rows), area);
}
