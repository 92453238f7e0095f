//! The steps of `cargo xtask test`. To add a check, add a row to [`STEPS`].
//!
//! All cargo steps share the default target folder, the dev profile and `--locked`, and select the whole workspace, so
//! that a dependency is compiled once with one set of features. The release build compiles everything again: `--full`.

mod cargo;
mod clients;
mod dependencies;
mod deploy;
mod examples;
mod first_minute;
mod install;
mod postgres;
mod release;
mod repeated;
mod sdk;
mod smoke;
mod targets;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::{
    api, budgets, catalog, crash, instructions, peers, process, security, sim, sim_mutants, tidy,
};

/// One check of `cargo xtask test`.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Expected time on two cores from a cold start. Exceeding it is a warning, not a failure.
    pub(crate) budget: Duration,
    pub(crate) when: StepScope,
    pub(crate) needs: &'static [Need],
    /// Beginnings of the paths it depends on; none if it is cheap or depends on more than files. Outside CI a step whose
    /// files did not change since it passed is not repeated.
    pub(crate) inputs: &'static [&'static str],
    pub(crate) run: fn(&StepContext) -> Result<StepResult>,
}

/// The runs a step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepScope {
    Always,
    /// Only with `--full`, or when selected by name.
    Full,
}

/// A prerequisite of a step.
#[derive(Debug)]
pub(crate) enum Need {
    /// A program on the path.
    Tool(&'static str),
    /// A peer fetched by `cargo xtask peers`.
    Peer(&'static str),
}

/// The result of a step that did not fail.
#[derive(Debug)]
pub(crate) enum StepResult {
    /// With a summary of the checks, such as a count.
    Passed(String),
    /// There was nothing to check, or an optional tool is absent. Never counts as a failure.
    Skipped(String),
}

/// The parameters of a run, shared by all steps.
#[derive(Debug)]
pub(crate) struct StepContext {
    pub(crate) root: PathBuf,
    pub(crate) is_ci: bool,
    /// With `--full` the steps of every run use their full counts, too.
    pub(crate) is_full: bool,
}

/// Number of SIGKILLs in every run; `cargo xtask crash --kills N` does more.
const KILLS: u32 = 300;

/// Number of simulator seeds in every run, and with `--full`; `cargo xtask sim --seeds N` plays more.
const SEEDS: (u64, u64) = (5_000, 20_000);

/// Fetches the peers of the tests. Outside CI a peer that cannot be fetched is reported and skipped.
fn peers(run: &StepContext) -> Result<StepResult> {
    match peers::ensure_for_tests() {
        Ok(found) => Ok(StepResult::Passed(format!("{} here", found.len()))),
        Err(error) if run.is_ci => Err(error),
        Err(error) => Ok(StepResult::Skipped(format!("{error:#}"))),
    }
}

/// Every file: tests read documents, too.
const EVERYTHING: &[&str] = &[""];

/// The programs, the clients and the harnesses that run them.
const PROGRAMS: &[&str] = &["crates/", "catalog/", "Cargo.", ".cargo/", "clients/", "xtask/"];

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

pub(crate) static STEPS: &[Step] = &[
    Step {
        name: "format",
        about: "rustfmt has nothing to change",
        budget: Duration::from_secs(10),
        when: StepScope::Always,
        needs: &[],
        inputs: &[],
        run: cargo::format,
    },
    Step {
        name: "generated",
        about: "the files made from the fault catalog, the list of the public API and the table of budgets are up to date",
        budget: Duration::from_secs(10),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: |run| {
            catalog::generate(true)?;
            api::generate(&run.root, true)?;
            budgets::generate(&run.root, true)?;
            Ok(StepResult::Passed(String::new()))
        },
    },
    Step {
        name: "peers",
        about: "the programs of others that tests talk to are here",
        budget: minutes(1),
        when: StepScope::Always,
        needs: &[],
        inputs: &[],
        run: peers,
    },
    Step {
        name: "postgres",
        about: "the PostgreSQL that tests start is here",
        budget: Duration::from_secs(5),
        when: StepScope::Always,
        needs: &[],
        inputs: &[],
        run: postgres::run,
    },
    Step {
        name: "clippy",
        about: "no warning in any target",
        budget: minutes(4),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: cargo::clippy,
    },
    Step {
        name: "features",
        about: "the program builds with the server alone; with --full without any part, and with each one alone",
        budget: Duration::from_secs(60),
        when: StepScope::Always,
        needs: &[],
        inputs: PROGRAMS,
        run: cargo::features,
    },
    Step {
        name: "tests",
        about: "unit and integration tests",
        budget: minutes(14),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: cargo::tests,
    },
    Step {
        name: "crash",
        about: "a process that writes a journal, killed 300 times",
        budget: Duration::from_secs(45),
        when: StepScope::Always,
        needs: &[],
        inputs: PROGRAMS,
        run: |_| crash::run(KILLS).map(|()| StepResult::Passed(format!("{KILLS} kills"))),
    },
    Step {
        // In CI `tests` runs them with the same peers, and none may be skipped there.
        name: "editors",
        about: "both Claude CLIs and an editor of others, with the bridge between them; in CI part of `tests`",
        budget: Duration::from_secs(90),
        when: StepScope::Full,
        needs: &[
            Need::Tool("node"),
            Need::Peer("acp-sdk"),
            Need::Peer("claude-cli"),
            Need::Peer("claude-cli-old"),
        ],
        inputs: PROGRAMS,
        run: cargo::editors,
    },
    Step {
        name: "sdk",
        about: "the hub passes the tests that the Python SDK has for its own",
        budget: Duration::from_secs(30),
        when: StepScope::Always,
        needs: &[Need::Peer("a2c-smcp-tests")],
        inputs: PROGRAMS,
        run: sdk::run,
    },
    Step {
        name: "sim",
        about: "the runtime on virtual time, 5 000 seeds of faults and kills (20 000 with --full)",
        budget: Duration::from_secs(30),
        when: StepScope::Always,
        needs: &[],
        inputs: PROGRAMS,
        run: |run| {
            let planted = sim_mutants::check(&run.root)?;
            let seeds = run.count(SEEDS);
            sim::run(&sim::Args::first(seeds))?;
            Ok(StepResult::Passed(format!("{seeds} seeds; {planted} bugs to plant fit the code")))
        },
    },
    Step {
        name: "node",
        about: "the TypeScript client compiles and keeps its promises in Node",
        budget: Duration::from_secs(30),
        when: StepScope::Always,
        needs: &[Need::Tool("node"), Need::Peer("web"), Need::Peer("zod")],
        inputs: PROGRAMS,
        run: clients::node,
    },
    Step {
        name: "front-ends",
        about: "the released clients of AG-UI, CopilotKit and the AI SDK hold conversations with the real server",
        budget: Duration::from_secs(25),
        when: StepScope::Always,
        needs: &[
            Need::Tool("node"),
            Need::Peer("web"),
            Need::Peer("front-ends"),
            Need::Peer("copilotkit"),
        ],
        inputs: PROGRAMS,
        run: clients::front_ends,
    },
    Step {
        name: "python",
        about: "the Python package is typed and keeps its promises, against the real server",
        budget: Duration::from_secs(40),
        when: StepScope::Always,
        needs: &[Need::Peer("python-package")],
        inputs: PROGRAMS,
        run: clients::python,
    },
    Step {
        name: "kills",
        about: "Python and Node workers, the server and clients, killed 200 times in calls (1 000 with --full)",
        budget: minutes(1),
        when: StepScope::Always,
        needs: &[Need::Tool("node"), Need::Peer("web"), Need::Peer("python-package")],
        inputs: PROGRAMS,
        run: clients::kills,
    },
    Step {
        name: "browser",
        about: "the TypeScript client, the web page and the example chat keep their promises in Chromium",
        budget: Duration::from_secs(320),
        when: StepScope::Always,
        needs: &[
            Need::Tool("node"),
            Need::Peer("web"),
            Need::Peer("axe"),
            Need::Peer("front-ends"),
        ],
        inputs: PROGRAMS,
        run: clients::browser,
    },
    Step {
        name: "first-minute",
        about: "the packages install offline into clean roots, and the readme's first minute runs there",
        budget: Duration::from_secs(90),
        when: StepScope::Always,
        needs: &[
            Need::Tool("node"),
            Need::Tool("npm"),
            Need::Tool("python3"),
            Need::Peer("web"),
            Need::Peer("python-package"),
        ],
        inputs: EVERYTHING,
        run: first_minute::run,
    },
    Step {
        name: "doctests",
        about: "the examples in the documentation work",
        budget: Duration::from_secs(20),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: cargo::doctests,
    },
    Step {
        name: "docs",
        about: "rustdoc has no warning",
        budget: Duration::from_secs(40),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: cargo::docs,
    },
    Step {
        name: "examples",
        about: "every example builds; those in xtask/examples.toml do what they say",
        budget: Duration::from_secs(30),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: examples::run,
    },
    Step {
        name: "dependencies",
        about: "lock file, banned crates, the purity of core, fences",
        budget: Duration::from_secs(10),
        when: StepScope::Always,
        needs: &[],
        inputs: &[],
        run: dependencies::run,
    },
    Step {
        name: "tidy",
        about: "paths, module headers, unfinished work, links",
        budget: Duration::from_secs(10),
        when: StepScope::Always,
        needs: &[Need::Tool("git")],
        inputs: EVERYTHING,
        run: |run| Ok(StepResult::Passed(tidy::check(&run.root)?)),
    },
    Step {
        name: "deploy",
        about: "alert rules, dashboard, Dockerfile and systemd unit, read by the programs they are for",
        budget: Duration::from_secs(20),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: deploy::run,
    },
    Step {
        name: "release",
        about: "the release binary builds",
        budget: minutes(9),
        when: StepScope::Full,
        needs: &[],
        inputs: PROGRAMS,
        run: release::build,
    },
    Step {
        name: "install",
        about: "`cargo install budao-cli` from the packed crates, without a network, in less than five minutes",
        budget: minutes(6),
        when: StepScope::Full,
        needs: &[],
        inputs: PROGRAMS,
        run: install::run,
    },
    Step {
        name: "targets",
        about: "the program compiles for Linux arm64, musl and macOS, as far as their standard libraries are installed",
        budget: minutes(12),
        when: StepScope::Full,
        needs: &[],
        inputs: PROGRAMS,
        run: targets::run,
    },
    Step {
        name: "instructions",
        about: "a turn, an event and an append take no more instructions and allocations than was accepted",
        budget: Duration::from_secs(50),
        when: StepScope::Always,
        needs: &[Need::Tool("valgrind")],
        inputs: PROGRAMS,
        run: |run| {
            instructions::run(&instructions::Args::of_check(run.is_full)).map(StepResult::Passed)
        },
    },
    Step {
        name: "smoke",
        about: "every command README and the guides show (xtask/smoke.toml); with --full on the release binary",
        budget: Duration::from_secs(45),
        when: StepScope::Always,
        needs: &[],
        inputs: EVERYTHING,
        run: smoke::run,
    },
    Step {
        name: "acks",
        about: "a million answers per Socket.IO server, a hundred thousand calls through the hub",
        budget: minutes(30),
        when: StepScope::Full,
        needs: &[Need::Peer("socketio-js"), Need::Peer("a2c-smcp")],
        inputs: PROGRAMS,
        run: cargo::acks,
    },
    Step {
        name: "interleavings",
        about: "a hundred thousand random lives of the Claude CLI, conversations with an editor",
        budget: minutes(30),
        when: StepScope::Full,
        needs: &[],
        inputs: PROGRAMS,
        run: cargo::interleavings,
    },
    Step {
        name: "security",
        about: "every case of the security suites; a share of them is in `tests`",
        budget: minutes(60),
        when: StepScope::Full,
        needs: &[],
        inputs: PROGRAMS,
        run: |_| security::run(&security::Args::full()).map(StepResult::Passed),
    },
    Step {
        name: "pairs",
        about: "agents and computers of three makers, each with each, through the hub",
        budget: minutes(10),
        when: StepScope::Full,
        needs: &[Need::Peer("a2c-smcp")],
        inputs: PROGRAMS,
        run: cargo::pairs,
    },
    Step {
        name: "llama",
        about: "a real llama.cpp with a model file made on the spot",
        budget: minutes(20),
        when: StepScope::Full,
        needs: &[Need::Tool("python3"), Need::Tool("g++")],
        inputs: PROGRAMS,
        run: cargo::llama,
    },
    Step {
        name: "phoenix",
        about: "traces in a real viewer, asked by its API",
        budget: minutes(20),
        when: StepScope::Full,
        needs: &[Need::Tool("python3")],
        inputs: PROGRAMS,
        run: cargo::phoenix,
    },
    Step {
        name: "deny",
        about: "licences, advisories, bans and sources (deny.toml)",
        budget: minutes(2),
        when: StepScope::Full,
        needs: &[],
        inputs: &[],
        run: cargo::deny,
    },
];

impl StepContext {
    /// The first count in every run, the second with `--full`.
    fn count<T>(&self, (every_run, full): (T, T)) -> T {
        if self.is_full { full } else { every_run }
    }

    /// Runs a cargo command with its output on our terminal.
    fn cargo(&self, args: &[&str]) -> Result<()> {
        process::run(process::cargo(&self.root).args(args), None)
    }
}

impl Need {
    /// The missing tool or peer, and the command that installs it.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::Tool(name) => format!("the program `{name}` is not on the path"),
            Self::Peer(name) => format!("peer `{name}`: run `cargo xtask peers {name}`"),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(name) => write!(f, "{name}"),
            Self::Peer(name) => write!(f, "peer {name}"),
        }
    }
}
