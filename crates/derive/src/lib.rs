//! The `#[tool]` attribute: turns a plain async function into a tool.
//!
//! The function's doc comment becomes the tool's description for the model. The doc comments on its parameters become
//! the descriptions of its arguments.

mod function;
mod options;

use proc_macro::TokenStream;

/// Turns an async function into a tool. `budao_tools` shows how to register the result.
///
/// Options, all optional:
///
/// | option | meaning |
/// | --- | --- |
/// | `name = "…"` | the tool's name; default: the function's name |
/// | `read_only` | changes nothing: runs without a question, may be repeated, slips in its arguments are repaired |
/// | `executes` | runs a command or program instead of writing |
/// | `idempotent` | may be repeated without harm |
/// | `confirm` | a person confirms every call |
/// | `repair`, `repair = false` | whether slips in the arguments may be repaired |
/// | `quick` | never blocks and ends within microseconds: runs without a thread of its own |
/// | `deadline = "90s"` | its own deadline: `ms`, `s`, `m` |
/// | `output = "256k"` | its own cap on the output the model sees: bytes, `k`, `m` |
/// | `crate = "path"` | the path of `budao_tools` |
///
/// A parameter of type `&CallContext` gets the call's context. The function may return a value, or a `Result` whose
/// error is `ToolError`, any type that `?` converts to it, or a text for the model.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let made = syn::parse(options)
        .and_then(|options| Ok((options, syn::parse(item)?)))
        .and_then(|(options, item)| function::expand(&options, item));
    made.unwrap_or_else(|error: syn::Error| error.to_compile_error()).into()
}
