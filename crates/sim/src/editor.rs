//! An editor on the bridge: prompts, cancels, takes back, answers late, reads slowly, is cut off and comes back,
//! while the engine behind the bridge is killed. Behind it is the native engine or the Claude CLI, by the seed.

mod line;
mod seat;

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::{
    laws,
    play::{Played, gather, machine},
    process::Machine,
    script::{Script, Step, What},
};
use line::Editor;
use seat::Seat;

/// Virtual time in which everything must be answered after the last step.
const REST: Duration = Duration::from_secs(4 * 3600);

/// What the person at the editor does.
#[derive(Clone, Debug)]
enum Do {
    Prompt {
        session: usize,
        mark: usize,
    },
    Cancel {
        session: usize,
    },
    TakeBack {
        mark: usize,
    },
    /// Answers what is asked, and what will be.
    Decide {
        allow: bool,
    },
    /// Leaves what is asked unanswered.
    Ponder,
    Doze {
        for_ms: u64,
    },
    Cut {
        away_ms: u64,
    },
    Finish,
}

/// Plays a script.
pub(crate) async fn play(script: &Script) -> Played {
    let machine = machine(script);
    let seat = Arc::new(Seat::new(script, &machine));
    seat.start();
    let (person, orders) = mpsc::unbounded_channel();
    let editor = Editor::new(script, Arc::clone(&machine), Arc::clone(&seat));
    let editing = tokio::spawn(editor.live(orders));
    for step in &script.steps {
        let due = Duration::from_millis(step.at_ms);
        tokio::time::sleep(due.saturating_sub(machine.clock.elapsed())).await;
        perform(step, &machine, &seat, &person);
    }
    machine.disk.calm();
    seat.start();
    drop(person.send(Do::Finish));
    let done = tokio::time::timeout(REST, editing).await;
    let well = matches!(done, Ok(Ok(())));
    machine.violations.expect(well, "every request of an editor is answered", || {
        format!("after {REST:?}: {}", seat.name())
    });
    look_back(script, &machine, &seat).await
}

fn perform(
    step: &Step,
    machine: &Arc<Machine>,
    seat: &Arc<Seat>,
    person: &mpsc::UnboundedSender<Do>,
) {
    let mark = step.id;
    let act = match step.what {
        What::Say { session, .. } | What::Plan { session, .. } => Do::Prompt { session, mark },
        What::Cancel { session, .. } => Do::Cancel { session },
        What::Withdraw { of, .. } => Do::TakeBack { mark: of },
        What::Close { .. } => Do::Ponder,
        What::Decide { allow, .. } => Do::Decide { allow },
        What::Cut { away_ms, .. } => Do::Cut { away_ms },
        What::Doze { for_ms, .. } => Do::Doze { for_ms },
        What::Kill { away_ms, .. } => return seat.kill(away_ms),
        What::Stop { away_ms, .. } => return seat.stop(away_ms),
        What::Disk { trouble, for_ms } => {
            return machine.disk.trouble(trouble, Duration::from_millis(for_ms));
        }
        What::Jump { by_ms } => return machine.clock.jump(by_ms),
    };
    // The editor lives until it is told to finish.
    drop(person.send(act));
}

async fn look_back(script: &Script, machine: &Machine, seat: &Seat) -> Played {
    seat.rest().await;
    let violations = &machine.violations;
    let (played, histories) = gather(machine, script).await;
    for (session, history) in &histories {
        if seat.is_cli() {
            laws::cli::of_session(history, violations);
        } else {
            laws::of_session(history, &machine.limits, violations);
            laws::of_snapshot(machine.disk.kept(), *session, history, violations).await;
        }
    }
    laws::told::of_effects(&machine.ledger.entries(), &histories, violations);
    Played { violations: violations.all(), ..played }
}
