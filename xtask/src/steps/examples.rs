//! Examples: all are built, and those listed in `xtask/examples.toml` are run and held to their word.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use super::{Done, Run};
use crate::metadata::Metadata;
use crate::{process, repo};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default, rename = "example")]
    examples: Vec<Example>,
}

/// One run of one example.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    name: String,
    #[serde(default)]
    args: Vec<String>,
    /// The last line of its standard output that is not empty, exactly.
    last_line: Option<String>,
    /// Texts its standard output must hold.
    #[serde(default)]
    contains: Vec<String>,
    /// Longer is a failure.
    limit_s: u64,
}

pub(super) fn run(run: &Run) -> Result<Done> {
    let table: Table = repo::read_table(&run.root, "examples.toml")?;
    let metadata = Metadata::load(&run.root)?;
    let built: Vec<&str> =
        metadata.targets("example").map(|(_, target)| target.name.as_str()).collect();
    for example in &table.examples {
        ensure!(
            built.contains(&example.name.as_str()),
            "`xtask/examples.toml` names `{}`, which is no example of ours",
            example.name
        );
    }
    if built.is_empty() {
        return Ok(Done::Passed("there is none yet".to_owned()));
    }
    run.cargo(&["build", "--locked", "--workspace", "--examples"])?;
    let mut wrong = Vec::new();
    for example in &table.examples {
        let path = metadata.target_directory.join("debug/examples").join(&example.name);
        let mut command = process::command(&path.to_string_lossy(), &run.root);
        command.args(&example.args);
        println!("$ {}", process::shown(&command));
        let said = process::capture(&mut command, Duration::from_secs(example.limit_s));
        match said {
            Ok(said) if !said.status.success() => {
                println!("{}{}", said.stdout, said.stderr);
                wrong.push(format!("`{}` failed ({})", example.name, said.status));
            }
            Ok(said) => wrong.extend(judge(example, &said.stdout)),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    for name in &built {
        if !table.examples.iter().any(|example| example.name == *name) {
            println!("(built but not run, for want of a row in xtask/examples.toml: {name})");
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(Done::Passed(format!("{} built, {} run", built.len(), table.examples.len())))
}

fn judge(example: &Example, stdout: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let last = stdout.lines().map(str::trim_end).rfind(|line| !line.is_empty()).unwrap_or("");
    if let Some(expected) = example.last_line.as_ref().filter(|expected| *expected != last) {
        wrong.push(format!("`{}` ended in {last:?}, not in {expected:?}", example.name));
    }
    for text in example.contains.iter().filter(|text| !stdout.contains(*text)) {
        wrong.push(format!("`{}` did not say {text:?}", example.name));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_held_to_its_word() {
        let table: Table = toml::from_str(
            "[[example]]\nname = \"hello\"\nlast_line = \"bye\"\ncontains = [\"hi\", \"there\"]\nlimit_s = 5\n",
        )
        .unwrap();
        let example = &table.examples[0];
        assert_eq!(judge(example, "hi there\nbye\n\n"), Vec::<String>::new());
        assert_eq!(
            judge(example, "hi\n"),
            ["`hello` ended in \"hi\", not in \"bye\"", "`hello` did not say \"there\""]
        );
    }
}
