//! What a fault costs: made where something fails, and rendered for the model.
//!
//! Making one allocates its box and the vectors it fills, and nothing else: kind, operation, code and all
//! other columns are the catalog's constants, and facts with fixed words are borrowed. No text is made
//! before somebody reads it.

use budao_core::{
    Fault, Kind, Lang,
    fault::{Fact, Operation, render},
    tool::Failure,
};
use budao_testkit::{
    bench::{Suite, Unit},
    faults,
};

fn make() -> Fault {
    Fault::new(Kind::DeadlinePassed, Operation::ToolCall)
        .with(Fact::ToolName, "bash_run")
        .with(Fact::TimeoutMs, 120_000)
}

fn render(fault: Fault, lang: Lang) -> String {
    render::render_for_model(&Failure { fault, data: None, note: None }, lang).to_json()
}

fn main() {
    let invalid = faults::sample(Kind::InvalidArguments);
    let mut suite = Suite::from_args(25);
    suite.case("fault/make_and_render_model", Unit::MicrosCpu, Some(2.0), || {
        render(make(), Lang::En)
    });
    suite.note("fault/make_and_render_model", "two facts; sentence, three recommendations, JSON");
    suite.case("fault/make_and_render_model_zh", Unit::MicrosCpu, Some(2.0), || {
        render(make(), Lang::Zh)
    });
    suite.note("fault/make_and_render_model_zh", "the same in Chinese");
    suite.case("fault/make", Unit::MicrosCpu, None, make);
    suite.note("fault/make", "never rendered; allocates only its own fields");
    suite.case("fault/render_mismatches", Unit::MicrosCpu, None, || {
        render(invalid.clone(), Lang::En)
    });
    suite.note("fault/render_mismatches", "a copy of one with two mismatches, rendered");
    suite.run();
}
