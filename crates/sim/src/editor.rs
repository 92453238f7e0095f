//! An editor on the bridge. It sends prompts, cancels and withdraws them, answers late, reads slowly, loses its
//! connection and reconnects, while the engine is killed. The seed chooses the native engine or the Claude CLI.

mod driver;
mod engine_host;

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::{
    laws,
    play::{SimResult, gather, machine},
    process::Machine,
    script::{Script, ScriptAction, Step},
};
use driver::Editor;
use engine_host::EngineHost;

/// Virtual time within which everything must be answered after the last step.
const REST: Duration = Duration::from_secs(4 * 3600);

/// An action of the person at the editor.
#[derive(Clone, Debug)]
enum EditorAction {
    Prompt {
        session: usize,
        mark: usize,
    },
    Cancel {
        session: usize,
    },
    Withdraw {
        mark: usize,
    },
    /// Answers the open questions, and later ones, with this decision.
    Decide {
        allow: bool,
    },
    /// Leaves questions unanswered until the next `Decide`.
    Ponder,
    Doze {
        for_ms: u64,
    },
    Cut {
        away_ms: u64,
    },
    Finish,
}

/// Plays a script in the editor world.
pub(crate) async fn play(script: &Script) -> SimResult {
    let machine = machine(script);
    let engine_host = Arc::new(EngineHost::new(script, &machine));
    engine_host.start();
    let (person, orders) = mpsc::unbounded_channel();
    let editor = Editor::new(script, Arc::clone(&machine), Arc::clone(&engine_host));
    let editing = tokio::spawn(editor.live(orders));
    for step in &script.steps {
        let due = Duration::from_millis(step.at_ms);
        tokio::time::sleep(due.saturating_sub(machine.clock.elapsed())).await;
        perform(step, &machine, &engine_host, &person);
    }
    machine.disk.calm();
    engine_host.start();
    drop(person.send(EditorAction::Finish));
    let done = tokio::time::timeout(REST, editing).await;
    let well = matches!(done, Ok(Ok(())));
    machine.violations.expect(well, "every request of an editor is answered", || {
        format!("after {REST:?}: {}", engine_host.name())
    });
    look_back(script, &machine, &engine_host).await
}

fn perform(
    step: &Step,
    machine: &Arc<Machine>,
    engine_host: &Arc<EngineHost>,
    person: &mpsc::UnboundedSender<EditorAction>,
) {
    let mark = step.id;
    let act = match step.what {
        ScriptAction::Say { session, .. } | ScriptAction::Plan { session, .. } => {
            EditorAction::Prompt { session, mark }
        }
        ScriptAction::Cancel { session, .. } => EditorAction::Cancel { session },
        ScriptAction::Withdraw { of, .. } => EditorAction::Withdraw { mark: of },
        ScriptAction::Close { .. } => EditorAction::Ponder,
        ScriptAction::Decide { allow, .. } => EditorAction::Decide { allow },
        ScriptAction::Cut { away_ms, .. } => EditorAction::Cut { away_ms },
        ScriptAction::Doze { for_ms, .. } => EditorAction::Doze { for_ms },
        ScriptAction::Kill { away_ms, .. } => return engine_host.kill(away_ms),
        ScriptAction::Stop { away_ms, .. } => return engine_host.stop(away_ms),
        ScriptAction::Disk { trouble, for_ms } => {
            return machine.disk.trouble(trouble, Duration::from_millis(for_ms));
        }
        ScriptAction::Jump { by_ms } => return machine.clock.jump(by_ms),
        // An editor sets no timers and has no workers.
        ScriptAction::Timer { .. }
        | ScriptAction::CancelTimer { .. }
        | ScriptAction::KillWorker { .. }
        | ScriptAction::CutWorker { .. }
        | ScriptAction::DrainWorker { .. } => return,
    };
    // The editor task runs until it receives `Finish`.
    drop(person.send(act));
}

async fn look_back(script: &Script, machine: &Machine, engine_host: &EngineHost) -> SimResult {
    engine_host.rest().await;
    let violations = &machine.violations;
    let (played, histories) = gather(machine, script).await;
    for (session, history) in &histories {
        if engine_host.is_cli() {
            laws::cli::of_session(history, violations);
        } else {
            laws::of_session(history, &machine.limits, violations);
            laws::of_snapshot(machine.disk.durable(), *session, history, violations).await;
        }
    }
    laws::answers::of_effects(&machine.ledger.entries(), &histories, violations);
    SimResult { violations: violations.all(), ..played }
}
