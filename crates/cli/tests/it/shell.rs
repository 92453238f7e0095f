//! What a shell and `man` get from the program about itself.

use std::{
    path::Path,
    process::{Command, Output},
};

fn budao(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    let Output { status, stdout, stderr } = command.args(args).env_clear().output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// The commands `--help` lists.
fn commands() -> Vec<String> {
    let help = budao(&["--help"]).1;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // Their lines are indented by two; what goes on is indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    names.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn bash_completes_commands_and_flags() {
    let asks = |words: &str, at: usize| {
        let script = format!(
            "source <(\"$0\" completions bash); COMP_WORDS=({words}); COMP_CWORD={at}; \
             _budao budao \"${{COMP_WORDS[{at}]}}\" \"${{COMP_WORDS[{at}-1]}}\"; echo \"${{COMPREPLY[*]}}\""
        );
        let mut bash = Command::new("bash");
        let done = bash.args(["-c", &script, env!("CARGO_BIN_EXE_budao")]).output().unwrap();
        assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(asks("budao dem", 1), "demo");
    assert_eq!(asks("budao replay --fo", 2), "--follow");
}

#[test]
fn every_shell_gets_every_command() {
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, errors) = budao(&["completions", shell]);
        assert_eq!(code, Some(0), "{errors}");
        for command in &commands {
            assert!(script.contains(command.as_str()), "{command} for {shell}");
        }
    }
    assert_eq!(budao(&["completions", "tcsh"]).0, Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("made/man1");
    assert_eq!(budao(&["man", "--to", to.to_str().unwrap()]).0, Some(0));
    let page = |name: &str| std::fs::read_to_string(to.join(Path::new(name))).unwrap();
    assert!(page("budao.1").contains(".TH budao 1"), "{}", page("budao.1"));
    for command in commands().iter().filter(|command| *command != "help") {
        let page = page(&format!("budao-{command}.1"));
        assert!(page.contains(&format!(".TH budao-{command} 1")), "{page}");
    }
    assert!(page("budao-journal-check.1").contains("budao journal check"));
}

#[test]
fn a_manual_page_reads_like_this() {
    let (code, page, errors) = budao(&["man", "completions"]);
    assert_eq!(code, Some(0), "{errors}");
    insta::assert_snapshot!(page);
}

#[test]
fn the_page_of_an_unknown_command_is_refused() {
    let (code, _, errors) = budao(&["man", "journal", "chekc"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("journal chekc"), "{errors}");
}
