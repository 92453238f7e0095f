//! Renders every kind from every place that raises it, with exactly the facts that the place gives.
//!
//! A place is a `Fault::new(…)` outside of tests, in any crate; its facts are those that its function names. A fact that
//! a text uses and the place does not give fails the test, and so does a text that promises what the kind does not do.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use budao_core::{
    Fault, Kind, Lang,
    fault::{Fact, Mismatch, Operation, text},
};
use strum::VariantArray as _;

/// Functions whose caller or callee adds the facts: the file, and how the fault begins.
const COMPLETED_ELSEWHERE: [(&str, &str); 3] = [
    ("smcp/src/server/budget.rs", "Kind::LimitReached"),
    ("smcp/src/answer_reader.rs", "kind"),
    ("tools/src/error.rs", "kind"),
];

/// A place that raises faults.
struct Place {
    name: String,
    kinds: BTreeSet<Kind>,
    facts: BTreeSet<Fact>,
    has_mismatches: bool,
}

/// The variants of an enum that a text names as `Prefix::Variant`.
fn named<T: Copy + std::fmt::Debug + Ord + 'static>(
    text: &str,
    prefix: &str,
    all: &[T],
) -> BTreeSet<T> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(prefix) {
        let rest = &text[at + prefix.len()..];
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
        found.extend(all.iter().filter(|variant| format!("{variant:?}") == rest[..end]));
    }
    found
}

fn is_function(line: &str) -> bool {
    let words = line.trim_start().split([' ', '(']).take(4);
    words.take_while(|word| !word.starts_with('{')).any(|word| word == "fn")
}

/// The functions of a file before its tests, as text.
fn functions(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut functions = vec![String::new()];
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        if is_function(line) {
            functions.push(String::new());
        }
        let last = functions.last_mut().unwrap();
        last.push_str(line);
        last.push('\n');
    }
    functions
}

fn places_in(name: &str, function: &str) -> Vec<Place> {
    let starts = function.match_indices("Fault::new(").map(|(at, found)| at + found.len());
    let place = |at: usize| {
        let first = function[at..].split(',').next().unwrap_or_default().trim();
        let kinds = match first.starts_with("Kind::") {
            true => named(first, "Kind::", Kind::VARIANTS),
            false => named(function, "Kind::", Kind::VARIANTS),
        };
        let is_known = |(file, start): &(&str, &str)| name == *file && first == *start;
        (!COMPLETED_ELSEWHERE.iter().any(is_known)).then(|| Place {
            name: format!("{name}: Fault::new({first}, …)"),
            kinds,
            facts: named(function, "Fact::", Fact::VARIANTS),
            has_mismatches: [".mismatch(", "Fault::mismatch"]
                .iter()
                .any(|it| function.contains(it)),
        })
    };
    starts.filter_map(place).collect()
}

/// The source files of a folder, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_test = ["tests", "conformance"].contains(&stem);
        match path.is_dir() {
            _ if is_test => {}
            true => sources(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                found.push(path);
            }
            false => {}
        }
    }
}

fn places() -> Vec<Place> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut places = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let is_of_tests = ["sim", "testkit", "hostile"].iter().any(|name| folder.ends_with(name));
        let mut files = Vec::new();
        if !is_of_tests && folder.join("src").is_dir() {
            sources(&folder.join("src"), &mut files);
        }
        for file in files {
            let name = file.strip_prefix(crates).unwrap().to_str().unwrap().replace('\\', "/");
            let source = fs::read_to_string(&file).unwrap();
            places.extend(functions(&source).iter().flat_map(|text| places_in(&name, text)));
        }
    }
    places
}

fn texts(fault: &Fault, lang: Lang) -> String {
    let mut texts = vec![text::model_text(fault, lang), text::user_text(fault, lang)];
    for list in [text::recommendations(fault, lang), text::model_advice(fault, lang)] {
        texts.extend(list.into_iter().map(std::borrow::Cow::into_owned));
    }
    texts.join("\n")
}

fn fault(kind: Kind, facts: &BTreeSet<Fact>, has_mismatches: bool) -> Fault {
    let known = kind.row().facts.iter().filter(|fact| facts.contains(fact));
    let fault = Fault::new(kind, Operation::RunTurn);
    let fault = known.fold(fault, |fault, fact| fault.with(*fact, format!("‹{fact}›")));
    match has_mismatches {
        true => fault.mismatch(Mismatch::default()),
        false => fault,
    }
}

/// The facts that the texts of a kind use and always expect.
fn expected_facts(kind: Kind) -> Vec<Fact> {
    let all = kind.row().facts.iter().copied().collect();
    let whole = [Lang::En, Lang::Zh].map(|lang| texts(&fault(kind, &all, false), lang)).concat();
    let always = kind.row().always.iter().copied();
    always.filter(|fact| whole.contains(&format!("‹{fact}›"))).collect()
}

#[test]
fn every_place_gives_the_facts_that_the_texts_of_its_faults_use() {
    let places = places();
    assert!(places.len() > 300, "{} places were found", places.len());
    let mut incomplete = Vec::new();
    for place in &places {
        for kind in &place.kinds {
            let has_mismatches = |fact: &Fact| *fact == Fact::Mismatches && place.has_mismatches;
            let lacks = |fact: &Fact| !place.facts.contains(fact) && !has_mismatches(fact);
            let lacking: Vec<_> = expected_facts(*kind).into_iter().filter(lacks).collect();
            if !lacking.is_empty() {
                incomplete.push(format!("{}: {kind:?} lacks {lacking:?}", place.name));
            }
        }
    }
    assert!(incomplete.is_empty(), "{}", incomplete.join("\n"));
}

#[test]
fn no_text_of_any_place_has_a_gap() {
    for place in places() {
        for kind in &place.kinds {
            let raised = fault(*kind, &place.facts, place.has_mismatches);
            for lang in [Lang::En, Lang::Zh] {
                let text = texts(&raised, lang);
                for gap in ["(unknown)", "（未知）", "⟨", "{$"] {
                    assert!(!text.contains(gap), "{}: {kind:?}: {text}", place.name);
                }
            }
        }
    }
}

#[test]
fn a_fault_without_facts_renders_complete_sentences() {
    let bare = Fault::new(Kind::ModelOverloaded, Operation::ModelRequest);
    assert_eq!(text::model_text(&bare, Lang::En), "The service is overloaded at the moment.");
    for kind in Kind::VARIANTS {
        for lang in [Lang::En, Lang::Zh] {
            let text = texts(&Fault::new(*kind, Operation::RunTurn), lang);
            assert!(!text.contains('⟨') && !text.contains("nknown)"), "{kind:?}: {text}");
        }
    }
}

#[test]
fn the_page_of_a_fault_agrees_with_the_catalog_about_retries() {
    for kind in Kind::VARIANTS {
        let page =
            ["about", "check", "user", "model"].map(|part| text::of_kind(*kind, part, Lang::En));
        let page = page.join(" ");
        match kind.row().auto_retry {
            true => assert!(!page.contains("not repeated"), "{kind:?}: {page}"),
            false => assert!(!page.contains("runtime tries again"), "{kind:?}: {page}"),
        }
    }
    assert_eq!(
        text::line("word-remedy-runtime", &budao_core::fault::Detail::new(), Lang::En),
        "the runtime"
    );
}

#[test]
fn no_wait_is_rendered_as_zero_seconds() {
    for kind in Kind::VARIANTS {
        let now = Fault::new(*kind, Operation::ModelRequest)
            .with(Fact::Service, "s")
            .with(Fact::WaitMs, std::time::Duration::ZERO);
        for lang in [Lang::En, Lang::Zh] {
            let text = text::user_text(&now, lang);
            let is_zero = text.contains(" 0 second") || text.contains(" 0 秒");
            assert!(!is_zero || *kind == Kind::RetryAfterTooLong, "{kind:?}: {text}");
        }
    }
}
