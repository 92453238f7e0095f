//! Calls that the fake server finishes later: tasks whose state is in a folder, so that they outlive the server.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{Flow, Session, text};

/// The folder with the state of tasks, shared by a server and its test.
#[derive(Clone, Debug)]
pub struct TaskFolder(PathBuf);

impl TaskFolder {
    /// The state in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// How many tasks were created.
    #[must_use]
    pub fn created(&self) -> usize {
        self.count("created")
    }

    /// How often a client asked for a task.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.count("asked")
    }

    /// How often a client cancelled a task.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        self.count("cancelled")
    }

    /// Lets all tasks end.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn release(&self) -> io::Result<()> {
        fs::write(self.0.join("released"), "")
    }

    /// How often the tool `form` was called, with and without answers.
    #[must_use]
    pub fn forms(&self) -> usize {
        self.count("form")
    }

    fn count(&self, what: &str) -> usize {
        fs::read(self.0.join(what)).map_or(0, |bytes| bytes.len())
    }

    /// Appends one byte, and returns how many there are.
    fn add(&self, what: &str) -> io::Result<usize> {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.0.join(what))?;
        file.write_all(b".")?;
        Ok(self.count(what))
    }
}

impl<W: Write> Session<W> {
    fn folder(&self) -> TaskFolder {
        TaskFolder::new(self.behaviour.tasks.clone().unwrap_or_default())
    }

    pub(super) fn create_task(&mut self, id: &Value) -> io::Result<Flow> {
        let number = self.folder().add("created")?;
        let number = if self.behaviour.one_task { 1 } else { number };
        let mut task = task(&format!("t{number}"), "working");
        task["resultType"] = "task".into();
        self.answer(id, task)
    }

    pub(super) fn hear_task(
        &mut self,
        id: &Value,
        method: &str,
        params: &Value,
    ) -> io::Result<Flow> {
        let folder = self.folder();
        let name = params["taskId"].as_str().unwrap_or_default();
        let number = name.strip_prefix('t').and_then(|number| number.parse::<usize>().ok());
        if number.is_none_or(|number| number > folder.created()) {
            return self.error(id, -32602, "Unknown task");
        }
        match method {
            "tasks/get" => {
                let asked = folder.add("asked")?;
                let is_released = folder.path().join("released").exists();
                let mut answer = task(name, if is_released { "completed" } else { "working" });
                answer["statusMessage"] = format!("step {asked}").into();
                if is_released {
                    answer["result"] = text(&format!("result of {name}"));
                }
                self.answer(id, answer)
            }
            "tasks/cancel" => {
                folder.add("cancelled")?;
                self.answer(id, json!({}))
            }
            _ => self.answer(id, json!({})),
        }
    }

    /// Asks for input, once, and answers with what it got. The argument `request` replaces its question.
    pub(super) fn form(&mut self, id: &Value, params: &Value) -> io::Result<Flow> {
        self.folder().add("form")?;
        let answers = &params["inputResponses"];
        if !answers.is_null() {
            let state = params["requestState"].as_str().unwrap_or_default();
            return self.answer(id, text(&format!("{state}: {answers}")));
        }
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let question =
            json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema });
        let request = json!({ "method": "elicitation/create", "params": question });
        let asked = &params["arguments"]["request"];
        let request = if asked.is_null() { request } else { asked.clone() };
        let requests = json!({ "k1": request });
        self.answer(
            id,
            json!({
                "resultType": "input_required", "inputRequests": requests, "requestState": "kept",
            }),
        )
    }
}

fn task(name: &str, status: &str) -> Value {
    json!({
        "taskId": name, "status": status, "ttlMs": 3_600_000, "pollIntervalMs": 50,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
    })
}
