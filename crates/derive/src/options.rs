//! Parses the options in the parentheses of `#[tool(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Ident, LitBool, LitStr, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

/// The parsed options of one `#[tool]` attribute.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) home: Option<Path>,
    /// The function that finds out what became of an interrupted call.
    pub(crate) reconcile: Option<Path>,
    /// The parameter that names the work.
    pub(crate) once: Option<LitStr>,
    /// Calls on the run-time `ToolOptions`, in source order.
    calls: Vec<OptionCall>,
    read_only: bool,
}

enum OptionCall {
    Executes,
    Idempotent(bool),
    Confirm(bool),
    Repair(bool),
    Quick(bool),
    DeadlineMillis(u64),
    OutputBytes(usize),
}

const KNOWN: &str = "name, read_only, executes, idempotent, confirm, repair, quick, deadline, output, reconcile, once, crate";

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            options.one(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl Options {
    fn one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let key: Ident = input.call(Ident::parse_any)?;
        match key.to_string().as_str() {
            "name" => self.name = Some(text(input)?),
            "crate" => self.home = Some(text(input)?.parse()?),
            "reconcile" => {
                input.parse::<Token![=]>()?;
                self.reconcile = Some(input.parse()?);
            }
            "once" => self.once = Some(text(input)?),
            "read_only" => self.read_only = switch(input)?,
            "executes" => {
                if switch(input)? {
                    self.calls.push(OptionCall::Executes);
                }
            }
            "idempotent" => self.calls.push(OptionCall::Idempotent(switch(input)?)),
            "confirm" => self.calls.push(OptionCall::Confirm(switch(input)?)),
            "repair" => self.calls.push(OptionCall::Repair(switch(input)?)),
            "quick" => self.calls.push(OptionCall::Quick(switch(input)?)),
            "deadline" => {
                let value = text(input)?;
                let units = [("ms", 1), ("s", 1_000), ("m", 60_000)];
                self.calls.push(OptionCall::DeadlineMillis(amount(&value, &units, "90s")?));
            }
            "output" => {
                let value = text(input)?;
                let bytes = amount(&value, &[("k", 1 << 10), ("m", 1 << 20), ("", 1)], "256k")?;
                let bytes = usize::try_from(bytes)
                    .map_err(|_| syn::Error::new(value.span(), "too large"))?;
                self.calls.push(OptionCall::OutputBytes(bytes));
            }
            other => {
                let message = format!("`{other}` is not an option of `tool`; known are {KNOWN}");
                return Err(syn::Error::new(key.span(), message));
            }
        }
        Ok(())
    }

    /// Returns the expression that builds the run-time options.
    pub(crate) fn expression(&self, home: &Path) -> TokenStream {
        let start = if self.read_only { quote!(read_only) } else { quote!(default) };
        let calls = self.calls.iter().map(|call| match call {
            OptionCall::Executes => quote!(.effect(#home::typed::Effect::Executes)),
            OptionCall::Idempotent(yes) => quote!(.idempotent(#yes)),
            OptionCall::Confirm(yes) => quote!(.confirm(#yes)),
            OptionCall::Repair(yes) => quote!(.repair(#yes)),
            OptionCall::Quick(yes) => quote!(.quick(#yes)),
            OptionCall::DeadlineMillis(millis) => {
                quote!(.deadline(::core::time::Duration::from_millis(#millis)))
            }
            OptionCall::OutputBytes(bytes) => quote!(.output_bytes(#bytes)),
        });
        let once = self.once.as_ref().map(|argument| quote!(.once(#argument)));
        quote!(#home::ToolOptions::#start() #(#calls)* #once)
    }

    /// The path of `budao_tools`: the `crate` option, or the name in the manifest of the crate being compiled.
    pub(crate) fn home(&self) -> Path {
        if let Some(home) = &self.home {
            return home.clone();
        }
        let tools = std::env::var_os("CARGO_MANIFEST_DIR")
            .and_then(|folder| {
                std::fs::read_to_string(std::path::Path::new(&folder).join("Cargo.toml")).ok()
            })
            .is_none_or(|manifest| manifest.contains("budao-tools"));
        let home = if tools { "::budao_tools" } else { "::budao::for_tool_macro" };
        syn::parse_str(home).expect("both are paths")
    }
}

fn text(input: ParseStream<'_>) -> syn::Result<LitStr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// Parses `option` or `option = false`.
fn switch(input: ParseStream<'_>) -> syn::Result<bool> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        return Ok(input.parse::<LitBool>()?.value);
    }
    Ok(true)
}

fn amount(value: &LitStr, units: &[(&str, u64)], like: &str) -> syn::Result<u64> {
    let text = value.value();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = text[digits..].trim().to_ascii_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let number = text[..digits].parse::<u64>().ok();
    number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| wrong(value.span(), like))
}

fn wrong(span: Span, like: &str) -> syn::Error {
    syn::Error::new(span, format!("write it like \"{like}\""))
}
