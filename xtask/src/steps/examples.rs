//! Builds all examples, runs those listed in `xtask/examples.toml`, and checks their output.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::{StepContext, StepResult};
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
    /// The exact last non-empty line of its standard output.
    last_line: Option<String>,
    /// Texts that its standard output must contain.
    #[serde(default)]
    contains: Vec<String>,
    /// Arguments of a `budao serve` that is started for the example. `{server}` in the example's arguments becomes its
    /// address.
    serve: Option<Vec<String>>,
    /// Time limit in seconds.
    limit_s: u64,
}

/// A server for an example. Dropping it kills the process.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(program: &Path, args: &[String]) -> Result<Self> {
        let home = std::env::temp_dir().join(format!("budao-example-{}", std::process::id()));
        std::fs::create_dir_all(&home).context("make a home folder for the server")?;
        let mut command = process::command(&program.to_string_lossy(), &home);
        command.args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--journal", "journal.db"]);
        command.args(args).stdout(Stdio::piped());
        println!("$ {}", process::shown(&command));
        let mut child = command.spawn().context("start a server for the example")?;
        let mut line = String::new();
        let out = child.stdout.take().context("the server's output is piped")?;
        BufReader::new(out).read_line(&mut line).context("hear where the server listens")?;
        let url = line.trim().replacen("http://", "ws://", 1) + "ws";
        Ok(Self { child, url })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
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
        return Ok(StepResult::Passed("there is none yet".to_owned()));
    }
    run.cargo(&["build", "--locked", "--workspace", "--examples", "--bins"])?;
    let built_in = metadata.target_directory.join("debug");
    let mut wrong = Vec::new();
    for example in &table.examples {
        let path = built_in.join("examples").join(&example.name);
        let mut command = process::command(&path.to_string_lossy(), &run.root);
        let start = |args: &Vec<String>| Server::start(&built_in.join("budao"), args);
        let server = example.serve.as_ref().map(start).transpose()?;
        let url = server.as_ref().map_or("", |server| &server.url);
        command.args(example.args.iter().map(|arg| arg.replace("{server}", url)));
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
    Ok(StepResult::Passed(format!("{} built, {} run", built.len(), table.examples.len())))
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
