//! Tools with effects, and a ledger of those effects that survives every kill.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    fault::{Fault, Kind, Operation, Progress},
    tool::Failure,
};
use budao_tools::{CallContext, RawTool, Reconciliation, ToolOptions, Toolbox, pool::Pool};
use futures::future::BoxFuture;
use rand::RngExt as _;
use serde_json::{Value, json};

use crate::{script::pick, world::chance};

/// Number of times each effect happened, by the id in the model's arguments.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectLedger(Arc<Mutex<Effects>>);

#[derive(Debug, Default)]
struct Effects {
    done: BTreeMap<String, u32>,
    /// Attempts that began, and how many of them may not take effect any more.
    begun: BTreeMap<String, (u32, u32)>,
}

impl EffectLedger {
    /// Registers an attempt; its number goes with the effect.
    pub(crate) fn begin(&self, id: &str) -> u32 {
        let mut effects = self.0.lock().expect("nobody panics with it");
        let (begun, _) = effects.begun.entry(id.to_owned()).or_default();
        *begun += 1;
        *begun
    }

    /// Makes the effect of an attempt happen, unless somebody found out before that it did not.
    pub(crate) fn write(&self, id: &str, attempt: u32) {
        let mut effects = self.0.lock().expect("nobody panics with it");
        if effects.begun.get(id).is_none_or(|(_, void)| attempt > *void) {
            *effects.done.entry(id.to_owned()).or_default() += 1;
        }
    }

    /// Whether the effect happened. If not, attempts that began come too late.
    pub(crate) fn find(&self, id: &str) -> bool {
        let mut effects = self.0.lock().expect("nobody panics with it");
        if effects.done.contains_key(id) {
            return true;
        }
        if let Some((begun, void)) = effects.begun.get_mut(id) {
            *void = *begun;
        }
        false
    }

    pub(crate) fn entries(&self) -> BTreeMap<String, u32> {
        self.0.lock().expect("nobody panics with it").done.clone()
    }
}

/// Tools with effects that must never happen twice.
pub(crate) const EFFECTS: &[&str] =
    &["effect", "ask", "stuck", "panic", "fragile", "sure", "early", "claim", "claim_sure"];

/// The name of a call's effect in the ledger: its id, or the key that sessions share.
pub(crate) fn effect_of(arguments: &Value) -> Option<String> {
    let key = arguments["key"].as_str().map(|key| format!("{KEY_MARK}{key}"));
    key.or_else(|| arguments["id"].as_str().map(str::to_owned))
}

/// The beginning of an effect's name that belongs to a key.
pub(crate) const KEY_MARK: &str = "key ";

/// The tools of a process, which share one ledger.
pub(crate) fn toolbox(seed: u64, ledger: &EffectLedger) -> Toolbox {
    let mut toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks()));
    for tool in all(seed, ledger) {
        toolbox = toolbox.add(tool).expect("the simulator's tools are well formed");
    }
    toolbox.build()
}

fn all(seed: u64, ledger: &EffectLedger) -> Vec<RawTool> {
    let with_schema = |name: &'static str, end: ToolBehaviour, schema: Value| {
        let ledger = ledger.clone();
        RawTool::new(name, "Does something.", schema, move |arguments, context| {
            let ledger = ledger.clone();
            async move {
                let id = effect_of(&arguments).unwrap_or_default();
                let dice = format!("tool {id} {} {}", context.call, context.attempt);
                let mut dice = chance(seed, &dice);
                let some = |wait: u64| tokio::time::sleep(Duration::from_millis(wait));
                let number = ledger.begin(&id);
                some(*pick(&mut dice, &[0, 0, 2, 60, 700])).await;
                if end == ToolBehaviour::FailEarly && dice.random_bool(0.6) {
                    return Err(nothing_done());
                }
                ledger.write(&id, number);
                some(*pick(&mut dice, &[0, 0, 2, 60, 700])).await;
                match end {
                    ToolBehaviour::Succeed | ToolBehaviour::FailEarly => Ok(json!({ "did": id })),
                    ToolBehaviour::FailLate if dice.random_bool(0.2) => Err(transient()),
                    ToolBehaviour::FailLate => Ok(json!({ "did": id })),
                    ToolBehaviour::Panic => panic!("the tool {id} panics"),
                    ToolBehaviour::Fail => Err(transient()),
                    ToolBehaviour::Hang => {
                        some(3_600_000).await;
                        Ok(Value::Null)
                    }
                }
            }
        })
    };
    let tool = |name, end| with_schema(name, end, schema());
    let claim = |name, end| with_schema(name, end, key_schema());
    let once = || ToolOptions::default().once("key");
    vec![
        claim("claim", ToolBehaviour::FailLate).options(once()),
        claim("claim_sure", ToolBehaviour::FailEarly).options(once()).reconcile(find(seed, ledger)),
        tool("effect", ToolBehaviour::Succeed),
        tool("stuck", ToolBehaviour::Hang),
        tool("panic", ToolBehaviour::Panic),
        tool("fragile", ToolBehaviour::Fail),
        tool("early", ToolBehaviour::FailEarly),
        tool("sure", ToolBehaviour::Succeed).reconcile(find(seed, ledger)),
        tool("ask", ToolBehaviour::Succeed).options(ToolOptions::default().confirm(true)),
        RawTool::new("look", "Looks.", schema(), move |arguments, context| async move {
            let id = arguments["id"].as_str().unwrap_or_default().to_owned();
            let mut dice = chance(seed, &format!("look {id} {}", context.attempt));
            tokio::time::sleep(Duration::from_millis(*pick(&mut dice, &[0, 5, 80]))).await;
            if dice.random_bool(0.4) { Err(transient()) } else { Ok(json!({ "saw": id })) }
        })
        .options(ToolOptions::read_only().idempotent(true)),
        RawTool::new("wait", "Waits to be stopped.", schema(), |_, context| async move {
            context.cancel.cancelled().await;
            Ok(json!("stopped"))
        }),
        RawTool::new("no", "Says no.", schema(), |_, _| async move {
            Ok(json!({"ok": false, "error": "no"}))
        }),
    ]
}

/// Looks into the ledger for the effect of an interrupted call. Sometimes it fails, panics or cannot tell.
fn find(
    seed: u64,
    ledger: &EffectLedger,
) -> impl Fn(Value, CallContext) -> BoxFuture<'static, Result<Reconciliation, Failure>> + use<> {
    let ledger = ledger.clone();
    move |arguments, context| {
        let ledger = ledger.clone();
        Box::pin(async move {
            let id = effect_of(&arguments).unwrap_or_default();
            let mut dice = chance(seed, &format!("find {id} {}", context.attempt));
            tokio::time::sleep(Duration::from_millis(*pick(&mut dice, &[0, 5, 80, 900]))).await;
            match dice.random_range(0..10) {
                0 => Ok(Reconciliation::CannotTell),
                1 => Err(transient()),
                2 => panic!("the tool panics while it looks for {id}"),
                _ if ledger.find(&id) => Ok(Reconciliation::happened(json!({ "did": id }))),
                _ => Ok(Reconciliation::DidNotHappen),
            }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolBehaviour {
    Succeed,
    /// Often fails before its effect, and says so.
    FailEarly,
    /// Sometimes fails after its effect, and does not say so.
    FailLate,
    Panic,
    Fail,
    Hang,
}

fn nothing_done() -> Failure {
    let failure = transient();
    Failure { fault: failure.fault.with_progress(Progress::NotBegun), ..failure }
}

fn transient() -> Failure {
    let fault = Fault::new(Kind::NetworkUnavailable, Operation::ToolCall);
    Failure { fault, data: None, note: None }
}

fn key_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "required": ["key"],
        "additionalProperties": false,
    })
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": false,
    })
}
