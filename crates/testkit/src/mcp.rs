//! A small MCP server that can misbehave: one JSON-RPC message per line on standard input and output.
//!
//! It is written against the protocol and without an SDK, so that it can break the protocol. It has no threads and no
//! clock: a slow tool never answers. Only the `effect` tool waits, until the test releases it.

mod ledger;
mod stateless;
mod tasks;

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
    process::{Command, ExitCode},
};

use serde_json::{Map, Value, json};

pub use ledger::{EffectLedger, Point};
pub use tasks::TaskFolder;

/// Misbehaviour of the server itself; its tools have their own. The default is a well-behaved server.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Never answers `initialize`.
    pub mute: bool,
    /// Answers `initialize` with an error.
    pub unwilling: bool,
    /// Exits at once unless this file exists.
    pub needs: Option<PathBuf>,
    /// Exits with status 9 at the first `tools/list`.
    pub dies_listing: bool,
    /// Answers the first `tools/list` and ignores all later ones.
    pub lists_once: bool,
    /// Tools on a page of `tools/list`; all on one page if absent.
    pub page: Option<usize>,
    /// Number of additional tools, named `more_0`, `more_1` and so on.
    pub more: usize,
    /// Keeps running after its input ends.
    pub lingers: bool,
    /// Starts a child that keeps the output open; the child's process id is the first line on standard error.
    pub parent: bool,
    /// Offers a tool with an unusable schema.
    pub bad_schema: bool,
    /// A file with the resources: a JSON list of entries as `resources/list` shows them, each with its `contents`.
    pub resources: Option<PathBuf>,
    /// Offers the tool `effect`, which writes into the [`EffectLedger`] of this folder.
    pub ledger: Option<PathBuf>,
    /// Speaks protocol version 2026-07-28 only: it refuses the handshake, and every request without its metadata.
    pub stateless: bool,
    /// Never answers `server/discover`.
    pub mute_probe: bool,
    /// Exits at `server/discover`.
    pub dies_at_probe: bool,
    /// Finishes calls of the tool `job` later, as tasks whose state is in this folder; see [`TaskFolder`].
    pub tasks: Option<PathBuf>,
    /// Gives every task the id `t1`.
    pub one_task: bool,
    /// Offers the tool `flood`, which sends many notifications.
    pub floods: bool,
    /// Never answers `tools/list`.
    pub mute_list: bool,
    /// A file whose text is part of every description; it is read for every list.
    pub descriptions: Option<PathBuf>,
    /// Remarks for the model.
    pub instructions: Option<String>,
}

impl Behaviour {
    /// Reads `--mute`, `--unwilling`, `--needs FILE`, `--dies-listing`, `--lists-once`, `--page N`, `--more N`,
    /// `--lingers`, `--parent`, `--bad-schema`, `--resources FILE`, `--ledger FOLDER`, `--stateless`, `--mute-probe`,
    /// `--dies-at-probe`, `--tasks FOLDER`, `--one-task`, `--floods`, `--mute-list`, `--descriptions FILE`, `--instructions TEXT`.
    #[must_use]
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Self {
        let mut args = args.into_iter();
        let mut behaviour = Self::default();
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_default();
            match arg.as_str() {
                "--mute" => behaviour.mute = true,
                "--unwilling" => behaviour.unwilling = true,
                "--needs" => behaviour.needs = Some(value().into()),
                "--dies-listing" => behaviour.dies_listing = true,
                "--lists-once" => behaviour.lists_once = true,
                "--page" => behaviour.page = value().parse().ok(),
                "--more" => behaviour.more = value().parse().unwrap_or_default(),
                "--lingers" => behaviour.lingers = true,
                "--parent" => behaviour.parent = true,
                "--bad-schema" => behaviour.bad_schema = true,
                "--resources" => behaviour.resources = Some(value().into()),
                "--ledger" => behaviour.ledger = Some(value().into()),
                "--stateless" => behaviour.stateless = true,
                "--mute-probe" => behaviour.mute_probe = true,
                "--dies-at-probe" => behaviour.dies_at_probe = true,
                "--tasks" => behaviour.tasks = Some(value().into()),
                "--one-task" => behaviour.one_task = true,
                "--floods" => behaviour.floods = true,
                "--mute-list" => behaviour.mute_list = true,
                "--descriptions" => behaviour.descriptions = Some(value().into()),
                "--instructions" => behaviour.instructions = Some(value()),
                other => panic!("no such behaviour: {other}"),
            }
        }
        behaviour
    }
}

/// The variable that makes a server one of [`Behaviour::stateless`], so that a server can change its era under the same
/// command.
pub const STATELESS: &str = "FAKE_MCP_STATELESS";

/// Runs a server on this process's standard input and output until the input ends.
///
/// # Errors
/// When reading or writing fails.
pub fn serve(behaviour: Behaviour) -> io::Result<ExitCode> {
    if behaviour.needs.as_ref().is_some_and(|path| !path.exists()) {
        complain("fatal: the file I need is not there");
        return Ok(ExitCode::from(3));
    }
    if behaviour.parent {
        let child = Command::new("sleep").arg("1000").spawn()?;
        complain(&format!("child {}", child.id()));
    }
    let mut behaviour = behaviour;
    behaviour.stateless |= std::env::var_os(STATELESS).is_some();
    let lingers = behaviour.lingers;
    let mut session = Session::new(behaviour, io::stdout());
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str(&line?) else { continue };
        if let Flow::Exit(code) = session.hear(&message)? {
            return Ok(ExitCode::from(code));
        }
    }
    if lingers {
        loop {
            std::thread::park();
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "a server's error output is what is tested")]
fn complain(text: &str) {
    eprintln!("{text}");
}

/// Whether the server continues after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Read the next message.
    Continue,
    /// End the process with this status.
    Exit(u8),
}

/// The conversation with one client, written to any writer.
#[derive(Debug)]
pub struct Session<W> {
    behaviour: Behaviour,
    out: W,
    seen: Vec<Value>,
    extra: bool,
    /// The id of the call that is answered once the client answers the server's own request.
    asking: Option<Value>,
    /// The id of the client's subscription to changes.
    listening: Option<Value>,
}

impl<W: Write> Session<W> {
    /// A session that writes its messages to `out`.
    pub fn new(behaviour: Behaviour, out: W) -> Self {
        Self { behaviour, out, seen: Vec::new(), extra: false, asking: None, listening: None }
    }

    /// Handles one message from the client.
    ///
    /// # Errors
    /// When writing fails.
    pub fn hear(&mut self, message: &Value) -> io::Result<Flow> {
        self.seen.push(message.clone());
        let id = &message["id"];
        if let Some(flow) = self.hear_era(message)? {
            return Ok(flow);
        }
        match message["method"].as_str() {
            Some("initialize") if self.behaviour.mute => Ok(Flow::Continue),
            Some("initialize") if self.behaviour.unwilling => {
                self.error(id, -32603, "not today")?;
                Ok(Flow::Continue)
            }
            Some("initialize") => {
                let mut said = initialized(&message["params"]);
                if let Some(text) = &self.behaviour.instructions {
                    said["instructions"] = text.as_str().into();
                }
                if self.behaviour.resources.is_some() {
                    said["capabilities"]["resources"] =
                        json!({ "subscribe": true, "listChanged": true });
                }
                self.answer(id, said)
            }
            Some("ping") => self.answer(id, json!({})),
            Some("tools/list") if self.behaviour.dies_listing => {
                complain("fatal: the list is lost");
                Ok(Flow::Exit(9))
            }
            Some("tools/list") if self.behaviour.mute_list => Ok(Flow::Continue),
            Some("tools/list") if self.behaviour.lists_once && self.count("tools/list") > 1 => {
                Ok(Flow::Continue)
            }
            Some("tools/list") => {
                let page = self.page("tools", &self.tools(), &message["params"]["cursor"]);
                self.answer(id, page)
            }
            Some("resources/list") if self.behaviour.resources.is_some() => {
                let mut all = self.resources();
                all.iter_mut().filter_map(Value::as_object_mut).for_each(|it| {
                    it.remove("contents");
                });
                let page = self.page("resources", &all, &message["params"]["cursor"]);
                self.answer(id, page)
            }
            Some("resources/read") => {
                let uri = &message["params"]["uri"];
                match self.resources().iter().find(|it| it["uri"] == *uri) {
                    Some(found) => self.answer(id, json!({ "contents": found["contents"] })),
                    None => self.error(id, -32002, "Resource not found"),
                }
            }
            Some("resources/subscribe") => self.answer(id, json!({})),
            Some("tools/call") => self.call(id, &message["params"]),
            Some(method) if method.starts_with("tasks/") && self.behaviour.tasks.is_some() => {
                self.hear_task(id, method, &message["params"])
            }
            Some(method) if method.starts_with("notifications/") => Ok(Flow::Continue),
            Some(_) => self.error(id, -32601, "Method not found"),
            None => self.answered(message),
        }
    }

    fn count(&self, method: &str) -> usize {
        self.seen.iter().filter(|message| message["method"] == method).count()
    }

    fn count_calls(&self, tool: &str) -> usize {
        let calls = self.seen.iter().filter(|message| message["method"] == "tools/call");
        calls.filter(|call| call["params"]["name"] == tool).count()
    }

    /// Reads the file on every call, so that a test can change the resources.
    fn resources(&self) -> Vec<Value> {
        let path = self.behaviour.resources.iter();
        let text = path.filter_map(|path| std::fs::read_to_string(path).ok()).next();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    fn page(&self, what: &str, all: &[Value], cursor: &Value) -> Value {
        let size = self.behaviour.page.unwrap_or(all.len()).max(1);
        let from: usize = cursor.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        let to = (from + size).min(all.len());
        let mut page = Map::from_iter([(what.to_owned(), all[from.min(to)..to].into())]);
        if to < all.len() {
            page.insert("nextCursor".into(), to.to_string().into());
        }
        page.into()
    }

    fn tools(&self) -> Vec<Value> {
        let mut tools: Vec<Value> = TOOLS.iter().map(|name| tool(name)).collect();
        tools.extend((0..self.behaviour.more).map(|index| tool(&format!("more_{index}"))));
        if self.extra {
            tools.push(tool("extra"));
        }
        if self.behaviour.resources.is_some() {
            tools.push(tool("tell"));
        }
        if self.behaviour.ledger.is_some() {
            tools.push(tool("effect"));
        }
        if self.behaviour.tasks.is_some() {
            tools.extend([tool("job"), tool("form")]);
        }
        if self.behaviour.floods {
            tools.push(tool("flood"));
        }
        if self.behaviour.bad_schema {
            let schema =
                json!({ "type": "object", "properties": { "a": { "type": "undefined" } } });
            tools.push(json!({ "name": "bad_schema", "inputSchema": schema }));
        }
        if let Some(text) =
            self.behaviour.descriptions.iter().find_map(|it| std::fs::read_to_string(it).ok())
        {
            for tool in &mut tools {
                tool["description"] = text.trim().into();
            }
        }
        tools
    }

    fn call(&mut self, id: &Value, params: &Value) -> io::Result<Flow> {
        let given = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" | "extra" => self.answer(id, text(given["text"].as_str().unwrap_or_default())),
            "add" => {
                let sum = given["a"].as_i64().unwrap_or(0) + given["b"].as_i64().unwrap_or(0);
                let content = [json!({ "type": "text", "text": sum.to_string() })];
                self.answer(id, json!({ "content": content, "structuredContent": { "sum": sum } }))
            }
            "no" => {
                let content = text("the city is not on the map")["content"].clone();
                self.answer(id, json!({ "content": content, "isError": true }))
            }
            "slow" => Ok(Flow::Continue),
            "seen" => {
                let seen = Value::Array(self.seen.clone()).to_string();
                self.answer(id, text(&seen))
            }
            "die" | "die_reading" => {
                complain("panic: the disk is on fire");
                Ok(Flow::Exit(7))
            }
            "noise" => self.noise(id),
            "huge" => {
                let bytes = given["bytes"].as_u64().unwrap_or_default();
                self.answer(id, text(&"x".repeat(usize::try_from(bytes).unwrap_or_default())))
            }
            "half" => self.say(&json!({ "jsonrpc": "2.0", "id": id })),
            "odd" => self.answer(id, json!({ "content": "not a list" })),
            // With `data` it fails only the first time.
            "error" if !given["data"].is_null() && self.count_calls("error") > 1 => {
                self.answer(id, text("done"))
            }
            "error" if !given["data"].is_null() => {
                let code = given["code"].as_i64().unwrap_or(-32603);
                let error = json!({ "code": code, "message": "no", "data": given["data"] });
                self.say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
            "error" => {
                let code = given["code"].as_i64().unwrap_or(-32603);
                self.error(id, code, given["message"].as_str().unwrap_or("no"))
            }
            "tell" => {
                let (method, params) = (&given["method"], &given["params"]);
                self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))?;
                self.answer(id, text("told"))
            }
            "effect" => {
                let folder = self.behaviour.ledger.clone().unwrap_or_default();
                EffectLedger::new(folder).effect(given)?;
                self.answer(id, text("done"))
            }
            "job" => self.create_task(id),
            "form" => self.form(id, params),
            "flood" => self.flood(id, given["count"].as_u64().unwrap_or(1_000)),
            "grow" => self.grow(id, true),
            "shrink" => self.grow(id, false),
            "ask" => {
                self.asking = Some(id.clone());
                let method = given["method"].clone();
                let params = match given["params"].is_null() {
                    true => asked(&method),
                    false => given["params"].clone(),
                };
                self.say(
                    &json!({ "jsonrpc": "2.0", "id": "asked", "method": method, "params": params }),
                )
            }
            "progress" => self.progress(id, &params["_meta"]["progressToken"]),
            "env" => {
                let name = given["name"].as_str().unwrap_or_default();
                let found = std::env::var(name).unwrap_or_else(|_| "(not set)".into());
                self.answer(id, text(&found))
            }
            "picture" => {
                // The argument `base64` is the length of the data.
                let data =
                    "A".repeat(given["base64"].as_u64().unwrap_or(4).try_into().unwrap_or(4));
                let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
                let link =
                    json!({ "type": "resource_link", "uri": "file:///a.png", "name": "a.png" });
                self.answer(id, json!({ "content": [image, link] }))
            }
            other => self.error(id, -32602, &format!("Unknown tool: {other}")),
        }
    }

    /// Invalid lines, foreign responses and an unknown notification, then the answer, then a second answer.
    fn noise(&mut self, id: &Value) -> io::Result<Flow> {
        self.out.write_all(b"Server ready!\n\n\x1b[32m{\"half\":\n[1,2]\n\xff\xfe\n")?;
        self.say(&json!({ "jsonrpc": "2.0", "id": 4_711, "result": text("not yours") }))?;
        self.say(&json!({ "jsonrpc": "2.0", "id": "x", "error": { "code": 1, "message": "no" } }))?;
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/unheard_of", "params": {} }))?;
        self.answer(id, text("quiet"))?;
        self.answer(id, text("again"))
    }

    fn grow(&mut self, id: &Value, extra: bool) -> io::Result<Flow> {
        self.extra = extra;
        self.say_changed()?;
        self.answer(id, text("done"))
    }

    /// Many notifications of every kind, known and unknown, before the answer.
    fn flood(&mut self, id: &Value, count: u64) -> io::Result<Flow> {
        for index in 0..count {
            let log = json!({ "level": "info", "data": format!("line {index}") });
            let progress = json!({ "progressToken": "nobody", "progress": index });
            for (method, params) in [("message", log), ("progress", progress), ("other", json!({}))]
            {
                let method = format!("notifications/{method}");
                self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))?;
            }
            self.say_changed()?;
        }
        self.answer(id, text("done"))
    }

    fn progress(&mut self, id: &Value, token: &Value) -> io::Result<Flow> {
        for step in 1..=2 {
            let params = json!({
                "progressToken": token, "progress": step, "total": 2, "message": "step",
            });
            self.say(&json!({
                "jsonrpc": "2.0", "method": "notifications/progress", "params": params,
            }))?;
        }
        // The call is answered after the client's ping response, so the client has seen the progress by then.
        self.asking = Some(id.clone());
        self.say(&json!({ "jsonrpc": "2.0", "id": "asked", "method": "ping" }))
    }

    fn answered(&mut self, message: &Value) -> io::Result<Flow> {
        match self.asking.take() {
            Some(id) => self.answer(&id, text(&message.to_string())),
            None => Ok(Flow::Continue),
        }
    }

    fn answer(&mut self, id: &Value, mut result: Value) -> io::Result<Flow> {
        if self.behaviour.stateless && result.get("resultType").is_none() {
            result["resultType"] = "complete".into();
        }
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    fn error(&mut self, id: &Value, code: i64, message: &str) -> io::Result<Flow> {
        let error = json!({ "code": code, "message": message });
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
    }

    fn say(&mut self, message: &Value) -> io::Result<Flow> {
        serde_json::to_writer(&mut self.out, message)?;
        self.out.write_all(b"\n")?;
        self.out.flush()?;
        Ok(Flow::Continue)
    }
}

const TOOLS: &[&str] = &[
    "echo",
    "add",
    "no",
    "slow",
    "seen",
    "die",
    "die_reading",
    "noise",
    "huge",
    "half",
    "odd",
    "error",
    "grow",
    "shrink",
    "ask",
    "progress",
    "env",
    "picture",
];

fn tool(name: &str) -> Value {
    let mut tool = json!({
        "name": name,
        "description": format!("The tool {name}."),
        "inputSchema": { "type": "object", "additionalProperties": true },
    });
    match name {
        "echo" => {
            tool["inputSchema"] = json!({
                "type": "object",
                "properties": { "text": { "type": "string" } },
                "required": ["text"],
            });
            tool["annotations"] = json!({ "readOnlyHint": true });
        }
        "die_reading" => tool["annotations"] = json!({ "readOnlyHint": true }),
        _ => {}
    }
    tool
}

fn initialized(params: &Value) -> Value {
    json!({
        "protocolVersion": params["protocolVersion"],
        "capabilities": { "tools": { "listChanged": true } },
        "serverInfo": { "name": "fake", "version": "0" },
    })
}

/// Valid parameters for each request a server may send.
fn asked(method: &Value) -> Value {
    match method.as_str() {
        Some("sampling/createMessage") => json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": "hello" } }],
            "maxTokens": 10,
        }),
        Some("elicitation/create") => json!({
            "message": "who are you?",
            "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
        }),
        _ => json!({}),
    }
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
