//! The texts of one language, and the arguments they use.

use std::collections::BTreeMap;

use fluent_syntax::ast::{
    Entry, Expression, InlineExpression, Pattern, PatternElement, VariantKey,
};
use fluent_syntax::parser;

/// One `.ftl` file.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) file: &'static str,
    pub(super) messages: BTreeMap<String, Message>,
}

/// One message: a single line, or the attributes of a kind.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) line: usize,
    pub(super) value: Option<Pattern<String>>,
    pub(super) attributes: BTreeMap<String, Pattern<String>>,
}

/// One use of an argument in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArgumentUse {
    pub(super) name: String,
    /// The variants to select from, if the argument is a selector; otherwise `None`.
    pub(super) chooses: Option<Vec<String>>,
    /// True if the use is inside a variant that implies the argument is present.
    pub(super) guarded: bool,
}

impl Texts {
    pub(super) fn read(file: &'static str, text: &str, problems: &mut Vec<String>) -> Self {
        let (resource, errors) = match parser::parse(text.to_owned()) {
            Ok(resource) => (resource, Vec::new()),
            Err((resource, errors)) => (resource, errors),
        };
        for error in errors {
            let line = line_at(text, error.pos.start);
            problems.push(format!("{file}:{line}: not Fluent: {}", error.kind));
        }
        let mut texts = Self { file, messages: BTreeMap::new() };
        let lines: BTreeMap<&str, usize> = text
            .lines()
            .enumerate()
            .filter_map(|(index, line)| Some((line.split_once(" =")?.0, index + 1)))
            .collect();
        for entry in resource.body {
            match entry {
                Entry::Message(message) => {
                    let line = lines.get(message.id.name.as_str()).copied().unwrap_or_default();
                    texts.add(line, message, problems);
                }
                Entry::Term(term) => {
                    problems
                        .push(format!("{file}: term `-{}`: texts do without terms", term.id.name));
                }
                _ => {}
            }
        }
        texts
    }

    fn add(
        &mut self,
        line: usize,
        message: fluent_syntax::ast::Message<String>,
        problems: &mut Vec<String>,
    ) {
        let (file, id) = (self.file, message.id.name);
        let mut attributes = BTreeMap::new();
        for attribute in message.attributes {
            let name = attribute.id.name;
            if attributes.insert(name.clone(), attribute.value).is_some() {
                problems.push(format!("{file}:{line}: message `{id}`, `.{name}`: written twice"));
            }
        }
        let message = Message { line, value: message.value, attributes };
        if self.messages.insert(id.clone(), message).is_some() {
            problems.push(format!("{file}:{line}: message `{id}`: written twice"));
        }
    }

    /// An attribute in the form a page shows; empty if it does not exist.
    pub(super) fn shown(&self, id: &str, attribute: &str) -> String {
        let message = self.messages.get(id);
        message.and_then(|message| message.attributes.get(attribute)).map(shown).unwrap_or_default()
    }

    /// A single line in the form a page shows; empty if it does not exist.
    pub(super) fn line(&self, id: &str) -> String {
        let message = self.messages.get(id);
        message.and_then(|message| message.value.as_ref()).map(shown).unwrap_or_default()
    }
}

/// A text without values: every argument as `‹name›`, every selector as its default variant.
fn shown(pattern: &Pattern<String>) -> String {
    let mut out = String::new();
    for element in &pattern.elements {
        match element {
            PatternElement::TextElement { value } => out.push_str(value),
            PatternElement::Placeable { expression: Expression::Inline(inline) } => {
                out.push_str(&shown_inline(inline));
            }
            PatternElement::Placeable { expression: Expression::Select { variants, .. } } => {
                let usual = variants.iter().find(|variant| variant.default);
                out.push_str(&usual.map(|variant| shown(&variant.value)).unwrap_or_default());
            }
        }
    }
    out
}

fn shown_inline(inline: &InlineExpression<String>) -> String {
    match inline {
        InlineExpression::StringLiteral { value } | InlineExpression::NumberLiteral { value } => {
            value.clone()
        }
        _ => argument(inline).map(|name| format!("‹{name}›")).unwrap_or_default(),
    }
}

/// The argument in an expression: `$path`, or `NUMBER($limit)`.
fn argument(inline: &InlineExpression<String>) -> Option<&str> {
    match inline {
        InlineExpression::VariableReference { id } => Some(&id.name),
        InlineExpression::FunctionReference { id, arguments } if id.name == "NUMBER" => {
            arguments.positional.first().and_then(argument)
        }
        _ => None,
    }
}

/// All uses of arguments in a text, and the problems found in it.
pub(super) fn uses(pattern: &Pattern<String>) -> (Vec<ArgumentUse>, Vec<String>) {
    let mut found = (Vec::new(), Vec::new());
    walk(pattern, &mut Vec::new(), &mut found);
    found
}

fn walk<'p>(
    pattern: &'p Pattern<String>,
    known: &mut Vec<&'p str>,
    found: &mut (Vec<ArgumentUse>, Vec<String>),
) {
    for element in &pattern.elements {
        let PatternElement::Placeable { expression } = element else { continue };
        match expression {
            Expression::Inline(InlineExpression::StringLiteral { .. }) => {}
            Expression::Inline(InlineExpression::NumberLiteral { .. }) => {}
            Expression::Inline(inline) => match argument(inline) {
                Some(name) => found.0.push(ArgumentUse {
                    name: name.to_owned(),
                    chooses: None,
                    guarded: known.contains(&name),
                }),
                None => found.1.push("may use arguments and NUMBER() only".to_owned()),
            },
            Expression::Select { selector, variants } => {
                let Some(name) = argument(selector) else {
                    found.1.push("can choose by an argument only".to_owned());
                    continue;
                };
                let keys: Vec<String> = variants.iter().map(|variant| key(&variant.key)).collect();
                let has_none = keys.iter().any(|key| key == "none");
                let guarded = has_none || known.contains(&name);
                found.0.push(ArgumentUse { name: name.to_owned(), chooses: Some(keys), guarded });
                for variant in variants {
                    let is_present = has_none && key(&variant.key) != "none";
                    if is_present {
                        known.push(name);
                    }
                    walk(&variant.value, known, found);
                    if is_present {
                        known.pop();
                    }
                }
            }
        }
    }
}

fn key(key: &VariantKey<String>) -> String {
    match key {
        VariantKey::Identifier { name } => name.clone(),
        VariantKey::NumberLiteral { value } => value.clone(),
    }
}

fn line_at(text: &str, position: usize) -> usize {
    text.as_bytes()[..position.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
