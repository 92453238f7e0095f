//! What one tool call costs in `autoagents`: arguments as text in, result as JSON out, once with good
//! arguments and once with arguments the tool cannot take. Prints lines for `cargo xtask bench`.

use std::hint::black_box;
use std::time::Duration;

use async_trait::async_trait;
use autoagents::core::tool::{ToolCallError, ToolRuntime, ToolT};
use futures::executor::block_on;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};

const CALLS: u32 = 20_000;
const ROUNDS: usize = 15;

#[derive(Debug)]
struct Add;

#[derive(Deserialize)]
struct AddInput {
    left: i64,
    right: i64,
}

impl ToolT for Add {
    fn name(&self) -> &str {
        "add"
    }
    fn description(&self) -> &str {
        "Adds two numbers"
    }
    fn args_schema(&self) -> Value {
        json!({"type": "object", "required": ["left", "right"],
               "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}}})
    }
}

#[async_trait]
impl ToolRuntime for Add {
    async fn execute(&self, args: Value) -> Result<Value, ToolCallError> {
        let input: AddInput = serde_json::from_value(args)?;
        Ok(json!(input.left + input.right))
    }
}

/// What its own processor does with a call, without the events.
async fn call(tools: &[Box<dyn ToolT>], name: &str, arguments: &str) -> Value {
    let Some(tool) = tools.iter().find(|tool| tool.name() == name) else {
        return json!({"error": format!("Tool '{name}' not found")});
    };
    match serde_json::from_str(arguments) {
        Ok(arguments) => match tool.execute(arguments).await {
            Ok(output) => output,
            Err(error) => json!({"error": format!("Tool execution failed: {error}")}),
        },
        Err(error) => json!({"error": format!("Failed to parse arguments: {error}")}),
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--version") {
        println!("autoagents {}", env!("CARGO_PKG_VERSION"));
        return;
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let tools: Vec<Box<dyn ToolT>> = vec![Box::new(Add)];
    let cases = [
        ("peer/autoagents/call_good", r#"{"left": 2, "right": 40}"#),
        ("peer/autoagents/call_bad", r#"{"left": "two", "right": 40}"#),
    ];
    let wanted: Vec<_> =
        cases.iter().filter(|(name, _)| filter.is_none_or(|text| name.contains(text))).collect();
    let mut rounds = vec![Vec::new(); wanted.len()];
    // The first round warms up and does not count.
    for round in 0..=ROUNDS {
        for (index, (_, arguments)) in wanted.iter().enumerate() {
            let before = cpu_time();
            for _ in 0..CALLS {
                black_box(block_on(call(&tools, "add", black_box(arguments))));
            }
            let each = (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(CALLS);
            if round > 0 {
                rounds[index].push(each);
            }
        }
    }
    for ((name, _), values) in wanted.iter().zip(&mut rounds) {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 4];
        println!(
            "{}",
            json!({"bench": name, "value": at(2), "low": at(1), "high": at(3), "unit": "µs CPU",
                   "better": "lower"})
        );
    }
}
