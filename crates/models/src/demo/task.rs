//! Parses a plain request in English or Chinese into goals.

use serde_json::{Map, Value, json};

/// Upper bound for counting.
const COUNT_MAX: u64 = 1_000;

/// The language of a request. The reply uses the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoLanguage {
    English,
    Chinese,
}

impl DemoLanguage {
    pub(super) fn of(text: &str) -> Self {
        if text.chars().any(is_han) { Self::Chinese } else { Self::English }
    }
}

/// True for a character of the CJK Unified Ideographs block.
pub(super) fn is_han(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// The property of a file that the request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileQuery {
    Headings,
    Lines,
    Words,
    Beginning,
}

/// One goal of a request, reached by at most one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Read {
        path: String,
        query: FileQuery,
    },
    List {
        pattern: String,
    },
    Search {
        text: String,
        path: String,
    },
    Write {
        path: String,
        content: String,
    },
    Run {
        command: String,
    },
    Remember {
        title: String,
    },
    Call {
        tool: String,
        arguments: Map<String, Value>,
    },
    CountTo {
        number: u64,
        slowly: bool,
    },
    Say {
        text: String,
    },
    /// A task of a plan whose first attempt fails; the planner makes `RefuseFirst` of it.
    FailOnce,
    /// The task itself: the model declines until the prompt says that it is a later attempt.
    RefuseFirst,
}

impl Goal {
    pub(super) fn is_call(&self) -> bool {
        self.call().is_some()
    }

    /// The correct call for this goal; `None` if it needs no tool.
    pub(super) fn call(&self) -> Option<(&str, Value)> {
        Some(match self {
            Self::Call { tool, arguments } => (tool, Value::Object(arguments.clone())),
            Self::Read { path, .. } => ("fs_read", json!({"path": path})),
            Self::List { pattern } => ("fs_glob", json!({"pattern": pattern})),
            Self::Search { text, path } => ("fs_grep", json!({"pattern": text, "path": path})),
            Self::Write { path, content } => {
                ("fs_write", json!({"path": path, "content": content}))
            }
            Self::Run { command } => ("bash_run", json!({"cmd": command})),
            Self::Remember { title } => {
                let todo = json!({"id": "1", "title": title, "status": "pending"});
                ("todo_write", json!({"todos": [todo]}))
            }
            Self::CountTo { .. } | Self::Say { .. } | Self::FailOnce | Self::RefuseFirst => {
                return None;
            }
        })
    }

    /// The arguments with a plausible mistake, as if written without reading the schema.
    pub(super) fn mistaken(&self) -> Value {
        match self {
            Self::Call { arguments, .. } => misspelt(arguments),
            Self::Read { path, .. } => json!({"file": path}),
            Self::List { pattern } => json!({"glob": pattern}),
            Self::Search { text, path } => json!({"query": text, "path": path}),
            Self::Write { path, content } => json!({"file": path, "content": content}),
            Self::Run { command } => json!({"command": command}),
            Self::Remember { title } => {
                json!({"items": [{"id": "1", "title": title, "status": "pending"}]})
            }
            Self::CountTo { .. } | Self::Say { .. } | Self::FailOnce | Self::RefuseFirst => {
                json!({})
            }
        }
    }
}

/// The arguments with the first key misspelt: `item` becomes `ite`.
fn misspelt(arguments: &Map<String, Value>) -> Value {
    let misspell = |key: &str| match key.char_indices().next_back() {
        Some((last, _)) if last > 1 => key[..last].to_owned(),
        _ => format!("{key}_"),
    };
    let renamed = arguments.iter().enumerate().map(|(at, (key, value))| {
        let key = if at == 0 { misspell(key) } else { key.clone() };
        (key, value.clone())
    });
    Value::Object(renamed.collect())
}

/// Parses the goals, in order. Empty if the request is not understood.
pub(super) fn understand(text: &str) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for clause in clauses(text) {
        let goal = goal_of(&clause);
        match (goal, goals.last_mut()) {
            (Some(goal), _) => goals.push(goal),
            // Handles `read x, then count its headings`.
            (None, Some(Goal::Read { query, .. })) => *query = wanted(&clause).unwrap_or(*query),
            (None, _) => {}
        }
    }
    goals
}

/// Splits work into the parts that are done side by side, each with its goal if it is understood.
pub(super) fn split_work(work: &str) -> Vec<(String, Option<Goal>)> {
    let mut parts: Vec<(String, Option<Goal>)> = Vec::new();
    for clause in clauses(work) {
        let goal = goal_of(&clause);
        match parts.last_mut() {
            // `count its headings` belongs to the file before it.
            Some((text, Some(Goal::Read { .. }))) if goal.is_none() => {
                *text = format!("{text}\n{clause}");
            }
            _ => parts.push((clause, goal)),
        }
    }
    parts
}

/// Splits a request at `then` and its equivalents. Quoted text is never split.
fn clauses(text: &str) -> Vec<String> {
    const BREAKS: [&str; 12] = [
        ", and then ",
        " and then ",
        ", then ",
        "; then ",
        " then ",
        "; ",
        "\n",
        "；",
        "，然后",
        "然后",
        "，接着",
        "，再",
    ];
    let mut clauses = Vec::new();
    let (mut start, mut at, mut quote) = (0, 0, None);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None => {
                quote = closing(c, text[..at].chars().next_back());
                if let Some(found) = BREAKS.iter().find(|found| starts_with(rest, found)) {
                    clauses.push(text[start..at].trim().to_owned());
                    at += found.len();
                    start = at;
                    continue;
                }
            }
        }
        at += c.len_utf8();
    }
    clauses.push(text[start..].trim().to_owned());
    clauses.retain(|clause| !clause.is_empty());
    clauses
}

/// The closing quote for an opening one. An apostrophe inside a word opens no quotation.
fn closing(c: char, before: Option<char>) -> Option<char> {
    match c {
        '"' | '`' => Some(c),
        '\'' if before.is_none_or(|before| !before.is_alphanumeric()) => Some(c),
        '“' => Some('”'),
        '「' => Some('」'),
        _ => None,
    }
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// The rest of the clause after one of these prefixes and an optional "please".
fn after<'a>(clause: &'a str, starts: &[&str]) -> Option<&'a str> {
    let polite = ["please ", "请"].into_iter().find(|word| starts_with(clause, word));
    let clause = polite.map_or(clause, |word| clause[word.len()..].trim_start());
    starts.iter().find(|start| starts_with(clause, start)).map(|start| clause[start.len()..].trim())
}

/// The goal of a clause in either language; `None` if it is not understood.
fn goal_of(clause: &str) -> Option<Goal> {
    failure(clause).or_else(|| english(clause)).or_else(|| chinese(clause))
}

fn failure(clause: &str) -> Option<Goal> {
    let once = after(clause, &["fail once", "失败一次"]).map(|_| Goal::FailOnce);
    let refusal = ["refuse the first attempt", "第一次尝试时拒绝"];
    once.or_else(|| after(clause, &refusal).map(|_| Goal::RefuseFirst))
}

fn english(clause: &str) -> Option<Goal> {
    if let Some(rest) = after(clause, &["say:", "say ", "answer "]) {
        return Some(Goal::Say { text: unquoted(rest).to_owned() });
    }
    if let Some(rest) = after(clause, &["count slowly to ", "slowly count to ", "count to "]) {
        let slowly = clause.to_ascii_lowercase().contains("slowly");
        return count_to(rest, slowly);
    }
    if let Some(rest) = after(clause, &["run:", "run ", "execute "]) {
        return Some(Goal::Run { command: unquoted(rest).to_owned() });
    }
    if let Some(rest) = after(clause, &["call ", "use the tool "]) {
        let (tool, arguments) = split_first(rest, &[" with "]).unwrap_or((rest, ""));
        return call(tool, arguments);
    }
    if let Some(rest) = after(clause, &["list ", "show me the files", "what files are"]) {
        return Some(Goal::List { pattern: pattern(rest) });
    }
    if let Some(rest) = after(clause, &["write ", "put "]) {
        let (content, path) = split_last(rest, &[" to ", " into ", " in "])?;
        return Some(write(path, content));
    }
    if let Some(rest) = after(clause, &["create ", "make "]) {
        let (path, content) = split_first(rest, &[" with ", " containing "])?;
        return Some(write(path, content));
    }
    if let Some(rest) = after(
        clause,
        &[
            "remember to ",
            "remember that ",
            "remember ",
            "todo:",
            "todo ",
            "add a todo: ",
            "add a todo ",
        ],
    ) {
        return Some(Goal::Remember { title: unquoted(rest).to_owned() });
    }
    if let Some(rest) = after(clause, &["search for ", "search ", "grep for ", "grep ", "find "]) {
        let (text, path) = split_last(rest, &[" in ", " under "]).unwrap_or((rest, "."));
        let path = if path == "here" { "." } else { path };
        return Some(Goal::Search { text: unquoted(text).to_owned(), path: name(path)? });
    }
    if let Some(rest) =
        after(clause, &["read ", "open ", "show ", "look at ", "summarise ", "summarize "])
    {
        let query = wanted(clause).unwrap_or(FileQuery::Beginning);
        return Some(Goal::Read { path: name(rest)?, query });
    }
    // Handles `count the headings of x` and `how many lines are in x`.
    let rest = after(clause, &["count ", "how many "])?;
    let (_, path) = split_last(rest, &[" in ", " of "])?;
    Some(Goal::Read { path: name(path)?, query: wanted(clause)? })
}

fn chinese(clause: &str) -> Option<Goal> {
    if let Some(rest) = after(clause, &["慢慢数到", "慢慢地数到", "数到"]) {
        return count_to(rest, clause.contains("慢慢"));
    }
    if let Some(rest) = after(clause, &["运行", "执行"]) {
        return Some(Goal::Run {
            command: unquoted(rest.trim_start_matches(['：', ':'])).to_owned(),
        });
    }
    if let Some(rest) = after(clause, &["调用"]) {
        let (tool, arguments) = split_first(rest, &["，", " "]).unwrap_or((rest, ""));
        return call(tool, arguments);
    }
    if let Some(rest) = after(clause, &["列出"]) {
        return Some(Goal::List { pattern: pattern(rest) });
    }
    if let Some(rest) = after(clause, &["把", "将"]) {
        let (content, path) = split_last(rest, &["写入", "写到", "写进"])?;
        return Some(write(path, content));
    }
    if let Some(rest) = after(clause, &["记住", "添加待办", "待办"]) {
        return Some(Goal::Remember {
            title: unquoted(rest.trim_start_matches(['：', ':'])).to_owned(),
        });
    }
    if let Some(rest) = after(clause, &["在"]) {
        let (path, text) =
            split_first(rest, &["中搜索", "里搜索", "搜索", "中查找", "里查找", "查找"])?;
        return Some(Goal::Search { text: unquoted(text).to_owned(), path: name(path)? });
    }
    if let Some(rest) = after(clause, &["搜索", "查找"]) {
        return Some(Goal::Search { text: unquoted(rest).to_owned(), path: ".".into() });
    }
    if let Some(rest) = after(clause, &["读取", "读一下", "读", "打开", "查看"]) {
        return Some(Goal::Read {
            path: name(rest)?,
            query: wanted(clause).unwrap_or(FileQuery::Beginning),
        });
    }
    if let Some(rest) = after(clause, &["统计", "数一下", "数"]) {
        return Some(Goal::Read { path: name(rest)?, query: wanted(clause)? });
    }
    let rest = after(clause, &["说", "回答"])?;
    Some(Goal::Say { text: unquoted(rest.trim_start_matches(['：', ':'])).to_owned() })
}

/// The property of a file that a clause asks for.
fn wanted(clause: &str) -> Option<FileQuery> {
    let clause = clause.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| clause.contains(word));
    match () {
        () if says(&["heading", "标题"]) => Some(FileQuery::Headings),
        () if says(&["line", "行数", "多少行", "几行"]) => Some(FileQuery::Lines),
        () if says(&[
            "count its words",
            "words in",
            "words of",
            "many words",
            "字数",
            "词数",
            "多少字",
        ]) =>
        {
            Some(FileQuery::Words)
        }
        () => None,
    }
}

/// A call of any tool, with arguments as `a=1, b=text` or as a JSON object.
fn call(tool: &str, arguments: &str) -> Option<Goal> {
    let tool = unquoted(tool.trim_end_matches('.'));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if tool.is_empty() || !tool.chars().all(fits) {
        return None;
    }
    let arguments = match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => object,
        _ => arguments.split([',', '，']).filter_map(pair).collect(),
    };
    Some(Goal::Call { tool: tool.to_owned(), arguments })
}

/// Reads `count=3` or `city=Ghent`: a value that is not JSON is text.
fn pair(text: &str) -> Option<(String, Value)> {
    let (key, value) = text.split_once('=')?;
    let value = unquoted(value.trim().trim_end_matches('.'));
    let parsed = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Some((key.trim().to_owned(), parsed))
}

fn count_to(text: &str, slowly: bool) -> Option<Goal> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    Some(Goal::CountTo { number: digits.parse::<u64>().ok()?.min(COUNT_MAX), slowly })
}

fn write(path: &str, content: &str) -> Goal {
    let path = name(path).unwrap_or_else(|| unquoted(path).to_owned());
    Goal::Write { path, content: unquoted(content).to_owned() }
}

/// The glob pattern for phrases such as `the files here`, `all files`, `*.rs` or `the files in src`.
fn pattern(text: &str) -> String {
    let glob = text.split_whitespace().map(unquoted).find(|word| word.contains('*'));
    if let Some(glob) = glob {
        return glob.to_owned();
    }
    let everywhere =
        starts_with(text, "all ") || text.starts_with("所有") || text.starts_with("全部");
    let folder = split_last(text, &[" in ", " under "]).map(|(_, folder)| folder);
    let folder =
        folder.or_else(|| split_first(text, &["目录", "里", "中", "下"]).map(|(folder, _)| folder));
    let here = ["here", "this", "the", "当前", "这", "本", "所有", "全部"];
    let folder = folder
        .filter(|folder| !here.iter().any(|word| folder.starts_with(word)))
        .and_then(name)
        .filter(|folder| folder != ".");
    let tail = if everywhere { "**/*" } else { "*" };
    folder.map_or_else(
        || tail.to_owned(),
        |folder| format!("{}/{tail}", folder.trim_end_matches('/')),
    )
}

fn split_last<'a>(text: &'a str, marks: &[&str]) -> Option<(&'a str, &'a str)> {
    let (at, mark) = marks.iter().filter_map(|mark| Some((text.rfind(mark)?, mark))).max()?;
    Some((text[..at].trim(), text[at + mark.len()..].trim()))
}

fn split_first<'a>(text: &'a str, marks: &[&str]) -> Option<(&'a str, &'a str)> {
    let (at, mark) = marks
        .iter()
        .filter_map(|mark| Some((text.find(mark)?, mark)))
        .min_by_key(|(at, mark)| (*at, usize::MAX - mark.len()))?;
    Some((text[..at].trim(), text[at + mark.len()..].trim()))
}

/// The file or folder a phrase names: quoted text, then a word that looks like a path, then the first word.
fn name(phrase: &str) -> Option<String> {
    if let Some(quoted) = quoted(phrase) {
        return Some(quoted.to_owned());
    }
    // Chinese text has no space between a path and the words after it.
    let stop = |c: char| c.is_whitespace() || is_han(c) || "，。？！、；".contains(c);
    let plain = ["the", "file", "a", "me", "my", "folder", "directory", "its", "please"];
    let words: Vec<&str> = phrase
        .split(stop)
        .map(|word| word.trim_end_matches([',', ';', ':', '?', '!']))
        .map(|word| {
            word.strip_suffix('.')
                .filter(|rest| !rest.is_empty() && !rest.ends_with('.'))
                .unwrap_or(word)
        })
        .filter(|word| !word.is_empty() && !plain.contains(&word.to_ascii_lowercase().as_str()))
        .collect();
    let path = words.iter().find(|word| word.contains(['.', '/'])).or_else(|| words.first());
    path.map(|word| (*word).to_owned())
}

/// The first quoted part of a phrase.
fn quoted(phrase: &str) -> Option<&str> {
    let mut before = None;
    for (at, c) in phrase.char_indices() {
        if let Some(end) = closing(c, before) {
            let inner = &phrase[at + c.len_utf8()..];
            return inner.find(end).map(|at| &inner[..at]).filter(|name| !name.is_empty());
        }
        before = Some(c);
    }
    None
}

/// The text without its surrounding quotes.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let Some(end) = text.chars().next().and_then(|c| closing(c, None)) else { return text };
    let start = text.chars().next().map_or(0, char::len_utf8);
    match text[start..].strip_suffix(end) {
        Some(inner) if !inner.contains(end) => inner,
        _ => text,
    }
}
