//! Examples at the end of each command's help. A test parses every one of them.

use clap::Command;

/// A command, and lines to paste with what each one does.
type CommandExamples = (&'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const EXAMPLES: &[CommandExamples] = &[
    ("demo", &[("budao demo", "five failures, in a minute")]),
    ("chat", &[
        ("budao chat", "with the demo model"),
        ("budao chat --model openai:gpt-5", "the key is in OPENAI_API_KEY"),
        ("budao chat --resume 01a1e597", "go on with a session"),
    ]),
    ("run", &[
        ("budao run 'read README.md and count its headings'", "needs no key"),
        ("budao run --model openai:gpt-5 --permission auto 'fix the test'", ""),
        ("budao run --model anthropic:claude-opus-4-5,demo 'say hello'", ""),
        ("budao run --mcp 'time=uvx mcp-server-time' 'what time is it?'", ""),
    ]),
    ("resume", &[
        ("budao resume 01a1e597", "finish what was interrupted"),
        ("budao resume 01a1e597 'and in French?'", "send a message first"),
    ]),
    ("cancel", &[("budao cancel 01a1e597", "stop its turn, in any process")]),
    ("replay", &[
        ("budao replay 01a1e597", "what happened, with clock times"),
        ("budao replay 01a1e597 --follow", "and what happens now"),
        ("budao replay --verify --all", "compare with today's decisions"),
    ]),
    ("serve", &[
        ("budao serve", "prints its address and token"),
        ("budao serve --listen 0.0.0.0:7333 --token-file tokens.txt", ""),
        ("budao serve --journal postgres://budao@db/budao", "one of several"),
    ]),
    ("acp", &[
        ("budao acp doctor", "check what an editor would use"),
        ("budao acp --claude /usr/bin/claude", "run this Claude CLI"),
    ]),
    ("top", &[
        ("budao top", "all sessions, live"),
        ("budao top --once --window 1h", "once, as text"),
        ("budao top --url 'http://127.0.0.1:7333/#token=…'", "of a server"),
    ]),
    ("mcp", &[
        ("budao mcp list --mcp-config claude_desktop_config.json", ""),
        ("budao mcp doctor", "start every server, say which ones work"),
        ("budao mcp login issues", "log in to the remote server `issues`"),
    ]),
    ("timers", &[
        ("budao timers", "which sessions wake when"),
        ("budao timers cancel 01a1e597 nightly", ""),
    ]),
    ("nodes", &[("budao nodes", "the servers that share the journal")]),
    ("tools", &[("budao tools --url 'http://127.0.0.1:7333/#token=…'", "of workers")]),
    ("sessions", &[
        ("budao sessions", "the last sessions"),
        ("budao sessions list --state failed --since 1h", "what failed lately"),
        ("budao sessions show 01a1e597", "by the beginning of its id"),
        ("budao sessions retry --failed --since 1h", "continue what failed"),
    ]),
    ("spending", &[
        ("budao spending", "what was spent today"),
        ("budao spending raise tenant/acme '5 USD'", "5 USD more today"),
        ("budao spending raise all --tokens 1000000", "a million tokens more"),
    ]),
    ("doubts", &[
        ("budao doubts", "calls whose outcome is unknown"),
        ("budao doubts settle 01a1e597 call_2_1_1 --happened '{\"receipt\": 41}'", ""),
        ("budao doubts settle 01a1e597 call_2_1_1 --did-not-happen", ""),
        ("budao doubts settle 01a1e597 call_2_1_1 --leave --note 'see the log'", ""),
    ]),
    ("journal", &[
        ("budao journal check journal.db", "is every record readable?"),
        ("budao journal verify journal.db", "was a record changed?"),
        ("budao journal export journal.db > all.ndjson", "one record a line"),
        ("budao journal copy journal.db postgres://budao@db/budao", ""),
        ("budao journal new-epochs postgres://budao@db/budao", "after a restore"),
        ("budao journal compact journal.db", "after many deletions"),
    ]),
    ("backup", &[("budao backup copy.db", "while servers use the journal")]),
    ("explain", &[
        ("budao explain ERR_TIMEOUT_001", "by code"),
        ("budao explain 4101", "by the number another program shows"),
        ("budao explain --list", "every kind of fault"),
    ]),
    ("config", &[
        ("budao config check budao.toml", "every wrong key and value"),
        ("budao config show", "what counts, and where it comes from"),
    ]),
    ("smcp", &[
        ("budao smcp server --token SECRET", "a hub"),
        ("budao smcp computer room-1 --name laptop", "offer tools here"),
        ("budao smcp tools room-1", "what the room can do"),
        ("budao smcp call room-1 laptop add '{\"a\": 2, \"b\": 3}'", ""),
    ]),
    ("completions", &[("budao completions bash", "for `source <(…)`")]),
    ("man", &[
        ("budao man run", "the page of a command"),
        ("budao man --to man1", "the pages of all commands"),
    ]),
];

/// The command with examples at the end of the help of each subcommand.
pub(crate) fn attach(command: Command) -> Command {
    command.mut_subcommands(|subcommand| {
        let of = EXAMPLES.iter().find(|(name, _)| *name == subcommand.get_name());
        match of {
            Some((_, lines)) => subcommand.after_help(render(lines)),
            None => subcommand,
        }
    })
}

fn render(lines: &[(&str, &str)]) -> String {
    let explained = lines.iter().filter(|(_, meaning)| !meaning.is_empty());
    let width = explained.map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let rows = lines.iter().map(|(line, meaning)| format!("  {line:width$}  {meaning}"));
    let rows: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
    format!("Examples:\n{}", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The words of a command line, with quotes removed; a redirection ends it.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for char in line.chars().take_while(|char| *char != '>') {
            match quote {
                Some(open) if char == open => quote = None,
                None if matches!(char, '\'' | '"') => quote = Some(char),
                None if char == ' ' => words.push(std::mem::take(&mut word)),
                _ => word.push(char),
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn every_command_has_examples_that_it_understands() {
        let command = crate::command();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            let help = subcommand.clone().render_help().to_string();
            assert!(help.contains("Examples:\n  budao "), "{name}: {help}");
        }
        for (name, lines) in EXAMPLES {
            for (line, _) in *lines {
                let parsed = crate::command().try_get_matches_from(words(line));
                let parsed = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(parsed.subcommand_name(), Some(*name), "{line}");
            }
            for row in render(lines).lines() {
                assert!(row.chars().count() <= 80, "{row}");
            }
        }
        assert_eq!(EXAMPLES.len(), crate::Cli::command().get_subcommands().count());
    }
}
