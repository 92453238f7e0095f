//! The demo model's replies, in the language of the request.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    correction::Correction,
    history::DemoCall,
    task::{DemoLanguage, FileQuery, Goal},
};

/// Maximum lines of a long result that a reply shows.
const LINES: usize = 10;

/// Returns the text in the given language.
fn either(tongue: DemoLanguage, english: String, chinese: String) -> String {
    match tongue {
        DemoLanguage::English => english,
        DemoLanguage::Chinese => chinese,
    }
}

pub(super) fn help(tongue: DemoLanguage) -> String {
    either(
        tongue,
        "I am the built-in demo model: a few rules, no network. I understand requests such as \
         `read README.md and count its headings`, `list the files here, then say done`, \
         `search for TODO in src`, `write hello to note.txt`, `run ls`, `remember to call Ada`, \
         `call TOOL with key=value`, \
         `count slowly to 50` and `say hello`. With a plan, each part is a task of its own, and \
         `fail once` is one that has to be restarted."
            .into(),
        "我是内置的演示模型：只有几条规则，不用网络。我听得懂这样的请求：`读取 README.md 并统计标题`、\
         `列出这里的文件，然后说完成`、`在 src 中搜索 TODO`、`把 你好 写入 note.txt`、`运行 ls`、\
         `记住 给小王打电话`、`调用 TOOL，key=value`、`慢慢数到 50`、`说 你好`。做计划时，每一部分是一个任务；\
         `失败一次` 是需要重新开始的任务。"
            .into(),
    )
}

pub(super) fn no_such_tool(tool: &str, tongue: DemoLanguage) -> String {
    either(
        tongue,
        format!("I would need the tool `{tool}` for that, and it is not among those I was given."),
        format!("这需要工具 `{tool}`，但给我的工具里没有它。"),
    )
}

pub(super) fn intention(goal: &Goal, tongue: DemoLanguage) -> String {
    let (english, chinese) = match goal {
        Goal::Read { path, .. } => (format!("I will read {path}."), format!("我来读取 {path}。")),
        Goal::List { pattern } => {
            (format!("I will list the files ({pattern})."), format!("我来列出文件（{pattern}）。"))
        }
        Goal::Search { text, path } => {
            (format!("I will search {path} for {text}."), format!("我在 {path} 中搜索 {text}。"))
        }
        Goal::Write { path, .. } => (format!("I will write {path}."), format!("我来写 {path}。")),
        Goal::Run { command } => {
            (format!("I will run `{command}`."), format!("我来运行 `{command}`。"))
        }
        Goal::Remember { .. } => ("I will note that.".into(), "我记下来。".into()),
        Goal::Call { tool, .. } => (format!("I will call {tool}."), format!("我来调用 {tool}。")),
        Goal::CountTo { .. } | Goal::Say { .. } | Goal::FailOnce | Goal::RefuseFirst => {
            Default::default()
        }
    };
    either(tongue, english, chinese)
}

pub(super) fn correction(change: &Correction, tongue: DemoLanguage) -> String {
    let (english, chinese) = match change {
        Correction::Again => (
            "That failed, but the same call may work now.".into(),
            "失败了，但再试一次可能成功。".into(),
        ),
        Correction::Renamed { from, to } => (
            format!("The error says that `{from}` should be `{to}`. Once more."),
            format!("错误信息说 `{from}` 应为 `{to}`。再来一次。"),
        ),
        Correction::Replaced { name } => (
            format!("The error says what `{name}` should be. Once more."),
            format!("错误信息说明了 `{name}` 该是什么。再来一次。"),
        ),
        Correction::Tool { to } => (
            format!("The error says that the tool is called `{to}`. Once more."),
            format!("错误信息说工具名是 `{to}`。再来一次。"),
        ),
        Correction::LikeExample => (
            "The error has an example. Once more, like it.".into(),
            "错误信息里有示例，照着再来一次。".into(),
        ),
    };
    either(tongue, english, chinese)
}

pub(super) fn stopped(call: &DemoCall<'_>, tongue: DemoLanguage) -> String {
    let (tool, error) = (&call.used.name, call.error());
    either(
        tongue,
        format!("I could not do it: {tool} said “{error}”, and that repeating it would not help."),
        format!("没能完成：{tool} 说“{error}”，并且重试没有用。"),
    )
}

pub(super) fn gave_up(call: &DemoCall<'_>, tongue: DemoLanguage) -> String {
    let (tool, error) = (&call.used.name, call.error());
    either(
        tongue,
        format!("I could not get the call of {tool} right. The last error was “{error}”."),
        format!("我始终没能正确调用 {tool}。最后的错误是“{error}”。"),
    )
}

pub(super) fn error_did_not_help(call: &DemoCall<'_>, tongue: DemoLanguage) -> String {
    let (tool, error) = (&call.used.name, call.error());
    either(
        tongue,
        format!(
            "{tool} failed with “{error}”, and the error did not tell me how to correct the call."
        ),
        format!("{tool} 失败：“{error}”。错误信息没有说明该怎样改正。"),
    )
}

/// The prompt of a task that fails at its first attempt.
pub(super) fn name_failing_task(tongue: DemoLanguage) -> String {
    either(tongue, "refuse the first attempt".into(), "第一次尝试时拒绝".into())
}

pub(super) fn describe_plan(tasks: usize, tongue: DemoLanguage) -> String {
    let noun = if tasks == 1 { "task" } else { "tasks, side by side" };
    either(tongue, format!("{tasks} {noun}."), format!("{tasks} 个任务，同时进行。"))
}

/// What a prompt says of a task without a result, and the same in words of this model.
const MISSING: [(&str, &str, &str); 3] = [
    ("FAILED: ", "Failed: ", "失败："),
    ("CANCELLED: ", "Stopped: ", "已停止："),
    ("NOT DONE", "Not done", "未完成"),
];

/// One text from the results of tasks, each with its title. A task without a result says why.
pub(super) fn combine_results(results: &[(&str, &str)], tongue: DemoLanguage) -> String {
    let (mut done, mut sections) = (0, String::new());
    for (title, result) in results {
        let missing = MISSING.iter().find(|(mark, ..)| result.starts_with(mark));
        done += usize::from(missing.is_none());
        let result = missing.map_or_else(
            || (*result).to_owned(),
            |(mark, english, chinese)| {
                either(tongue, (*english).to_owned(), (*chinese).to_owned()) + &result[mark.len()..]
            },
        );
        let _infallible = write!(sections, "\n\n**{title}**\n\n{result}");
    }
    let all = results.len();
    let head = either(
        tongue,
        format!("{done} of {all} tasks gave a result."),
        format!("{all} 个任务中有 {done} 个给出了结果。"),
    );
    head + &sections
}

/// Describes the result of one goal.
pub(super) fn outcome(goal: &Goal, result: Option<&Value>, tongue: DemoLanguage) -> String {
    let nothing = Value::Null;
    let result = result.unwrap_or(&nothing);
    match goal {
        Goal::Say { text } => text.clone(),
        Goal::FailOnce => either(
            tongue,
            "I fail once only as a task of a plan. Choose “Plan first” and send it again.".into(),
            "我只在作为计划中的任务时才会失败一次。请选择“先做计划”再发送。".into(),
        ),
        Goal::RefuseFirst => either(tongue, "It worked this time.".into(), "这次成功了。".into()),
        Goal::CountTo { number, .. } => {
            (1..=*number).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
        }
        Goal::Read { path, query } => of_file(path, *query, result, tongue),
        Goal::List { .. } => listed(result, tongue),
        Goal::Search { text, .. } => found(text, result, tongue),
        Goal::Write { path, content } => {
            let bytes = content.len();
            either(
                tongue,
                format!("Wrote {bytes} bytes to {path}."),
                format!("已向 {path} 写入 {bytes} 字节。"),
            )
        }
        Goal::Run { command } => ran(command, result, tongue),
        Goal::Call { tool, .. } => {
            let said = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
            let lines: Vec<&str> = said.lines().collect();
            either(tongue, format!("{tool} answered:"), format!("{tool} 的回答：")) + &shown(&lines)
        }
        Goal::Remember { title } => {
            either(tongue, format!("Noted: {title}."), format!("记下了：{title}。"))
        }
    }
}

fn of_file(path: &str, query: FileQuery, result: &Value, tongue: DemoLanguage) -> String {
    let content = result["content"].as_str().or_else(|| result.as_str()).unwrap_or_default();
    let lines: Vec<&str> = content.lines().map(unnumbered).collect();
    let count = |count: usize, one: &str, many: &str, chinese: &str| {
        let noun = if count == 1 { one } else { many };
        either(
            tongue,
            format!("{path} has {count} {noun}."),
            format!("{path} 有 {count} 个{chinese}。"),
        )
    };
    let mut text = match query {
        FileQuery::Headings => count(headings(&lines), "heading", "headings", "标题"),
        FileQuery::Lines => {
            let total = result["totalLines"].as_u64().and_then(|total| usize::try_from(total).ok());
            let total = total.unwrap_or(lines.len());
            either(
                tongue,
                format!("{path} has {total} {}.", if total == 1 { "line" } else { "lines" }),
                format!("{path} 有 {total} 行。"),
            )
        }
        FileQuery::Words => {
            let words = lines.iter().flat_map(|line| line.split_whitespace()).count();
            count(words, "word", "words", "词")
        }
        FileQuery::Beginning => {
            either(tongue, format!("{path} begins:"), format!("{path} 的开头：")) + &shown(&lines)
        }
    };
    if result["truncated"] == true && query != FileQuery::Lines {
        text += &either(
            tongue,
            " That is for the part I was shown; the file goes on.".into(),
            "这只是给我看的部分，文件后面还有。".into(),
        );
    }
    text
}

/// Counts Markdown headings, except those in code fences.
fn headings(lines: &[&str]) -> usize {
    let mut fence: Option<&str> = None;
    let mut count = 0;
    for line in lines.iter().map(|line| line.trim_start()) {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => {
                let level = line.bytes().take_while(|byte| *byte == b'#').count();
                let rest = &line[level..];
                count += usize::from(
                    (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with(' ')),
                );
            }
            _ => {}
        }
    }
    count
}

/// Strips the line number that some tools put before a line.
fn unnumbered(line: &str) -> &str {
    let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = rest.len() < line.trim_start().len();
    match rest.strip_prefix(['\t', '→', '|']) {
        Some(text) if numbered => text,
        _ => line,
    }
}

fn shown(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines.iter().take(LINES) {
        text.push('\n');
        text.push_str(line);
    }
    if lines.len() > LINES {
        text.push_str("\n…");
    }
    text
}

fn listed(result: &Value, tongue: DemoLanguage) -> String {
    let names: Vec<&str> = result["matches"]
        .as_array()
        .map(|all| {
            all.iter().filter_map(|one| one.as_str().or_else(|| one["path"].as_str())).collect()
        })
        .unwrap_or_default();
    let count = result["count"].as_u64().unwrap_or(names.len() as u64);
    let (verb, noun) = if count == 1 { ("is", "file") } else { ("are", "files") };
    either(tongue, format!("There {verb} {count} {noun}:"), format!("有 {count} 个文件："))
        + &shown(&names)
}

fn found(text: &str, result: &Value, tongue: DemoLanguage) -> String {
    let matches = result["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lines: Vec<String> = matches
        .iter()
        .map(|found| {
            let word = |name: &str| found[name].as_str().unwrap_or_default();
            format!("{}:{}: {}", word("path"), found["line"], word("preview").trim())
        })
        .collect();
    let count = lines.len();
    let noun = if count == 1 { "match" } else { "matches" };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    either(tongue, format!("{text}: {count} {noun}."), format!("{text}：{count} 处。"))
        + &shown(&lines)
}

fn ran(command: &str, result: &Value, tongue: DemoLanguage) -> String {
    let output = ["output", "stdout"].iter().find_map(|name| result[*name].as_str());
    let lines: Vec<&str> = output.unwrap_or_default().lines().collect();
    let code = result["code"].as_i64().or_else(|| result["exit_code"].as_i64()).unwrap_or(0);
    either(
        tongue,
        format!("`{command}` ended with status {code}."),
        format!("`{command}` 以状态 {code} 结束。"),
    ) + &shown(&lines)
}
