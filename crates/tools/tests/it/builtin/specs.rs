//! What the model is told about the tools.

use budao_core::tool::Effect;
use serde_json::{Value, json};

use crate::builtin::support::Fixture;

#[test]
fn the_model_reads_these_specs() {
    let specs: Vec<Value> = Fixture::new()
        .toolbox
        .specs()
        .iter()
        .map(|spec| {
            json!({ "name": spec.name, "description": spec.description, "schema": *spec.schema })
        })
        .collect();
    insta::assert_json_snapshot!(specs);
}

#[test]
fn only_what_can_do_no_harm_is_repaired_or_repeated() {
    let specs = Fixture::new().toolbox.specs();
    let table: Vec<_> =
        specs.iter().map(|spec| (&*spec.name, spec.effect, spec.idempotent, spec.repair)).collect();
    assert_eq!(
        table,
        [
            ("fs_read", Effect::Reads, true, true),
            ("fs_write", Effect::Writes, false, false),
            ("fs_edit", Effect::Writes, false, false),
            ("fs_multi_edit", Effect::Writes, false, false),
            ("fs_glob", Effect::Reads, true, true),
            ("fs_grep", Effect::Reads, true, true),
            ("bash_run", Effect::Executes, false, false),
            ("bash_logs", Effect::Reads, true, true),
            ("bash_kill", Effect::Executes, false, false),
            ("todo_read", Effect::Reads, true, true),
            ("todo_write", Effect::Writes, true, true),
        ]
    );
}
