//! Tools with effects, and a ledger of those effects that survives every kill.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    fault::{Fault, Kind, Operation},
    tool::Failure,
};
use budao_tools::{RawTool, ToolOptions, Toolbox, pool::Pool};
use rand::RngExt as _;
use serde_json::{Value, json};

use crate::{script::pick, world::chance};

/// Number of times each effect happened, by the id in the model's arguments.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectLedger(Arc<Mutex<BTreeMap<String, u32>>>);

impl EffectLedger {
    fn write(&self, id: &str) {
        *self.0.lock().expect("nobody panics with it").entry(id.to_owned()).or_default() += 1;
    }

    pub(crate) fn entries(&self) -> BTreeMap<String, u32> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

/// Tools with effects that must never happen twice.
pub(crate) const EFFECTS: &[&str] = &["effect", "ask", "stuck", "panic", "fragile"];

/// The tools of a process, which share one ledger.
pub(crate) fn toolbox(seed: u64, ledger: &EffectLedger) -> Toolbox {
    let mut toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks()));
    for tool in all(seed, ledger) {
        toolbox = toolbox.add(tool).expect("the simulator's tools are well formed");
    }
    toolbox.build()
}

fn all(seed: u64, ledger: &EffectLedger) -> Vec<RawTool> {
    let tool = |name: &'static str, end: ToolBehaviour| {
        let ledger = ledger.clone();
        RawTool::new(name, "Does something.", schema(), move |arguments, context| {
            let ledger = ledger.clone();
            async move {
                let id = arguments["id"].as_str().unwrap_or_default().to_owned();
                let mut dice = chance(seed, &format!("tool {id} {}", context.attempt));
                let some = |wait: u64| tokio::time::sleep(Duration::from_millis(wait));
                some(*pick(&mut dice, &[0, 0, 2, 60, 700])).await;
                ledger.write(&id);
                some(*pick(&mut dice, &[0, 0, 2, 60, 700])).await;
                match end {
                    ToolBehaviour::Succeed => Ok(json!({ "did": id })),
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
    vec![
        tool("effect", ToolBehaviour::Succeed),
        tool("stuck", ToolBehaviour::Hang),
        tool("panic", ToolBehaviour::Panic),
        tool("fragile", ToolBehaviour::Fail),
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

#[derive(Clone, Copy)]
enum ToolBehaviour {
    Succeed,
    Panic,
    Fail,
    Hang,
}

fn transient() -> Failure {
    let fault = Fault::new(Kind::NetworkUnavailable, Operation::ToolCall);
    Failure { fault, data: None, note: None }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": false,
    })
}
