//! The fixture of these tests: a workspace, the tools, and a session that remembers.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use budao_core::{
    Kind, Lang,
    limits::Limits,
    tool::{Outcome, Todo},
};
use budao_tools::{
    CallContext, Memory, Note, NoteSender, Toolbox,
    builtin::{self, BuiltinOptions, Workspace},
    isolation,
    launch::Launcher,
};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) toolbox: Toolbox,
    pub(crate) memory: Arc<Remembered>,
    pub(crate) context: CallContext,
}

/// A session's memory, made from the notes of its calls.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) todos: Mutex<Vec<Todo>>,
    pub(crate) seen: Mutex<HashMap<String, Option<String>>>,
    pub(crate) shown: Mutex<String>,
}

impl Memory for Remembered {
    fn todos(&self) -> Vec<Todo> {
        self.todos.lock().unwrap().clone()
    }

    fn seen_digest(&self, path: &str) -> Option<Option<String>> {
        self.seen.lock().unwrap().get(path).cloned()
    }
}

impl Remembered {
    fn take(&self, note: Note) {
        match note {
            Note::Todos(todos) => *self.todos.lock().unwrap() = todos,
            Note::FileSeen { path, digest } => {
                self.seen.lock().unwrap().insert(path, digest);
            }
            Note::Output(text) => self.shown.lock().unwrap().push_str(&text),
            Note::Topic { .. } | Note::ChildOpened(_) => {}
        }
    }
}

/// The launcher that was built for these tests.
pub(crate) fn launcher() -> Launcher {
    Launcher::new(env!("CARGO_BIN_EXE_budao-launch-test"))
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(BuiltinOptions { launcher: Some(launcher()), ..BuiltinOptions::default() })
    }

    pub(crate) fn with(options: BuiltinOptions) -> Self {
        Self::with_limits(options, Limits::default())
    }

    pub(crate) fn with_limits(options: BuiltinOptions, limits: Limits) -> Self {
        let folder = tempfile::Builder::new().prefix("fixture").tempdir().unwrap();
        Self::at(folder, options, limits)
    }

    pub(crate) fn at(folder: TempDir, options: BuiltinOptions, limits: Limits) -> Self {
        let workspace = Workspace::open(folder.path()).unwrap();
        let tools = builtin::tools(&workspace, &options);
        drop(options);
        let toolbox = Toolbox::builder().build().with_all(tools).unwrap();
        let memory = Arc::new(Remembered::default());
        let mut context = isolation::context_with(limits);
        context.memory = memory.clone();
        Self { folder, toolbox, memory, context }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// One call, all the way.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        self.call_in(tool, arguments, self.context.clone()).await
    }

    pub(crate) async fn call_in(
        &self,
        tool: &str,
        arguments: Value,
        mut context: CallContext,
    ) -> Outcome {
        let ready = match self.toolbox.check_value(tool, arguments, &context.limits) {
            Ok(ready) => ready,
            Err(fault) => return fault.into(),
        };
        let (notes, mut notes_received) = NoteSender::channel(1024);
        context.notes = notes;
        let memory = self.memory.clone();
        let listening = tokio::spawn(async move {
            while let Some(note) = notes_received.recv().await {
                memory.take(note);
            }
        });
        let outcome = ready.run(context).await;
        listening.await.unwrap();
        outcome
    }

    /// The data of a call that works.
    pub(crate) async fn done(&self, tool: &str, arguments: Value) -> Value {
        match self.call(tool, arguments).await {
            Outcome::Done(output) => output.data,
            Outcome::Failed(failure) => panic!("{tool}: {:?}", failure.fault),
        }
    }

    /// The kind of a call that fails.
    pub(crate) async fn fails(&self, tool: &str, arguments: Value) -> Kind {
        kind(&self.call(tool, arguments).await)
    }

    /// What the model reads of a call.
    pub(crate) async fn call_and_render(&self, tool: &str, arguments: Value) -> Value {
        render_outcome(&self.call(tool, arguments).await)
    }
}

pub(crate) fn kind(outcome: &Outcome) -> Kind {
    outcome.fault().unwrap_or_else(|| panic!("it worked: {outcome:?}")).kind()
}

/// What the model reads, without what every answer of its kind says.
pub(crate) fn render_outcome(outcome: &Outcome) -> Value {
    let (text, is_error) = outcome.render_for_model(Lang::En);
    let rendered: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(is_error, !outcome.is_done());
    rendered
}

/// The data of a call, good or bad.
pub(crate) fn data(outcome: &Outcome) -> &Value {
    match outcome {
        Outcome::Done(output) => &output.data,
        Outcome::Failed(failure) => failure.data.as_ref().expect("there is data"),
    }
}

/// Processes whose command line or environment holds `marker`.
pub(crate) fn processes_with(marker: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid == i32::try_from(std::process::id()).unwrap() {
            continue;
        }
        let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        let holds =
            |bytes: &[u8]| bytes.windows(marker.len()).any(|part| part == marker.as_bytes());
        if holds(&line) || holds(&environment) {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}
