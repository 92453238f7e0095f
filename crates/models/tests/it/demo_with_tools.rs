//! The demo model with the real built-in tools: our errors are good enough to correct a call from.

use std::sync::Arc;

use crate::support::{InstantClock, pieces, request, shared};
use budao_core::{
    lang::Lang,
    limits::Limits,
    message::{Block, Message, ModelRequest, Piece, Role, ToolUse, text_of},
    tool::Outcome,
};
use budao_models::{Demo, Pace};
use budao_tools::{
    Toolbox,
    builtin::{self, BuiltinOptions, Workspace},
    isolation,
};
use rstest::rstest;
use tempfile::TempDir;

const README: &str = "# Budao\n\nFalls well.\n\n```sh\n# not a heading\n```\n\n## Use\n\n## More\n";

/// A session in a folder of its own.
struct Session {
    room: TempDir,
    toolbox: Toolbox,
    messages: Vec<Message>,
    calls: Vec<(ToolUse, bool)>,
    lang: Lang,
}

impl Session {
    fn new(lang: Lang) -> Self {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("README.md"), README).unwrap();
        let workspace = Workspace::open(room.path()).unwrap();
        let tools = builtin::tools(&workspace, &BuiltinOptions::default());
        let toolbox = Toolbox::builder().build().with_all(tools).unwrap();
        Self { room, toolbox, messages: Vec::new(), calls: Vec::new(), lang }
    }

    /// Runs one turn; the last words of the model come back.
    async fn turn(&mut self, text: &str) -> String {
        let demo = Demo::new(Pace::Fast, Arc::new(InstantClock));
        self.messages.push(Message::user(text));
        for _ in 0..10 {
            let messages = shared(self.messages.iter().cloned());
            let asked = ModelRequest { messages, tools: self.toolbox.specs(), ..request("") };
            let content: Vec<_> = pieces(&demo, asked)
                .await
                .unwrap()
                .into_iter()
                .filter_map(|piece| match piece {
                    Piece::Block(block) => Some(block),
                    _ => None,
                })
                .collect();
            self.messages.push(Message { role: Role::Assistant, content: content.clone() });
            let Some(Block::ToolUse(call)) = content.last() else { return text_of(&content) };
            let result = self.call(call).await;
            self.messages.push(Message { role: Role::User, content: vec![result] });
        }
        panic!("no end: {:?}", self.calls)
    }

    async fn call(&mut self, call: &ToolUse) -> Block {
        let mut context = isolation::context_with(Limits::default());
        context.lang = self.lang;
        let outcome = match self.toolbox.check(call, &context.limits) {
            Ok(ready) => ready.run(context).await,
            Err(fault) => Outcome::from(fault),
        };
        let (content, is_error) = outcome.render_for_model(self.lang);
        self.calls.push((call.clone(), is_error));
        Block::ToolResult { call: call.id.clone(), is_error, content }
    }
}

#[rstest]
#[case("read README.md and count its headings", Lang::En, "README.md has 3 headings.")]
#[case("list the files here, then say done", Lang::En, "There is 1 file:\nREADME.md\ndone")]
#[case("search for well in README.md", Lang::En, "well: 1 match.\nREADME.md:3: Falls well.")]
#[case("write hello to note.txt", Lang::En, "Wrote 5 bytes to note.txt.")]
#[case("run echo hello", Lang::En, "`echo hello` ended with status 0.\nhello")]
#[case("remember to call Ada", Lang::En, "Noted: call Ada.")]
#[case("读取 README.md 并统计标题", Lang::Zh, "README.md 有 3 个标题。")]
#[case("列出这里的文件，然后说完成", Lang::Zh, "有 1 个文件：\nREADME.md\n完成")]
#[case("在 README.md 中搜索 well", Lang::Zh, "well：1 处。\nREADME.md:3: Falls well.")]
#[case("把 你好 写入 note.txt", Lang::Zh, "已向 note.txt 写入 6 字节。")]
#[case("运行 echo hello", Lang::Zh, "`echo hello` 以状态 0 结束。\nhello")]
#[case("记住 买牛奶", Lang::Zh, "记下了：买牛奶。")]
#[tokio::test]
async fn it_errs_once_and_corrects_itself_from_our_error(
    #[case] text: &str,
    #[case] lang: Lang,
    #[case] answer: &str,
) {
    let mut session = Session::new(lang);
    let said = session.turn(text).await;
    let failed: Vec<_> = session.calls.iter().map(|(_, failed)| *failed).collect();
    assert_eq!(failed, [true, false], "{:#?}", session.messages);
    assert_eq!(said, answer);
    if text.contains("note.txt") {
        assert!(session.room.path().join("note.txt").exists());
    }
}

#[rstest]
#[case("read READNE.md and count its headings", Lang::En, "READNE.md has 3 headings.")]
#[case("读取 READNE.md 并统计标题", Lang::Zh, "READNE.md 有 3 个标题。")]
#[tokio::test]
async fn the_error_of_a_misspelt_file_names_the_right_one(
    #[case] text: &str,
    #[case] lang: Lang,
    #[case] answer: &str,
) {
    let mut session = Session::new(lang);
    assert_eq!(session.turn(text).await, answer, "{:#?}", session.messages);
}
