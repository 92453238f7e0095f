//! One realistic sample fault of every kind, always the same, for the golden tests of all dialects.
//!
//! [`sample`] fills every fact that the kind's row names, so a text that uses a fact shows it. [`bare`] fills none, so
//! a text that needs a fact shows the gap. The match over facts has no wildcard: each new fact needs a value here.

use std::time::Duration;

use budao_core::{
    fault::{Fact, FactValue, Fault, Kind, Mismatch, Operation},
    trace::Trace,
};
use serde_json::json;
use strum::VariantArray as _;

/// The trace of every sample: the example from the W3C recommendation.
pub const TRACE: Trace = Trace::from_random(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);

/// A fault of every kind, in the order of the catalog.
pub fn all() -> impl Iterator<Item = Fault> {
    Kind::VARIANTS.iter().map(|kind| sample(*kind))
}

/// A fault of this kind with every fact of its row, a hop, attempts, a trace and a cause.
#[must_use]
pub fn sample(kind: Kind) -> Fault {
    let row = kind.row();
    let mut fault = Fault::new(kind, operation(kind))
        .attempt(2, 3)
        .with_trace(TRACE)
        .via("computer", "workbench")
        .with_cause("the other side hung up");
    for fact in row.facts.iter().chain(row.context) {
        // An unknown outcome changes the texts: see `unconfirmed`.
        if matches!(fact, Fact::Mismatches | Fact::OutcomeUnknown) {
            continue;
        }
        fault = fault.with(*fact, value(kind, *fact));
        if *fact == Fact::WaitMs {
            fault = fault.retry_after(Duration::from_secs(12));
        }
    }
    if row.facts.contains(&Fact::Mismatches) {
        fault = mismatches().into_iter().fold(fault, Fault::mismatch);
    }
    fault
}

/// The kinds with texts for work that may still be running, each with every fact and `outcome_unknown`.
pub fn unconfirmed() -> impl Iterator<Item = Fault> {
    let tells = |kind: &&Kind| kind.row().facts.contains(&Fact::OutcomeUnknown);
    Kind::VARIANTS.iter().filter(tells).map(|kind| sample(*kind).unconfirmed())
}

/// A fault of this kind without any fact.
#[must_use]
pub fn bare(kind: Kind) -> Fault {
    Fault::new(kind, operation(kind))
}

/// The mismatches in the samples of kinds that concern arguments.
#[must_use]
pub fn mismatches() -> [Mismatch; 2] {
    [
        Mismatch {
            pointer: "/edits/0/path".into(),
            rule: "required".into(),
            expected: "required".into(),
            nearest: Some("pth".into()),
            ..Mismatch::default()
        },
        Mismatch {
            pointer: "/mode".into(),
            rule: "enum".into(),
            expected: "must be one of `read`, `write`".into(),
            received: Some("\"append\"".into()),
            allowed: vec![json!("read"), json!("write")],
            ..Mismatch::default()
        },
    ]
}

/// A plausible operation for a fault of this kind.
fn operation(kind: Kind) -> Operation {
    let area = kind.row().code.split('_').nth(1).unwrap_or_default();
    match (kind, area) {
        (Kind::SchemaRefused | Kind::ToolNameRefused, _) => Operation::RegisterTool,
        (Kind::PlanCoercionFailed, _) => Operation::GeneratePlan,
        (Kind::TaskFailed, _) => Operation::SolveTask,
        (Kind::InvalidArguments | Kind::MalformedArguments | Kind::DuplicateCallId, _) => {
            Operation::ToolCall
        }
        (Kind::ModelRateLimited | Kind::ModelAuthentication, _) => Operation::ModelRequest,
        (Kind::RoomFull | Kind::RoomNotFound, _) => Operation::JoinRoom,
        (_, "VAL" | "CONN") => Operation::AcceptFrame,
        (_, "AUTH") => Operation::Authenticate,
        (_, "FILE") => Operation::EditFile,
        (_, "PROC") => Operation::RunCommand,
        (_, "NET" | "RETRY" | "MODEL") => Operation::ModelRequest,
        (_, "TURN" | "BUG") => Operation::RunTurn,
        (_, "HOOK") => Operation::RunHook,
        (_, "STATE") => Operation::VerifyState,
        (_, "SESS") => Operation::SubmitCommand,
        (_, "CLI") => Operation::ReadCli,
        (_, "SMCP") => Operation::RelayCall,
        (_, "JRNL" | "RES") => Operation::AppendRecords,
        (_, "CONF") => Operation::LoadConfig,
        (_, _) => Operation::ToolCall,
    }
}

/// The sample value of a fact in a fault of this kind.
fn value(kind: Kind, fact: Fact) -> FactValue {
    match fact {
        Fact::Reason => reason(kind).into(),
        Fact::Nearest => vec![nearest(kind).to_owned()].into(),
        Fact::Limit => limit(kind).0.into(),
        Fact::Actual => limit(kind).1.into(),
        Fact::ToolName if kind == Kind::UnknownTool => "fs_edti".into(),
        Fact::ToolName if kind == Kind::ToolNameRefused => "edit file!".into(),
        Fact::EventName if kind == Kind::UnknownEvent => "client:tool_cal".into(),
        Fact::Model if kind == Kind::UnknownModel => "claude-sonet".into(),
        Fact::Received if kind == Kind::NotAFile => "directory".into(),
        Fact::Allowed if kind == Kind::ShellUnknown => vec!["sh-1".to_owned()].into(),
        Fact::LimitName if kind == Kind::QuotaExceeded => "monthly_requests".into(),
        Fact::Unit if kind == Kind::BudgetSpent => "cents".into(),
        Fact::TimeoutMs if kind == Kind::QuestionExpired => 86_400_000.into(),
        Fact::Path if kind.row().code.starts_with("ERR_JRNL") => "budao.db".into(),
        Fact::Path if kind == Kind::OutputTooLarge => "outputs/call_7.txt".into(),
        Fact::Path if kind == Kind::OutsideWorkspace => "../secrets.txt".into(),
        Fact::Path if kind == Kind::ConfigurationWrong => "budao.toml".into(),
        fact => usual(fact),
    }
}

fn reason(kind: Kind) -> &'static str {
    match kind {
        Kind::SchemaRefused => "`/properties/path/type`: `strng` is not a type",
        Kind::ToolNameRefused => "a blank is not allowed",
        Kind::AnswerSchemaRefused => "no value fits it",
        Kind::ToolSaidNo => "The branch `main` is protected",
        Kind::ToolFailed => "the index has no entry for `src`",
        Kind::UnsupportedOperation => "links cannot be edited",
        Kind::McpServerFailed => "it ended while it was starting",
        Kind::CommandNotStarted => "there is no such program",
        Kind::SandboxUnavailable => "the kernel has no Landlock",
        Kind::TlsFailed => "the certificate has expired",
        Kind::TaskFailed => "no source answered",
        Kind::GuardFailed | Kind::HookFailed | Kind::ListenerFailed => "it took too long",
        Kind::QuestionNotOpen => "it was answered before",
        Kind::HistoryGap => "the records were removed",
        Kind::StateForged => "the signature does not fit",
        Kind::CliTurnFailed => "the account has no credit left",
        Kind::DocumentUriInvalid => "the page is not a number",
        Kind::SkillNameInvalid => "capital letters are not allowed",
        Kind::SkillResourceUnavailable => "the file is too large",
        Kind::BlobUnavailable | Kind::BlobWriteFailed => "the handle has expired",
        Kind::NotAuthenticated => "no credentials were sent",
        Kind::Cancelled => "a newer message came",
        _ => "it is on the deny list",
    }
}

fn nearest(kind: Kind) -> &'static str {
    match kind {
        Kind::UnknownEvent => "client:tool_call",
        Kind::UnknownModel => "claude-sonnet",
        Kind::UnknownSession => "0199a1b2-c3d5",
        Kind::RoomNotFound => "office-2",
        Kind::ComputerNotFound => "workbench-2",
        Kind::DocumentNotFound => "doc-13",
        Kind::ElementNotFound => "el-240",
        Kind::McpServerNotFound => "gitlab",
        Kind::SkillNotFound => "report-reader",
        Kind::ConfigurationWrong => "retry.attempts",
        _ => "fs_edit",
    }
}

/// A limit for this kind, and a value above it.
fn limit(kind: Kind) -> (u32, u32) {
    match kind {
        Kind::FrameTooLarge => (1_048_576, 1_500_000),
        Kind::OutputTooLarge => (65_536, 2_400_000),
        Kind::ObserverTooSlow => (1_048_576, 1_048_600),
        Kind::OutOfMemory | Kind::JournalFull => (536_870_912, 536_875_008),
        Kind::TokensExhausted | Kind::ContextTooLong => (200_000, 204_117),
        Kind::OutputLimit => (8_192, 8_192),
        Kind::QuotaExceeded => (10_000, 10_001),
        Kind::TooManySessions => (10_000, 10_001),
        Kind::DepthExceeded => (3, 4),
        Kind::BudgetSpent => (500, 503),
        _ => (64, 65),
    }
}

/// The sample value of a fact for kinds without a value of their own.
fn usual(fact: Fact) -> FactValue {
    match fact {
        Fact::ToolName => "fs_edit".into(),
        Fact::CallId => "call_7".into(),
        Fact::Mismatches => vec!["edits.0.path: required".to_owned()].into(),
        Fact::Field => "task_count".into(),
        Fact::Constraint => "task_count > 0".into(),
        Fact::ProvidedValue => json!(-1).into(),
        Fact::Expected => "a number from 1 to 500".into(),
        Fact::Received => "\"many\"".into(),
        Fact::Allowed => vec!["fs_read".to_owned(), "fs_edit".to_owned()].into(),
        Fact::Nearest => vec!["fs_edit".to_owned()].into(),
        Fact::Example => json!({ "path": "src/lib.rs" }).into(),
        Fact::Position => 17.into(),
        Fact::Excerpt => "{\"path\": src".into(),
        Fact::Depth => 70.into(),
        Fact::Times => 3.into(),
        Fact::Reason => "it is on the deny list".into(),
        Fact::Note => "not before Friday".into(),
        Fact::Query => json!({ "q": "weather" }).into(),
        Fact::OutcomeUnknown | Fact::SafeToRepeat => json!(true).into(),
        Fact::Path => "src/main.rs".into(),
        Fact::NearestPath => "src/lib.rs".into(),
        Fact::RelPath => "templates/report.md".into(),
        Fact::Line => 42.into(),
        Fact::Matches => 2.into(),
        Fact::NeededBytes => 4_096.into(),
        Fact::FreeBytes => 512.into(),
        Fact::TotalSize => 73_000.into(),
        Fact::Command => "cargo test".into(),
        Fact::ExitCode => 101.into(),
        Fact::Signal => "SIGKILL".into(),
        Fact::StderrTail => "error: test failed".into(),
        Fact::StdoutTail => "running 12 tests".into(),
        Fact::ShellId => "sh-2".into(),
        Fact::TimeoutMs => 30_000.into(),
        Fact::ElapsedMs => 30_250.into(),
        Fact::WaitMs => 12_000.into(),
        Fact::LimitMs => 600_000.into(),
        Fact::UptimeMs => 3_725_000.into(),
        Fact::Limit => 64.into(),
        Fact::LimitName => "steps".into(),
        Fact::Actual => 65.into(),
        Fact::Unit => "requests".into(),
        Fact::Cap => "5 USD".into(),
        Fact::CapScope => "tenant/acme".into(),
        Fact::Spent => "4.97 USD".into(),
        Fact::Estimate => "0.09 USD".into(),
        Fact::Service => "anthropic".into(),
        Fact::Endpoint => "/v1/messages".into(),
        Fact::Host => "api.anthropic.com".into(),
        Fact::Model => "claude-sonnet".into(),
        Fact::Status => 529.into(),
        Fact::RequestId => "req_011".into(),
        Fact::Cause => "invalid_credentials".into(),
        Fact::RequiredConfig => vec!["ANTHROPIC_API_KEY".to_owned()].into(),
        Fact::ConfigKey => "retry.tries".into(),
        Fact::RateLimitReset => "2026-11-15T08:00:12Z".into(),
        Fact::LimitPerMinute => 50.into(),
        Fact::RequestsMade => 51.into(),
        Fact::Version => "0.2".into(),
        Fact::Supported => vec!["0.4".to_owned()].into(),
        Fact::Session => "0199a1b2-c3d4".into(),
        Fact::Turn => 4.into(),
        Fact::OtherTurn => 3.into(),
        Fact::Stage => "planning".into(),
        Fact::Timer => "daily-report".into(),
        Fact::DueAt => "2026-11-18T09:00:00.000Z".into(),
        Fact::Now => "2026-11-18T09:05:00.000Z".into(),
        Fact::TaskId => "task_2".into(),
        Fact::CommandId => "cmd_9".into(),
        Fact::QuestionId => "ask_5".into(),
        Fact::EventName => "client:tool_call".into(),
        Fact::LastOperation => "tool_call".into(),
        Fact::State => "running".into(),
        Fact::CloseCode => 1006.into(),
        Fact::CloseReason => "abnormal closure".into(),
        Fact::LastEventSeq => 118.into(),
        Fact::FromSeq => 119.into(),
        Fact::ToSeq => 124.into(),
        Fact::OldestSeq => 900.into(),
        Fact::HeadSeq => 1_024.into(),
        Fact::Epoch => "7c1f".into(),
        Fact::ExpectedEpoch => "9e02".into(),
        Fact::Holder => "editor-2".into(),
        Fact::Engine => "claude".into(),
        Fact::Hook => "check_paths".into(),
        Fact::Listener => "metrics".into(),
        Fact::Program => "claude".into(),
        Fact::Computer => "workbench".into(),
        Fact::Worker => "billing".into(),
        Fact::Room => "office-1".into(),
        Fact::McpServer => "github".into(),
        Fact::Capability => "resources".into(),
        Fact::AuthAction => "user_authorization_required".into(),
        Fact::PeerCode => 4003.into(),
        Fact::DocRef => "doc-31".into(),
        Fact::Page => 12.into(),
        Fact::PageCount => 9.into(),
        Fact::ElementId => "el-204".into(),
        Fact::Uri => "dpe://doc-31/page/12".into(),
        Fact::Skill => "report-writer".into(),
        Fact::Blob => "blob-88".into(),
    }
}
