//! Calls whose text is not JSON, in the ways models spell it.

use serde_json::{Value, json};

use crate::lossless::{
    style::{JSON, Style},
    support::{
        BrokenCall, Dice, is_free_text, is_optional, pointer, pointers, with, with_raw, without,
    },
};

pub(crate) type Make = fn(&Value, &Value, &mut Dice) -> Option<BrokenCall>;

pub(crate) const CLASSES: &[(&str, Make)] = &[
    ("trailing comma", trailing_comma),
    ("single quotes", single_quotes),
    ("unquoted keys", unquoted_keys),
    ("python literals", python_literals),
    ("code fence", code_fence),
    ("prose around", prose_around),
    ("wrapped in code", wrapped_in_code),
    ("line comment", line_comment),
    ("comment with a key", comment_with_a_key),
    ("hash comment", hash_comment),
    ("hash value", hash_value),
    ("lone backslash", lone_backslash),
    ("lone backslash, quoted '", lone_backslash_single),
    ("ellipsis", ellipsis),
    ("cut off", cut_off),
    ("two objects", two_objects),
    ("not a number", not_a_number),
    ("undefined", undefined),
    ("odd number", odd_number),
    ("smart quotes", smart_quotes),
    ("key twice", key_twice),
    ("inner quotes", inner_quotes),
    ("raw line break", raw_line_break),
    ("missing comma", missing_comma),
    ("missing colon", missing_colon),
    ("missing quote", missing_quote),
    ("missing closer", missing_closer),
    ("extra closer", extra_closer),
    ("bare word", bare_word),
    ("placeholder", placeholder),
    ("joined strings", joined_strings),
    ("escaped whole", escaped_whole),
    ("full-width signs", full_width),
    ("backticks", backticks),
    ("triple quotes", triple_quotes),
    ("tuple", tuple),
    ("double comma", double_comma),
    ("other separators", other_separators),
    ("odd spaces", odd_spaces),
    ("bare date", bare_date),
    ("function call", function_call),
    ("two slips", two_slips),
];

/// Texts that break easily.
const TEXTS: &[&str] = &[
    r"^\d+\.\d*$",
    r"C:\Users\bob\new.txt",
    r"\section{Intro} \alpha",
    "it's John's",
    "say \"hi\", then go",
    "line one\nline two",
    "a, b, c",
    "https://example.com/x?y=1#z",
    "// not a comment",
    "# title",
    "... and so on",
    "[1, 2, 3]",
    "{\"a\": 1}",
    "C:\\temp\\new",
    "100%",
    "你好，世界：好",
    "f(x) = 'a' + \"b\"",
    "```js\nlet a = `x`;\n```",
    "None",
    "True",
    "plain text",
    "src/main.rs",
];

/// The call with another text where any text fits.
pub(crate) fn enriched(schema: &Value, call: Value, dice: &mut Dice) -> Value {
    if dice.roll(2) == 0 {
        return call;
    }
    let free = pointers(&call)
        .into_iter()
        .filter(|it| call.pointer(it).is_some_and(Value::is_string) && is_free_text(schema, it));
    let free: Vec<String> = free.collect();
    match (dice.pick(&free), dice.pick(TEXTS)) {
        (Some(pointer), Some(text)) => with(&call, pointer, json!(text)),
        _ => call,
    }
}

/// As Python prints it.
pub(crate) fn python(value: &Value) -> String {
    Style { open: "'", close: "'", python: true, ..JSON }.value(value)
}

fn trailing_comma(_: &Value, call: &Value, _: &mut Dice) -> Option<BrokenCall> {
    Some(BrokenCall::text(Style { trailing: true, ..JSON }.value(call), call))
}

fn single_quotes(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let style = Style { open: "'", close: "'", python: dice.roll(2) == 0, ..JSON };
    Some(BrokenCall::text(style.value(call), call))
}

fn unquoted_keys(_: &Value, call: &Value, _: &mut Dice) -> Option<BrokenCall> {
    Some(BrokenCall::text(Style { bare_keys: true, ..JSON }.value(call), call))
}

fn python_literals(_: &Value, call: &Value, _: &mut Dice) -> Option<BrokenCall> {
    Some(BrokenCall::text(Style { python: true, ..JSON }.value(call), call))
}

fn code_fence(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let open = dice.pick(&["```json\n", "```\n", "```JSON\n", "``` "])?;
    Some(BrokenCall::text(format!("{open}{call}\n```"), call))
}

fn prose_around(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let all = [
        ("Here are the arguments: ", ""),
        ("", "\nLet me know if you need more."),
        ("Sure! ```json\n", "\n```"),
        ("<tool_call>", "</tool_call>"),
        ("", " (but with the first entry doubled)"),
    ];
    let (before, after) = dice.pick(&all)?;
    Some(BrokenCall::text(format!("{before}{call}{after}"), call))
}

fn wrapped_in_code(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let (before, after) =
        dice.pick(&[("args = ", ""), ("call(", ")"), ("return ", ";"), ("(", ")")])?;
    Some(BrokenCall::text(format!("{before}{call}{after}"), call))
}

/// Pretty JSON, and the number of a line that ends in a comma or a bracket.
fn pretty(call: &Value, dice: &mut Dice) -> Option<(Vec<String>, usize)> {
    let lines: Vec<String> =
        serde_json::to_string_pretty(call).ok()?.lines().map(str::to_owned).collect();
    let line = dice.roll(lines.len());
    (!lines[line].is_empty()).then_some((lines, line))
}

fn line_comment(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let (mut lines, line) = pretty(call, dice)?;
    let comment =
        dice.pick(&["// the main one", "/* as asked */", "// TODO: check, \"maybe\" {x}"])?;
    lines[line] = format!("{} {comment}", lines[line]);
    Some(BrokenCall::text(lines.join("\n"), call))
}

fn comment_with_a_key(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let text = call.to_string();
    let comment =
        dice.pick(&["// \"limit\": 5,\n", "# \"limit\": 5,\n", "/* \"limit\": 5, */", "// "])?;
    let text = text.replacen('{', &format!("{{ {comment}"), 1);
    // Nobody can say whether the key was taken back or explained.
    Some(if *comment == "// " { BrokenCall::unclear(text) } else { BrokenCall::text(text, call) })
}

fn hash_comment(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let (mut lines, line) = pretty(call, dice)?;
    let comment = dice.pick(&["# the main one", "#", "# 1, 2 or \"three\""])?;
    lines[line] = format!("{} {comment}", lines[line]);
    Some(BrokenCall::text(lines.join("\n"), call))
}

fn hash_value(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let raw = dice.pick(&["#ff0000", "#12", "#main .item"])?;
    Some(BrokenCall::text(with_raw(call, &at, raw), &with(call, &at, json!(raw))))
}

const BACKSLASHES: &[&str] = &[
    r"\d+",
    r"^\s*(\w+)\.rs$",
    r"C:\Users\bob\Documents",
    r"C:\temp\new\bin",
    r"\\server\share\dir",
    r"a\(b\)",
    r"\section{x}\beta",
    r"\bword\b",
    r"100\%",
    r"it\'s",
    r"echo \$HOME",
    r"\u12",
    r"\x41\0",
    r"foo\.bar\nbaz",
    r"src\main.rs",
    r"\*bold\*",
    r"D:\games",
];

fn lone_backslash(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let raw = dice.pick(BACKSLASHES)?;
    Some(BrokenCall::text(with_raw(call, &at, &format!("\"{raw}\"")), &with(call, &at, json!(raw))))
}

fn lone_backslash_single(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let raw = dice.pick(BACKSLASHES)?;
    let style = Style { open: "'", close: "'", ..JSON };
    let text = style.value(&with(call, &at, json!("@@mark@@")));
    let text = text.replace("@@mark@@", raw);
    // Between these quotes \' can only be a quote.
    let intended = with(call, &at, json!(raw.replace("\\'", "'")));
    // A Python or JavaScript writer may have meant the escape.
    let unclear = raw.contains("\\n") || raw.contains("\\x");
    Some(if unclear { BrokenCall::unclear(text) } else { BrokenCall::text(text, &intended) })
}

fn ellipsis(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let dots = *dice.pick(&["...", "…", "..."])?;
    if dice.roll(3) == 0 {
        let text = call.to_string();
        return Some(BrokenCall::unclear(format!("{}, {dots}}}", &text[..text.len() - 1])));
    }
    let at = pointer(call, dice, |it| it.as_array().is_some_and(|items| !items.is_empty()))?;
    let list = call.pointer(&at)?.to_string();
    let raw = match dice.roll(2) {
        0 => format!("{}, {dots}]", &list[..list.len() - 1]),
        _ => list.replacen(',', &format!(", {dots},"), 1).replacen('[', &format!("[{dots}, "), 1),
    };
    Some(BrokenCall::unclear(with_raw(call, &at, &raw)))
}

fn cut_off(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let style = if dice.roll(3) == 0 { Style { open: "'", close: "'", ..JSON } } else { JSON };
    let text = style.value(call);
    let mut cut = 1 + dice.roll(text.len().checked_sub(1)?);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let only_closers = text[cut..].chars().all(|it| "}] ".contains(it));
    let cut = text[..cut].to_owned();
    Some(if only_closers { BrokenCall::text(cut, call) } else { BrokenCall::unclear(cut) })
}

fn two_objects(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let between = dice.pick(&["", "\n", ", ", ";"])?;
    let second = if dice.roll(2) == 0 { call.clone() } else { json!({"more": 1}) };
    let text = format!("{call}{between}{second}");
    Some(BrokenCall::unclear(if dice.roll(4) == 0 { format!("[{text}]") } else { text }))
}

fn not_a_number(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_number)?;
    let raw = dice.pick(&["NaN", "Infinity", "-Infinity", "nan", "inf", "-inf", "float('nan')"])?;
    Some(BrokenCall::unclear(with_raw(call, &at, raw)).at(&at))
}

fn undefined(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| !it.is_null())?;
    let raw = dice.pick(&["undefined", "undefined", "void", "nil", "N/A", "?", ""])?;
    // Nothing at the end of a list is a trailing comma.
    (!raw.is_empty() || !is_item(&at)).then_some(())?;
    Some(BrokenCall::unclear(with_raw(call, &at, raw)).at(&at))
}

fn odd_number(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_number)?;
    let all = [
        ("0x1F", json!(31)),
        ("+5", json!(5)),
        (".5", json!(0.5)),
        ("5.", json!(5)),
        ("1_000", json!(1000)),
        ("1,000", json!(1000)),
        ("0b101", json!(5)),
        ("1e", json!(null)),
        ("007", json!(null)),
        ("5k", json!(5000)),
        ("10px", json!(null)),
        ("3/4", json!(0.75)),
        ("5%", json!(null)),
        ("- 5", json!(-5)),
        ("--5", json!(null)),
        ("1.2.3", json!(null)),
        ("2+3", json!(5)),
        ("1e5f", json!(null)),
    ];
    let (raw, intended) = dice.pick(&all)?;
    let text = with_raw(call, &at, raw);
    let meaning = (!intended.is_null()).then(|| with(call, &at, intended.clone()));
    Some(BrokenCall { text, intended: meaning, pointer: Some(at) })
}

fn smart_quotes(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let (open, close) = *dice.pick(&[("“", "”"), ("‘", "’"), ("”", "”"), ("«", "»")])?;
    Some(BrokenCall::text(Style { open, close, ..JSON }.value(call), call))
}

fn key_twice(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let (key, value) = call.as_object()?.iter().next()?;
    let style = if dice.roll(2) == 0 { JSON } else { Style { bare_keys: true, ..JSON } };
    let text = style.value(call);
    let more = json!(dice.roll(100)).to_string();
    let more = if dice.roll(2) == 0 { more } else { style.value(value) };
    let text = format!("{}, {}: {more}}}", &text[..text.len() - 1], style.key(key));
    let same = more == style.value(value);
    Some(if same { BrokenCall::text(text, call) } else { BrokenCall::unclear(text) })
}

/// Is a place an item of a list?
fn is_item(at: &str) -> bool {
    at.rsplit('/').next().is_some_and(|last| last.parse::<usize>().is_ok())
}

const QUOTED: &[&str] = &[
    "He said \"hi\" to me",
    "print(\"x\")",
    "\"start",
    "end\"",
    "\"whole\"",
    "a\", \"b",
    "{\"k\": \"v\"}",
    "<a href=\"x\">y</a>",
    "key\": \"value",
    "x\"\n\"y\": \"z",
];

fn inner_quotes(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let text = *dice.pick(QUOTED)?;
    // In a list these are two items for any reader.
    (!text.contains(", ") || !is_item(&at)).then_some(())?;
    let single = dice.roll(3) == 0;
    let intended = if single { text.replace('"', "'") } else { text.to_owned() };
    let style = if single { Style { open: "'", close: "'", ..JSON } } else { JSON };
    let raw = style.value(&with(call, &at, json!("@@mark@@"))).replace("@@mark@@", &intended);
    Some(BrokenCall::text(raw, &with(call, &at, json!(intended))))
}

fn raw_line_break(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let text = *dice.pick(&[
        "one\ntwo",
        "a\tb",
        "fn main() {\n    run();\n}\n",
        "a,\nb: [1],\nc",
        "x\r\ny",
    ])?;
    Some(BrokenCall::text(
        with_raw(call, &at, &format!("\"{text}\"")),
        &with(call, &at, json!(text)),
    ))
}

fn missing_comma(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let gap = *dice.pick(&[" ", "\n"])?;
    Some(BrokenCall::text(Style { comma: gap, ..JSON }.value(call), call))
}

fn missing_colon(_: &Value, call: &Value, _: &mut Dice) -> Option<BrokenCall> {
    Some(BrokenCall::text(Style { colon: " ", ..JSON }.value(call), call))
}

fn missing_quote(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let text = call.to_string();
    let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    let at = *dice.pick(&quotes)?;
    (at == 0 || text.as_bytes()[at - 1] != b'\\').then_some(())?;
    Some(BrokenCall::text(format!("{}{}", &text[..at], &text[at + 1..]), call))
}

fn missing_closer(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| it.is_array() || it.is_object())?;
    let part = call.pointer(&at)?.to_string();
    Some(BrokenCall::text(with_raw(call, &at, &part[..part.len() - 1]), call))
}

fn extra_closer(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let extra = *dice.pick(&["}", "]", "}}", " }"])?;
    match dice.roll(2) {
        0 => Some(BrokenCall::text(format!("{call}{extra}"), call)),
        _ => {
            let at = pointer(call, dice, |it| it.is_array() || it.is_object())?;
            let part = format!("{}{extra}", call.pointer(&at)?);
            Some(BrokenCall::text(with_raw(call, &at, &part), call))
        }
    }
}

fn bare_word(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| it.as_str().is_some_and(|it| !it.is_empty()))?;
    let raw = call.pointer(&at)?.as_str()?;
    // A bare `None` is no text for any reader.
    (!["None", "True"].contains(&raw)).then_some(())?;
    Some(BrokenCall::text(with_raw(call, &at, raw), call))
}

/// A name for a value that the model never put in.
fn placeholder(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, |it| !it.is_null())?;
    let free = is_free_text(schema, &at);
    let raw = dice.pick(&[
        "file_content",
        "<path>",
        "$HOME",
        "{{name}}",
        "params.path",
        "TODO",
        "open('a').read()",
    ])?;
    let broken = BrokenCall::unclear(with_raw(call, &at, raw));
    Some(if free { broken } else { broken.at(&at) })
}

fn joined_strings(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let raw = *dice.pick(&[
        "\"ab\" + \"cd\"",
        "\"ab\" \"cd\"",
        "\"ab\"\n  \"cd\"",
        "\"ab\" + name + \"cd\"",
    ])?;
    let text = with_raw(call, &at, raw);
    let intended = with(call, &at, json!("abcd"));
    Some(if raw.contains("name") {
        BrokenCall::unclear(text)
    } else {
        BrokenCall::text(text, &intended)
    })
}

fn escaped_whole(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let text = Value::from(call.to_string()).to_string();
    let bare = text[1..text.len() - 1].to_owned();
    let text = if dice.roll(2) == 0 { bare } else { format!("'{call}'") };
    Some(BrokenCall::text(text, call))
}

fn full_width(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let style = match dice.roll(3) {
        0 => Style { comma: "，", ..JSON },
        1 => Style { colon: "：", ..JSON },
        _ => Style { open: "“", close: "”", comma: "，", colon: "：", ..JSON },
    };
    Some(BrokenCall::text(style.value(call), call))
}

fn backticks(_: &Value, call: &Value, _: &mut Dice) -> Option<BrokenCall> {
    Some(BrokenCall::text(Style { open: "`", close: "`", ..JSON }.value(call), call))
}

fn triple_quotes(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let quote = *dice.pick(&["\"\"\"", "'''"])?;
    let text = *dice.pick(&["one\ntwo", "plain", "say \"hi\" now", "it's"])?;
    Some(BrokenCall::text(
        with_raw(call, &at, &format!("{quote}{text}{quote}")),
        &with(call, &at, json!(text)),
    ))
}

fn tuple(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_array)?;
    let list = call.pointer(&at)?.to_string();
    let raw = format!("({})", &list[1..list.len() - 1]);
    Some(BrokenCall::text(with_raw(call, &at, &raw), call).at(&at))
}

fn double_comma(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let text = call.to_string();
    let text = match dice.roll(4) {
        0 => text.replacen('[', "[,", 1),
        1 => text.replacen('{', "{,", 1),
        2 => text.replacen("\",", "\",,", 1),
        _ => text.replacen(",\"", ",,\"", 1),
    };
    Some(BrokenCall::unclear(text))
}

fn other_separators(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let style = match dice.roll(4) {
        0 => Style { colon: " = ", ..JSON },
        1 => Style { colon: " => ", ..JSON },
        2 => Style { comma: "; ", ..JSON },
        _ => Style { colon: "=", comma: " ", bare_keys: true, ..JSON },
    };
    Some(BrokenCall::text(style.value(call), call))
}

fn odd_spaces(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let space = *dice.pick(&["\u{a0}", "\u{feff}", "\u{3000}", "\u{200b}"])?;
    let style = Style { comma: if dice.roll(2) == 0 { ",\u{a0}" } else { ", " }, ..JSON };
    Some(BrokenCall::text(format!("{space}{}", style.value(call)), call))
}

fn bare_date(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let at = pointer(call, dice, Value::is_string)?;
    is_free_text(schema, &at).then_some(())?;
    let raw = dice.pick(&[
        "2024-01-05",
        "2024-01-05T10:00:00Z",
        "10:30",
        "1.2.3",
        "v1.0",
        "192.168.0.1",
    ])?;
    Some(BrokenCall::text(with_raw(call, &at, raw), &with(call, &at, json!(raw))))
}

fn function_call(schema: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    if dice.roll(2) == 0 {
        let at = pointer(call, dice, Value::is_number)?;
        let number = call.pointer(&at)?.to_string();
        let name = dice.pick(&["NumberLong", "int", "Decimal", "abs", "f"])?;
        return Some(
            BrokenCall::unclear(with_raw(call, &at, &format!("{name}({number})"))).at(&at),
        );
    }
    let at = pointer(call, dice, |_| true)?;
    is_optional(schema, &at).then_some(())?;
    let less = without(call, &at)?;
    // A key without a value says nothing certain.
    let (_, key) = at.rsplit_once('/')?;
    (at.matches('/').count() == 1).then_some(())?;
    let text = less.to_string();
    let comma = if text == "{}" { "" } else { ", " };
    Some(BrokenCall::unclear(format!("{}{comma}\"{key}\"}}", &text[..text.len() - 1])))
}

fn two_slips(_: &Value, call: &Value, dice: &mut Dice) -> Option<BrokenCall> {
    let mut style = Style { trailing: true, ..JSON };
    for _ in 0..2 {
        style = match dice.roll(4) {
            0 => Style { open: "'", close: "'", ..style },
            1 => Style { bare_keys: true, ..style },
            2 => Style { python: true, ..style },
            _ => style,
        };
    }
    let text = style.value(call);
    let text = if dice.roll(3) == 0 { format!("```json\n{text}\n```") } else { text };
    Some(BrokenCall::text(text, call))
}
