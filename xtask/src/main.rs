//! `cargo xtask`: the project's development commands. `test` runs every check, `bench` measures, `peers` fetches
//! third-party programs for tests, `codegen` generates the files of the fault catalog, `crash` kills processes, `chaos`
//! cuts connections, `cluster` kills servers, `sim` plays seeds, `instructions` counts, `fuzz` feeds parsers, `security` runs attacks, `probes` compares failures with
//! other frameworks, `tidy` checks the rules of style and counts code, `record` records the
//! demo, `dist` makes the packages.
//!
//! Neither building nor using the project needs this crate; a plain `cargo build` does not build it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to its terminal")]

mod api;
mod bench;
mod budgets;
mod catalog;
mod chaos;
mod cluster;
mod crash;
mod dist;
mod figures;
mod fuzz;
mod instructions;
mod metadata;
mod page;
mod passed_steps;
mod peers;
mod probes;
mod process;
mod record;
mod repo;
mod security;
mod sim;
mod sim_mutants;
mod step_runs;
mod steps;
mod table;
mod test;
mod test_programs;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run every check, in order
    Test(test::Args),
    /// Run the benchmarks and compare the numbers with their limits
    Bench(bench::Args),
    /// Generate the files that come from the fault catalog, the list of the public API and the table of budgets
    Codegen {
        /// Change nothing; fail if a generated file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Fetch the third-party programs that tests use
    Peers(peers::Args),
    /// Cut connections between clients and a real server at random, and check what the clients received
    Chaos {
        /// For how long
        #[arg(long, default_value_t = 5)]
        minutes: u32,
        /// Seed of an earlier run
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run several servers on one journal, kill, freeze and drain them, kill the database, and check the records
    Cluster {
        /// For how long, on each kind of journal
        #[arg(long, default_value_t = 3)]
        minutes: u64,
        /// Seed of an earlier run
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Kill our programs with SIGKILL, at random and at every named point, and check what is left
    Crash {
        /// How often
        #[arg(long, default_value_t = 300)]
        kills: u32,
        /// Kill a PostgreSQL server under its journal instead, and cause all its other failures
        #[arg(long)]
        postgres: bool,
    },
    /// Count the instructions and allocations of a turn, an event and an append, and compare them with the accepted figures
    Instructions(instructions::Args),
    /// Make every package with the program inside, offline, into `dist/`
    Dist(dist::Args),
    /// Cause the same three failures in other frameworks and in Budao, and report what happened
    Probes(probes::Args),
    /// Record the demo in a terminal as an animated picture
    Record(record::Args),
    /// Feed parsers and decoders hostile input
    Fuzz(fuzz::Args),
    /// Run the security suites, and report how many cases ran
    Security(security::Args),
    /// Check names, headers, texts and links, as the step `tidy` does
    Tidy {
        /// Print lines of code, lengths of functions and packages instead: of the work tree and of these commits
        #[arg(long, num_args = 0.., value_name = "COMMIT")]
        figures: Option<Vec<String>>,
    },
    /// Run seeds on the simulator: the real runtime on virtual time, with faults and kills
    Sim(sim::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Test(args) => test::main(&args),
        Chore::Bench(args) => bench::main(&args),
        Chore::Codegen { check } => catalog::generate(check)
            .and_then(|()| api::generate(&repo::root(), check))
            .and_then(|()| budgets::generate(&repo::root(), check))
            .map(|()| ExitCode::SUCCESS),
        Chore::Peers(args) => peers::main(&args),
        Chore::Chaos { minutes, seed } => chaos::run(minutes, seed).map(|()| ExitCode::SUCCESS),
        Chore::Cluster { minutes, seed } => cluster::run(minutes, seed).map(|()| ExitCode::SUCCESS),
        Chore::Crash { kills, postgres } => {
            let run = if postgres { crash::on_postgres } else { crash::everywhere };
            run(kills).map(|()| ExitCode::SUCCESS)
        }
        Chore::Instructions(args) => instructions::run(&args).map(|_| ExitCode::SUCCESS),
        Chore::Dist(args) => dist::main(&args),
        Chore::Probes(args) => probes::main(&args),
        Chore::Record(args) => record::run(&args).map(|()| ExitCode::SUCCESS),
        Chore::Fuzz(args) => fuzz::run(&args).map(|()| ExitCode::SUCCESS),
        Chore::Security(args) => security::run(&args).map(|_| ExitCode::SUCCESS),
        Chore::Tidy { figures: Some(commits) } => {
            figures::run(&commits).map(|()| ExitCode::SUCCESS)
        }
        Chore::Tidy { figures: None } => tidy::check(&repo::root()).map(|report| {
            println!("{report}");
            ExitCode::SUCCESS
        }),
        Chore::Sim(args) => sim::run(&args).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
