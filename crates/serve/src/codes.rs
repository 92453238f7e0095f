// Generated from catalog/faults.toml by `cargo xtask codegen`. Do not edit.

//! The HTTP status of each kind of fault.
//!
//! `http_status` is this crate's own; the page shows the numbers of other protocols.

use budao_core::Kind;

/// The HTTP status of an answer that reports the fault.
#[must_use]
pub const fn http_status(kind: Kind) -> u16 {
    match kind {
        Kind::MalformedArguments
        | Kind::BadRequest
        | Kind::MalformedJson
        | Kind::InvalidUtf8
        | Kind::JsonTooDeep
        | Kind::UnknownEvent
        | Kind::DocumentUriInvalid
        | Kind::VersionMismatch
        | Kind::SkillNameInvalid => 400,
        Kind::NotAuthenticated => 401,
        Kind::DeniedByPolicy
        | Kind::DeniedByPerson
        | Kind::DeniedByHook
        | Kind::NeedsConfirmation
        | Kind::GuardFailed
        | Kind::NotAllowed
        | Kind::ToolDisabled
        | Kind::FilePermission
        | Kind::OutsideWorkspace
        | Kind::StateForged
        | Kind::NotInRoom
        | Kind::CrossRoomAccess => 403,
        Kind::UnknownTool
        | Kind::FileNotFound
        | Kind::ShellUnknown
        | Kind::UnknownSession
        | Kind::UnknownTimer
        | Kind::RoomNotFound
        | Kind::ComputerNotFound
        | Kind::DocumentNotFound
        | Kind::ElementNotFound
        | Kind::McpServerNotFound
        | Kind::SkillNotFound
        | Kind::SkillResourceUnavailable => 404,
        Kind::DuplicateCallId
        | Kind::QuestionNotOpen
        | Kind::CallNotOpen
        | Kind::FileChanged
        | Kind::FileUnread
        | Kind::FileExists
        | Kind::EpochMismatch
        | Kind::StateReused
        | Kind::SessionBusy
        | Kind::CommandRepeated
        | Kind::WrongEngine
        | Kind::RoomFull
        | Kind::Fenced => 409,
        Kind::QuestionExpired
        | Kind::ShellLost
        | Kind::HistoryGap
        | Kind::HistoryExpired
        | Kind::StateExpired
        | Kind::BlobUnavailable => 410,
        Kind::FrameTooLarge | Kind::OutputTooLarge | Kind::ContextTooLong => 413,
        Kind::FileNotText => 415,
        Kind::PageOutOfRange => 416,
        Kind::ConstraintViolated
        | Kind::InvalidArguments
        | Kind::PlanCoercionFailed
        | Kind::AnswerSchemaRefused
        | Kind::TimeInPast
        | Kind::ScheduleRefused
        | Kind::AnswerDoesNotFit
        | Kind::ToolSaidNo
        | Kind::RepeatedCallStopped
        | Kind::EditNoMatch
        | Kind::EditSeveralMatches
        | Kind::NotAFile
        | Kind::ExitStatus
        | Kind::CommandNotStarted
        | Kind::OutputLimit
        | Kind::ModelRefused
        | Kind::UnknownModel
        | Kind::StepsExhausted
        | Kind::TokensExhausted
        | Kind::FailuresExhausted
        | Kind::DepthExceeded
        | Kind::BudgetSpent
        | Kind::SpendingCapReached
        | Kind::BlobWriteFailed => 422,
        Kind::ModelRateLimited
        | Kind::ServiceRateLimited
        | Kind::RetryAfterTooLong
        | Kind::QuotaExceeded
        | Kind::LimitReached
        | Kind::ModelQuota => 429,
        Kind::Cancelled => 499,
        Kind::SchemaRefused
        | Kind::ToolNameRefused
        | Kind::ToolFailed
        | Kind::ToolPanicked
        | Kind::OutcomeUnknown
        | Kind::KilledBySignal
        | Kind::SandboxUnavailable
        | Kind::TaskFailed
        | Kind::HookFailed
        | Kind::ListenerFailed
        | Kind::JournalDamaged
        | Kind::JournalNewer
        | Kind::JournalOutdated
        | Kind::JournalUnsupported
        | Kind::JournalReadOnly
        | Kind::JournalGone
        | Kind::SyncFailed
        | Kind::NoJournal
        | Kind::NotAJournal
        | Kind::JournalOfOtherUser
        | Kind::JournalLoginRefused
        | Kind::JournalNoDatabase
        | Kind::JournalNoRights
        | Kind::JournalSettingUnsafe
        | Kind::JournalNotTrusted
        | Kind::ConfigurationWrong
        | Kind::CredentialMissing
        | Kind::AddressInUse
        | Kind::PriceUnknown
        | Kind::Bug => 500,
        Kind::UnsupportedOperation | Kind::CapabilityUnsupported => 501,
        Kind::ModelAuthentication
        | Kind::UpstreamSignInNeeded
        | Kind::UpstreamSignInRefused
        | Kind::McpLoginNeeded
        | Kind::McpLoginFailed
        | Kind::McpServerFailed
        | Kind::ComputerGone
        | Kind::WorkerMissing
        | Kind::WorkerLost
        | Kind::NameNotResolved
        | Kind::ConnectionRefused
        | Kind::TlsFailed
        | Kind::ModelPermission
        | Kind::ModelServerError
        | Kind::ModelStreamCut
        | Kind::ModelMalformedStream
        | Kind::ModelBadRequest
        | Kind::EmptyAnswer
        | Kind::UsageUnknown
        | Kind::UpstreamCut
        | Kind::UpstreamRefused
        | Kind::UpstreamProtocol
        | Kind::UpstreamFailed
        | Kind::CliExited
        | Kind::CliWrongTurn
        | Kind::CliProtocol
        | Kind::CliTurnFailed
        | Kind::PeerFailed => 502,
        Kind::NetworkUnavailable
        | Kind::SystemExhausted
        | Kind::ModelOverloaded
        | Kind::ConnectionLost
        | Kind::ObserverTooSlow
        | Kind::ShuttingDown
        | Kind::TooManySessions
        | Kind::CliNotInstalled
        | Kind::JournalBusy
        | Kind::JournalUnreachable
        | Kind::JournalConnectionsFull => 503,
        Kind::RequestTimedOut
        | Kind::DeadlinePassed
        | Kind::ToolAbandoned
        | Kind::LateResultDropped
        | Kind::ModelConnectTimeout
        | Kind::ModelFirstTokenTimeout
        | Kind::ModelStalled
        | Kind::CliSilent => 504,
        Kind::OutOfMemory | Kind::DiskFull | Kind::JournalFull => 507,
    }
}

/// The A2C-SMCP error number; several kinds may share one.
#[must_use]
pub(crate) const fn smcp_code(kind: Kind) -> u16 {
    match kind {
        Kind::ConstraintViolated
        | Kind::InvalidArguments
        | Kind::MalformedArguments
        | Kind::BadRequest
        | Kind::MalformedJson
        | Kind::InvalidUtf8
        | Kind::JsonTooDeep
        | Kind::FrameTooLarge
        | Kind::UnknownEvent
        | Kind::DuplicateCallId
        | Kind::PlanCoercionFailed
        | Kind::AnswerSchemaRefused
        | Kind::TimeInPast
        | Kind::ScheduleRefused
        | Kind::AnswerDoesNotFit
        | Kind::RepeatedCallStopped
        | Kind::UnsupportedOperation
        | Kind::StateExpired
        | Kind::StateReused
        | Kind::CommandRepeated
        | Kind::WrongEngine => 400,
        Kind::NotAuthenticated => 401,
        Kind::DeniedByPolicy
        | Kind::DeniedByPerson
        | Kind::DeniedByHook
        | Kind::GuardFailed
        | Kind::NotAllowed
        | Kind::OutsideWorkspace
        | Kind::StateForged => 403,
        Kind::QuestionNotOpen
        | Kind::ComputerGone
        | Kind::WorkerMissing
        | Kind::WorkerLost
        | Kind::CallNotOpen
        | Kind::HistoryExpired
        | Kind::UnknownSession
        | Kind::UnknownTimer
        | Kind::ComputerNotFound => 404,
        Kind::RequestTimedOut
        | Kind::ModelConnectTimeout
        | Kind::ModelFirstTokenTimeout
        | Kind::ModelStalled
        | Kind::CliSilent => 408,
        Kind::SchemaRefused
        | Kind::ToolNameRefused
        | Kind::ModelRateLimited
        | Kind::ModelAuthentication
        | Kind::FileExists
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
        | Kind::ModelStreamCut
        | Kind::ModelMalformedStream
        | Kind::ContextTooLong
        | Kind::OutputLimit
        | Kind::ModelRefused
        | Kind::ModelBadRequest
        | Kind::UnknownModel
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
        | Kind::HistoryGap
        | Kind::EpochMismatch
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
        | Kind::CliWrongTurn
        | Kind::CliProtocol
        | Kind::CliTurnFailed
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
        | Kind::ConfigurationWrong
        | Kind::CredentialMissing
        | Kind::AddressInUse
        | Kind::PriceUnknown
        | Kind::Bug => 500,
        Kind::UnknownTool => 4001,
        Kind::ToolDisabled => 4002,
        Kind::ServiceRateLimited
        | Kind::ToolSaidNo
        | Kind::ToolFailed
        | Kind::ToolPanicked
        | Kind::Cancelled
        | Kind::OutcomeUnknown
        | Kind::OutputTooLarge
        | Kind::McpServerFailed
        | Kind::FileNotFound
        | Kind::FilePermission
        | Kind::FileChanged
        | Kind::EditNoMatch
        | Kind::EditSeveralMatches
        | Kind::NotAFile
        | Kind::FileNotText
        | Kind::FileUnread
        | Kind::ExitStatus
        | Kind::KilledBySignal
        | Kind::CommandNotStarted
        | Kind::ShellUnknown
        | Kind::ShellLost
        | Kind::SandboxUnavailable => 4003,
        Kind::DeadlinePassed | Kind::ToolAbandoned | Kind::LateResultDropped => 4004,
        Kind::NeedsConfirmation | Kind::QuestionExpired => 4005,
        Kind::UpstreamSignInNeeded | Kind::McpLoginNeeded => 4006,
        Kind::UpstreamSignInRefused | Kind::McpLoginFailed => 4007,
        Kind::VersionMismatch => 4008,
        Kind::McpServerNotFound | Kind::SkillNotFound => 4014,
        Kind::CapabilityUnsupported => 4015,
        Kind::SkillNameInvalid => 4016,
        Kind::SkillResourceUnavailable => 4017,
        Kind::BlobUnavailable => 4018,
        Kind::BlobWriteFailed => 4019,
        Kind::RoomFull => 4101,
        Kind::RoomNotFound => 4102,
        Kind::NotInRoom => 4103,
        Kind::CrossRoomAccess => 4104,
        Kind::DocumentNotFound => 4201,
        Kind::PageOutOfRange => 4202,
        Kind::ElementNotFound => 4203,
        Kind::DocumentUriInvalid => 4204,
    }
}

/// The JSON-RPC error code.
#[must_use]
pub(crate) const fn json_rpc_code(kind: Kind) -> i32 {
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
