//! `cargo xtask security`: runs the security suites and reports the number of cases each has tried. `docs/security.md`
//! describes the suites, and what is defended and what is not.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{
    process,
    test_programs::{self, TestProgram},
};

/// The prefix of a suite's output line; the suite's number follows.
const MARK: &str = "security T";

/// A suite: its number, and the location of its tests.
struct Suite {
    number: u32,
    program: TestProgram,
    filter: &'static str,
}

const fn suite(
    number: u32,
    package: &'static str,
    test: Option<&'static str>,
    filter: &'static str,
) -> Suite {
    Suite { number, program: (package, test), filter }
}

const IT: Option<&str> = Some("it");
const PROOF: Option<&str> = Some("proof");

static SUITES: &[Suite] = &[
    suite(1, "budao-tools", IT, "no_spelling_of_a_path_leads_out"),
    suite(2, "budao-tools", IT, "no_swap_of_a_component_leads_out"),
    suite(3, "budao-claude", None, "no_setting_becomes_a_flag"),
    suite(4, "budao-tools", IT, "only_a_shell_acts_on_what_looks_like_a_command"),
    suite(5, "budao-hostile", IT, "no_text_makes_the_program_connect"),
    suite(6, "budao-scrub", Some("scrub"), "no_secret_"),
    suite(6, "budao-scrub", Some("scrub"), "touches_fewer_than_one_made_line"),
    suite(6, "budao-scrub", Some("scrub"), "a_cut_at_every_character_changes_nothing"),
    suite(7, "budao-serve", IT, "bad_handshakes_are_refused_before_the_upgrade"),
    suite(8, "budao-serve", IT, "no_event_and_no_address_reaches_a_session"),
    suite(8, "budao-smcp", IT, "nobody_outside_a_room_is_heard_in_it"),
    suite(9, "budao-journal", IT, "harmless"),
    suite(9, "budao-journal", None, "a_flip_of_any_bit_is_noticed"),
    suite(9, "budao-serve", None, "no_altered_state_is_accepted"),
    suite(10, "budao-tools", IT, "a_hostile_schema_is_compiled_or_refused"),
    suite(11, "budao-tools", IT, "hostile_arguments_are_refused"),
    suite(12, "budao-models", IT, "a_packed_bomb_is_unpacked_to_its_bound"),
    suite(13, "budao-serve", PROOF, "readers_that_stand_still_are_let_go"),
    suite(13, "budao-serve", PROOF, "requests_that_never_end_and_answers_nobody_takes"),
    suite(14, "budao-serve", PROOF, "clients_that_replay_for_ever_take_turns"),
    suite(16, "budao-hostile", IT, "a_model_that_obeys_every_page"),
    suite(17, "budao-core", IT, "an_approval_is_good_for_its_own_call"),
    suite(18, "budao-tools", IT, "a_bomb_ends_with_everything_it_started"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which suites, by number; all of them if none is named
    suites: Vec<u32>,
    /// All cases, not the share of every run
    #[arg(long)]
    full: bool,
}

impl Args {
    /// All cases of all suites.
    pub(crate) fn full() -> Self {
        Self { suites: Vec::new(), full: true }
    }
}

/// Runs the chosen suites.
///
/// # Errors
/// When an attack succeeded, or a suite did not report its number of cases.
pub(crate) fn run(args: &Args) -> Result<String> {
    let wanted = |suite: &&Suite| args.suites.is_empty() || args.suites.contains(&suite.number);
    let suites: Vec<&Suite> = SUITES.iter().filter(wanted).collect();
    ensure!(!suites.is_empty(), "there are no such suites");
    let tests = test_programs::tests(suites.iter().map(|suite| suite.program))?;
    let mut said = Vec::new();
    for suite in suites {
        let mut command = tests.command(suite.program)?;
        command.args([suite.filter, "--nocapture"]);
        if args.full {
            command.env("BUDAO_FULL", "1");
        }
        let before = said.len();
        println!("\n{}: {}", suite.program.0, suite.filter);
        let status = process::follow(&mut command, None, |_, line| {
            println!("{line}");
            said.extend(line.find(MARK).map(|at| line[at..].trim_end().to_owned()));
        })?;
        process::ended_well(&command, status)?;
        ensure!(said.len() > before, "{} did not say how many cases it tried", suite.filter);
    }
    println!("\n{}", said.join("\n"));
    let numbers: BTreeSet<&str> =
        said.iter().filter_map(|line| line.strip_prefix(MARK)?.split(':').next()).collect();
    Ok(format!("{} suites", numbers.len()))
}
