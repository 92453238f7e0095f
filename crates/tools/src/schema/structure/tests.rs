//! Compares structures with the full validator on random schemas and values.

use budao_testkit::world;
use serde_json::{Map, Value, json};

use crate::schema::{CompiledSchema, prepare};

/// Random schemas; each is tried with [`VALUES`] values.
const SCHEMAS: usize = 4_000;
const VALUES: usize = 24;
const NAMES: [&str; 8] =
    ["a", "b", "kind", "path", "replace_all", "exactly-16-bytes", "a name of many bytes", "é"];
const TEXTS: [&str; 7] = ["", "a", "b", "two words", "żółw", "2026-11-18", "10.0.0.1"];

/// Draws from a seed.
struct Chance(Box<dyn FnMut() -> u64>);

impl Chance {
    fn below(&mut self, count: usize) -> usize {
        usize::try_from((self.0)() >> 8).unwrap() % count
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn scalar(&mut self) -> Value {
        match self.below(7) {
            0 => json!(null),
            1 => json!(self.is_one_in(2)),
            2 => json!(self.below(9) as i64 - 4),
            3 => self.of(&[json!(1.0), json!(-0.5), json!(2.5), json!(1e300), json!(u64::MAX)]),
            _ => json!(self.of(&TEXTS)),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 2 } else { 4 }) {
            0 | 1 => self.scalar(),
            2 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => Value::Object(
                (0..self.below(4))
                    .map(|_| (self.of(&NAMES).to_owned(), self.value(depth - 1)))
                    .collect(),
            ),
        }
    }

    fn count(&mut self) -> Value {
        json!(self.below(4))
    }

    fn list_of_schemas(&mut self, depth: usize) -> Value {
        (0..=self.below(2)).map(|_| self.schema(depth - 1)).collect()
    }

    /// One more keyword. Some are such that no structure expresses.
    fn rule(&mut self, map: &mut Map<String, Value>, depth: usize) {
        let leaf = depth == 0;
        let (keyword, value) = match self.below(if leaf { 14 } else { 20 }) {
            0..=3 => ("type", self.type_names()),
            4 => ("enum", json!([self.scalar(), self.scalar(), self.of(&TEXTS)])),
            5 => ("const", self.scalar()),
            6 => ("minimum", self.of(&[json!(-2), json!(0), json!(0.5), json!(1.0)])),
            7 => ("maximum", self.of(&[json!(3), json!(2.5), json!(u64::MAX), json!(-1)])),
            8 => (self.of(&["minLength", "maxLength"]), self.count()),
            9 => (self.of(&["minItems", "maxItems"]), self.count()),
            10 => (self.of(&["minProperties", "maxProperties"]), self.count()),
            11 => ("required", json!([self.of(&NAMES)])),
            12 => self.of(&[
                ("pattern", json!("^a")),
                ("format", json!("date")),
                ("format", json!("uint32")),
                ("multipleOf", json!(2)),
                ("exclusiveMinimum", json!(0)),
                ("uniqueItems", json!(true)),
                ("title", json!("a remark")),
                ("dependentRequired", json!({"a": ["b"]})),
            ]),
            13 => (
                "oneOf",
                json!([{"const": self.of(&TEXTS)}, {"enum": [self.of(&TEXTS)], "type": "string"}]),
            ),
            14 | 15 => ("properties", self.properties(depth - 1)),
            16 => ("additionalProperties", self.schema(depth - 1)),
            17 => ("items", self.schema(depth - 1)),
            18 => ("anyOf", self.list_of_schemas(depth)),
            _ => (self.of(&["allOf", "oneOf", "prefixItems"]), self.list_of_schemas(depth)),
        };
        map.insert(keyword.to_owned(), value);
    }

    fn type_names(&mut self) -> Value {
        let types = ["string", "object", "array", "integer", "number", "boolean", "null"];
        match self.is_one_in(4) {
            true => {
                let first = self.below(types.len());
                json!([types[first], types[(first + 1 + self.below(6)) % types.len()]])
            }
            false => json!(self.of(&types)),
        }
    }

    fn properties(&mut self, depth: usize) -> Value {
        let most = if self.is_one_in(9) { 20 } else { 4 };
        let names = 0..=self.below(most);
        let named = |index: usize, chance: &mut Self| match index < NAMES.len() {
            true => chance.of(&NAMES).to_owned(),
            false => format!("p{index}"),
        };
        Value::Object(
            names.map(|index| (named(index, self), self.schema(depth))).collect::<Map<_, _>>(),
        )
    }

    fn schema(&mut self, depth: usize) -> Value {
        if self.is_one_in(12) {
            return json!(self.is_one_in(2));
        }
        let mut map = Map::new();
        for _ in 0..=self.below(3) {
            self.rule(&mut map, depth);
        }
        Value::Object(map)
    }

    /// A value that often fits: made from the schema.
    fn fitting(&mut self, schema: &Value, depth: usize) -> Value {
        let Some(map) = schema.as_object().filter(|_| !self.is_one_in(8)) else {
            return self.value(depth.min(2));
        };
        if let Some(listed) = map.get("enum").and_then(Value::as_array) {
            return self.of(listed);
        }
        if let Some(constant) = map.get("const") {
            return constant.clone();
        }
        if let Some(Value::Array(branches)) = map.get("anyOf").or(map.get("oneOf")) {
            let branch = self.of(branches);
            return self.fitting(&branch, depth);
        }
        let names = match map.get("type") {
            Some(Value::Array(names)) => names.clone(),
            Some(name) => vec![name.clone()],
            None => vec![json!("object"), json!("array"), json!("string")],
        };
        match self.of(&names).as_str().unwrap_or_default() {
            "object" => self.fitting_object(map, depth),
            "array" => {
                let items = map.get("items").cloned().unwrap_or(json!(true));
                (0..self.below(3)).map(|_| self.fitting(&items, depth.saturating_sub(1))).collect()
            }
            "string" => json!(self.of(&TEXTS)),
            "integer" | "number" => json!(self.below(5)),
            "boolean" => json!(true),
            _ => json!(null),
        }
    }

    fn fitting_object(&mut self, map: &Map<String, Value>, depth: usize) -> Value {
        let mut object = Map::new();
        if let Some(Value::Object(properties)) = map.get("properties") {
            for (name, schema) in properties {
                if !self.is_one_in(3) {
                    object.insert(name.clone(), self.fitting(schema, depth.saturating_sub(1)));
                }
            }
        }
        for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default().to_owned();
            object.entry(name).or_insert_with(|| json!("a"));
        }
        Value::Object(object)
    }
}

fn chance() -> Chance {
    let entropy = world::seeded(7).entropy;
    Chance(Box::new(move || entropy.bits()))
}

/// Goal: what a structure accepts, the validator accepts; most of what is valid is accepted without the validator.
/// Method: random schemas with and without rules that a structure lacks, and values made from them.
#[test]
fn what_a_structure_accepts_is_valid() {
    let mut chance = chance();
    let (mut accepted, mut valid, mut invalid) = (0, 0, 0);
    for _ in 0..SCHEMAS {
        let mut schema = chance.schema(3);
        if let Some(map) = schema.as_object_mut() {
            map.insert("type".into(), json!("object"));
        }
        let Ok(prepared) = prepare(&schema) else { continue };
        for _ in 0..VALUES {
            let value = chance.fitting(&schema, 3);
            let is_valid = prepared.validator.is_valid(&value);
            let is_accepted = prepared.structure.accepts(&value);
            assert!(is_valid || !is_accepted, "{value} on {schema}");
            assert_eq!(prepared.is_valid(&value), is_valid);
            accepted += usize::from(is_accepted);
            valid += usize::from(is_valid);
            invalid += usize::from(!is_valid);
        }
    }
    assert!(accepted * 3 > valid && invalid > 5_000, "{accepted} of {valid}, {invalid} invalid");
}

/// The schemas of typed tools are decided by their structure alone.
#[test]
fn the_usual_schemas_need_no_validator() {
    let compiled = |schema: Value| -> CompiledSchema { prepare(&schema).unwrap() };
    let edit = compiled(json!({
        "properties": {
            "path": {"type": "string", "description": "a file", "minLength": 1},
            "line": {"type": ["integer", "null"], "format": "uint32", "minimum": 0, "maximum": u32::MAX},
            "mode": {"oneOf": [{"const": "fast", "description": "soon"}, {"enum": ["slow", "off"], "type": "string"}]},
            "range": {"anyOf": [{"type": "object", "properties": {"to": {"type": "number"}}, "required": ["to"]}, {"type": "null"}]},
            "all": {"type": "boolean", "default": false},
        },
        "required": ["path"],
        "additionalProperties": false,
    }));
    for value in [
        json!({"path": "a"}),
        json!({"all": true, "line": 7, "path": "é"}),
        json!({"path": "a", "line": null, "mode": "slow", "range": {"to": 2.5, "more": [1]}}),
        json!({"path": "a", "range": null}),
    ] {
        assert!(edit.structure.accepts(&value), "{value}");
    }
    for value in [
        json!({"path": ""}),
        json!({"path": "a", "line": -1}),
        json!({"path": "a", "mode": "Fast"}),
        json!({"path": "a", "range": {}}),
        json!({"path": "a", "other": 1}),
        json!({"line": 1}),
        json!(["path"]),
    ] {
        assert!(!edit.is_valid(&value), "{value}");
    }
}

/// Goal: a structure accepts nothing that recursive code may not receive.
#[test]
fn an_open_part_is_accepted_up_to_its_depth_only() {
    let open = prepare(&json!({"properties": {"any": {}}})).unwrap();
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(open.structure.accepts(&json!({"any": nested(20)})));
    assert!(!open.structure.accepts(&json!({"any": nested(30)})));
    assert!(open.fits(&json!({"any": nested(30)})));
    assert!(!open.fits(&json!({"any": nested(200)})));
}
