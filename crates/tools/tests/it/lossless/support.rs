//! Random choices, places inside a value, and the schema of a place.

use serde_json::{Value, json};

/// Random numbers from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % sides.max(1) as u64).expect("smaller than sides")
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.roll(items.len()))
    }
}

/// A call that was broken on purpose.
pub(crate) struct BrokenCall {
    /// The text a model sends.
    pub(crate) text: String,
    /// The arguments the call may run with; none if no reading is certain.
    pub(crate) intended: Option<Value>,
    /// JSON pointer to the broken place, where it is one.
    pub(crate) pointer: Option<String>,
}

impl BrokenCall {
    pub(crate) fn text(text: String, intended: &Value) -> Self {
        Self { text, intended: Some(intended.clone()), pointer: None }
    }

    pub(crate) fn unclear(text: String) -> Self {
        Self { text, intended: None, pointer: None }
    }

    pub(crate) fn at(self, pointer: &str) -> Self {
        Self { pointer: Some(pointer.to_owned()), ..self }
    }
}

/// Every place inside a value, the value itself first.
pub(crate) fn pointers(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut next = 0;
    while let Some(pointer) = found.get(next).cloned() {
        match value.pointer(&pointer) {
            Some(Value::Object(map)) => {
                let escaped = |key: &String| key.replace('~', "~0").replace('/', "~1");
                found.extend(map.keys().map(|key| format!("{pointer}/{}", escaped(key))));
            }
            Some(Value::Array(items)) => {
                found.extend((0..items.len()).map(|index| format!("{pointer}/{index}")));
            }
            _ => {}
        }
        next += 1;
    }
    found
}

/// A random place whose value the test accepts, the root left out.
pub(crate) fn pointer(
    value: &Value,
    dice: &mut Dice,
    accepts: impl Fn(&Value) -> bool,
) -> Option<String> {
    let all: Vec<String> = pointers(value)
        .into_iter()
        .filter(|pointer| !pointer.is_empty() && value.pointer(pointer).is_some_and(&accepts))
        .collect();
    dice.pick(&all).cloned()
}

/// The value with another one at a place.
pub(crate) fn with(value: &Value, pointer: &str, other: Value) -> Value {
    let mut changed = value.clone();
    if let Some(slot) = changed.pointer_mut(pointer) {
        *slot = other;
    }
    changed
}

/// The value without what is at a place of an object.
pub(crate) fn without(value: &Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/')?;
    let mut changed = value.clone();
    changed.pointer_mut(parent)?.as_object_mut()?.remove(&name(key))?;
    Some(changed)
}

/// The key a pointer's last part spells.
pub(crate) fn name(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// JSON text in which a place holds this raw text.
pub(crate) fn with_raw(value: &Value, pointer: &str, raw: &str) -> String {
    let marked = with(value, pointer, json!("@@mark@@")).to_string();
    marked.replacen("\"@@mark@@\"", raw, 1)
}

/// What the schema says about a place, references and alternatives included.
pub(crate) fn schemas_at<'a>(root: &'a Value, pointer: &str) -> Vec<&'a Value> {
    let mut here = opened(root, root);
    for part in pointer.split('/').skip(1) {
        let key = name(part);
        let mut next = Vec::new();
        for schema in &here {
            let declared = schema.get("properties").and_then(|all| all.get(&key));
            let item = part.parse::<usize>().ok().and_then(|_| schema.get("items"));
            let other = schema.get("additionalProperties").filter(|it| it.is_object());
            next.extend(declared.or(item).or(other).map(|it| opened(root, it)).unwrap_or_default());
        }
        here = next;
    }
    here
}

fn opened<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![schema];
    let mut next = 0;
    while let Some(schema) = found.get(next).copied() {
        let target = schema.get("$ref").and_then(Value::as_str);
        found.extend(target.and_then(|to| root.pointer(to.trim_start_matches('#'))));
        for keyword in ["anyOf", "oneOf", "allOf"] {
            found.extend(schema.get(keyword).and_then(Value::as_array).into_iter().flatten());
        }
        next += 1;
        if found.len() > 64 {
            break;
        }
    }
    found
}

/// Does a place of this call have this type, and only this one?
pub(crate) fn has_type(root: &Value, pointer: &str, kind: &str) -> bool {
    let all = schemas_at(root, pointer);
    let named: Vec<&Value> = all.iter().filter_map(|schema| schema.get("type")).collect();
    !named.is_empty() && named.iter().all(|it| it.as_str() == Some(kind))
}

/// May this place be left out?
pub(crate) fn is_optional(root: &Value, pointer: &str) -> bool {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return false };
    let key = name(key);
    let holders = schemas_at(root, parent);
    let required = |schema: &&Value| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|it| it.as_str() == Some(&key)))
    };
    let declares = |schema: &&Value| {
        schema.get("properties").is_some_and(|properties| properties.get(&key).is_some())
    };
    holders.iter().any(declares) && !holders.iter().any(required)
}

/// Is a text here free: no enum, pattern, format or length?
pub(crate) fn is_free_text(root: &Value, pointer: &str) -> bool {
    let rules = ["enum", "const", "pattern", "format", "minLength", "maxLength"];
    has_type(root, pointer, "string")
        && schemas_at(root, pointer)
            .iter()
            .all(|it| rules.iter().all(|rule| it.get(rule).is_none()))
}
