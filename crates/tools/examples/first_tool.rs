//! A first tool: a function with doc comments, called as a model would call it.

use budao_core::{Lang, limits::Limits, message::ToolUse};
use budao_tools::{Toolbox, isolation, tool};

/// Tells how warm it is in a city.
#[tool(read_only)]
async fn temperature(
    /// The city's name in English.
    city: String,
) -> Result<f64, String> {
    match city.as_str() {
        "Oslo" => Ok(-3.5),
        other => Err(format!("no station in {other}")),
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), budao_core::Fault> {
    let toolbox = Toolbox::builder().add(temperature)?.build();
    for arguments in [r#"{"city": "Oslo"}"#, r#"{"city": "Atlantis"}"#, r#"{"town": "Oslo"}"#] {
        let call = ToolUse {
            id: "call-1".into(),
            name: "temperature".into(),
            arguments: arguments.into(),
        };
        let outcome = match toolbox.check(&call, &Limits::default()) {
            Ok(ready) => ready.run(isolation::context()).await,
            Err(fault) => fault.into(),
        };
        println!("{arguments}\n  {}\n", outcome.render_for_model(Lang::En).0);
    }
    Ok(())
}
