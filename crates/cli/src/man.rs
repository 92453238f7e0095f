//! `budao man`: manual pages, generated from the same texts as `--help`.

use std::{fs, io, path::PathBuf};

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};

use crate::{exit::Exit, terminal::Terminal, texts::localize};

/// Print the manual page of the program or of a command.
///
/// To read it, run `budao man | man -l -`. To write the pages of all commands, run `budao man --to DIR`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command, such as `run` or `journal check` [default: the program]
    command: Vec<String>,

    /// Write every page to this directory, which is created if needed
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    to: Option<PathBuf>,
}

/// Prints one page, or writes all pages with `--to`. An unknown command is a usage error.
pub(crate) fn run(
    args: &Args,
    mut program: clap::Command,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    // `build` gives subcommands their full names, such as `budao-journal-check`, in titles and usage lines.
    program.build();
    if let Some(directory) = &args.to {
        let written = fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(program, directory));
        return written.map(|()| Exit::Success).map_err(|error| {
            Fault::new(Kind::FilePermission, Operation::WriteFile)
                .with(Fact::Path, directory.display().to_string())
                .caused_by(&error)
        });
    }
    let Some(command) = find(&program, &args.command) else {
        let requested: String = args.command.join(" ").chars().take(80).collect();
        let (no, list) =
            (localize(lang, "man-unknown-command"), localize(lang, "man-see-budao-help"));
        terminal.say(&format!("{no} `{requested}`. {list}"));
        return Ok(Exit::Usage);
    };
    let page = page(command)
        .map_err(|error| Fault::new(Kind::Bug, Operation::RunCommand).caused_by(&error))?;
    terminal.data(&page);
    Ok(Exit::Success)
}

fn find<'a>(program: &'a clap::Command, path: &[String]) -> Option<&'a clap::Command> {
    path.iter().try_fold(program, |command, name| command.find_subcommand(name))
}

fn page(command: &clap::Command) -> io::Result<String> {
    let mut page = Vec::new();
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    clap_mangen::Man::new(command.clone()).title(name).source("budao").render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
