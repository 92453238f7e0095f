//! Rules about names and comments: types and fields are nouns a stranger knows, and a doc comment says more than the
//! name.
//!
//! The check reads definitions at the left margin of files under `src` only; associated types belong to their trait.

use std::collections::{BTreeMap, BTreeSet};

/// Question words and prepositions that are no type names by themselves.
const BANNED: &[&str] = &[
    "What",
    "Why",
    "Who",
    "Whose",
    "When",
    "Where",
    "Which",
    "How",
    "Around",
    "Aside",
    "Beside",
    "Until",
    "About",
    "Above",
    "After",
    "Before",
    "Behind",
    "Between",
    "Beyond",
    "Elsewhere",
    "Inside",
    "Outside",
    "Over",
    "Under",
    "Within",
    "Without",
    "Near",
    "Since",
    "Instead",
];

/// Question words that are no field names.
const QUESTIONS: &[&str] = &["what", "why", "who", "whom", "whose", "which"];

/// Past participles without the ending `ed`.
const PARTICIPLES: &[&str] = &[
    "Told", "Said", "Kept", "Heard", "Known", "Taken", "Given", "Made", "Met", "Seen", "Sent",
    "Held", "Left", "Gone", "Begun", "Done", "Lost", "Found", "Meant", "Shown", "Written",
    "Chosen", "Broken", "Hidden", "Bound", "Built", "Cut",
];

/// Nouns that end like a participle.
const NOUNS: &[&str] = &["Seed", "Speed", "Feed", "Need", "Bed"];

/// Words of the former dialect that are in no test's name.
const TEST_WORDS: &[&str] =
    &["told", "whoever", "nobody", "somebody", "anybody", "everybody", "hears", "heard"];

/// Lines of a header, code examples left out.
const HEADER_LINES_MAX: usize = 12;

/// Words that a doc comment needs at least.
const DOC_WORDS_MIN: usize = 3;

/// Crates that may define the same type name before the glossary must have it.
const CRATES_MAX: usize = 2;

/// Is the name one participle, question word or preposition?
fn is_banned(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| !c.is_ascii_uppercase());
    let is_participle =
        (name.ends_with("ed") && !NOUNS.contains(&name)) || PARTICIPLES.contains(&name);
    is_one_word && (is_participle || BANNED.contains(&name))
}

/// The type that a line defines, if it stands at the left margin.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let rest = rest
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
            .map_or(rest, |(_, rest)| rest);
        rest.trim_start()
    });
    let (keyword, rest) = line.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    (is_type && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}

/// Every type of a file with its line; the unit tests at its end are left out.
fn types(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| *line != "mod tests {");
    lines.filter_map(|(index, line)| defined_type(line).map(|name| (index + 1, name)))
}

/// Types whose name is no noun.
pub(super) fn banned_names(text: &str) -> Vec<(usize, String)> {
    let banned = types(text).filter(|(_, name)| is_banned(name));
    banned.map(|(line, name)| (line, format!("names a type `{name}`, which is no noun"))).collect()
}

/// Fields, and parameters on a line of their own, whose name is a question word.
pub(super) fn question_fields(text: &str) -> Vec<(usize, String)> {
    let named = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let (visibility, rest) = line.split_once("pub").unwrap_or((line, line));
        let rest = if visibility.is_empty() {
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, it)| it)
        } else {
            line
        };
        let (name, kind) = rest.trim_start().split_once(": ")?;
        let is_field = kind.ends_with(',') && QUESTIONS.contains(&name);
        is_field.then(|| format!("names a field `{name}`, which is no noun"))
    };
    let lines = text.lines().enumerate().take_while(|(_, line)| *line != "mod tests {");
    lines.filter_map(|(index, line)| Some((index + 1, named(line)?))).collect()
}

/// Tests whose name is no plain statement.
pub(super) fn test_names(text: &str) -> Vec<(usize, String)> {
    let mut is_test = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        let declared = line.trim_start_matches("async ").strip_prefix("fn ");
        let Some((name, _)) = declared.and_then(|rest| rest.split_once('(')) else { continue };
        let is_banned = name.split('_').any(|word| TEST_WORDS.contains(&word));
        if std::mem::take(&mut is_test) && is_banned {
            found.push((index + 1, format!("names a test `{name}`, which is no plain statement")));
        }
    }
    found
}

/// Doc comments of one line and one or two words.
pub(super) fn short_docs(text: &str) -> Vec<(usize, String)> {
    let is_doc = |line: &str| line.trim_start().starts_with("///");
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(doc) = line.trim_start().strip_prefix("/// ") else { continue };
        let is_alone = !lines.get(index.wrapping_sub(1)).is_some_and(|line| is_doc(line))
            && !lines.get(index + 1).is_some_and(|line| is_doc(line));
        if is_alone && doc.split_whitespace().count() < DOC_WORDS_MIN {
            found.push((index + 1, format!("has the doc comment `{doc}`, which says too little")));
        }
    }
    found
}

/// The length of a header that is too long.
pub(super) fn long_header(text: &str) -> Option<usize> {
    let header = text.lines().skip_while(|line| !line.starts_with("//!"));
    let mut is_code = false;
    let prose = header.take_while(|line| line.starts_with("//!")).filter(|line| {
        let is_fence = line.trim_start_matches("//!").trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code
    });
    Some(prose.count()).filter(|lines| *lines > HEADER_LINES_MAX)
}

/// Which crates define which type names.
#[derive(Debug, Default)]
pub(super) struct TypeNames<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> TypeNames<'a> {
    /// Adds the types of a file.
    pub(super) fn add(&mut self, file: &'a str, text: &'a str) {
        let mut folders = file.split('/');
        let owner = match folders.next() {
            Some("crates") => folders.next().unwrap_or_default(),
            Some(folder) => folder,
            None => return,
        };
        for (_, name) in types(text) {
            self.0.entry(name).or_default().insert(owner);
        }
    }

    /// Names that three or more crates define, if neither the glossary nor a row of exceptions has them.
    pub(super) fn unexplained(&self, glossary: &str, allowed: &[&str]) -> Vec<String> {
        let words: BTreeSet<String> = glossary
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split('|').next())
            .flat_map(|cell| cell.split([',', '`', ' ']).map(str::to_lowercase).collect::<Vec<_>>())
            .collect();
        let is_known = |name: &str| words.contains(&name.to_lowercase()) || allowed.contains(&name);
        let shared =
            self.0.iter().filter(|(name, crates)| crates.len() > CRATES_MAX && !is_known(name));
        let describe = |(name, crates): (&&str, &BTreeSet<&str>)| {
            let crates: Vec<&str> = crates.iter().copied().collect();
            format!(
                "the type name `{name}` is defined in {}: qualify it, or explain it",
                crates.join(", ")
            )
        };
        shared.map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_named_by_a_noun() {
        let text = "pub struct Asked;\npub(crate) enum What {}\nstruct AskedQuestion;\ntrait Seed {}\n    type Told = u8;\n\
                    type Around<'a> = &'a str;\nmod tests {\nstruct Kept;\n";
        let lines: Vec<usize> = banned_names(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 6]);
    }

    #[test]
    fn a_field_is_named_by_a_noun() {
        let text = "    pub what: String,\n    pub(super) why: EndReason,\n    who: Member,\n    public: bool,\n\
                    let what: u8 = 1;\n    whatever: u8,\n    // why: it is so,\nmod tests {\n    what: u8,\n";
        let lines: Vec<usize> = question_fields(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }

    #[test]
    fn a_test_is_named_by_a_plain_statement() {
        let text = "#[test]\nfn a_is_told() {}\n#[tokio::test(x)]\nasync fn nobody_b() {}\n\
                    fn told() {}\n#[test]\nfn a_is_untold() {}\n";
        let lines: Vec<_> = test_names(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 4]);
    }

    #[test]
    fn a_doc_comment_has_at_least_three_words() {
        let text = "/// Which.\nx\n/// The session\n/// it belongs to.\ny\n    /// In bytes.\n    z\n/// One more word.\n";
        let lines: Vec<usize> = short_docs(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 6]);
    }

    #[test]
    fn a_header_has_at_most_twelve_lines_of_prose() {
        let header = |lines: usize| {
            "//! word\n".repeat(lines) + "//! ```\n//! code\n//! ```\nuse x;\n//! no header\n"
        };
        assert_eq!(long_header(&header(12)), None);
        assert_eq!(long_header(&header(13)), Some(13));
    }

    #[test]
    fn a_name_in_three_crates_is_in_the_glossary_or_excused() {
        let mut names = TypeNames::default();
        for file in ["crates/a/src/x.rs", "crates/b/src/x.rs", "xtask/src/x.rs"] {
            names.add(file, "struct Lease;\nstruct Thing;\nstruct Args;\n");
        }
        names.add("crates/a/src/y.rs", "struct Twice;\n");
        let found = names.unexplained("| lease | the right to write | lock |", &["Args"]);
        assert_eq!(
            found,
            ["the type name `Thing` is defined in a, b, xtask: qualify it, or explain it"]
        );
    }
}
