//! Follows a turn on the terminal: text on stdout, events on stderr, questions to the user.

use std::io::{self, BufRead, IsTerminal, Write};

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::Activity,
    engine::Engine,
    event::{CommandBody, Decision, Seq, SessionId, StopReason},
    fault::{Fact, text},
    session::Session,
};
use budao_runtime::{Question, Runtime};
use futures::StreamExt;

use crate::{
    exit::Exit,
    terminal::Terminal,
    texts::{count, fill, is_hidden, localize},
    transcript::{TranscriptPrinter, clock},
};

/// The output format of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnFormat {
    /// Text for people.
    Text,
    /// One JSON object per record, for programs.
    Json,
}

/// Follows one session on a terminal.
pub(crate) struct Watcher<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) session: SessionId,
    pub(crate) terminal: &'a Terminal,
    pub(crate) lang: Lang,
    pub(crate) show: TurnFormat,
    /// Whether each line starts with its time.
    pub(crate) has_times: bool,
    /// Whether calls that need approval are denied by rule, because nobody can be asked.
    pub(crate) is_unattended: bool,
    /// Calls that were denied by rule.
    denied: u32,
    /// True if text was printed and its line is not ended yet.
    mid_line: bool,
}

/// Whether a person can answer questions at the terminal.
pub(crate) fn can_ask(show: TurnFormat) -> bool {
    show == TurnFormat::Text && io::stdin().is_terminal() && io::stderr().is_terminal()
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(
        runtime: &'a Runtime,
        session: SessionId,
        terminal: &'a Terminal,
        lang: Lang,
        show: TurnFormat,
    ) -> Self {
        let (has_times, is_unattended, mid_line) = (false, false, false);
        Self {
            runtime,
            session,
            terminal,
            lang,
            show,
            has_times,
            is_unattended,
            denied: 0,
            mid_line,
        }
    }

    /// Asks the open questions of a session again, which an earlier process had shown.
    pub(crate) async fn ask_pending(&mut self, state: &Session) -> Result<(), Fault> {
        for question in Question::open_in(state) {
            self.terminal.say(&format!(
                "? {} {} {}",
                localize(self.lang, "watch-allow-call"),
                self.terminal.name(&question.tool),
                question.arguments,
            ));
            self.ask(&question).await?;
        }
        Ok(())
    }

    /// Follows records after a position until a turn ends with an empty queue. A second Ctrl-C stops following.
    pub(crate) async fn until_idle(&mut self, after: Seq) -> Result<Exit, Fault> {
        let mut records = self.runtime.follow(self.session, after).await?;
        let mut interrupts = 0;
        loop {
            let record = tokio::select! {
                biased;
                record = records.next() => record,
                stopped = tokio::signal::ctrl_c() => {
                    interrupts += 1;
                    if stopped.is_err() || interrupts > 1 {
                        return Ok(Exit::Stopped);
                    }
                    self.cancel().await?;
                    continue;
                }
            };
            let Some(record) = record else { return Ok(Exit::Failed) };
            let record = record?;
            self.print_record(&record);
            self.print_address(&record);
            match Activity::of(&record.event) {
                Some(Activity::QuestionAsked(asked)) => self.ask(&asked.into()).await?,
                Some(Activity::TurnEnded { stop, fault, .. }) => {
                    let state = self.runtime.state(self.session).await?;
                    if state.queue.is_empty() && state.turn.is_none() {
                        return Ok(self.ended(stop, fault));
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether text was printed and its line is not ended yet.
    pub(crate) fn is_mid_line(&self) -> bool {
        self.mid_line
    }

    /// Prints one record in the chosen format.
    pub(crate) fn print_record(&mut self, record: &Record) {
        if self.show == TurnFormat::Json {
            let line = serde_json::to_string(record).unwrap_or_default();
            return self.terminal.data(&format!("{line}\n"));
        }
        let activity = Activity::of(&record.event);
        if let Some(Activity::CallEnded { outcome, .. }) = activity
            && outcome.fault().is_some_and(|fault| fault.kind() == Kind::DeniedByPolicy)
        {
            self.denied += 1;
        }
        if let Some(Activity::Text { text, .. }) = activity {
            if self.has_times && !self.mid_line {
                self.terminal.words(&format!("{} ", clock(record.at)));
            }
            self.terminal.words(text);
            self.mid_line = !text.ends_with('\n');
            return;
        }
        let printer = TranscriptPrinter { terminal: self.terminal, lang: self.lang };
        let line = printer.line(record);
        let ends_text = line.is_some() || matches!(activity, Some(Activity::Answered { .. }));
        if self.mid_line && ends_text {
            self.terminal.data("\n");
            self.mid_line = false;
        }
        if let Some(line) = line {
            match self.has_times {
                true => self.terminal.say(&format!("{} {line}", clock(record.at))),
                false => self.terminal.say(&line),
            }
        }
    }

    /// Names the host of a fault if its facts hide it from remote users: the reader of a terminal is the operator.
    fn print_address(&self, record: &Record) {
        let fault = record.event.fault();
        let hidden = fault.filter(|fault| fault.detail().text(Fact::Host).is_some_and(is_hidden));
        if let (Some(address), TurnFormat::Text) = (hidden.and_then(Fault::address), self.show) {
            self.terminal.say(&format!("  {address}"));
        }
    }

    fn ended(&self, stop: StopReason, fault: Option<&Fault>) -> Exit {
        if let (TurnFormat::Text, Some(fault)) = (self.show, fault) {
            self.terminal.say(&text::user_text(fault, self.lang));
            self.terminal.say(&format!(
                "{} `budao explain {}`",
                localize(self.lang, "watch-for-details"),
                fault.row().code
            ));
        }
        if self.is_unattended && self.denied > 0 {
            self.report_denied();
            return Exit::Stopped;
        }
        match (stop, fault) {
            (StopReason::EndTurn, None) => Exit::Success,
            (StopReason::Failed, _) | (StopReason::EndTurn, Some(_)) => Exit::Failed,
            (
                StopReason::MaxTokens
                | StopReason::MaxTurnRequests
                | StopReason::Refusal
                | StopReason::Cancelled,
                _,
            ) => Exit::Stopped,
        }
    }

    /// Says that the task may be incomplete.
    fn report_denied(&self) {
        let denied = count(self.lang, "count-calls", self.denied.into());
        let args = [("calls", denied.into())];
        self.terminal.say(&fill(self.lang, "watch-nobody-could-be-asked", &args));
    }

    async fn cancel(&self) -> Result<(), Fault> {
        let reason = Some("interrupted at the terminal".to_owned());
        let command = self.runtime.command("terminal", CommandBody::Cancel { reason });
        self.runtime.submit(self.session, command).await.map(drop)
    }

    /// Asks the user at the terminal; without a terminal, denies the call and says how to allow it.
    async fn ask(&mut self, question: &Question) -> Result<(), Fault> {
        let (decision, note) = if can_ask(self.show) {
            let prompt = localize(self.lang, "watch-y-yes-n-no");
            let answer = tokio::select! {
                biased;
                // Ctrl-C instead of an answer cancels the turn.
                _ = tokio::signal::ctrl_c() => None,
                answer = read_answer(prompt) => Some(answer),
            };
            let Some(answer) = answer else {
                self.terminal.say("");
                return self.cancel().await;
            };
            (answer, None)
        } else {
            self.terminal.say(localize(self.lang, "watch-denied-there-is-no-terminal-to"));
            let note = "the user could not be asked: there is no terminal".to_owned();
            (Decision::Deny, Some(note))
        };
        let (arguments, digest) = (None, Some(question.digest.clone()));
        let question = question.id.clone();
        let ask = CommandBody::Decide { question, decision, note, arguments, digest };
        let command = self.runtime.command("terminal", ask);
        self.runtime.submit(self.session, command).await.map(drop)
    }
}

/// Reads a line on a thread that is never joined, so that Ctrl-C does not have to wait for Enter.
async fn read_answer(prompt: &'static str) -> Decision {
    let (answer, answered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut stderr = io::stderr().lock();
        let written = stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush());
        let mut line = String::new();
        // Releases stderr before the read blocks, so that other threads can write to it.
        drop(stderr);
        let decision = match written.and_then(|()| io::stdin().lock().read_line(&mut line)) {
            Ok(_) if line.trim().eq_ignore_ascii_case("y") => Decision::Allow,
            _ => Decision::Deny,
        };
        // The receiver is gone after an interrupt.
        let _ = answer.send(decision);
    });
    answered.await.unwrap_or(Decision::Deny)
}
