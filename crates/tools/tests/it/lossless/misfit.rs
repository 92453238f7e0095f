//! Calls whose text is JSON and does not fit the schema, in the ways models misread one.

use serde_json::{Value, json};

use crate::lossless::{
    spelled::{self, Make},
    support::{
        BrokenCall, Dice, has_type, is_optional, pointer, pointers, schemas_at, with, without,
    },
};

pub(crate) const CLASSES: &[(&str, Make)] = &[
    ("number as text", number_as_text),
    ("odd number as text", odd_number_as_text),
    ("truth as text", truth_as_text),
    ("list as JSON text", list_as_json_text),
    ("object as JSON text", object_as_json_text),
    ("list as Python text", list_as_python_text),
    ("joined list", joined_list),
    ("one for a list", one_for_a_list),
    ("word for a list", word_for_a_list),
    ("flat for a matrix", flat_for_a_matrix),
    ("list for one", list_for_one),
    ("null for optional", null_for_optional),
    ("null for required", null_for_required),
    ("null as text", null_as_text),
    ("other case", other_case),
    ("misspelt value", misspelt_value),
    ("misspelt key", misspelt_key),
    ("other key case", other_key_case),
    ("missing key", missing_key),
    ("unknown key", unknown_key),
    ("wrapped arguments", wrapped_arguments),
    ("arguments as text", arguments_as_text),
    ("number for text", number_for_text),
    ("object for a list", object_for_a_list),
    ("fraction", fraction),
    ("out of range", out_of_range),
    ("wrong branch", wrong_branch),
    ("map for a list", map_for_a_list),
];

fn sent(call: &Value, at: &str, value: Value, intended: Option<Value>) -> Option<BrokenCall> {
    let text = with(call, at, value).to_string();
    Some(BrokenCall { text, intended, pointer: Some(at.to_owned()) })
}

fn number_as_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_number)?;
    sent(call, &at, json!(call.pointer(&at)?.to_string()), Some(call.clone()))
}

fn odd_number_as_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_number)?;
    let all = [
        ("1,000", Some(json!(1000))),
        ("0x1F", Some(json!(31))),
        ("007", None),
        ("5 km", None),
        ("5.0", Some(json!(5))),
        ("+5", Some(json!(5))),
        ("1e2", Some(json!(100))),
        ("five", Some(json!(5))),
        ("50%", None),
        ("1_000", Some(json!(1000))),
        ("1.5.2", None),
        ("NaN", None),
        ("", None),
        ("٣", Some(json!(3))),
        ("1,5", None),
        ("12345678901234567890123", None),
        ("0.1234567890123456789", None),
    ];
    let (text, intended) = dice.pick(&all)?;
    sent(call, &at, json!(text), intended.clone().map(|intended| with(call, &at, intended)))
}

fn truth_as_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_boolean)?;
    let all = [
        (json!("true"), Some(true)),
        (json!("False"), Some(false)),
        (json!("TRUE"), Some(true)),
        (json!("yes"), Some(true)),
        (json!("off"), Some(false)),
        (json!(1), Some(true)),
        (json!(0), Some(false)),
        (json!("0"), Some(false)),
        (json!("maybe"), None),
        (json!("not false"), None),
    ];
    let (value, intended) = dice.pick(&all)?;
    sent(call, &at, value.clone(), intended.map(|intended| with(call, &at, json!(intended))))
}

fn list_as_json_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_array)?;
    sent(call, &at, json!(call.pointer(&at)?.to_string()), Some(call.clone()))
}

fn object_as_json_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_object)?;
    sent(call, &at, json!(call.pointer(&at)?.to_string()), Some(call.clone()))
}

fn list_as_python_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_array)?;
    let list = call.pointer(&at)?.to_string();
    (!list.contains('\'') && !list.contains('\\')).then_some(())?;
    let text = spelled::python(call.pointer(&at)?);
    let list = call.pointer(&at)?.as_array()?;
    let text = match dice.roll(4) {
        0 => text.replace('\'', ""),
        1 if list.len() > 1 => format!("({})", &text[1..text.len() - 1]),
        2 => format!("{}, ...]", &text[..text.len() - 1]),
        _ => text,
    };
    let intended = (!text.ends_with(", ...]")).then(|| call.clone());
    sent(call, &at, json!(text), intended)
}

fn joined_list(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| {
        let items = it.as_array();
        items.is_some_and(|items| {
            !items.is_empty() && items.iter().all(|it| it.is_string() || it.is_number())
        })
    })?;
    let mut items = call.pointer(&at)?.as_array()?.clone();
    if items.len() == 1 {
        items.push(items[0].clone());
    }
    let plain = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
    let words: Vec<String> = items.iter().map(plain).collect();
    let separator =
        *dice.pick(&[", ", ",", "; ", "\n", " ", " and ", "|", "、", "，", "\t", " & ", " / "])?;
    let intended = words.iter().all(|it| !it.is_empty() && !it.contains(separator));
    let intended = intended.then(|| with(call, &at, Value::Array(items)));
    sent(call, &at, json!(words.join(separator)), intended)
}

fn one_for_a_list(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| it.as_array().is_some_and(|items| !items.is_empty()))?;
    let one = call.pointer(&at)?.as_array()?.first()?.clone();
    let intended = with(call, &at, json!([one]));
    sent(call, &at, one, Some(intended))
}

fn word_for_a_list(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_array)?;
    has_type(schema, &at, "array").then_some(())?;
    let word = dice.pick(&[
        "none",
        "None",
        "",
        "all",
        "n/a",
        "null",
        "[]",
        "-",
        "empty",
        "same as before",
    ])?;
    let intended = (*word == "[]").then(|| with(call, &at, json!([])));
    sent(call, &at, json!(word), intended)
}

fn flat_for_a_matrix(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| {
        it.as_array().is_some_and(|items| items.first().is_some_and(Value::is_array))
    })?;
    let rows = call.pointer(&at)?.as_array()?;
    let flat: Vec<Value> = rows.iter().filter_map(Value::as_array).flatten().cloned().collect();
    match dice.roll(3) {
        0 => sent(call, &at, flat.first()?.clone(), None),
        1 => sent(call, &at, json!(Value::Array(flat).to_string()), None),
        _ => sent(call, &at, Value::Array(flat), None),
    }
}

fn list_for_one(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| it.is_string() || it.is_number() || it.is_boolean())?;
    let one = call.pointer(&at)?.clone();
    match dice.roll(3) {
        0 => sent(call, &at, json!([one, one]), None),
        _ => sent(call, &at, json!([one]), Some(call.clone())),
    }
}

fn null_for_optional(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |_| true)?;
    is_optional(schema, &at).then_some(())?;
    sent(call, &at, Value::Null, without(call, &at))
}

fn null_for_required(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |_| true)?;
    (!is_optional(schema, &at)).then_some(())?;
    sent(call, &at, Value::Null, None)
}

fn null_as_text(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| it.is_number() || it.is_array() || it.is_boolean())?;
    let word = dice.pick(&["null", "None", "undefined", "nil", ""])?;
    let intended = without(call, &at).filter(|_| is_optional(schema, &at));
    sent(call, &at, json!(word), intended)
}

fn choices<'a>(schema: &'a Value, at: &str) -> Vec<&'a str> {
    let all = schemas_at(schema, at).into_iter().filter_map(|it| it.get("enum")?.as_array());
    all.flatten().filter_map(Value::as_str).collect()
}

fn other_case(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    let value = call.pointer(&at)?.as_str()?;
    (!choices(schema, &at).is_empty()).then_some(())?;
    let other = match dice.roll(3) {
        0 => value.to_uppercase(),
        1 => format!(" {value} "),
        _ => value.to_uppercase().chars().take(1).chain(value.chars().skip(1)).collect(),
    };
    sent(call, &at, json!(other), Some(call.clone()))
}

fn misspelt_value(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    let value = call.pointer(&at)?.as_str()?;
    (!choices(schema, &at).is_empty()).then_some(())?;
    let other = match dice.roll(4) {
        0 => format!("{value}s"),
        1 => value.chars().skip(1).collect(),
        2 => "something else".into(),
        _ => format!("{value}, {value}"),
    };
    sent(call, &at, json!(other), Some(call.clone()))
}

fn renamed(call: &Value, at: &str, to: &str) -> Option<Value> {
    let (parent, _) = at.rsplit_once('/')?;
    let value = call.pointer(at)?.clone();
    let mut other = without(call, at)?;
    other.pointer_mut(parent)?.as_object_mut()?.insert(to.to_owned(), value);
    Some(other)
}

fn misspelt_key(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |_| true)?;
    let (parent, key) = at.rsplit_once('/')?;
    let to = match dice.roll(3) {
        0 => format!("{key}s"),
        1 => key.chars().skip(1).collect(),
        _ => format!("the_{key}"),
    };
    let text = renamed(call, &at, &to)?.to_string();
    Some(BrokenCall::text(text, call).at(parent))
}

fn other_key_case(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |_| true)?;
    let (parent, key) = at.rsplit_once('/')?;
    let text = renamed(call, &at, &key.to_uppercase())?.to_string();
    Some(BrokenCall::text(text, call).at(parent))
}

fn missing_key(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |_| true)?;
    let text = without(call, &at)?.to_string();
    Some(BrokenCall::unclear(text).at(&at))
}

fn unknown_key(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let objects: Vec<String> = pointers(call)
        .into_iter()
        .filter(|it| call.pointer(it).is_some_and(Value::is_object))
        .collect();
    let at = dice.pick(&objects)?;
    let mut other = call.clone();
    other.pointer_mut(at)?.as_object_mut()?.insert("explanation".into(), json!("because"));
    Some(BrokenCall::unclear(other.to_string()).at(at))
}

fn wrapped_arguments(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let key = *dice.pick(&["arguments", "parameters", "input", "args"])?;
    let text = json!({ key: call }).to_string();
    let text = if dice.roll(3) == 0 { json!([call]).to_string() } else { text };
    Some(BrokenCall::text(text, call))
}

fn arguments_as_text(_: &Value, call: &Value, _: &mut Dice) -> Option<BrokenCall> {
    Some(BrokenCall::text(Value::from(call.to_string()).to_string(), call))
}

fn number_for_text(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    let all = [(json!(5), "5"), (json!(true), "true"), (json!(1.5), "1.5")];
    let (value, intended) = dice.pick(&all)?;
    sent(call, &at, value.clone(), Some(with(call, &at, json!(intended))))
}

fn object_for_a_list(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| {
        it.as_array().is_some_and(|items| items.first().is_some_and(Value::is_object))
    })?;
    let one = call.pointer(&at)?.as_array()?.first()?.clone();
    let intended = with(call, &at, json!([one]));
    match dice.roll(3) {
        0 => sent(call, &at, json!(one.to_string()), Some(intended)),
        _ => sent(call, &at, one, Some(intended)),
    }
}

fn map_for_a_list(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| it.as_array().is_some_and(|items| !items.is_empty()))?;
    let items = call.pointer(&at)?.as_array()?;
    let keyed = |(index, it): (usize, &Value)| (index.to_string(), it.clone());
    let map: serde_json::Map<_, _> = items.iter().enumerate().map(keyed).collect();
    match dice.roll(3) {
        0 => sent(call, &at, json!({ "items": items }), Some(call.clone())),
        1 => sent(call, &at, json!({ "item": items }), Some(call.clone())),
        _ => sent(call, &at, Value::Object(map), Some(call.clone())),
    }
}

fn fraction(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_i64)?;
    has_type(schema, &at, "integer").then_some(())?;
    let value = call.pointer(&at)?.as_i64()?;
    match dice.roll(2) {
        0 => sent(call, &at, json!(value as f64 + 0.5), None),
        _ => sent(call, &at, json!(format!("{value}.5")), None),
    }
}

fn out_of_range(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_number)?;
    let all = [json!(-99_999), json!(99_999_999), json!("-99999"), json!(1e300)];
    let value = dice.pick(&all)?;
    // Where it is in range, its text is the number it spells.
    let number = value.as_str().and_then(|text| text.parse::<i64>().ok());
    let intended = number.map(|number| with(call, &at, json!(number)));
    sent(call, &at, value.clone(), intended)
}

/// A value of another branch's type, or a branch with a hole.
fn wrong_branch(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let branched = |at: &String| {
        let all = schemas_at(schema, at);
        all.iter().any(|it| it.get("anyOf").is_some() || it.get("oneOf").is_some())
    };
    let all: Vec<String> =
        pointers(call).into_iter().filter(|at| !at.is_empty() && branched(at)).collect();
    let at = dice.pick(&all)?;
    match call.pointer(at)? {
        Value::Object(map) => {
            let key = map.keys().nth(dice.roll(map.len()))?.clone();
            let inner = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            match dice.roll(2) {
                0 => Some(BrokenCall::unclear(without(call, &inner)?.to_string()).at(at)),
                _ => sent(call, &inner, json!([[]]), None),
            }
        }
        _ => sent(call, at, json!({ "nothing": [] }), None),
    }
}
