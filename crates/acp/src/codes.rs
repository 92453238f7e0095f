// Generated from catalog/faults.toml by `cargo xtask codegen`. Do not edit.

//! The JSON-RPC error code of each kind of fault.

use budao_core::Kind;

/// The JSON-RPC error code.
#[must_use]
pub const fn json_rpc_code(kind: Kind) -> i32 {
    match kind {
        Kind::Cancelled => -32800,
        Kind::MalformedJson | Kind::InvalidUtf8 => -32700,
        Kind::SchemaRefused
        | Kind::ToolNameRefused
        | Kind::RequestTimedOut
        | Kind::DeadlinePassed
        | Kind::ModelRateLimited
        | Kind::ServiceRateLimited
        | Kind::DeniedByPolicy
        | Kind::DeniedByPerson
        | Kind::DeniedByHook
        | Kind::NeedsConfirmation
        | Kind::GuardFailed
        | Kind::QuestionExpired
        | Kind::NotAllowed
        | Kind::ToolDisabled
        | Kind::ToolSaidNo
        | Kind::ToolFailed
        | Kind::ToolPanicked
        | Kind::OutcomeUnknown
        | Kind::OutputTooLarge
        | Kind::ToolAbandoned
        | Kind::LateResultDropped
        | Kind::McpServerFailed
        | Kind::ComputerGone
        | Kind::WorkerMissing
        | Kind::WorkerLost
        | Kind::FilePermission
        | Kind::FileChanged
        | Kind::EditNoMatch
        | Kind::EditSeveralMatches
        | Kind::NotAFile
        | Kind::FileNotText
        | Kind::FileUnread
        | Kind::FileExists
        | Kind::ExitStatus
        | Kind::KilledBySignal
        | Kind::CommandNotStarted
        | Kind::ShellLost
        | Kind::SandboxUnavailable
        | Kind::NetworkUnavailable
        | Kind::NameNotResolved
        | Kind::ConnectionRefused
        | Kind::TlsFailed
        | Kind::RetryAfterTooLong
        | Kind::OutOfMemory
        | Kind::DiskFull
        | Kind::QuotaExceeded
        | Kind::LimitReached
        | Kind::SystemExhausted
        | Kind::ModelPermission
        | Kind::ModelQuota
        | Kind::ModelOverloaded
        | Kind::ModelServerError
        | Kind::ModelConnectTimeout
        | Kind::ModelFirstTokenTimeout
        | Kind::ModelStalled
        | Kind::ModelStreamCut
        | Kind::ModelMalformedStream
        | Kind::ContextTooLong
        | Kind::OutputLimit
        | Kind::ModelRefused
        | Kind::ModelBadRequest
        | Kind::EmptyAnswer
        | Kind::UsageUnknown
        | Kind::StepsExhausted
        | Kind::TokensExhausted
        | Kind::FailuresExhausted
        | Kind::DepthExceeded
        | Kind::BudgetSpent
        | Kind::TaskFailed
        | Kind::SpendingCapReached
        | Kind::HookFailed
        | Kind::ListenerFailed
        | Kind::ConnectionLost
        | Kind::ObserverTooSlow
        | Kind::ShuttingDown
        | Kind::UpstreamCut
        | Kind::UpstreamRefused
        | Kind::UpstreamProtocol
        | Kind::UpstreamFailed
        | Kind::SessionBusy
        | Kind::TooManySessions
        | Kind::CliNotInstalled
        | Kind::CliExited
        | Kind::CliSilent
        | Kind::CliWrongTurn
        | Kind::CliProtocol
        | Kind::CliTurnFailed
        | Kind::RoomFull
        | Kind::NotInRoom
        | Kind::CrossRoomAccess
        | Kind::BlobWriteFailed
        | Kind::PeerFailed
        | Kind::JournalDamaged
        | Kind::JournalFull
        | Kind::Fenced
        | Kind::JournalNewer
        | Kind::JournalOutdated
        | Kind::JournalUnsupported
        | Kind::JournalReadOnly
        | Kind::JournalGone
        | Kind::SyncFailed
        | Kind::JournalBusy
        | Kind::NoJournal
        | Kind::NotAJournal
        | Kind::JournalOfOtherUser
        | Kind::JournalUnreachable
        | Kind::JournalLoginRefused
        | Kind::JournalNoDatabase
        | Kind::JournalNoRights
        | Kind::JournalSettingUnsafe
        | Kind::JournalNotTrusted
        | Kind::JournalConnectionsFull
        | Kind::AddressInUse
        | Kind::PriceUnknown
        | Kind::Bug => -32603,
        Kind::ConstraintViolated
        | Kind::InvalidArguments
        | Kind::MalformedArguments
        | Kind::PlanCoercionFailed
        | Kind::AnswerSchemaRefused
        | Kind::TimeInPast
        | Kind::ScheduleRefused
        | Kind::QuestionNotOpen
        | Kind::AnswerDoesNotFit
        | Kind::UnknownTool
        | Kind::RepeatedCallStopped
        | Kind::CallNotOpen
        | Kind::OutsideWorkspace
        | Kind::ShellUnknown
        | Kind::UnknownModel
        | Kind::EpochMismatch
        | Kind::StateForged
        | Kind::StateExpired
        | Kind::StateReused
        | Kind::WrongEngine
        | Kind::UnknownTimer
        | Kind::PageOutOfRange
        | Kind::DocumentUriInvalid
        | Kind::SkillNameInvalid
        | Kind::ConfigurationWrong => -32602,
        Kind::UnknownEvent | Kind::UnsupportedOperation | Kind::CapabilityUnsupported => -32601,
        Kind::BadRequest
        | Kind::JsonTooDeep
        | Kind::FrameTooLarge
        | Kind::DuplicateCallId
        | Kind::CommandRepeated
        | Kind::VersionMismatch => -32600,
        Kind::FileNotFound
        | Kind::HistoryGap
        | Kind::HistoryExpired
        | Kind::UnknownSession
        | Kind::RoomNotFound
        | Kind::ComputerNotFound
        | Kind::DocumentNotFound
        | Kind::ElementNotFound
        | Kind::McpServerNotFound
        | Kind::SkillNotFound
        | Kind::SkillResourceUnavailable
        | Kind::BlobUnavailable => -32002,
        Kind::ModelAuthentication
        | Kind::NotAuthenticated
        | Kind::UpstreamSignInNeeded
        | Kind::UpstreamSignInRefused
        | Kind::McpLoginNeeded
        | Kind::McpLoginFailed
        | Kind::CredentialMissing => -32000,
    }
}
