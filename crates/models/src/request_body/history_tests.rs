//! Random lives of a session: whatever happens to its history, its models and its tools, the body that is built after
//! earlier requests is byte for byte the one that is built from nothing.

use budao_core::message::{CallId, ToolUse};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{
    anthropic::AnthropicFormat,
    gemini::GeminiFormat,
    openai,
    responses::{self, Reasoning},
    shape::ShapeForm,
    testing,
};

/// One thing that happens between two requests of a session.
#[derive(Clone, Debug)]
enum Step {
    Message(Role, Vec<Part>),
    /// A summary takes the place of this many messages.
    Compact(usize),
    /// The session goes back to this many messages, as a fork of it does.
    Truncate(usize),
    /// A message gets another text, in its allocation if nobody else has it.
    Change(usize),
    /// The history is loaded again: the same messages in new allocations.
    Reload,
    /// Another session begins that has the key and the first messages of this one.
    Restart,
    /// The tools on offer are others.
    Tools(usize),
    /// The final answer has a shape, or no longer.
    Shape(bool),
}

/// A block of a message, without its text.
#[derive(Clone, Copy, Debug)]
enum Part {
    Text,
    Nothing,
    Long,
    Image,
    Call,
    Result,
    Thinking(bool),
    Redacted,
    Reasoning,
    Phase,
    Signature(bool),
    Foreign,
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        4 => Just(Part::Text),
        1 => Just(Part::Nothing),
        1 => Just(Part::Long),
        1 => Just(Part::Image),
        3 => Just(Part::Call),
        3 => Just(Part::Result),
        1 => any::<bool>().prop_map(Part::Thinking),
        1 => Just(Part::Redacted),
        1 => Just(Part::Reasoning),
        1 => Just(Part::Phase),
        1 => any::<bool>().prop_map(Part::Signature),
        1 => Just(Part::Foreign),
    ];
    prop::collection::vec(part, 0..4)
}

fn steps() -> impl Strategy<Value = Vec<(Step, usize)>> {
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant)];
    let at = 0..40_usize;
    let step = prop_oneof![
        12 => (role, parts()).prop_map(|(role, parts)| Step::Message(role, parts)),
        1 => at.clone().prop_map(Step::Compact),
        1 => at.clone().prop_map(Step::Truncate),
        1 => at.prop_map(Step::Change),
        1 => Just(Step::Reload),
        1 => Just(Step::Restart),
        1 => (0..3_usize).prop_map(Step::Tools),
        1 => any::<bool>().prop_map(Step::Shape),
    ];
    // The number chooses the model that is asked next.
    prop::collection::vec((step, 0..64_usize), 1..40)
}

/// A session, and what the providers of four services keep of it.
struct Life {
    history: Vec<Arc<Message>>,
    tools: Arc<[Arc<ToolSpec>]>,
    has_shape: bool,
    count: usize,
    providers: [EncodedSessions; 4],
}

impl Life {
    fn new() -> Self {
        let history = vec![Arc::new(Message::user("Hello."))];
        let providers = [(); 4].map(|()| EncodedSessions::default());
        Self { history, tools: Arc::new([]), has_shape: false, count: 0, providers }
    }

    fn block(&mut self, part: Part) -> Block {
        self.count += 1;
        let count = self.count;
        let opaque = |kind: &str, rest: &str| {
            Block::Opaque(format!(r#"{{"type":"{kind}"{rest},"id":"{count}"}}"#))
        };
        match part {
            Part::Text => Block::Text(format!("text {count} \"quoted\" 文")),
            Part::Nothing => Block::Text(String::new()),
            Part::Long => Block::Text("long ".repeat(PART_BYTES / 4 + count)),
            Part::Image => {
                Block::Image { media_type: "image/png".into(), data: format!("AAAA{count}") }
            }
            Part::Call => Block::ToolUse(ToolUse {
                id: CallId::from(format!("call:{}", count % 7).as_str()),
                name: "fs.read".into(),
                arguments: r#"{"path":"a"}"#.into(),
            }),
            Part::Result => Block::ToolResult {
                call: CallId::from(format!("call:{}", count % 7).as_str()),
                is_error: count.is_multiple_of(2),
                content: r#"{"ok":true}"#.into(),
            },
            Part::Thinking(is_signed) => Block::Thinking {
                text: format!("thought {count}"),
                signature: is_signed.then(|| format!("signed {count}")),
            },
            Part::Redacted => opaque("redacted_thinking", r#","data":"x""#),
            Part::Reasoning => opaque("reasoning", r#","summary":[],"encrypted_content":"x""#),
            Part::Phase => opaque("openai_phase", r#","phase":"commentary""#),
            Part::Signature(is_next) => {
                let on = if is_next { "next" } else { "empty" };
                opaque("gemini_signature", &format!(r#","signature":"s","on":"{on}""#))
            }
            Part::Foreign => opaque("of_tomorrow", ""),
        }
    }

    fn happen(&mut self, step: &Step) {
        match step {
            Step::Message(role, parts) => {
                let content = parts.iter().map(|part| self.block(*part)).collect();
                self.history.push(Arc::new(Message { role: *role, content }));
            }
            Step::Compact(count) => {
                let count = (*count).min(self.history.len() - 1);
                self.history.drain(..count);
                self.history.insert(0, Arc::new(Message::user("A summary.")));
            }
            Step::Truncate(length) => self.history.truncate((*length).max(1)),
            Step::Change(at) => {
                self.count += 1;
                let at = *at % self.history.len();
                let message = Arc::make_mut(&mut self.history[at]);
                message.content.push(Block::Text(format!("change {}", self.count)));
            }
            Step::Reload => {
                for message in &mut self.history {
                    *message = Arc::new(Message::clone(message));
                }
            }
            Step::Restart => {
                self.history.truncate(2);
                self.history.push(Arc::new(Message::user("Another.")));
            }
            Step::Tools(count) => {
                let names = ["fs_read", "final_answer"];
                self.tools = names.iter().take(*count).map(|name| testing::tool(name)).collect();
            }
            Step::Shape(has_shape) => self.has_shape = *has_shape,
        }
    }

    fn request(&self) -> ModelRequest {
        let mut answers = self.tools.iter().filter(|tool| &*tool.name == "final_answer");
        ModelRequest {
            messages: Arc::new(self.history.clone()),
            tools: Arc::clone(&self.tools),
            answer: answers.next().filter(|_| self.has_shape).cloned(),
            cache_key: Some("s".into()),
            ..testing::request("")
        }
    }

    /// Asks one of the four services, in one of the forms in which its provider asks.
    fn ask(&self, choice: usize) {
        let request = self.request();
        let (is_first, is_second) = (choice & 4 == 0, choice & 8 == 0);
        let form = if is_first { ShapeForm::Native } else { ShapeForm::Tool };
        let earlier = &self.providers[choice % 4];
        match choice % 4 {
            0 => compare(earlier, &AnthropicFormat { model: "m" }, &request),
            1 => {
                let mut format = openai::format("m");
                (format.form, format.no_reasoning) = (form, is_second);
                compare(earlier, &format, &request);
            }
            2 => {
                let mut format = responses::format("m");
                format.form = form;
                let reduced = [Reasoning::Dropped, Reasoning::Unsupported][choice / 16 % 2];
                format.parts.earlier = if is_second { Reasoning::Sent } else { reduced };
                compare(earlier, &format, &request);
            }
            _ => compare(earlier, &GeminiFormat { substitute: is_second, form }, &request),
        }
    }
}

fn compare(earlier: &EncodedSessions, format: &impl WireFormat, request: &ModelRequest) {
    let body = earlier.body(format, request).to_vec();
    let whole = format.encode(request);
    let text = String::from_utf8_lossy;
    assert!(body == whole, "built: {}\nwhole: {}", text(&body), text(&whole));
    let value: Value = serde_json::from_slice(&body).expect("a body is JSON");
    assert!(value.is_object());
}

/// Goal: nothing stale is ever sent.
/// Method: 400 random lives; after every step one of the services is asked, with what its provider keeps.
#[test]
fn a_body_built_after_others_is_the_body_built_from_nothing() {
    let config =
        ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps())| {
        let mut life = Life::new();
        for (step, choice) in &steps {
            life.happen(step);
            life.ask(*choice);
        }
        (0..64).for_each(|choice| life.ask(choice));
    });
}

#[test]
fn the_tool_of_the_final_answer_is_not_left_in_the_list_of_an_earlier_request() {
    let mut life = Life::new();
    life.happen(&Step::Message(Role::Assistant, vec![Part::Text]));
    life.happen(&Step::Message(Role::User, vec![Part::Text]));
    life.happen(&Step::Tools(2));
    for has_shape in [false, true, false] {
        life.happen(&Step::Shape(has_shape));
        for service in 0..4 {
            life.ask(service);
        }
    }
}
