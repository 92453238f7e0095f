//! The bridge over the Claude CLI, played over a pipe under a paused clock: every scenario that lost, moved or
//! repeated an answer of another prompt. Each conversation is checked as a whole when the editor hangs up.

mod deaths;
mod endings;
mod interleavings;
mod questions;
mod reports;
mod sessions;
mod strays;
mod streams;

use std::sync::Arc;

use budao_acp::{Bridge, EditorOptions, ExecutionError, ModelChoice, NoEditorServices};
use budao_claude::{Claude, ClaudeConfig};
use budao_core::{Lang, engine::Engine as _, event::Settings, limits::Limits};
use budao_journal::{Journal, Memory};
use budao_testkit::{
    claude::{CliVersion, answer},
    launcher::PlayedCliLauncher,
    world,
};

use crate::{check::AgentKind, editor::Editor};

pub(crate) const AGES: [CliVersion; 2] = [CliVersion::Current, CliVersion::Old];

/// A bridge over the engine, and an editor with a session open.
pub(crate) struct Fixture {
    pub(crate) editor: Editor,
    pub(crate) session: String,
    pub(crate) bridge: Bridge,
    pub(crate) engine: Claude,
    pub(crate) played: Arc<PlayedCliLauncher>,
    pub(crate) journal: Arc<dyn Journal>,
}

impl Fixture {
    pub(crate) async fn open(age: CliVersion) -> Self {
        Self::seeded(age, 1).await
    }

    pub(crate) async fn seeded(age: CliVersion, seed: u64) -> Self {
        Self::with(age, seed, ExecutionError::Error, 1024 * 1024).await
    }

    /// With an editor at the end of a line that holds so many bytes.
    pub(crate) async fn with(
        age: CliVersion,
        seed: u64,
        execution_error: ExecutionError,
        line: usize,
    ) -> Self {
        let (world, limits) = (world::seeded(seed), Limits::default());
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), limits.clone()));
        let played = PlayedCliLauncher::new(age);
        let config =
            ClaudeConfig::new(Arc::clone(&journal), world.clone(), Arc::clone(&played) as _);
        let engine = Claude::new(config);
        let bridge = Bridge {
            engine: Arc::new(engine.clone()),
            journal: Arc::clone(&journal) as _,
            world,
            limits,
            editor_options: EditorOptions {
                engine: "claude".to_owned(),
                models: vec![ModelChoice::new("default", "Default")],
                ..EditorOptions::default()
            },
            settings: Settings::default(),
            lang: Lang::En,
            execution_error,
            services: Arc::new(NoEditorServices),
        };
        let mut editor = Editor::connect_with(bridge.clone(), line);
        editor.agent_kind = AgentKind::Claude;
        editor.initialize().await;
        let session = editor.new_session().await;
        Self { editor, session, bridge, engine, played, journal }
    }

    pub(crate) async fn prompt(&mut self, text: &str) -> u64 {
        let session = self.session.clone();
        self.editor.prompt(&session, text).await
    }

    pub(crate) async fn cancel(&mut self) {
        let session = self.session.clone();
        self.editor.cancel(&session).await;
    }

    /// Sends a prompt; how it ended, and what was shown meanwhile.
    pub(crate) async fn run(&mut self, text: &str) -> (String, String) {
        let before = self.editor.text().len();
        let id = self.prompt(text).await;
        let stop = self.editor.stop(id).await;
        (stop, self.editor.text().split_off(before))
    }

    /// Sends a prompt that is answered as if nothing had ever gone wrong.
    pub(crate) async fn runs_well(&mut self, text: &str) {
        let (stop, shown) = self.run(text).await;
        assert_eq!((stop.as_str(), shown), ("end_turn", answer(text)), "{text}");
    }

    /// Hangs up, has the whole conversation looked at, and sees that no CLI is left.
    pub(crate) async fn close(self) {
        self.editor.hang_up().await;
        self.engine.shutdown(std::time::Duration::ZERO).await;
        assert_eq!(self.played.running(), 0, "a CLI is left behind");
    }
}
