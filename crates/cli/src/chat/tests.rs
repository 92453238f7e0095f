//! The conversation in each of its states, drawn on an in-memory screen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use budao_core::{
    Event, Fault, Lang, Record, Timestamp,
    event::{
        CallStart, CommandId, Decision, Epoch, QuestionId, QuestionPurpose, Scope, SessionId,
        Settings, StopReason,
    },
    fault::{Kind, Mismatch, Operation},
    message::{Block, CallId, ModelStop, ToolUse, Usage},
    tool::{Outcome, Output, Repair, RepairKind},
    trace::Trace,
};
use budao_journal::{SessionState, SessionSummary};
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers},
};
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use super::{
    draw::{DrawContext, draw},
    keys::{InputMode, InputState, UserAction},
    pick,
    view::View,
};
use crate::screen::Theme;

const LOOK: Theme = Theme { colours: true };

fn session() -> SessionId {
    "0193a5e0-0000-7000-8000-00000000beef".parse().unwrap()
}

/// 2026-11-15T08:00:00Z plus 100 ms per record.
fn at(seq: u64) -> Timestamp {
    Timestamp::from_micros(1_794_729_600_000_000).after(Duration::from_millis(100 * seq))
}

/// The screen contents as lines of text.
pub(crate) fn buffer_text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in 0..buffer.area.height {
        let mut line = String::new();
        let mut column = 0;
        while column < buffer.area.width {
            let symbol = buffer[(column, row)].symbol();
            line.push_str(symbol);
            column += u16::try_from(symbol.width().max(1)).unwrap();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A conversation built from events, with its input state.
struct ChatFixture {
    view: View,
    input_state: InputState,
    lang: Lang,
    seq: u64,
}

impl ChatFixture {
    fn new(lang: Lang) -> Self {
        let mut chat = Self { view: View::new(lang), input_state: InputState::new(), lang, seq: 0 };
        let settings = Settings {
            model: "demo".into(),
            language: lang,
            title: Some("count the headings".into()),
            ..Settings::default()
        };
        chat.apply(Event::SessionOpened { settings, origin: None });
        chat
    }

    fn apply(&mut self, event: Event) -> &mut Self {
        self.seq += 1;
        self.view.take(&Record {
            session: session(),
            epoch: Epoch(1),
            seq: self.seq,
            at: at(self.seq),
            trace: "0af7651916cd43dd8448eb211c80319c".parse::<Trace>().unwrap(),
            turn: 1,
            event,
        });
        self
    }

    fn message(&mut self, text: &str) -> &mut Self {
        let (command, content) = (CommandId::from("m1"), vec![Block::Text(text.into())]);
        self.apply(Event::MessageAccepted { command, content })
    }

    fn begin(&mut self) -> &mut Self {
        self.apply(Event::TurnStarted { message: CommandId::from("m1") });
        self.step(1, 1)
    }

    fn step(&mut self, step: u32, attempt: u32) -> &mut Self {
        self.apply(Event::StepStarted { step, attempt, model: "demo".into() })
    }

    fn words(&mut self, step: u32, text: &str) -> &mut Self {
        self.apply(Event::TextDelta { step, text: text.into() })
    }

    fn wants(&mut self, step: u32, tool: &str, arguments: &serde_json::Value) -> &mut Self {
        let call = ToolUse {
            id: CallId::from(format!("c{step}").as_str()),
            name: tool.into(),
            arguments: arguments.to_string(),
        };
        self.apply(Event::ModelAnswered {
            step,
            content: vec![Block::ToolUse(call)],
            stop: ModelStop::ToolUse,
            usage: Usage::default(),
            response: None,
        })
    }

    fn starts(&mut self, step: u32, tool: &str, arguments: serde_json::Value) -> &mut Self {
        self.apply(Event::ToolCallStarted(CallStart {
            call: CallId::from(format!("c{step}").as_str()),
            tool: tool.into(),
            arguments,
            repairs: vec![
                Repair { pointer: "/limit".into(), kind: RepairKind::DefaultFilled },
                Repair { pointer: "/from".into(), kind: RepairKind::TextToNumber },
            ],
            attempt: 1,
            idempotent: true,
            reconcile: false,
        }))
    }

    fn ends(&mut self, step: u32, tool: &str, outcome: Outcome) -> &mut Self {
        let call = CallId::from(format!("c{step}").as_str());
        self.apply(Event::ToolCallEnded { call, tool: tool.into(), outcome, duration_ms: 12 })
    }

    fn ask_question(&mut self) -> &mut Self {
        self.apply(Event::QuestionAsked {
            question: QuestionId("q1".into()),
            call: CallId::from("c3"),
            tool: "bash_run".into(),
            arguments: json!({"cmd": "touch made && ls -la"}),
            repairs: Vec::new(),
            digest: "d1".into(),
            idempotent: false,
            reason: "the tool writes or executes, and the mode is `approval`".into(),
            purpose: QuestionPurpose::Permission,
            expires_at: at(900),
        })
    }

    fn ended(&mut self, stop: StopReason, fault: Option<Fault>) -> &mut Self {
        let usage = Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() };
        self.apply(Event::TurnEnded { stop, fault, steps: 1, usage })
    }

    fn press(&mut self, code: KeyCode) -> UserAction {
        self.press_with(code, KeyModifiers::NONE)
    }

    fn press_with(&mut self, code: KeyCode, modifiers: KeyModifiers) -> UserAction {
        self.input_state.take(Input::Key(KeyEvent::new(code, modifiers)), &self.view, 10)
    }

    fn write(&mut self, text: &str) -> &mut Self {
        for letter in text.chars() {
            assert_eq!(self.press(KeyCode::Char(letter)), UserAction::Nothing);
        }
        self
    }

    fn draw(&mut self, columns: u16, rows: u16, theme: Theme) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let (lang, now) = (self.lang, at(self.seq + 5));
        let context = DrawContext { session: Some(session()), now, theme, lang };
        let Self { view, input_state, .. } = self;
        terminal.draw(|frame| _ = draw(frame, view, input_state, &context)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn render(&mut self, columns: u16, rows: u16) -> String {
        buffer_text(&self.draw(columns, rows, LOOK))
    }
}

fn invalid() -> Fault {
    Fault::new(Kind::InvalidArguments, Operation::ToolCall).mismatch(Mismatch {
        pointer: "/path".into(),
        rule: "required".into(),
        expected: "required".into(),
        ..Mismatch::default()
    })
}

fn limited() -> Fault {
    Fault::new(Kind::ModelRateLimited, Operation::ModelRequest)
        .attempt(1, 3)
        .retry_after(Duration::from_secs(2))
        .with_cause("HTTP 429 from the provider")
}

/// A model calls a tool with wrong arguments, reads the fault and calls it again correctly.
fn correction(lang: Lang) -> ChatFixture {
    let mut chat = ChatFixture::new(lang);
    let wrong = json!({"file": "README.md"});
    let right = json!({"path": "README.md"});
    chat.message("read README.md and count its headings").begin();
    chat.words(1, "I will read ").words(1, "it.").wants(1, "fs_read", &wrong);
    chat.ends(1, "fs_read", invalid().into()).step(2, 1).wants(2, "fs_read", &right);
    chat.starts(2, "fs_read", right);
    chat
}

fn recovery(lang: Lang) -> ChatFixture {
    let mut chat = ChatFixture::new(lang);
    chat.message("say hello").begin().words(1, "Hel");
    chat.apply(Event::AnswerAbandoned { step: 1, attempt: 1 });
    chat.apply(Event::FaultRaised { fault: limited(), scope: Scope::default() });
    let due_at = at(chat.seq + 20);
    chat.apply(Event::RetryScheduled {
        operation: Operation::ModelRequest,
        kind: Kind::ModelRateLimited,
        attempt: 1,
        next_attempt: 2,
        max_attempts: 3,
        wait_ms: 2_000,
        due_at,
        scope: Scope::default(),
    });
    chat
}

fn question(lang: Lang) -> ChatFixture {
    let mut chat = ChatFixture::new(lang);
    chat.message("make a file").begin();
    chat.wants(3, "bash_run", &json!({"cmd": "touch made && ls -la"})).ask_question();
    chat
}

fn failure(lang: Lang) -> ChatFixture {
    let mut chat = recovery(lang);
    chat.step(1, 2);
    chat.apply(Event::RecoveryFailed { fault: limited().attempt(3, 3), scope: Scope::default() });
    chat.ended(StopReason::Failed, Some(limited().attempt(3, 3)));
    chat
}

/// Wide, right-to-left, joined and hostile characters.
fn strange(lang: Lang) -> ChatFixture {
    let mut chat = ChatFixture::new(lang);
    chat.message("你好，世界！这一行很长，需要在合适的地方换行。").begin();
    chat.words(1, "שלום עולם 👩‍👩‍👧 e\u{301} \u{1b}[31mred\u{202e}gnorw\ttab\r\n再见");
    chat.wants(1, "fs_写", &json!({"路径": "文件\u{7}.md"}));
    chat
}

/// Two requests with prices, of which one broke off; the turn before cost nothing that is shown.
fn cost(lang: Lang) -> ChatFixture {
    let mut chat = ChatFixture::new(lang);
    chat.message("say hello").begin().words(1, "Hello.").ended(StopReason::EndTurn, None);
    chat.begin().words(1, "Hello again.");
    for (cost, is_estimate) in [(12_500, true), (420, false)] {
        let data = json!({"cost": cost, "currency": "USD", "is_estimate": is_estimate});
        chat.apply(Event::Annotated { topic: budao_core::spending::TOPIC.into(), data });
    }
    chat.ended(StopReason::EndTurn, None);
    chat
}

fn stories(lang: Lang) -> [(&'static str, ChatFixture); 7] {
    [
        ("empty", ChatFixture::new(lang)),
        ("correction", correction(lang)),
        ("retry", recovery(lang)),
        ("question", question(lang)),
        ("failure", failure(lang)),
        ("strange", strange(lang)),
        ("cost", cost(lang)),
    ]
}

#[test]
fn every_state_reads_well_in_both_languages_on_a_wide_and_on_a_narrow_screen() {
    for lang in [Lang::En, Lang::Zh] {
        for (name, mut chat) in stories(lang) {
            insta::assert_snapshot!(format!("{name}_{lang}_80"), chat.render(80, 20));
            insta::assert_snapshot!(format!("{name}_{lang}_36"), chat.render(36, 14));
        }
    }
}

#[test]
fn the_details_of_a_fault_have_the_texts_for_model_user_and_operator() {
    for lang in [Lang::En, Lang::Zh] {
        let mut chat = correction(lang);
        chat.press_with(KeyCode::Char('t'), KeyModifiers::CONTROL);
        assert_eq!(chat.input_state.mode, InputMode::FaultDetails { back: 0 });
        insta::assert_snapshot!(format!("fault_details_{lang}_120"), chat.render(120, 30));
        insta::assert_snapshot!(format!("fault_details_{lang}_50"), chat.render(50, 24));
        chat.press(KeyCode::Esc);
        assert_eq!(chat.input_state.mode, InputMode::Compose);
    }
}

#[test]
fn no_size_no_state_and_no_language_makes_it_panic() {
    let sizes = [(0, 0), (1, 1), (2, 9), (7, 3), (20, 5), (20, 1), (300, 90)];
    let widths = (1..=24).map(|width| (width, 6));
    for (columns, rows) in sizes.into_iter().chain(widths) {
        for lang in [Lang::En, Lang::Zh] {
            for (_, mut chat) in stories(lang) {
                for mode in
                    [InputMode::Compose, InputMode::DenyNote, InputMode::FaultDetails { back: 0 }]
                {
                    chat.input_state.mode = mode;
                    chat.input_state.scrolled = 3;
                    chat.draw(columns, rows, LOOK);
                }
            }
        }
    }
}

#[test]
fn on_the_smallest_screen_the_question_and_its_keys_are_seen() {
    let shown = question(Lang::En).render(20, 5);
    assert!(shown.contains("allow call?") && shown.contains("[y] yes"), "{shown}");
    let shown = correction(Lang::En).render(20, 5);
    assert!(shown.contains("fs_read"), "{shown}");
}

#[test]
fn without_colour_the_text_is_complete() {
    for (name, mut chat) in stories(Lang::En) {
        let plain = chat.draw(80, 20, Theme { colours: false });
        for cell in plain.content() {
            assert_eq!(cell.fg, ratatui::style::Color::Reset, "{name}");
            assert_eq!(cell.bg, ratatui::style::Color::Reset, "{name}");
        }
        assert_eq!(buffer_text(&plain), chat.render(80, 20), "{name}");
    }
}

#[test]
fn no_text_of_a_model_reaches_the_terminal_as_a_control_sequence() {
    let buffer = strange(Lang::En).draw(80, 20, LOOK);
    let acts = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(buffer.content().iter().all(|cell| !cell.symbol().contains(acts)));
}

#[test]
fn a_retry_counts_down_until_the_next_try_begins() {
    let mut chat = recovery(Lang::En);
    assert!(chat.render(80, 20).contains("↻ try 2/3 in 1.4 s"), "{}", chat.render(80, 20));
    chat.step(1, 2);
    let shown = chat.render(80, 20);
    assert!(shown.contains("↻ try 2/3\n") && !shown.contains("next try in"), "{shown}");
}

#[test]
fn a_filled_default_is_no_repair_and_a_corrected_slip_is_one() {
    let shown = correction(Lang::En).render(100, 20);
    assert!(shown.contains("repaired: 1"), "one of the two was a default: {shown}");
}

#[test]
fn a_question_is_answered_with_a_key_and_bound_to_what_was_shown() {
    for (key, wanted) in [('y', Decision::Allow), ('n', Decision::Deny)] {
        let mut chat = question(Lang::En);
        let UserAction::Decide { question, decision, note } = chat.press(KeyCode::Char(key)) else {
            panic!("{key} answers");
        };
        assert_eq!((decision, question.digest.as_str(), note), (wanted, "d1", None));
    }
    let mut chat = question(Lang::En);
    assert_eq!(chat.press(KeyCode::Char('x')), UserAction::Nothing);
    assert!(chat.input_state.draft.is_empty(), "letters are not taken for a message");
}

#[test]
fn a_no_can_have_a_word_for_the_model() {
    let mut chat = question(Lang::En);
    chat.press(KeyCode::Char('w'));
    chat.write("not here");
    insta::assert_snapshot!("word_en_80", chat.render(80, 20));
    let UserAction::Decide { decision, note, .. } = chat.press(KeyCode::Enter) else {
        panic!("answers")
    };
    assert_eq!((decision, note.as_deref()), (Decision::Deny, Some("not here")));
    assert_eq!(chat.input_state.mode, InputMode::Compose);
}

#[test]
fn escape_stops_the_turn_and_nothing_when_none_runs() {
    assert_eq!(correction(Lang::En).press(KeyCode::Esc), UserAction::Cancel);
    assert_eq!(question(Lang::En).press(KeyCode::Esc), UserAction::Cancel);
    assert_eq!(failure(Lang::En).press(KeyCode::Esc), UserAction::Nothing);
}

#[test]
fn an_interrupt_stops_the_turn_first_and_leaves_then() {
    let mut chat = correction(Lang::En);
    assert_eq!(chat.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Cancel);
    chat.apply(Event::CancelRequested { by: "terminal".into(), reason: None });
    assert!(chat.render(80, 20).contains("stopping"));
    assert_eq!(chat.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Quit);
    let mut chat = failure(Lang::En);
    chat.write("half");
    assert_eq!(chat.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Nothing);
    assert!(chat.input_state.draft.is_empty());
    assert_eq!(chat.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Quit);
}

#[test]
fn a_message_of_several_lines_is_written_and_sent_whole() {
    let mut chat = ChatFixture::new(Lang::Zh);
    chat.write("第一行");
    chat.press_with(KeyCode::Enter, KeyModifiers::ALT);
    chat.input_state.take(Input::Paste("second\r\nthird".into()), &chat.view, 10);
    insta::assert_snapshot!("draft_zh_36", chat.render(36, 14));
    assert_eq!(chat.press(KeyCode::Enter), UserAction::Send("第一行\nsecond\nthird".into()));
    assert_eq!(chat.press(KeyCode::Enter), UserAction::Nothing, "an empty draft is not sent");
}

#[test]
fn the_transcript_scrolls_to_its_ends_and_no_further() {
    let mut chat = correction(Lang::En);
    let long: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    chat.words(2, &long);
    assert!(chat.render(40, 12).contains("line 60"));
    for _ in 0..50 {
        chat.press(KeyCode::PageUp);
    }
    let shown = chat.render(40, 12);
    assert!(shown.contains("read README.md") && shown.contains("lines below"), "{shown}");
    chat.press(KeyCode::Esc);
    chat.input_state.scrolled = 0;
    assert!(chat.render(40, 12).contains("line 60"));
}

#[test]
fn words_that_came_in_one_piece_are_shown_once() {
    let mut chat = ChatFixture::new(Lang::En);
    chat.message("hi").begin().words(1, "Hello.");
    let content = vec![Block::Text("Hello.".into())];
    let (stop, usage) = (ModelStop::EndTurn, Usage::default());
    chat.apply(Event::ModelAnswered { step: 1, content, stop, usage, response: None });
    assert_eq!(chat.render(80, 20).matches("Hello.").count(), 1);
    let content = vec![Block::Text("Whole.".into())];
    chat.step(2, 1).apply(Event::ModelAnswered { step: 2, content, stop, usage, response: None });
    assert_eq!(chat.render(80, 20).matches("Whole.").count(), 1);
}

#[test]
fn a_call_ends_with_what_it_gave() {
    let mut chat = correction(Lang::En);
    let output = Output { data: json!({"text": "# One"}), ..Output::default() };
    chat.ends(2, "fs_read", Outcome::Done(output)).ended(StopReason::EndTurn, None);
    let shown = chat.render(80, 20);
    assert!(shown.contains("✓ fs_read") && shown.contains("→ {\"text\":\"# One\"}"), "{shown}");
    assert!(shown.contains("1 step ·"), "{shown}");
}

fn summary(number: u8, state: SessionState, title: &str) -> SessionSummary {
    let id = format!("0193a5e0-0000-7000-8000-0000000000{number:02}");
    SessionSummary {
        session: id.parse().unwrap(),
        state,
        opened_at: at(0),
        updated_at: at(u64::from(number)),
        title: Some(title.into()),
        labels: Default::default(),
        turns: 1,
        open_turn: None,
        last_code: (state == SessionState::Failed).then(|| "ERR_AUTH_001".into()),
        head: 3,
        timers: Default::default(),
        faults: Default::default(),
    }
}

#[test]
fn a_session_is_found_by_its_words_and_chosen() {
    let sessions = vec![
        summary(31, SessionState::Running, "count the headings"),
        summary(22, SessionState::WaitingForDecision, "读取文件"),
        summary(13, SessionState::Failed, "sign in"),
    ];
    let mut list = pick::SessionList { sessions, search: String::new(), at: 0 };
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    for (name, lang, columns) in [("en", Lang::En, 70), ("zh", Lang::Zh, 40)] {
        let mut terminal = Terminal::new(TestBackend::new(columns, 8)).unwrap();
        let now = at(40_000);
        terminal.draw(|frame| _ = pick::draw(frame, &list, now, LOOK, lang)).unwrap();
        let text = buffer_text(terminal.backend().buffer());
        insta::assert_snapshot!(format!("pick_{name}"), text);
    }
    assert!(list.press(key(KeyCode::Down), 5).is_none());
    assert_eq!(list.at, 1);
    for letter in "sign".chars() {
        assert!(list.press(key(KeyCode::Char(letter)), 5).is_none());
    }
    let Some(pick::PickResult::Session(session)) = list.press(key(KeyCode::Enter), 5) else {
        panic!("it is chosen");
    };
    assert_eq!(session, summary(13, SessionState::Failed, "").session);
    list.search = "nothing like it".into();
    assert!(list.press(key(KeyCode::Enter), 5).is_none(), "nothing is chosen where nothing is");
    assert!(matches!(list.press(key(KeyCode::Esc), 5), Some(pick::PickResult::None)));
}
