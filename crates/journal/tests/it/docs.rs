//! The page on events names every event there is.

/// `CallStarted` as it is written in a record.
fn written(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[test]
fn every_event_is_on_its_page() {
    let source = include_str!("../../../core/src/event.rs");
    let page = include_str!("../../../../docs/events.md");
    let events = source.split("pub enum Event {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let variants: Vec<&str> = events
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.split([' ', '(', ',']).next().unwrap())
        .collect();
    assert!(variants.len() > 30, "{variants:?}");
    for variant in variants {
        let name = written(variant);
        assert!(page.contains(&format!("`{name}`")), "`{name}` is missing in docs/events.md");
    }
}
