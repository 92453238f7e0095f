//! The conversation in each of its states, drawn on an in-memory screen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use budao_core::{
    Event, Fault, Lang, Record, Timestamp,
    event::{CommandId, Decision, Epoch, QuestionId, Scope, SessionId, Settings, StopReason},
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
pub(crate) fn shown(buffer: &Buffer) -> String {
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
    hands: InputState,
    lang: Lang,
    seq: u64,
}

impl ChatFixture {
    fn new(lang: Lang) -> Self {
        let mut told = Self { view: View::new(lang), hands: InputState::new(), lang, seq: 0 };
        let settings = Settings {
            model: "demo".into(),
            language: lang,
            title: Some("count the headings".into()),
            ..Settings::default()
        };
        told.tell(Event::SessionOpened { settings, origin: None });
        told
    }

    fn tell(&mut self, event: Event) -> &mut Self {
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
        self.tell(Event::MessageAccepted { command, content })
    }

    fn begin(&mut self) -> &mut Self {
        self.tell(Event::TurnStarted { message: CommandId::from("m1") });
        self.step(1, 1)
    }

    fn step(&mut self, step: u32, attempt: u32) -> &mut Self {
        self.tell(Event::StepStarted { step, attempt, model: "demo".into() })
    }

    fn words(&mut self, step: u32, text: &str) -> &mut Self {
        self.tell(Event::TextDelta { step, text: text.into() })
    }

    fn wants(&mut self, step: u32, tool: &str, arguments: &serde_json::Value) -> &mut Self {
        let call = ToolUse {
            id: CallId::from(format!("c{step}").as_str()),
            name: tool.into(),
            arguments: arguments.to_string(),
        };
        self.tell(Event::ModelAnswered {
            step,
            content: vec![Block::ToolUse(call)],
            stop: ModelStop::ToolUse,
            usage: Usage::default(),
        })
    }

    fn starts(&mut self, step: u32, tool: &str, arguments: serde_json::Value) -> &mut Self {
        self.tell(Event::ToolCallStarted {
            call: CallId::from(format!("c{step}").as_str()),
            tool: tool.into(),
            arguments,
            repairs: vec![
                Repair { pointer: "/limit".into(), kind: RepairKind::DefaultFilled },
                Repair { pointer: "/from".into(), kind: RepairKind::TextToNumber },
            ],
            attempt: 1,
            idempotent: true,
        })
    }

    fn ends(&mut self, step: u32, tool: &str, outcome: Outcome) -> &mut Self {
        let call = CallId::from(format!("c{step}").as_str());
        self.tell(Event::ToolCallEnded { call, tool: tool.into(), outcome, duration_ms: 12 })
    }

    fn asked(&mut self) -> &mut Self {
        self.tell(Event::QuestionAsked {
            question: QuestionId("q1".into()),
            call: CallId::from("c3"),
            tool: "bash_run".into(),
            arguments: json!({"cmd": "touch made && ls -la"}),
            repairs: Vec::new(),
            digest: "d1".into(),
            idempotent: false,
            reason: "the tool writes or executes, and the mode is `approval`".into(),
            expires_at: at(900),
        })
    }

    fn ended(&mut self, stop: StopReason, fault: Option<Fault>) -> &mut Self {
        let usage = Usage { input_tokens: 100, output_tokens: 20, cached_tokens: 0 };
        self.tell(Event::TurnEnded { stop, fault, steps: 1, usage })
    }

    fn press(&mut self, code: KeyCode) -> UserAction {
        self.press_with(code, KeyModifiers::NONE)
    }

    fn press_with(&mut self, code: KeyCode, modifiers: KeyModifiers) -> UserAction {
        self.hands.take(Input::Key(KeyEvent::new(code, modifiers)), &self.view, 10)
    }

    fn write(&mut self, text: &str) -> &mut Self {
        for letter in text.chars() {
            assert_eq!(self.press(KeyCode::Char(letter)), UserAction::Nothing);
        }
        self
    }

    fn draw(&mut self, columns: u16, rows: u16, look: Theme) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let (lang, now) = (self.lang, at(self.seq + 5));
        let sight = DrawContext { session: Some(session()), now, look, lang };
        let Self { view, hands, .. } = self;
        terminal.draw(|frame| _ = draw(frame, view, hands, &sight)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn shown(&mut self, columns: u16, rows: u16) -> String {
        shown(&self.draw(columns, rows, LOOK))
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
    let mut told = ChatFixture::new(lang);
    let wrong = json!({"file": "README.md"});
    let right = json!({"path": "README.md"});
    told.message("read README.md and count its headings").begin();
    told.words(1, "I will read ").words(1, "it.").wants(1, "fs_read", &wrong);
    told.ends(1, "fs_read", invalid().into()).step(2, 1).wants(2, "fs_read", &right);
    told.starts(2, "fs_read", right);
    told
}

fn recovery(lang: Lang) -> ChatFixture {
    let mut told = ChatFixture::new(lang);
    told.message("say hello").begin().words(1, "Hel");
    told.tell(Event::AnswerAbandoned { step: 1, attempt: 1 });
    told.tell(Event::FaultRaised { fault: limited(), scope: Scope::default() });
    let due_at = at(told.seq + 20);
    told.tell(Event::RetryScheduled {
        operation: Operation::ModelRequest,
        kind: Kind::ModelRateLimited,
        attempt: 1,
        next_attempt: 2,
        max_attempts: 3,
        wait_ms: 2_000,
        due_at,
        scope: Scope::default(),
    });
    told
}

fn question(lang: Lang) -> ChatFixture {
    let mut told = ChatFixture::new(lang);
    told.message("make a file").begin();
    told.wants(3, "bash_run", &json!({"cmd": "touch made && ls -la"})).asked();
    told
}

fn failure(lang: Lang) -> ChatFixture {
    let mut told = recovery(lang);
    told.step(1, 2);
    told.tell(Event::RecoveryFailed { fault: limited().attempt(3, 3), scope: Scope::default() });
    told.ended(StopReason::Failed, Some(limited().attempt(3, 3)));
    told
}

/// Wide, right-to-left, joined and hostile characters.
fn strange(lang: Lang) -> ChatFixture {
    let mut told = ChatFixture::new(lang);
    told.message("你好，世界！这一行很长，需要在合适的地方换行。").begin();
    told.words(1, "שלום עולם 👩‍👩‍👧 e\u{301} \u{1b}[31mred\u{202e}gnorw\ttab\r\n再见");
    told.wants(1, "fs_写", &json!({"路径": "文件\u{7}.md"}));
    told
}

fn stories(lang: Lang) -> [(&'static str, ChatFixture); 6] {
    [
        ("empty", ChatFixture::new(lang)),
        ("correction", correction(lang)),
        ("retry", recovery(lang)),
        ("question", question(lang)),
        ("failure", failure(lang)),
        ("strange", strange(lang)),
    ]
}

#[test]
fn every_state_reads_well_in_both_languages_on_a_wide_and_on_a_narrow_screen() {
    for lang in [Lang::En, Lang::Zh] {
        for (name, mut told) in stories(lang) {
            insta::assert_snapshot!(format!("{name}_{lang}_80"), told.shown(80, 20));
            insta::assert_snapshot!(format!("{name}_{lang}_36"), told.shown(36, 14));
        }
    }
}

#[test]
fn a_fault_is_told_as_the_model_the_user_and_the_operator_were_told_it() {
    for lang in [Lang::En, Lang::Zh] {
        let mut told = correction(lang);
        told.press_with(KeyCode::Char('t'), KeyModifiers::CONTROL);
        assert_eq!(told.hands.mode, InputMode::FaultDetails { back: 0 });
        insta::assert_snapshot!(format!("tellings_{lang}_120"), told.shown(120, 30));
        insta::assert_snapshot!(format!("tellings_{lang}_50"), told.shown(50, 24));
        told.press(KeyCode::Esc);
        assert_eq!(told.hands.mode, InputMode::Compose);
    }
}

#[test]
fn no_size_no_state_and_no_language_makes_it_panic() {
    let sizes = [(0, 0), (1, 1), (2, 9), (7, 3), (20, 5), (20, 1), (300, 90)];
    let widths = (1..=24).map(|width| (width, 6));
    for (columns, rows) in sizes.into_iter().chain(widths) {
        for lang in [Lang::En, Lang::Zh] {
            for (_, mut told) in stories(lang) {
                for mode in
                    [InputMode::Compose, InputMode::DenyNote, InputMode::FaultDetails { back: 0 }]
                {
                    told.hands.mode = mode;
                    told.hands.scrolled = 3;
                    told.draw(columns, rows, LOOK);
                }
            }
        }
    }
}

#[test]
fn on_the_smallest_screen_the_question_and_its_keys_are_seen() {
    let shown = question(Lang::En).shown(20, 5);
    assert!(shown.contains("allow call?") && shown.contains("[y] yes"), "{shown}");
    let shown = correction(Lang::En).shown(20, 5);
    assert!(shown.contains("fs_read"), "{shown}");
}

#[test]
fn without_colour_nothing_is_coloured_and_everything_is_said() {
    for (name, mut told) in stories(Lang::En) {
        let plain = told.draw(80, 20, Theme { colours: false });
        for cell in plain.content() {
            assert_eq!(cell.fg, ratatui::style::Color::Reset, "{name}");
            assert_eq!(cell.bg, ratatui::style::Color::Reset, "{name}");
        }
        assert_eq!(shown(&plain), told.shown(80, 20), "{name}");
    }
}

#[test]
fn nothing_a_model_says_reaches_the_terminal_as_a_command() {
    let buffer = strange(Lang::En).draw(80, 20, LOOK);
    let acts = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(buffer.content().iter().all(|cell| !cell.symbol().contains(acts)));
}

#[test]
fn a_retry_counts_down_until_the_next_try_begins() {
    let mut told = recovery(Lang::En);
    assert!(told.shown(80, 20).contains("↻ try 2/3 in 1.4 s"), "{}", told.shown(80, 20));
    told.step(1, 2);
    let shown = told.shown(80, 20);
    assert!(shown.contains("↻ try 2/3\n") && !shown.contains("next try in"), "{shown}");
}

#[test]
fn a_filled_default_is_no_repair_and_a_mended_slip_is_one() {
    let shown = correction(Lang::En).shown(100, 20);
    assert!(shown.contains("repaired: 1"), "one of the two was a default: {shown}");
}

#[test]
fn a_question_is_answered_with_a_key_and_bound_to_what_was_shown() {
    for (key, wanted) in [('y', Decision::Allow), ('n', Decision::Deny)] {
        let mut told = question(Lang::En);
        let UserAction::Decide { question, decision, note } = told.press(KeyCode::Char(key)) else {
            panic!("{key} answers");
        };
        assert_eq!((decision, question.digest.as_str(), note), (wanted, "d1", None));
    }
    let mut told = question(Lang::En);
    assert_eq!(told.press(KeyCode::Char('x')), UserAction::Nothing);
    assert!(told.hands.draft.is_empty(), "letters are not taken for a message");
}

#[test]
fn a_no_can_have_a_word_for_the_model() {
    let mut told = question(Lang::En);
    told.press(KeyCode::Char('w'));
    told.write("not here");
    insta::assert_snapshot!("word_en_80", told.shown(80, 20));
    let UserAction::Decide { decision, note, .. } = told.press(KeyCode::Enter) else {
        panic!("answers")
    };
    assert_eq!((decision, note.as_deref()), (Decision::Deny, Some("not here")));
    assert_eq!(told.hands.mode, InputMode::Compose);
}

#[test]
fn escape_stops_the_turn_and_nothing_when_none_runs() {
    assert_eq!(correction(Lang::En).press(KeyCode::Esc), UserAction::Cancel);
    assert_eq!(question(Lang::En).press(KeyCode::Esc), UserAction::Cancel);
    assert_eq!(failure(Lang::En).press(KeyCode::Esc), UserAction::Nothing);
}

#[test]
fn an_interrupt_stops_the_turn_first_and_leaves_then() {
    let mut told = correction(Lang::En);
    assert_eq!(told.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Cancel);
    told.tell(Event::CancelRequested { by: "terminal".into(), reason: None });
    assert!(told.shown(80, 20).contains("stopping"));
    assert_eq!(told.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Quit);
    let mut told = failure(Lang::En);
    told.write("half");
    assert_eq!(told.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Nothing);
    assert!(told.hands.draft.is_empty());
    assert_eq!(told.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL), UserAction::Quit);
}

#[test]
fn a_message_of_several_lines_is_written_and_sent_whole() {
    let mut told = ChatFixture::new(Lang::Zh);
    told.write("第一行");
    told.press_with(KeyCode::Enter, KeyModifiers::ALT);
    told.hands.take(Input::Paste("second\r\nthird".into()), &told.view, 10);
    insta::assert_snapshot!("draft_zh_36", told.shown(36, 14));
    assert_eq!(told.press(KeyCode::Enter), UserAction::Send("第一行\nsecond\nthird".into()));
    assert_eq!(told.press(KeyCode::Enter), UserAction::Nothing, "an empty draft is not sent");
}

#[test]
fn what_was_said_can_be_scrolled_to_and_no_further() {
    let mut told = correction(Lang::En);
    let long: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    told.words(2, &long);
    assert!(told.shown(40, 12).contains("line 60"));
    for _ in 0..50 {
        told.press(KeyCode::PageUp);
    }
    let shown = told.shown(40, 12);
    assert!(shown.contains("read README.md") && shown.contains("lines below"), "{shown}");
    told.press(KeyCode::Esc);
    told.hands.scrolled = 0;
    assert!(told.shown(40, 12).contains("line 60"));
}

#[test]
fn words_that_came_in_one_piece_are_shown_once() {
    let mut told = ChatFixture::new(Lang::En);
    told.message("hi").begin().words(1, "Hello.");
    let content = vec![Block::Text("Hello.".into())];
    let (stop, usage) = (ModelStop::EndTurn, Usage::default());
    told.tell(Event::ModelAnswered { step: 1, content, stop, usage });
    assert_eq!(told.shown(80, 20).matches("Hello.").count(), 1);
    let content = vec![Block::Text("Whole.".into())];
    told.step(2, 1).tell(Event::ModelAnswered { step: 2, content, stop, usage });
    assert_eq!(told.shown(80, 20).matches("Whole.").count(), 1);
}

#[test]
fn a_call_ends_with_what_it_gave() {
    let mut told = correction(Lang::En);
    let output = Output { data: json!({"text": "# One"}), ..Output::default() };
    told.ends(2, "fs_read", Outcome::Done(output)).ended(StopReason::EndTurn, None);
    let shown = told.shown(80, 20);
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
        faults: Default::default(),
    }
}

#[test]
fn a_session_is_found_by_its_words_and_chosen() {
    let sessions = vec![
        summary(31, SessionState::Running, "count the headings"),
        summary(22, SessionState::Asking, "读取文件"),
        summary(13, SessionState::Failed, "sign in"),
    ];
    let mut list = pick::SessionList { sessions, search: String::new(), at: 0 };
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    for (name, lang, columns) in [("en", Lang::En, 70), ("zh", Lang::Zh, 40)] {
        let mut terminal = Terminal::new(TestBackend::new(columns, 8)).unwrap();
        let now = at(40_000);
        terminal.draw(|frame| _ = pick::draw(frame, &list, now, LOOK, lang)).unwrap();
        let text = shown(terminal.backend().buffer());
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
