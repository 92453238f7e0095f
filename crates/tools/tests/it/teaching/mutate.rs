//! One random change of one place in a call: the slips models really make.

use serde_json::{Map, Value, json};

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

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.roll(items.len())]
    }
}

/// Changes one thing; says what sort of change it was.
pub(crate) fn mutate(call: &Value, dice: &mut Dice) -> Option<(&'static str, Value)> {
    let mut broken = call.clone();
    let mut pointers = Vec::new();
    collect(call, String::new(), &mut pointers);
    let pointer = dice.pick(&pointers).clone();
    let value = broken.pointer_mut(&pointer)?;
    let change = match dice.roll(12) {
        0 => drop_key(value, dice)?,
        1 => misspell_key(value, dice)?,
        2 => add_key(value, dice)?,
        3 => other_type(value, dice),
        4 => set(value, Value::Null, "null"),
        5 => number(value, dice)?,
        6 => text(value, dice)?,
        7 => near_text(value, dice)?,
        8 => stringify(value)?,
        9 => wrap(value),
        10 => list(value, dice)?,
        _ => unwrap(value)?,
    };
    (&broken != call).then_some((change, broken))
}

fn collect(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(value, format!("{pointer}/{key}"), pointers);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, format!("{pointer}/{index}"), pointers);
            }
        }
        _ => {}
    }
    pointers.push(pointer);
}

fn set(value: &mut Value, new: Value, change: &'static str) -> &'static str {
    *value = new;
    change
}

fn a_key(map: &Map<String, Value>, dice: &mut Dice) -> Option<String> {
    let keys: Vec<&String> = map.keys().collect();
    (!keys.is_empty()).then(|| (*dice.pick(&keys)).clone())
}

fn drop_key(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let map = value.as_object_mut()?;
    let key = a_key(map, dice)?;
    map.remove(&key);
    Some("key left out")
}

fn misspell_key(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let map = value.as_object_mut()?;
    let key = a_key(map, dice)?;
    let held = map.remove(&key)?;
    let mut letters: Vec<char> = key.chars().collect();
    let at = dice.roll(letters.len());
    match dice.roll(5) {
        0 if letters.len() > 2 => drop(letters.remove(at)),
        1 if at + 1 < letters.len() => letters.swap(at, at + 1),
        2 => letters.insert(at, letters[at]),
        3 => letters[0] = letters[0].to_ascii_uppercase(),
        _ => letters.push('s'),
    }
    map.insert(letters.into_iter().collect(), held);
    Some("key misspelt")
}

fn add_key(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let map = value.as_object_mut()?;
    let key = *dice.pick(&["verbose", "explanation", "_reason", "x-y/z", "等等"]);
    map.insert(key.into(), json!(true));
    Some("key added")
}

fn other_type(value: &mut Value, dice: &mut Dice) -> &'static str {
    let all =
        [json!("five"), json!(5), json!(2.5), json!(true), json!([]), json!({}), json!({ "a": 1 })];
    set(value, dice.pick(&all).clone(), "another type")
}

fn number(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let old = value.as_f64()?;
    let all =
        [json!(-1), json!(0), json!(1e12), json!(-1e12), json!(old + 0.3), json!(old * 1000.0)];
    Some(set(value, dice.pick(&all).clone(), "number out of bounds"))
}

fn text(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let old = value.as_str()?;
    let all = [
        String::new(),
        "x".repeat(6_000),
        format!(" {old} "),
        "not what was asked".into(),
        format!("{old}?!"),
        "不倒".into(),
    ];
    Some(set(value, json!(dice.pick(&all)), "text of another form"))
}

fn near_text(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let old = value.as_str()?;
    let mut letters: Vec<char> = old.chars().collect();
    if letters.is_empty() {
        return None;
    }
    let at = dice.roll(letters.len());
    let new = match dice.roll(4) {
        0 => old.to_uppercase(),
        1 => old.to_lowercase(),
        2 => {
            letters.remove(at);
            letters.into_iter().collect()
        }
        _ => old.replace(['_', '-'], " "),
    };
    Some(set(value, json!(new), "text misspelt"))
}

fn stringify(value: &mut Value) -> Option<&'static str> {
    (!value.is_string()).then(|| set(value, json!(value.to_string()), "JSON as text"))
}

fn wrap(value: &mut Value) -> &'static str {
    set(value, json!([value.clone()]), "one as list")
}

fn list(value: &mut Value, dice: &mut Dice) -> Option<&'static str> {
    let items = value.as_array_mut()?;
    match dice.roll(4) {
        0 => items.clear(),
        1 => items.push(items.first().cloned().unwrap_or_default()),
        2 => items.push(json!({ "odd": 1 })),
        _ => {
            let first = items.first().cloned().unwrap_or_default();
            items.resize(300, first);
        }
    }
    Some("list changed")
}

fn unwrap(value: &mut Value) -> Option<&'static str> {
    let first = value.as_array()?.first()?.clone();
    Some(set(value, first, "list as one"))
}
