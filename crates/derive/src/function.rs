//! Expands an annotated function into a tool: an argument struct, a tool struct and its `TypedTool` implementation.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, Expr, FnArg, GenericArgument, ItemFn, Lit, Meta, Pat, PatType, PathArguments,
    ReturnType, Type, spanned::Spanned,
};

use crate::options::Options;

/// The shape of the function's return type, which decides how errors become a `Failure`.
enum ReturnShape {
    /// Any type that is not a `Result`.
    Value,
    /// A `Result` whose error becomes a `ToolError`.
    Result,
    /// A `Result` whose error is a text for the model.
    Text,
    /// A `Result` whose error is a `Failure`.
    Failure,
}

/// The function's parameters, sorted by how the expansion uses them.
#[derive(Default)]
struct Parameters {
    /// Fields of the generated argument struct, with their attributes.
    fields: Vec<TokenStream>,
    /// Field names, used to destructure the argument struct.
    names: Vec<syn::Ident>,
    /// Arguments of the call to the original function, in order.
    passed: Vec<TokenStream>,
}

pub(crate) fn expand(options: &Options, mut item: ItemFn) -> syn::Result<TokenStream> {
    check_signature(&item)?;
    let home = options.home();
    let parameters = parameters(&mut item)?;
    let description = doc_of(&item.attrs);
    let (fields, names, passed) = (&parameters.fields, &parameters.names, &parameters.passed);
    check_once(options, names)?;
    let tool = item.sig.ident.clone();
    let name = options.name.as_ref().map_or_else(|| tool.to_string(), syn::LitStr::value);
    let visibility = item.vis.clone();
    let kept: Vec<_> = item.attrs.iter().filter(|it| it.path().is_ident("doc")).cloned().collect();
    item.attrs.retain(|attribute| !attribute.path().is_ident("doc"));
    let inner = format_ident!("run_{tool}");
    item.sig.ident = inner.clone();
    item.vis = syn::Visibility::Inherited;
    let (output, answer) = answer(&item.sig.output, &home, &quote!(#inner(#(#passed),*).await));
    let settings = options.expression(&home);
    let reconcile = options.reconcile.as_ref().map(|find| reconcile(find, &home, names));
    let serde = format!("{}::made::serde", path_text(&home));
    let schemars = format!("{}::made::schemars", path_text(&home));
    Ok(quote! {
        #(#kept)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #tool;

        const _: () = {
            #[derive(#home::made::serde::Deserialize, #home::made::schemars::JsonSchema)]
            #[serde(crate = #serde, deny_unknown_fields)]
            #[schemars(crate = #schemars)]
            #[allow(missing_docs, unreachable_pub)]
            pub struct Args {
                #(#fields,)*
            }

            impl #home::TypedTool for #tool {
                type Args = Args;
                type Output = #output;

                const NAME: &'static str = #name;

                fn description(&self) -> ::core::option::Option<::std::string::String> {
                    ::core::option::Option::Some(::std::string::String::from(#description))
                }

                fn options(&self) -> #home::ToolOptions {
                    #settings
                }

                async fn call(
                    &self,
                    args: Args,
                    context: &#home::CallContext,
                ) -> ::core::result::Result<#output, #home::ToolError> {
                    let Args { #(#names,)* } = args;
                    let _ = context;
                    #answer
                }

                #reconcile
            }

            #item
        };
    })
}

fn check_once(options: &Options, names: &[syn::Ident]) -> syn::Result<()> {
    match &options.once {
        Some(once) if !names.iter().any(|name| *name == once.value()) => {
            Err(syn::Error::new(once.span(), "`once` names a parameter of the function"))
        }
        _ => Ok(()),
    }
}

/// Returns the methods that ask `find`, which takes the tool's arguments in order and then the context.
fn reconcile(find: &syn::Path, home: &syn::Path, names: &[syn::Ident]) -> TokenStream {
    quote! {
        fn can_reconcile(&self) -> bool {
            true
        }

        async fn reconcile(
            &self,
            args: Args,
            context: &#home::CallContext,
        ) -> ::core::result::Result<#home::Reconciliation, #home::ToolError> {
            let Args { #(#names,)* } = args;
            #find(#(#names,)* context).await.map_err(#home::ToolError::from)
        }
    }
}

fn check_signature(item: &ItemFn) -> syn::Result<()> {
    let signature = &item.sig;
    if signature.asyncness.is_none() {
        let message = "a tool is an `async fn`; code that blocks is fine inside, it runs apart";
        return Err(syn::Error::new(signature.fn_token.span(), message));
    }
    if !signature.generics.params.is_empty() {
        let message = "a tool cannot be generic: its arguments have one schema";
        return Err(syn::Error::new(signature.generics.span(), message));
    }
    Ok(())
}

fn parameters(item: &mut ItemFn) -> syn::Result<Parameters> {
    let mut all = Parameters::default();
    for input in &mut item.sig.inputs {
        let FnArg::Typed(parameter) = input else {
            return Err(syn::Error::new(
                input.span(),
                "a tool is a plain function, without `self`",
            ));
        };
        if is_context(&parameter.ty) {
            all.passed.push(quote!(context));
            parameter.attrs.clear();
            continue;
        }
        field(parameter, &mut all)?;
    }
    Ok(all)
}

fn field(parameter: &mut PatType, all: &mut Parameters) -> syn::Result<()> {
    let Pat::Ident(name) = &*parameter.pat else {
        return Err(syn::Error::new(parameter.pat.span(), "a parameter needs a name"));
    };
    if let Type::Reference(reference) = &*parameter.ty {
        let message =
            "arguments are owned: `String` rather than `&str`; only `&CallContext` is borrowed";
        return Err(syn::Error::new(reference.span(), message));
    }
    let (name, kind) = (name.ident.clone(), parameter.ty.clone());
    // Doc comments, `#[serde(…)]` and `#[schemars(…)]` move to the field.
    let attributes = std::mem::take(&mut parameter.attrs);
    all.fields.push(quote!(#(#attributes)* pub #name: #kind));
    all.passed.push(quote!(#name));
    all.names.push(name);
    Ok(())
}

fn is_context(kind: &Type) -> bool {
    let Type::Reference(reference) = kind else { return false };
    ends_in(&reference.elem, "CallContext")
}

/// Returns the output type and the expression that produces it.
fn answer(given: &ReturnType, home: &syn::Path, call: &TokenStream) -> (TokenStream, TokenStream) {
    let ReturnType::Type(_, kind) = given else {
        return (quote!(()), quote!({ #call; ::core::result::Result::Ok(()) }));
    };
    match gives(kind) {
        (ReturnShape::Value, _) => (quote!(#kind), quote!(::core::result::Result::Ok(#call))),
        (ReturnShape::Result, output) => {
            let output = output.map_or_else(|| quote!(()), |it| quote!(#it));
            (output, quote!(#call.map_err(#home::ToolError::from)))
        }
        (ReturnShape::Text, output) => {
            let output = output.map_or_else(|| quote!(()), |it| quote!(#it));
            (output, quote!(#call.map_err(#home::ToolError::new)))
        }
        (ReturnShape::Failure, output) => {
            let output = output.map_or_else(|| quote!(#home::made::Value), |it| quote!(#it));
            (output, quote!(#call.map_err(#home::ToolError::failure)))
        }
    }
}

fn gives(kind: &Type) -> (ReturnShape, Option<&Type>) {
    let Type::Path(path) = kind else { return (ReturnShape::Value, None) };
    let Some(last) = path.path.segments.last() else { return (ReturnShape::Value, None) };
    if last.ident == "ToolResult" {
        return (ReturnShape::Failure, None);
    }
    if last.ident != "Result" {
        return (ReturnShape::Value, None);
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return (ReturnShape::Result, None);
    };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    });
    let output = types.next();
    match types.next() {
        Some(error) if is_text(error) => (ReturnShape::Text, output),
        Some(error) if ends_in(error, "Failure") => (ReturnShape::Failure, output),
        _ => (ReturnShape::Result, output),
    }
}

fn is_text(kind: &Type) -> bool {
    match kind {
        Type::Reference(reference) => ends_in(&reference.elem, "str"),
        other => ends_in(other, "String"),
    }
}

fn ends_in(kind: &Type, name: &str) -> bool {
    let Type::Path(path) = kind else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == name)
}

/// Joins a doc comment into text: drops leading spaces, joins single line breaks and keeps paragraphs.
fn doc_of(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let Expr::Lit(literal) = &pair.value else { continue };
        let Lit::Str(line) = &literal.lit else { continue };
        let line = line.value();
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
    text.trim().to_owned()
}

fn path_text(path: &syn::Path) -> String {
    let lead = if path.leading_colon.is_some() { "::" } else { "" };
    let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
    format!("{lead}{}", parts.join("::"))
}
