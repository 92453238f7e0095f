//! The list of targets, one function over bytes each. Most functions live beside the parser they test, to reach its
//! private parts.

mod calls;
mod files;
mod frames;
mod history;
mod texts;

/// A parser or decoder, with the promises that must hold for any input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its corpus folder.
    pub name: &'static str,
    /// What the target reads, and who produces it.
    pub about: &'static str,
    /// Number of mutations in every run of the tests.
    pub share: u64,
    /// Panics if a promise does not hold.
    pub run: fn(&[u8]),
}

const fn target_of(name: &'static str, about: &'static str, share: u64, run: fn(&[u8])) -> Target {
    Target { name, about, share, run }
}

/// All targets, in the order they are fed.
pub const TARGETS: &[Target] = &[
    target_of("inbound", "what clients of the server send", 10_000, frames::inbound),
    target_of("signed", "signed states that clients bring back", 10_000, frames::signed),
    target_of("event", "what the server sends to the Rust client", 10_000, frames::event),
    target_of("wire", "SMCP packets, events, answers, versions, addresses", 3_000, frames::wire),
    target_of(
        "polling",
        "bodies of a Socket.IO server that is polled",
        2_000,
        budao_socketio::probe::polled,
    ),
    target_of("acp", "lines of an editor", 500, budao_acp::probe::lines),
    target_of(
        "claude",
        "lines of the Claude CLI, through the machine",
        1_000,
        budao_claude::probe::life,
    ),
    target_of("mcp", "lines and answers of MCP servers", 5_000, budao_mcp::probe::everything),
    target_of(
        "stream",
        "streams of model services, both dialects",
        1_000,
        budao_models::probe::stream,
    ),
    target_of("refusal", "refusals of model services", 5_000, budao_models::probe::refusal),
    target_of("batch", "records as they lie in a journal", 10_000, budao_journal::probe::batch),
    target_of("import", "exported journals that are taken in", 500, files::import),
    target_of("witness", "the witness beside a journal", 100, files::witness),
    target_of("history", "events and commands, folded and resumed", 3_000, history::events),
    target_of("snapshot", "the state of a session, resumed", 2_000, history::snapshot),
    target_of("schema", "schemas of tools and arguments for them", 500, calls::schema),
    target_of("arguments", "arguments of a model, repaired or refused", 3_000, calls::arguments),
    target_of("scrub", "text with secrets in it, whole and in pieces", 1_000, texts::scrub),
    target_of("script", "scripts of a scripted model", 2_000, texts::script),
    target_of("skill", "the head of a SKILL.md", 3_000, texts::skill),
    target_of(
        "settings",
        "the settings of a computer, and ids on the wire",
        5_000,
        texts::settings,
    ),
    target_of(
        "document",
        "documents: text, Markdown, HTML, PDF",
        1_000,
        budao_smcp::computer::probe::document,
    ),
];

/// The target of this name; `None` if there is none.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
