//! Hostile schemas and hostile arguments: what a server of tools or a model may send to make us work for ever.
//!
//! A test does not watch the clock: what it holds is that each is compiled or refused, is told in few words, and makes no
//! more than a fixed multiple of the work of the largest honest schema. Work is processor time of the thread, both
//! measured in the same run.

use std::time::Duration;

use budao_core::{Lang, limits::Limits, tool::Outcome};
use budao_testkit::world;
use budao_tools::{RawTool, ToolOptions, Toolbox, schema::SCHEMA_BYTES_MAX};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

/// Schemas and arguments in a usual run, and with `BUDAO_FULL`.
const SOME: usize = 104;
const ALL: usize = 5_000;
const SOME_ARGUMENTS: usize = 200;
const ALL_ARGUMENTS: usize = 2_000;
/// How much work the worst may make beside the largest honest schema there can be, in processor time of this thread:
/// in a usual run, where they are small, and with `BUDAO_FULL`.
const SOME_TIMES: usize = 20;
const ALL_TIMES: usize = 400;

fn count(some: usize, all: usize) -> usize {
    if std::env::var_os("BUDAO_FULL").is_some() { all } else { some }
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A schema around something for one argument.
#[expect(clippy::needless_pass_by_value, reason = "every caller makes it on the spot")]
fn of(inner: Value) -> Value {
    json!({"type": "object", "properties": {"a": inner}, "required": ["a"]})
}

fn nested(depth: usize, mut inner: Value, wrap: impl Fn(Value) -> Value) -> Value {
    for _ in 0..depth {
        inner = wrap(inner);
    }
    inner
}

/// Definitions that each name the next one twice: small to write, huge when written out.
fn doubling(levels: usize, keyword: &str) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({ keyword: [next, next] }));
    }
    defs.insert(format!("d{levels}"), json!({"type": "string", "minLength": 3}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// Sorts of hostile schemas, each as hard as `size` says.
const SORTS: [fn(usize) -> Value; 26] = [
    |size| of(json!({"type": "string", "pattern": "^(a+)+$".repeat(1 + size % 9)})),
    |size| of(json!({"type": "string", "pattern": format!("(x{{{size}}}){{{size}}}")})),
    |size| {
        of(
            json!({"type": "string", "pattern": format!("^({})$", vec!["ab"; 1 + size * 40].join("|"))}),
        )
    },
    |size| {
        of(
            json!({"type": "string", "pattern": format!("{}{}", "(a?".repeat(size), ")".repeat(size))}),
        )
    },
    |size| of(json!({"type": "string", "pattern": format!("(?=a){}\\1", "a*".repeat(size))})),
    |size| {
        of(
            json!({"type": "string", "pattern": format!("[{}]{{1,{}}}", "\\w\\d\\s".repeat(size % 50), 1 + size * 50)}),
        )
    },
    |size| {
        of(nested(
            size,
            json!({"type": "integer"}),
            |inner| json!({"anyOf": [inner, {"type": "null"}]}),
        ))
    },
    |size| {
        of(nested(
            size % 12,
            json!({"type": "integer"}),
            |inner| json!({"anyOf": [inner.clone(), inner]}),
        ))
    },
    |size| {
        of(nested(
            size % 12,
            json!({"type": "integer"}),
            |inner| json!({"oneOf": [inner.clone(), inner]}),
        ))
    },
    |size| of(nested(size, json!({"type": "integer"}), |inner| json!({"not": inner}))),
    |size| {
        of(nested(size, json!({}), |inner| json!({"properties": {"a": inner}, "required": ["a"]})))
    },
    |size| of(nested(size, json!({}), |inner| json!({"items": inner}))),
    |size| doubling(size % 40, "allOf"),
    |size| doubling(size % 40, "anyOf"),
    |size| doubling(size % 40, "oneOf"),
    |size| of(json!({"enum": (0..size * 100).map(|n| format!("value {n}")).collect::<Vec<_>>()})),
    |size| of(json!({"enum": ["x".repeat(size * 1000)]})),
    |size| of(json!({"anyOf": vec![json!({"type": "string", "pattern": "^b+$"}); size * 10]})),
    |size| {
        let many: Map<String, Value> =
            (0..size * 20).map(|n| (format!("^p{n}.*"), json!({"type": "integer"}))).collect();
        json!({"type": "object", "patternProperties": many, "additionalProperties": false})
    },
    |size| {
        let many: Map<String, Value> = (0..size * 20)
            .map(|n| (format!("p{n}"), json!({"type": "integer", "default": n})))
            .collect();
        json!({"type": "object", "properties": many, "minProperties": size * 20})
    },
    |size| {
        let target = ["#", "#/properties/a", "#/$defs/x", "#/a/b", "#nowhere"][size % 5];
        of(json!({"$ref": target}))
    },
    |size| {
        let keyword = ["anyOf", "allOf", "oneOf"][size % 3];
        json!({"type": "object", keyword: [{"$ref": "#"}, {"required": ["a"]}]})
    },
    |size| {
        let keyword = ["not", "if", "propertyNames", "contains", "additionalProperties"][size % 5];
        json!({"type": "object", keyword: {"$ref": "#"}, "properties": {"a": {keyword: {"$ref": "#/properties/a"}}}})
    },
    |size| {
        let ring: Map<String, Value> = (0..=size)
            .map(|n| {
                (
                    format!("r{n}"),
                    json!({"allOf": [{"$ref": format!("#/$defs/r{}", (n + 1) % (size + 1))}]}),
                )
            })
            .collect();
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/r0"}}, "$defs": ring})
    },
    |size| {
        json!({"type": "object", "$defs": {"n": {"type": "object", "additionalProperties": {"anyOf":
            vec![json!({"$ref": "#/$defs/n"}); 1 + size % 6]}}}, "properties": {"a": {"$ref": "#/$defs/n"}}})
    },
    |size| {
        let number = ["1e400", "0.1", "1e-300", "9007199254740993", "-1"][size % 5];
        let bound: Value = serde_json::from_str(number).unwrap_or_else(|_| json!(number));
        of(
            json!({"type": "number", "multipleOf": bound, "minItems": bound, "maxLength": bound, "minimum": bound}),
        )
    },
];

/// Arguments that make a validator walk as far as it can.
fn lures() -> Vec<String> {
    let deep = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
    vec![
        "{}".to_owned(),
        json!({"a": format!("{}!", "a".repeat(31))}).to_string(),
        json!({"a": "ab".repeat(2_000)}).to_string(),
        deep,
        json!({"a": vec![vec![1; 30]; 30]}).to_string(),
        json!({"a": {"p1": {"p2": {"p3": {}}}}, "p1": "5", "x": null}).to_string(),
    ]
}

fn offered(schema: Value) -> Option<Toolbox> {
    let tool = RawTool::new("it", "", schema, |arguments, _| async move { Ok(arguments) });
    let tool = tool.options(ToolOptions::read_only().repair(true));
    Toolbox::builder().add(tool).ok().map(budao_tools::Builder::build)
}

/// Checks a call and tells of it; what is told is bounded.
fn called(toolbox: &Toolbox, text: &str) {
    if let Err(fault) = toolbox.check_text("it", text.as_bytes(), &Limits::default()) {
        let (rendered, _) = Outcome::from(fault).render_for_model(Lang::En);
        assert!(rendered.len() < 1 << 20, "{} bytes are told", rendered.len());
    }
}

/// The work of compiling a schema and of refusing calls of its tool.
fn cost(schema: Value) -> (Duration, bool) {
    let from = cpu();
    let toolbox = offered(schema);
    if let Some(toolbox) = &toolbox {
        lures().iter().for_each(|lure| called(toolbox, lure));
    }
    (cpu().saturating_sub(from), toolbox.is_some())
}

/// What honest servers send: so many plain properties.
fn plain(count: usize) -> Value {
    let property = json!({"type": "string", "description": "a thing", "maxLength": 200});
    let all: Map<String, Value> = (0..count).map(|n| (format!("p{n}"), property.clone())).collect();
    json!({"type": "object", "properties": all, "required": ["p0"], "additionalProperties": false})
}

fn median(mut costs: Vec<Duration>) -> Duration {
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// The work an honest schema makes: of the usual size, and of the largest.
fn honest() -> (Duration, Duration) {
    let usual = (1..40).map(|size| cost(plain(size % 9 + 1)).0).collect();
    // Bytes are not the only bound.
    let mut count = SCHEMA_BYTES_MAX / (plain(1_000).to_string().len() / 1_000);
    while offered(plain(count)).is_none() {
        count -= count / 8;
    }
    eprintln!("the largest honest schema has {count} properties");
    let largest = (0..5).map(|_| cost(plain(count)).0).collect();
    (median(usual), median(largest))
}

/// Goal: no schema makes us fall or fall silent. A stack that overflows would end this test for good.
#[test]
fn a_hostile_schema_is_compiled_or_refused_and_its_calls_are_answered() {
    let (count, (honest, largest)) = (count(SOME, ALL), honest());
    let (mut worst, mut which, mut compiled) = (Duration::ZERO, 0, 0);
    for case in 0..count {
        let schema = SORTS[case % SORTS.len()](1 + case / SORTS.len());
        let (cost, is_compiled) = cost(schema);
        compiled += usize::from(is_compiled);
        if cost > worst {
            (worst, which) = (cost, case);
        }
    }
    let times = |honest: Duration| worst.as_secs_f64() / honest.as_secs_f64();
    eprintln!(
        "security T10: {count} hostile schemas, {compiled} compiled; worst {worst:?} of processor time (case {which}), \
         {:.1} times the largest honest one ({largest:?}), {:.0} times the usual one ({honest:?})",
        times(largest),
        times(honest)
    );
    let bound = u32::try_from(self::count(SOME_TIMES, ALL_TIMES)).unwrap();
    assert!(worst < largest * bound, "case {which} took {worst:?}");
}

/// Goal: arguments of any shape are answered with a type of fault and few words.
#[test]
fn hostile_arguments_are_refused_with_a_reason() {
    let count = count(SOME_ARGUMENTS, ALL_ARGUMENTS);
    let toolbox =
        offered(json!({"type": "object", "properties": {"a": {"type": "string"}}})).unwrap();
    let limits = Limits::default();
    let chance = world::seeded(11).entropy;
    let (mut worst, mut refused) = (Duration::ZERO, 0);
    for case in 0..count {
        let size = 1 + usize::try_from(chance.bits() % 20_000).unwrap();
        let text = match case % 10 {
            0 => "[".repeat(size * 50),
            1 => format!("{{\"a\":{}", "{\"a\":".repeat(size * 10)),
            2 => format!("{{\"a\":\"{}", "x".repeat(size * 20)),
            3 => format!("{{{}}}", vec!["\"a\":1"; size % 500 + 2].join(",")),
            4 => format!("{{\"a\":1e{size}}}"),
            5 => format!("{{\"a\":{}}}", "9".repeat(size)),
            6 => format!("{{\"a\":\"\\ud8{:02x}\"}}", size % 256),
            7 => format!("{{\"a\":\"\\u{:04x}\\", size % 65_536),
            8 => format!(
                "{{{}}}",
                (0..size % 2_000).map(|n| format!("\"k{n}\":{n}")).collect::<Vec<_>>().join(",")
            ),
            _ => "{\"a\":".repeat(200) + "null" + &"}".repeat(200),
        };
        let from = cpu();
        if let Err(fault) = toolbox.check_text("it", text.as_bytes(), &limits) {
            refused += 1;
            let (rendered, _) = Outcome::from(fault).render_for_model(Lang::Zh);
            assert!(rendered.len() < 64 * 1024, "case {case}: {} bytes are told", rendered.len());
        }
        worst = worst.max(cpu().saturating_sub(from));
    }
    assert!(refused * 2 > count, "only {refused} of {count} were refused");
    eprintln!(
        "security T11: {count} hostile arguments, {refused} refused; worst {worst:?} of processor time, seed 11"
    );
}
