//! `cargo xtask record`: plays `budao demo` in a real terminal and saves its output with the original timing as an
//! animated picture, `docs/images/demo.svg`. No part of it is drawn by hand; run it again after a change of the demo.

mod picture;

use std::fs;
use std::io::Read as _;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::{metadata::Metadata, process, repo};

/// Width of the terminal in columns.
const COLUMNS: NonZeroU16 = NonZeroU16::new(100).expect("it is not zero");
/// Height of the terminal in rows: the whole demo fits, so that no row scrolls.
const ROWS: NonZeroU16 = NonZeroU16::new(400).expect("it is not zero");
/// Size limit: the picture is part of the README.
const BYTES_MAX: usize = 200_000;

/// What is played, and where it goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program; otherwise the release binary
    #[arg(long, value_name = "PROGRAM")]
    binary: Option<PathBuf>,
}

/// A row of the terminal and the time of its first output.
#[derive(Debug)]
struct Row {
    at: Duration,
    runs: Vec<picture::StyledRun>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = repo::root();
    let usual =
        || -> Result<PathBuf> { Ok(Metadata::load(&root)?.target_directory.join("release/budao")) };
    let binary = args.binary.clone().map_or_else(usual, Ok)?;
    let binary = fs::canonicalize(&binary)
        .with_context(|| format!("find {}; `cargo build --release` makes it", binary.display()))?;
    let (rows, length) = play(&binary)?;
    let svg = picture::moving(&rows, length, COLUMNS.get());
    ensure!(svg.len() <= BYTES_MAX, "the picture has {} bytes; {BYTES_MAX} may be", svg.len());
    let path = root.join("docs/images/demo.svg");
    fs::write(&path, &svg).with_context(|| format!("write {}", path.display()))?;
    println!("{} rows, {} s, {} bytes", rows.len(), length.as_secs(), svg.len());
    Ok(())
}

/// Plays the demo in a terminal (provided by `script` of util-linux) and notes when each row appeared.
fn play(binary: &Path) -> Result<(Vec<Row>, Duration)> {
    let home = std::env::temp_dir().join(format!("budao-record-{}", std::process::id()));
    fs::create_dir_all(&home).context("make a home folder for the demo")?;
    let line = format!(
        "stty rows {ROWS} cols {COLUMNS} && exec {} demo",
        shell_words::quote(&binary.to_string_lossy())
    );
    let mut command = process::command("script", &home);
    command.args(["-qfec", &line, "/dev/null"]);
    command.env("HOME", &home).env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    command.env_remove("NO_COLOR").stdout(Stdio::piped());
    let mut child = command.spawn().context("start `script` (of util-linux)")?;
    let mut pipe = child.stdout.take().context("its output is piped")?;
    let mut terminal = vt100::Parser::new(ROWS, COLUMNS, 0);
    let (began, mut came) = (Instant::now(), Vec::new());
    let mut bytes = [0; 4096];
    loop {
        let read = pipe.read(&mut bytes).context("read the terminal")?;
        if read == 0 {
            break;
        }
        terminal.process(&bytes[..read]);
        note(terminal.screen(), began.elapsed(), &mut came);
    }
    let status = child.wait().context("wait for the demo")?;
    let _ = fs::remove_dir_all(&home);
    ensure!(status.success(), "the demo ended with {status}");
    let screen = terminal.screen();
    let rows = came.iter().enumerate().map(|(row, at)| Row {
        at: *at,
        runs: picture::stretches(screen, u16::try_from(row).unwrap_or(u16::MAX), COLUMNS.get()),
    });
    Ok((rows.collect(), began.elapsed()))
}

/// Notes `at` as the time of every new row up to the cursor.
fn note(screen: &vt100::Screen, at: Duration, came: &mut Vec<Duration>) {
    let (row, column) = screen.cursor_position();
    let last = usize::from(row) + usize::from(column > 0);
    while came.len() < last {
        came.push(at);
    }
}
