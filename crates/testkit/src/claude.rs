//! A played Claude CLI: speaks its stream-json on any pair of pipes and behaves as the words of the prompt say.
//!
//! Words that begin with `@` select the behaviour; the others are the subject. Without any, the answer is streamed and
//! the turn succeeds.
//!
//! The table of words is on [`play`].

mod prompt;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};

use self::prompt::{Turn, about};

pub use self::prompt::answer;

/// The version of the CLI that is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CliVersion {
    /// Stamps results with prompt ids and reports the lifecycle of prompts.
    Current,
    /// As of January 2026: neither stamps nor lifecycle.
    Old,
}

/// Why [`play`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CliExit {
    /// Its input or its output was closed.
    Closed,
    /// The prompt told it to exit.
    Died,
}

/// Plays the CLI until its input ends or it exits. `session` is the id the CLI was started with.
///
/// | word | behaviour |
/// | --- | --- |
/// | `@slow` | the answer takes a second |
/// | `@many`, `@flood` | the answer comes in 20 000 pieces; in 200 000 |
/// | `@tool` | uses a tool, after asking for permission |
/// | `@ask` | asks the person two questions; the tool's result has the answers |
/// | `@free` | uses a tool for a second, without asking |
/// | `@early` | asks about a tool before the answer that calls it is complete |
/// | `@cut` | the stream breaks once, is discarded, and starts again from its beginning |
/// | `@whole` | the stream breaks, and the answer comes in one piece |
/// | `@unstreamed` | the answer comes in one piece, without a stream |
/// | `@quiet` | no text at all, and the turn succeeds |
/// | `@die`, `@die-mid`, `@die-tool` | the process exits before an answer, during one, or during a tool call |
/// | `@silent` | no output for the prompt; control requests are answered |
/// | `@dead` | no output at all any more |
/// | `@deaf` | ignores an interrupt |
/// | `@api-429` … | the model service fails with that status, after one retry |
/// | `@broke`, `@broke-quietly`, `@odd` | the turn ends in an error; in one marked as no error; in one of unknown subtype |
/// | `@stale-before` | an old result without a stamp comes before the turn begins |
/// | `@stale-mid` | an old result, stamped with the previous prompt, comes in the middle |
/// | `@stale-bare` | an old result without a stamp comes in the middle |
/// | `@foreign` | a result of the CLI's own background task comes in the middle |
/// | `@stray-before`, `@stray-mid`, `@stray-after` | an old result without a stamp comes there; the suffix `-stamped` stamps it with the previous prompt (after the end: with this one), `-foreign` marks it as the CLI's own |
/// | `@fine` | such old results report success |
/// | `@late` | text and a result stamped with this prompt come after its end |
/// | `@background` | after its end the CLI starts a turn of its own; the old version does not |
/// | `@withdraw` | asks about a tool and withdraws the question |
/// | `@junk` | lines of unknown types, and lines that are not JSON |
pub async fn play(
    age: CliVersion,
    session: &str,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send,
) -> CliExit {
    let (sender, lines) = mpsc::channel(64);
    // Ends with the input, or when the receiver is dropped.
    let reader = tokio::spawn(async move {
        let mut input = BufReader::new(input).lines();
        while let Ok(Some(line)) = input.next_line().await {
            if let Ok(line) = serde_json::from_str::<Value>(&line)
                && sender.send(line).await.is_err()
            {
                return;
            }
        }
    });
    let mut player = Player {
        age,
        session: session.to_owned(),
        output,
        lines,
        waiting: Vec::new(),
        before: String::new(),
        count: 0,
        is_dead: false,
    };
    let end = player.run().await.err().unwrap_or(CliExit::Closed);
    reader.abort();
    end
}

struct Player<W> {
    age: CliVersion,
    session: String,
    output: W,
    lines: mpsc::Receiver<Value>,
    waiting: Vec<Value>,
    /// Id of the previous prompt; empty before the first.
    before: String,
    count: u64,
    is_dead: bool,
}

/// Why a turn ended early.
enum TurnInterrupt {
    Interrupted,
    Ended(CliExit),
}

impl From<CliExit> for TurnInterrupt {
    fn from(end: CliExit) -> Self {
        Self::Ended(end)
    }
}

type ScriptResult<T> = Result<T, TurnInterrupt>;

/// The questions of `@ask`: one with a single answer, one with several.
fn questions(name: &str) -> Value {
    let option =
        |label: &str| json!({"label": label, "description": format!("as {label} as can be")});
    json!({"name": name, "questions": [
        {"question": "Which color?", "header": "Color", "multiSelect": false,
            "options": [option("red"), option("blue")]},
        {"question": "Which sizes?", "header": "Sizes", "multiSelect": true,
            "options": [option("small"), option("large")]},
    ]})
}

impl<W: AsyncWrite + Unpin + Send> Player<W> {
    async fn run(&mut self) -> Result<(), CliExit> {
        loop {
            let line = match self.waiting.is_empty() {
                false => self.waiting.remove(0),
                true => self.lines.recv().await.ok_or(CliExit::Closed)?,
            };
            match line["type"].as_str() {
                Some("user") => self.turn(&line).await?,
                Some("control_request") => self.control(&line).await?,
                _ => {}
            }
        }
    }

    async fn write(&mut self, mut line: Value) -> Result<(), CliExit> {
        if self.is_dead {
            return Ok(());
        }
        if let Some(line) = line.as_object_mut() {
            line.entry("session_id").or_insert_with(|| self.session.clone().into());
        }
        self.raw(&line.to_string()).await
    }

    async fn raw(&mut self, line: &str) -> Result<(), CliExit> {
        let line = format!("{line}\n");
        self.output.write_all(line.as_bytes()).await.map_err(|_| CliExit::Closed)?;
        self.output.flush().await.map_err(|_| CliExit::Closed)
    }

    async fn control(&mut self, line: &Value) -> Result<(), CliExit> {
        let response = match line["request"]["subtype"].as_str() {
            Some("interrupt") => json!({"still_queued": []}),
            Some("initialize") => json!({"commands": [], "models": []}),
            _ => json!({}),
        };
        let id = &line["request_id"];
        self.write(json!({"type": "control_response",
            "response": {"subtype": "success", "request_id": id, "response": response}}))
            .await
    }

    /// Waits, and handles the lines that arrive in the meantime.
    async fn pause(&mut self, wait: Duration) -> ScriptResult<()> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            tokio::select! {
                biased;
                line = self.lines.recv() => {
                    let line = line.ok_or(CliExit::Closed)?;
                    if self.heard(line).await? {
                        return Err(TurnInterrupt::Interrupted);
                    }
                }
                () = tokio::time::sleep_until(until) => return Ok(()),
            }
        }
    }

    /// Waits for the answer to the permission request with this id.
    async fn answer_to(&mut self, id: &str) -> ScriptResult<Value> {
        loop {
            let line = self.lines.recv().await.ok_or(CliExit::Closed)?;
            if line["type"] == "control_response" && line["response"]["request_id"] == id {
                return Ok(line["response"]["response"].clone());
            }
            if self.heard(line).await? {
                self.write(json!({"type": "control_cancel_request", "request_id": id})).await?;
                return Err(TurnInterrupt::Interrupted);
            }
        }
    }

    /// Handles a line during a turn; returns true for an interrupt.
    async fn heard(&mut self, line: Value) -> Result<bool, CliExit> {
        match line["type"].as_str() {
            Some("user") => self.waiting.push(line),
            Some("control_request") => {
                self.control(&line).await?;
                return Ok(line["request"]["subtype"] == "interrupt");
            }
            _ => {}
        }
        Ok(false)
    }

    async fn turn(&mut self, line: &Value) -> Result<(), CliExit> {
        let turn = Turn::of(line);
        self.count += 1;
        let played = self.body(&turn).await;
        match played {
            Ok(()) => {}
            Err(TurnInterrupt::Ended(end)) => return Err(end),
            Err(TurnInterrupt::Interrupted) => {
                self.write(json!({"type": "user", "message": {"role": "user",
                    "content": [{"type": "text", "text": "[Request interrupted by user]"}]}}))
                    .await?;
                let is_error = self.age == CliVersion::Current;
                self.result(&turn, "error_during_execution", is_error, "aborted_streaming").await?;
                self.lifecycle(&turn.uuid, "cancelled").await?;
            }
        }
        self.after(&turn).await?;
        self.before = turn.uuid;
        Ok(())
    }

    async fn lifecycle(&mut self, uuid: &str, state: &str) -> Result<(), CliExit> {
        if self.age == CliVersion::Old {
            return Ok(());
        }
        let line = json!({"type": "command_lifecycle", "command_uuid": uuid, "state": state});
        self.write(line).await
    }

    fn stamps(&self, uuid: &str) -> Value {
        match self.age {
            CliVersion::Current if !uuid.is_empty() => json!([uuid]),
            _ => Value::Null,
        }
    }

    async fn init(&mut self, uuid: &str) -> Result<(), CliExit> {
        let capabilities = match self.age {
            CliVersion::Current => json!(["interrupt_receipt_v1", "msg_lifecycle_v1"]),
            CliVersion::Old => Value::Null,
        };
        let line = json!({"type": "system", "subtype": "init", "model": "m",
            "capabilities": capabilities, "user_message_uuids": self.stamps(uuid)});
        self.write(line).await
    }

    async fn result(
        &mut self,
        turn: &Turn,
        subtype: &str,
        is_error: bool,
        terminal: &str,
    ) -> Result<(), CliExit> {
        let took = turn.began.elapsed().as_millis();
        let text = turn.answer();
        let line = json!({"type": "result", "subtype": subtype, "is_error": is_error, "result": text,
            "terminal_reason": terminal, "num_turns": 1, "duration_ms": u64::try_from(took).unwrap_or(0),
            "stop_reason": "end_turn", "user_message_uuids": self.stamps(&turn.uuid)});
        self.write(line).await
    }

    /// Writes an error result that belongs to another turn.
    async fn stale(&mut self, stamp: &str, origin: Value) -> Result<(), CliExit> {
        self.old_result(stamp, origin, false).await
    }

    async fn old_result(
        &mut self,
        stamp: &str,
        origin: Value,
        is_fine: bool,
    ) -> Result<(), CliExit> {
        let subtype = if is_fine { "success" } else { "error_during_execution" };
        let line = json!({"type": "result", "subtype": subtype, "is_error": !is_fine,
            "result": is_fine.then_some("LEFT OVER"), "errors": ["left over"], "num_turns": 4,
            "duration_ms": 7_882_000, "origin": origin, "user_message_uuids": self.stamps(stamp)});
        self.write(line).await
    }

    /// Writes the old results that the prompt asks for at this place (`before`, `mid` or `after`).
    async fn strays(&mut self, turn: &Turn, place: &str, stamp: &str) -> Result<(), CliExit> {
        let is_fine = turn.is("@fine");
        for (ending, stamp, origin) in [
            ("", "", Value::Null),
            ("-stamped", stamp, Value::Null),
            ("-foreign", "", json!({"kind": "task-notification"})),
        ] {
            if turn.is(&format!("@stray-{place}{ending}")) {
                self.old_result(stamp, origin, is_fine).await?;
            }
        }
        Ok(())
    }

    async fn body(&mut self, turn: &Turn) -> ScriptResult<()> {
        if turn.is("@die") {
            return Err(CliExit::Died.into());
        }
        if turn.is("@stale-before") {
            self.stale("", Value::Null).await?;
        }
        let before = self.before.clone();
        self.strays(turn, "before", &before).await?;
        if turn.is("@dead") {
            self.is_dead = true;
        }
        self.lifecycle(&turn.uuid, "queued").await?;
        self.lifecycle(&turn.uuid, "started").await?;
        self.init(&turn.uuid).await?;
        let echo = json!({"type": "user", "message": {"role": "user", "content": turn.text},
            "uuid": turn.uuid, "isReplay": true});
        self.write(echo).await?;
        while turn.is("@silent") || turn.is("@dead") {
            self.pause(Duration::from_secs(3_600)).await?;
        }
        if turn.is("@junk") {
            self.junk().await?;
        }
        if turn.is("@stale-mid") {
            self.stale(&before, Value::Null).await?;
        }
        if turn.is("@stale-bare") {
            self.stale("", Value::Null).await?;
        }
        if turn.is("@foreign") {
            self.stale("", json!({"kind": "task-notification"})).await?;
        }
        self.strays(turn, "mid", &before).await?;
        if let Some(status) = turn.status() {
            return self.refused(turn, status).await;
        }
        self.calls(turn).await?;
        self.speak(turn).await?;
        let (subtype, is_error) = match turn {
            turn if turn.is("@broke") => ("error_during_execution", true),
            turn if turn.is("@broke-quietly") => ("error_during_execution", false),
            turn if turn.is("@odd") => ("sideways", false),
            _ => ("success", false),
        };
        self.result(turn, subtype, is_error, "completed").await?;
        self.lifecycle(&turn.uuid, "completed").await?;
        Ok(())
    }

    async fn junk(&mut self) -> Result<(), CliExit> {
        self.raw("this is no line").await?;
        self.raw("{\"type\":").await?;
        self.write(json!({"type": "horoscope", "sign": "ox"})).await?;
        self.write(json!({"type": "system", "subtype": "telepathy"})).await?;
        self.write(json!({"type": "result_like", "subtype": "success"})).await?;
        self.write(json!({"type": "stream_event", "event": {"type": "sparkle"}})).await?;
        self.write(
            json!({"type": "control_request", "request_id": "x", "request": {"subtype": "dance"}}),
        )
        .await
    }

    /// The model service fails with `status`.
    async fn refused(&mut self, turn: &Turn, status: u16) -> ScriptResult<()> {
        self.write(
            json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 1,
            "retry_delay_ms": 500, "error_status": status, "error": "unknown"}),
        )
        .await?;
        self.pause(Duration::from_millis(500)).await?;
        let words = format!("API Error: {status} no");
        self.write(json!({"type": "assistant", "error": "unknown", "message": {
            "id": "s", "model": "<synthetic>", "content": [{"type": "text", "text": words}]}}))
            .await?;
        let mut line = json!({"type": "result", "subtype": "success", "is_error": true, "result": words,
            "terminal_reason": "api_error", "num_turns": 1, "duration_ms": 500,
            "user_message_uuids": self.stamps(&turn.uuid)});
        if self.age == CliVersion::Current {
            line["api_error_status"] = status.into();
        }
        self.write(line).await?;
        self.lifecycle(&turn.uuid, "cancelled").await?;
        Ok(())
    }

    async fn event(&mut self, event: Value, stamp: &str) -> Result<(), CliExit> {
        let stamps = self.stamps(stamp);
        self.write(json!({"type": "stream_event", "event": event, "user_message_uuids": stamps}))
            .await
    }

    async fn start_message(&mut self, stamp: &str) -> Result<String, CliExit> {
        self.count += 1;
        let id = format!("msg_{}", self.count);
        let usage = json!({"input_tokens": 10, "output_tokens": 1});
        let message = json!({"id": id, "model": "m", "content": [], "usage": usage});
        self.event(json!({"type": "message_start", "message": message}), stamp).await?;
        Ok(id)
    }

    async fn piece(&mut self, text: &str) -> Result<(), CliExit> {
        let delta = json!({"type": "text_delta", "text": text});
        self.event(json!({"type": "content_block_delta", "index": 0, "delta": delta}), "").await
    }

    async fn block(&mut self, id: &str, block: Value) -> Result<(), CliExit> {
        self.write(
            json!({"type": "assistant", "message": {"id": id, "model": "m", "content": [block]}}),
        )
        .await
    }

    async fn end_message(&mut self, stop: &str, abandoned: Option<u64>) -> Result<(), CliExit> {
        let usage = json!({"output_tokens": 7});
        let delta = json!({"stop_reason": stop});
        if abandoned.is_none() {
            self.event(json!({"type": "message_delta", "delta": delta, "usage": usage}), "")
                .await?;
        }
        let abandoned = abandoned.map(|from| json!({"from_block_index": from}));
        self.write(json!({"type": "stream_event", "event": {"type": "message_stop"},
            "abandoned_blocks": abandoned}))
            .await
    }

    /// The step that calls a tool.
    async fn calls(&mut self, turn: &Turn) -> ScriptResult<()> {
        let asks = turn.is("@tool") || turn.is("@early") || turn.is("@withdraw") || turn.is("@ask");
        if !asks && !turn.is("@free") && !turn.is("@die-tool") {
            return Ok(());
        }
        let id = self.start_message(&turn.uuid).await?;
        let call = format!("toolu_{}", self.count);
        let (tool, input) = match turn {
            turn if turn.is("@ask") => ("AskUserQuestion", questions(&about(&turn.text))),
            turn => {
                let tool = if turn.is("@free") { "Read" } else { "Bash" };
                (tool, json!({"command": format!("echo {}", about(&turn.text))}))
            }
        };
        self.block(&id, json!({"type": "tool_use", "id": call, "name": tool, "input": input}))
            .await?;
        let ask = json!({"type": "control_request", "request_id": format!("ask-{call}"),
            "request": {"subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": call}});
        if turn.is("@early") {
            self.write(ask.clone()).await?;
            self.pause(Duration::from_millis(300)).await?;
        }
        self.end_message("tool_use", None).await?;
        if turn.is("@die-tool") {
            self.pause(Duration::from_millis(500)).await?;
            return Err(CliExit::Died.into());
        }
        let mut words = "hi".to_owned();
        let mut is_error = false;
        if asks {
            if !turn.is("@early") {
                self.write(ask).await?;
            }
            if turn.is("@withdraw") {
                let id = format!("ask-{call}");
                self.pause(Duration::from_millis(50)).await?;
                self.write(json!({"type": "control_cancel_request", "request_id": id})).await?;
                (words, is_error) = ("withdrawn".to_owned(), true);
            } else {
                let answer = self.answer_to(&format!("ask-{call}")).await?;
                if turn.is("@ask") {
                    words = answer["updatedInput"]["answers"].to_string();
                }
                if answer["behavior"] == "deny" {
                    words = answer["message"].as_str().unwrap_or_default().to_owned();
                    is_error = true;
                }
            }
        } else {
            self.pause(Duration::from_secs(1)).await?;
        }
        self.write(json!({"type": "user", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call, "content": words, "is_error": is_error}]}}))
            .await?;
        Ok(())
    }

    /// The step that writes the answer.
    async fn speak(&mut self, turn: &Turn) -> ScriptResult<()> {
        if turn.is("@quiet") {
            return Ok(());
        }
        let text = turn.answer();
        if turn.is("@unstreamed") {
            self.block("msg_whole", json!({"type": "text", "text": text})).await?;
            return Ok(());
        }
        let mut id = self.start_message(&turn.uuid).await?;
        let many = turn.is("@many") || turn.is("@flood");
        let (head, tail) = text.split_at(if many { 1 } else { text.len() / 2 });
        self.piece(head).await?;
        if turn.is("@die-mid") {
            self.pause(Duration::from_millis(100)).await?;
            return Err(CliExit::Died.into());
        }
        if turn.is("@cut") || turn.is("@whole") {
            self.pause(Duration::from_millis(100)).await?;
            self.end_message("", Some(0)).await?;
            self.write(
                json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 1,
                "retry_delay_ms": 500, "error_status": null, "error": "unknown"}),
            )
            .await?;
            self.pause(Duration::from_millis(500)).await?;
            if turn.is("@whole") {
                self.block("msg_whole", json!({"type": "text", "text": text})).await?;
                return Ok(());
            }
            id = self.start_message("").await?;
            self.piece(head).await?;
        }
        if turn.is("@slow") {
            self.slowly(turn.is("@deaf")).await?;
        }
        let pieces: Vec<&str> = if many { tail.split_inclusive(' ').collect() } else { vec![tail] };
        for piece in pieces {
            self.piece(piece).await?;
        }
        self.block(&id, json!({"type": "text", "text": text})).await?;
        self.end_message("end_turn", None).await?;
        Ok(())
    }

    async fn slowly(&mut self, is_deaf: bool) -> ScriptResult<()> {
        let until =
            tokio::time::Instant::now() + Duration::from_secs(if is_deaf { 3_600 } else { 1 });
        loop {
            let rest = until.saturating_duration_since(tokio::time::Instant::now());
            match self.pause(rest).await {
                Err(TurnInterrupt::Interrupted) if is_deaf => {}
                other => return other,
            }
        }
    }

    /// Output after the turn has ended: late text, stray results, a background turn.
    async fn after(&mut self, turn: &Turn) -> Result<(), CliExit> {
        if turn.is("@late") {
            let text = format!("too late for {}", about(&turn.text));
            let id = self.start_message(&turn.uuid).await?;
            self.piece(&text).await?;
            self.block(&id, json!({"type": "text", "text": text})).await?;
            self.end_message("end_turn", None).await?;
            self.stale(&turn.uuid, Value::Null).await?;
        }
        self.strays(turn, "after", &turn.uuid).await?;
        if turn.is("@background") && self.age == CliVersion::Current {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.init("").await?;
            let id = self.start_message("").await?;
            self.piece(BY_ITSELF).await?;
            self.block(&id, json!({"type": "text", "text": BY_ITSELF})).await?;
            self.end_message("end_turn", None).await?;
            self.write(json!({"type": "result", "subtype": "success", "is_error": false,
                "result": BY_ITSELF, "num_turns": 1, "duration_ms": 1,
                "origin": {"kind": "task-notification"}}))
                .await?;
        }
        Ok(())
    }
}

/// The text of the turn that `@background` starts.
pub const BY_ITSELF: &str = "by itself";
