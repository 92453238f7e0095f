//! The process an editor talks to: a bridge over an engine, which can be started, killed and restarted.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use budao_acp::{Bridge, EditorOptions, ExecutionError, ModelChoice, NoEditorServices};
use budao_claude::{Claude, ClaudeConfig, CliTimeouts};
use budao_core::{
    Lang,
    engine::Engine,
    event::{CommandBody, Decision, SessionId, Settings},
    tool::{Mode, Permissions},
    world::Spawn as _,
};
use budao_journal::{Reader as _, fold};
use budao_runtime::Question;
use budao_testkit::{claude::CliVersion, launcher::PlayedCliLauncher};
use rand::RngExt as _;

use crate::{
    people::command,
    process::Machine,
    script::Script,
    world::{Tasks, chance, world},
};

/// The process slot of the engine, with the state that survives a kill.
#[derive(Debug)]
pub(super) struct EngineHost {
    machine: Arc<Machine>,
    cli: Option<ScriptedCli>,
    bridges: AtomicU32,
}

/// The Claude CLI engine, with a played CLI over pipes.
#[derive(Debug)]
struct ScriptedCli {
    launcher: Arc<PlayedCliLauncher>,
    started: AtomicU32,
    running: Mutex<Option<(Claude, Arc<Tasks>)>>,
}

impl EngineHost {
    pub(super) fn new(script: &Script, machine: &Arc<Machine>) -> Self {
        let mut dice = chance(script.seed, "seat");
        let cli = dice.random_bool(0.5).then(|| ScriptedCli {
            launcher: PlayedCliLauncher::new(if dice.random_bool(0.25) {
                CliVersion::Old
            } else {
                CliVersion::Current
            }),
            started: AtomicU32::new(0),
            running: Mutex::default(),
        });
        Self { machine: Arc::clone(machine), cli, bridges: AtomicU32::new(0) }
    }

    pub(super) fn is_cli(&self) -> bool {
        self.cli.is_some()
    }

    pub(super) fn name(&self) -> &'static str {
        if self.is_cli() { "the Claude CLI" } else { "the native engine" }
    }

    /// Starts the engine; does nothing if it runs.
    pub(super) fn start(&self) {
        let Some(cli) = &self.cli else { return self.machine.start(0) };
        let mut running = cli.running.lock().expect("nobody panics with it");
        if running.is_some() {
            return;
        }
        let number = cli.started.fetch_add(1, Ordering::Relaxed);
        let tasks = Arc::new(Tasks::default());
        let name = format!("claude {number}");
        let world = world(&self.machine.clock, self.machine.seed, &name, Arc::clone(&tasks));
        let journal = self.machine.disk.journal();
        let mut config = ClaudeConfig::new(journal, world, Arc::clone(&cli.launcher) as _);
        config.timeouts = CliTimeouts { quiet: Duration::from_secs(300), ..CliTimeouts::default() };
        config.holder = name;
        let engine = Claude::new(config);
        let recovering = engine.clone();
        tasks.spawn(Box::pin(async move {
            while recovering.recover().await.is_err() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }));
        *running = Some((engine, tasks));
    }

    fn end(&self) {
        let Some(cli) = &self.cli else {
            self.machine.kill(0);
            return;
        };
        if let Some((_, tasks)) = cli.running.lock().expect("nobody panics with it").take() {
            tasks.kill();
            // The death of a process also kills its children.
            cli.launcher.kill();
        }
    }

    /// Kills the process and starts it again after `away_ms`.
    pub(super) fn kill(self: &Arc<Self>, away_ms: u64) {
        self.end();
        let engine_host = Arc::clone(self);
        drop(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            engine_host.start();
        }));
    }

    /// Shuts the process down in order and starts it again after `away_ms`.
    pub(super) fn stop(self: &Arc<Self>, away_ms: u64) {
        let engine_host = Arc::clone(self);
        drop(tokio::spawn(async move {
            let patience = Duration::from_secs(3);
            match (&engine_host.cli, engine_host.machine.process(0)) {
                (Some(cli), _) => {
                    let running = cli.running.lock().expect("nobody panics with it").clone();
                    if let Some((engine, _)) = running {
                        engine.shutdown(patience).await;
                    }
                }
                (None, Some(process)) => process.runtime.shutdown(patience).await,
                (None, None) => {}
            }
            engine_host.kill(away_ms);
        }));
    }

    fn engine(&self) -> Option<(Arc<dyn Engine>, Arc<Tasks>)> {
        Some(match &self.cli {
            Some(cli) => {
                let (engine, tasks) = cli.running.lock().expect("nobody panics with it").clone()?;
                (Arc::new(engine), tasks)
            }
            None => {
                let process = self.machine.process(0)?;
                (Arc::new(process.runtime), process.tasks)
            }
        })
    }

    /// A bridge over the engine, and the tasks of its process; `None` while no process runs.
    pub(super) fn bridge(&self) -> Option<(Bridge, Arc<Tasks>)> {
        let (engine, tasks) = self.engine()?;
        let name = format!("bridge {}", self.bridges.fetch_add(1, Ordering::Relaxed));
        let world = world(&self.machine.clock, self.machine.seed, &name, Arc::clone(&tasks));
        let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        let engine_name = if self.is_cli() { "claude" } else { "native" };
        let bridge = Bridge {
            engine,
            journal: self.machine.disk.journal(),
            world,
            limits: self.machine.limits.clone(),
            editor_options: EditorOptions {
                engine: engine_name.to_owned(),
                models: vec![ModelChoice::new("default", "Default")],
                ..EditorOptions::default()
            },
            settings: Settings { permissions, ..Settings::default() },
            lang: Lang::En,
            execution_error: ExecutionError::Error,
            services: Arc::new(NoEditorServices),
        };
        Some((bridge, tasks))
    }

    /// Waits until no session is unfinished, for at most 200 virtual minutes. Allows all questions meanwhile.
    pub(super) async fn rest(&self) {
        self.start();
        for _ in 0..200 {
            let unfinished = self.machine.disk.durable().unfinished(None, 100).await;
            let unfinished = unfinished.unwrap_or_default();
            if unfinished.is_empty() {
                return;
            }
            for session in unfinished.into_iter().map(|unfinished| unfinished.session) {
                self.decide(session).await;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    /// Allows everything a session asks.
    async fn decide(&self, session: SessionId) {
        let Ok((state, _)) = fold(self.machine.disk.durable(), session).await else { return };
        let Some((engine, _)) = self.engine() else { return };
        for question in Question::open_in(&state) {
            let ask = CommandBody::Decide {
                question: question.id.clone(),
                decision: Decision::Allow,
                note: None,
                arguments: None,
                digest: Some(question.digest),
            };
            let asked = engine.submit(session, command(format!("rest-{}", question.id), ask));
            drop(tokio::time::timeout(Duration::from_secs(120), asked).await);
        }
    }
}
