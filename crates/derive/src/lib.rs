//! The `#[tool]` attribute: makes a tool of a plain async function.
//!
//! The function's doc comment is what the model reads about the tool, the doc comments on its parameters
//! what it reads about them.

mod function;
mod options;

use proc_macro::TokenStream;

/// Makes a tool of an async function. See `budao_tools` for what the result is used for.
///
/// Options, all optional:
///
/// | option | meaning |
/// | --- | --- |
/// | `name = "…"` | the tool's name; the function's if not said |
/// | `read_only` | changes nothing: runs unasked, may be repeated, slips are repaired |
/// | `executes` | runs something, rather than writes |
/// | `idempotent` | may be repeated without harm |
/// | `confirm` | a person confirms every call |
/// | `repair`, `repair = false` | may slips in the arguments be repaired? |
/// | `quick` | never blocks and is over in microseconds: runs without a thread of its own |
/// | `deadline = "90s"` | its own deadline: `ms`, `s`, `m` |
/// | `output = "256k"` | its own cap on what the model sees: bytes, `k`, `m` |
/// | `crate = "path"` | where `budao_tools` is found |
///
/// A parameter of type `&CallContext` gets the call's context. The function may return a value, or a
/// `Result` whose error is `ToolError`, anything that becomes one with `?`, or a text for the model.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let made = syn::parse(options)
        .and_then(|options| Ok((options, syn::parse(item)?)))
        .and_then(|(options, item)| function::expand(&options, item));
    made.unwrap_or_else(|error: syn::Error| error.to_compile_error()).into()
}
