//! Follows a turn on the terminal: text on stdout, events on stderr, questions to the user.

use std::io::{self, BufRead, IsTerminal, Write};

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::Activity,
    elicitation::Elicitation,
    engine::Engine,
    event::{CommandBody, Decision, Seq, SessionId, StopReason},
    fault::{Fact, text},
    session::Session,
};
use budao_runtime::{Question, Runtime};
use futures::StreamExt;
use serde_json::{Map, Value};

use crate::{
    exit::Exit,
    form,
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
            self.terminal.say(&match form::elicitation_of(&question) {
                Some(asked) => format!("? {}", form::headline(&asked, self.lang)),
                None => format!(
                    "? {} {} {}",
                    localize(self.lang, "watch-allow-call"),
                    self.terminal.name(&question.tool),
                    question.arguments,
                ),
            });
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
        if let Some(asked) = form::elicitation_of(question) {
            return self.ask_for_input(question, &asked).await;
        }
        if !can_ask(self.show) {
            self.terminal.say(localize(self.lang, "watch-denied-there-is-no-terminal-to"));
            let note = "the user could not be asked: there is no terminal".to_owned();
            return self.decide(question, Decision::Deny, Some(note), None).await;
        }
        match self.read_answer("watch-y-yes-n-no").await? {
            Some(decision) => self.decide(question, decision, None, None).await,
            None => Ok(()),
        }
    }

    /// Asks the user for the values of a form, or whether an address was opened.
    async fn ask_for_input(
        &mut self,
        question: &Question,
        asked: &Elicitation,
    ) -> Result<(), Fault> {
        if !can_ask(self.show) {
            self.terminal.say(localize(self.lang, "watch-declined-there-is-no-terminal"));
            let note = "the user could not be asked: there is no terminal".to_owned();
            return self.decide(question, Decision::Deny, Some(note), None).await;
        }
        let prompt = match asked.url {
            Some(_) => "watch-opened-y-yes-n-no",
            None => "watch-fill-in-y-yes-n-no",
        };
        let Some(decision) = self.read_answer(prompt).await? else { return Ok(()) };
        if decision == Decision::Deny {
            return self.decide(question, decision, None, None).await;
        }
        for _ in 0..FORM_TRIES {
            let mut values = Map::new();
            for field in &asked.fields {
                let prompt = format!("  {}\n  {} > ", form::describe(field), field.name);
                let Some(line) = self.read_line(prompt).await? else { return Ok(()) };
                values.extend(form::value_of(field, &line).map(|it| (field.name.clone(), it)));
            }
            match asked.complete(Some(&Value::Object(values))) {
                Ok(values) => {
                    return self.decide(question, Decision::Allow, None, Some(values)).await;
                }
                Err(wrong) => {
                    let args = [("mismatches", form::describe_mismatches(&wrong).into())];
                    self.terminal.say(&fill(self.lang, "watch-answer-does-not-fit", &args));
                }
            }
        }
        self.decide(question, Decision::Deny, None, None).await
    }

    /// Reads a yes or no. `None` after Ctrl-C, which cancels the turn.
    async fn read_answer(&mut self, prompt: &'static str) -> Result<Option<Decision>, Fault> {
        let line = self.read_line(localize(self.lang, prompt).to_owned()).await?;
        Ok(line.map(|line| match line.trim().eq_ignore_ascii_case("y") {
            true => Decision::Allow,
            false => Decision::Deny,
        }))
    }

    /// Reads a line. `None` after Ctrl-C, which cancels the turn.
    async fn read_line(&mut self, prompt: String) -> Result<Option<String>, Fault> {
        let line = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => None,
            line = read_line(prompt) => Some(line),
        };
        if line.is_none() {
            self.terminal.say("");
            self.cancel().await?;
        }
        Ok(line)
    }

    async fn decide(
        &self,
        question: &Question,
        decision: Decision,
        note: Option<String>,
        arguments: Option<Value>,
    ) -> Result<(), Fault> {
        let (question, digest) = (question.id.clone(), Some(question.digest.clone()));
        let ask = CommandBody::Decide { question, decision, note, arguments, digest };
        let command = self.runtime.command("terminal", ask);
        self.runtime.submit(self.session, command).await.map(drop)
    }
}

/// How often a form is asked for again after an answer that does not fit.
const FORM_TRIES: u32 = 5;

/// Reads a line on a thread that is never joined, so that Ctrl-C does not have to wait for Enter. A read that fails is
/// an empty line.
async fn read_line(prompt: String) -> String {
    let (answer, answered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut stderr = io::stderr().lock();
        let written = stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush());
        let mut line = String::new();
        // Releases stderr before the read blocks, so that other threads can write to it.
        drop(stderr);
        if written.and_then(|()| io::stdin().lock().read_line(&mut line)).is_err() {
            line.clear();
        }
        // The receiver is gone after an interrupt.
        let _ = answer.send(line);
    });
    answered.await.unwrap_or_default()
}
