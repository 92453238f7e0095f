//! The demo model against simulated tools that answer like the real ones.

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Mismatch, Operation, render},
    lang::Lang,
    message::{Block, Message, Piece, Role, success_content},
    tool::Failure,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    task::{FileQuery, understand},
    *,
};
use crate::testing::{self, InstantClock, ask_all, request};

fn failed(fault: Fault, lang: Lang) -> Result<Value, String> {
    Err(render::render_for_model(&Failure { fault, data: None, note: None }, lang).to_json())
}

/// A session of the demo model; a function stands in for the tools.
struct Session {
    messages: Vec<Message>,
    calls: Vec<(String, Value)>,
}

impl Session {
    fn new() -> Self {
        Self { messages: Vec::new(), calls: Vec::new() }
    }

    /// Sends a message, runs the turn to its end and returns the model's last text.
    fn turn(
        &mut self,
        text: &str,
        mut tools: impl FnMut(&str, &Value) -> Result<Value, String>,
    ) -> String {
        let demo = Demo::new(Pace::Fast, Arc::new(InstantClock::default()));
        self.messages.push(Message::user(text));
        for _ in 0..20 {
            let asked = ModelRequest { tools: all_tools(), ..testing::user(self.messages.clone()) };
            let pieces = ask_all(&demo, asked).unwrap();
            let content: Vec<Block> = pieces
                .into_iter()
                .filter_map(|piece| match piece {
                    Piece::Block(block) => Some(block),
                    _ => None,
                })
                .collect();
            self.messages.push(Message { role: Role::Assistant, content: content.clone() });
            let Some(Block::ToolUse(call)) = content.last() else {
                return budao_core::message::text_of(&content);
            };
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            self.calls.push((call.name.clone(), arguments.clone()));
            let (is_error, content) = match tools(&call.name, &arguments) {
                Ok(data) => (false, success_content(&data, None)),
                Err(content) => (true, content),
            };
            let result = Block::ToolResult { call: call.id.clone(), is_error, content };
            self.messages.push(Message { role: Role::User, content: vec![result] });
        }
        panic!("no end: {:?}", self.calls)
    }
}

fn all_tools() -> Arc<[Arc<budao_core::tool::ToolSpec>]> {
    ["fs_read", "fs_glob", "fs_grep", "fs_write", "bash_run", "todo_write"]
        .iter()
        .map(|name| testing::tool(name))
        .collect()
}

/// Refuses arguments without this parameter, with the fault the call path would give.
fn wants(parameter: &str, arguments: &Value, lang: Lang, data: Value) -> Result<Value, String> {
    if arguments.get(parameter).is_some() {
        return Ok(data);
    }
    let stranger = arguments.as_object().and_then(|all| all.keys().next().cloned()).unwrap();
    let unknown = Mismatch {
        pointer: format!("/{stranger}"),
        rule: "additionalProperties".into(),
        expected: format!("unknown key; known are {parameter}"),
        ..Mismatch::default()
    };
    let required = Mismatch {
        pointer: format!("/{parameter}"),
        rule: "required".into(),
        expected: "required".into(),
        ..Mismatch::default()
    };
    let fault = Fault::new(Kind::InvalidArguments, Operation::ToolCall)
        .with(Fact::ToolName, "t")
        .mismatch(required)
        .mismatch(unknown);
    failed(fault, lang)
}

const README: &str = "# Budao\n\ntext\n\n```sh\n# not a heading\n```\n## Use\n#hashtag\n### More\n";

fn readme() -> Value {
    json!({"path": "README.md", "content": README, "truncated": false, "totalLines": 10})
}

#[rstest]
#[case("read README.md and count its headings", Lang::En, "README.md has 3 headings.")]
#[case(
    "Please read the file `README.md`, then count its headings.",
    Lang::En,
    "README.md has 3 headings."
)]
#[case("how many lines are in README.md?", Lang::En, "README.md has 10 lines.")]
#[case("读取 README.md 并统计标题", Lang::Zh, "README.md 有 3 个标题。")]
fn it_errs_once_reads_the_error_and_answers(
    #[case] text: &str,
    #[case] lang: Lang,
    #[case] answer: &str,
) {
    let mut session = Session::new();
    let said = session.turn(text, |_, arguments| wants("path", arguments, lang, readme()));
    assert_eq!(said, answer);
    let call = |arguments| ("fs_read".to_owned(), arguments);
    assert_eq!(
        session.calls,
        [call(json!({"file": "README.md"})), call(json!({"path": "README.md"}))]
    );
    // The model makes its mistake only once per session.
    session.turn(text, |_, arguments| wants("path", arguments, lang, readme()));
    assert_eq!(session.calls.len(), 3);
}

/// Goal: the model corrects itself from the fault alone.
/// Method: a tool whose parameter has a name that cannot be guessed.
#[test]
fn it_believes_the_error() {
    let mut session = Session::new();
    session.turn("read a.md", |_, arguments| {
        wants("zwiebel", arguments, Lang::En, json!({"content": "x"}))
    });
    assert_eq!(session.calls[1].1, json!({"zwiebel": "a.md"}));
}

#[test]
fn an_error_that_does_not_help_is_called_that() {
    let mut session = Session::new();
    let said = session.turn("read a.md", |_, _| Err(r#"{"ok":false,"error":"no"}"#.into()));
    assert_eq!(
        said,
        "fs_read failed with “no”, and the error did not tell me how to correct the call."
    );
    assert_eq!(session.calls.len(), 1);
}

#[test]
fn a_call_that_was_denied_is_not_repeated() {
    let mut session = Session::new();
    let denied =
        Fault::new(Kind::DeniedByPerson, Operation::ToolCall).with(Fact::ToolName, "bash_run");
    let said = session.turn("run ls", |_, _| failed(denied.clone(), Lang::En));
    assert!(said.starts_with("I could not do it"), "{said}");
    assert_eq!(session.calls.len(), 1);
}

#[test]
fn it_mends_from_lines_and_examples_too() {
    for error in [
        json!({"ok": false, "error": "Invalid parameters: path: required\nfile: unknown key; did you mean `path`?"}),
        json!({"ok": false, "error": "wrong", "example": {"path": "some/file.txt"}}),
        json!({"ok": false, "error": "wrong", "mismatches": [{"pointer": "/file", "rule": "additionalProperties", "nearest": "path"}]}),
    ] {
        let mut session = Session::new();
        session.turn("read a.md", |_, arguments| match arguments.get("path") {
            Some(_) => Ok(json!({"content": "x"})),
            None => Err(error.to_string()),
        });
        assert_eq!(session.calls.last().unwrap().1, json!({"path": "a.md"}), "{error}");
    }
}

#[test]
fn it_takes_the_nearest_file_if_the_error_names_one() {
    let mut session = Session::new();
    let said =
        session.turn(
            "read READM.md and count its headings",
            |_, arguments| {
                match arguments["path"].as_str() {
            None => wants("path", arguments, Lang::En, Value::Null),
            Some("README.md") => Ok(readme()),
            Some(_) => Err(
                json!({"ok": false, "error": "File not found: READM.md", "next": "retry_changed",
                "recommendations": ["Did you mean `README.md`?"]})
                .to_string(),
            ),
        }
            },
        );
    assert_eq!(said, "READM.md has 3 headings.");
}

#[test]
fn one_request_may_ask_for_several_things() {
    let mut session = Session::new();
    let said = session.turn("list the files here, then say done", |_, arguments| {
        wants("pattern", arguments, Lang::En, json!({"matches": ["a.md", "b.md"], "count": 2}))
    });
    assert_eq!(said, "There are 2 files:\na.md\nb.md\ndone");
    let tools: Vec<_> = session.calls.iter().map(|(tool, _)| tool.as_str()).collect();
    assert_eq!(tools, ["fs_glob", "fs_glob"]);
}

/// Corrects these arguments from a fault that reports one mismatch.
fn mended(arguments: &Value, place: &Value) -> CorrectionResult {
    let (id, name) = (budao_core::message::CallId::from("c"), "t".to_owned());
    let used = ToolUse { id, name, arguments: arguments.to_string() };
    let result = json!({"ok": false, "error": "Invalid parameters", "mismatches": [place]});
    correction::correct_call(&DemoCall { used: &used, result, failed: true }, 1)
}

#[test]
fn a_value_of_the_wrong_type_is_made_into_the_one_the_error_names() {
    let place = |expected: &str| json!({"pointer": "/x", "rule": "type", "expected": expected});
    for (sent, expected, better) in [
        (json!("5"), "must be an integer", json!(5)),
        (json!("true"), "must be a boolean", json!(true)),
        (json!(5), "must be a string", json!("5")),
        (json!(["a"]), "must be a string", json!("a")),
        (json!({"a": 1}), "must be an array", json!([{"a": 1}])),
        (json!("[1]"), "must be an array", json!([1])),
    ] {
        let change = correction::Correction::Replaced { name: "x".into() };
        let arguments = json!({"x": better});
        let want = CorrectionResult::Call { tool: "t".into(), arguments, change };
        assert_eq!(mended(&json!({"x": sent}), &place(expected)), want);
    }
    let allowed =
        json!({"pointer": "/x", "rule": "enum", "allowed": ["red", "blue"], "nearest": "blue"});
    let CorrectionResult::Call { arguments, .. } = mended(&json!({"x": "blu"}), &allowed) else {
        panic!()
    };
    assert_eq!(arguments, json!({"x": "blue"}));
}

#[test]
fn an_unknown_tool_is_called_by_the_name_the_error_gives() {
    for (error, name) in [
        ("There is no tool called fs_red. Did you mean: fs_read, fs_edit?", "fs_read"),
        ("没有名为 fs_red 的工具。是不是想用：fs_read？", "fs_read"),
    ] {
        let used = ToolUse {
            id: budao_core::message::CallId::from("c"),
            name: "fs_red".into(),
            arguments: "{}".into(),
        };
        let result = json!({"ok": false, "error": error, "code": "ERR_TOOL_001"});
        let mended = correction::correct_call(&DemoCall { used: &used, result, failed: true }, 1);
        assert!(
            matches!(mended, CorrectionResult::Call { ref tool, .. } if tool == name),
            "{mended:?}"
        );
    }
}

#[test]
fn the_demo_model_names_its_commands_and_missing_tools() {
    assert!(Session::new().turn("what is love", |_, _| unreachable!()).contains("demo model"));
    assert!(Session::new().turn("什么是爱", |_, _| unreachable!()).contains("演示模型"));
    let demo = Demo::new(Pace::Fast, Arc::new(InstantClock::default()));
    let pieces = ask_all(&demo, request("run ls")).unwrap();
    let Piece::Block(Block::Text(text)) = &pieces[pieces.len() - 2] else { panic!("{pieces:?}") };
    assert!(text.contains("`bash_run`"), "{text}");
}

const PLANNER: &str =
    "Divide the work below into tasks that can be done side by side.\n\nThe work:\n";

#[rstest]
#[case("count slowly to 4; fail once, then read a.md and then count its lines", json!({
    "summary": "3 tasks, side by side.",
    "tasks": [
        {"id": "1", "title": "count slowly to 4", "prompt": "count slowly to 4"},
        {"id": "2", "title": "fail once", "prompt": "refuse the first attempt"},
        {"id": "3", "title": "read a.md, count its lines", "prompt": "read a.md\ncount its lines"},
    ],
}))]
#[case("数到 3；失败一次", json!({
    "summary": "2 个任务，同时进行。",
    "tasks": [
        {"id": "1", "title": "数到 3", "prompt": "数到 3"},
        {"id": "2", "title": "失败一次", "prompt": "第一次尝试时拒绝"},
    ],
}))]
#[case("what is love?\n\nAn earlier answer could not be used. No.", json!({
    "summary": "1 task.",
    "tasks": [{"id": "1", "title": "what is love?", "prompt": "what is love?"}],
}))]
fn it_divides_work_into_tasks(#[case] work: &str, #[case] plan: Value) {
    let said = Session::new().turn(&format!("{PLANNER}{work}"), |_, _| unreachable!());
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), plan);
}

#[rstest]
#[case("refuse the first attempt", "It worked this time.")]
#[case("第一次尝试时拒绝", "这次成功了。")]
fn it_refuses_a_task_until_the_prompt_names_a_later_attempt(
    #[case] task: &str,
    #[case] said: &str,
) {
    let demo = Demo::new(Pace::Fast, Arc::new(InstantClock::default()));
    let pieces = ask_all(&demo, request(task)).unwrap();
    let stops = |piece: &Piece| matches!(piece, Piece::End { stop: ModelStop::Refusal, .. });
    assert!(pieces.iter().any(stops), "{pieces:?}");
    let again = format!("{task}\n\nThis is attempt 2 at this task.");
    assert_eq!(Session::new().turn(&again, |_, _| unreachable!()), said);
}

#[test]
fn it_combines_the_results_of_tasks_and_names_what_is_missing() {
    let prompt = "Answer the question below from the results of the tasks it was divided into.\n\n\
        The question:\ncount to 2; read b.md\n\n## Task 1: count to 2\n1 2\n\n## Task 2: read b.md\nFAILED: no\n";
    let said = Session::new().turn(prompt, |_, _| unreachable!());
    let expected =
        "1 of 2 tasks gave a result.\n\n**count to 2**\n\n1 2\n\n**read b.md**\n\nFailed: no";
    assert_eq!(said, expected);
}

#[test]
fn it_counts_at_a_pace_people_can_cut() {
    let clock = Arc::new(InstantClock::default());
    let pieces =
        ask_all(&Demo::new(Pace::Reading, clock.clone()), request("count slowly to 50")).unwrap();
    assert_eq!(pieces.iter().filter(|piece| matches!(piece, Piece::Text(_))).count(), 50);
    assert_eq!(clock.slept(), Duration::from_millis(50 * 300));
    let clock = Arc::new(InstantClock::default());
    ask_all(&Demo::new(Pace::Fast, clock.clone()), request("慢慢数到 50")).unwrap();
    assert_eq!(clock.slept(), Duration::ZERO);
}

#[expect(clippy::needless_pass_by_value, reason = "calls read better with a literal")]
fn call(tool: &str, arguments: Value) -> Goal {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    Goal::Call { tool: tool.into(), arguments }
}

#[test]
fn the_first_call_of_any_tool_has_a_misspelt_key() {
    let goal = call("stock", json!({"item": "B-1", "n": 1}));
    assert_eq!(goal.mistaken(), json!({"ite": "B-1", "n": 1}));
    assert_eq!(call("now", json!({})).mistaken(), json!({}));
    assert_eq!(call("x", json!({"é": 1})).mistaken(), json!({"é_": 1}));
}

#[rstest]
#[case("say hello there", Goal::Say { text: "hello there".into() })]
#[case("Say \"a, then b\"", Goal::Say { text: "a, then b".into() })]
#[case("count to 3", Goal::CountTo { number: 3, slowly: false })]
#[case("count slowly to 999999", Goal::CountTo { number: 1000, slowly: true })]
#[case("run cargo test -p x", Goal::Run { command: "cargo test -p x".into() })]
#[case("run `ls; pwd`", Goal::Run { command: "ls; pwd".into() })]
#[case("write hello world to notes/a.txt", Goal::Write { path: "notes/a.txt".into(), content: "hello world".into() })]
#[case("create a.txt with \"x = 1\"", Goal::Write { path: "a.txt".into(), content: "x = 1".into() })]
#[case("search for TODO in src", Goal::Search { text: "TODO".into(), path: "src".into() })]
#[case("list *.rs", Goal::List { pattern: "*.rs".into() })]
#[case("list all files", Goal::List { pattern: "**/*".into() })]
#[case("list the files in src", Goal::List { pattern: "src/*".into() })]
#[case("read docs/a.md", Goal::Read { path: "docs/a.md".into(), query: FileQuery::Beginning })]
#[case("count the words in a.md.", Goal::Read { path: "a.md".into(), query: FileQuery::Words })]
#[case("todo: buy milk", Goal::Remember { title: "buy milk".into() })]
#[case("call stock with item=B-1042, count=3", call("stock", json!({"item": "B-1042", "count": 3})))]
#[case("call stock with {\"item\": \"a, then b\"}", call("stock", json!({"item": "a, then b"})))]
#[case("call now", call("now", json!({})))]
#[case("调用 stock，item=B-1042", call("stock", json!({"item": "B-1042"})))]
#[case("列出这里的文件", Goal::List { pattern: "*".into() })]
#[case("列出 src 目录的文件", Goal::List { pattern: "src/*".into() })]
#[case("说 你好", Goal::Say { text: "你好".into() })]
#[case("慢慢数到50", Goal::CountTo { number: 50, slowly: true })]
#[case("把 你好 写入 a.txt", Goal::Write { path: "a.txt".into(), content: "你好".into() })]
#[case("运行 ls -l", Goal::Run { command: "ls -l".into() })]
#[case("记住：买牛奶", Goal::Remember { title: "买牛奶".into() })]
#[case("在 src 中搜索 TODO", Goal::Search { text: "TODO".into(), path: "src".into() })]
#[case("统计README.md的行数", Goal::Read { path: "README.md".into(), query: FileQuery::Lines })]
fn a_plain_request_is_understood(#[case] text: &str, #[case] goal: Goal) {
    assert_eq!(understand(text), [goal]);
}

proptest::proptest! {
    #[test]
    fn no_input_makes_the_demo_model_panic(text: String, more in "(read|list|say|write|run|读取|列出|把|数到|在)? ?[\\PC]{0,30}") {
        let _ = understand(&text);
        let _ = understand(&more);
    }

    #[test]
    fn no_error_makes_it_panic(error: String, keys in "[a-z/`:? ]{0,20}") {
        for content in [error.clone(), json!({"error": error, "next": "retry_same", "example": {&keys: 1},
            "mismatches": [{"pointer": keys, "rule": "type", "expected": "must be an array"}]}).to_string()] {
            let mut left = 6;
            Session::new().turn("read a.md", |_, _| {
                left -= 1;
                assert!(left > 0, "it never gives up");
                Err(content.clone())
            });
        }
    }
}
