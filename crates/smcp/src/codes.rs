// Generated from catalog/faults.toml by `cargo xtask codegen`. Do not edit.

//! The A2C-SMCP error number of each kind of fault.

use budao_core::Kind;

/// The A2C-SMCP error number; several kinds may share one.
#[must_use]
pub const fn smcp_code(kind: Kind) -> u16 {
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

/// Whether this kind documents its A2C-SMCP number; exactly one kind per number does.
#[must_use]
pub const fn is_smcp_home(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::BadRequest
            | Kind::RequestTimedOut
            | Kind::DeadlinePassed
            | Kind::NotAuthenticated
            | Kind::UpstreamSignInNeeded
            | Kind::UpstreamSignInRefused
            | Kind::NeedsConfirmation
            | Kind::NotAllowed
            | Kind::UnknownTool
            | Kind::ToolDisabled
            | Kind::ToolFailed
            | Kind::RoomFull
            | Kind::RoomNotFound
            | Kind::NotInRoom
            | Kind::CrossRoomAccess
            | Kind::ComputerNotFound
            | Kind::DocumentNotFound
            | Kind::PageOutOfRange
            | Kind::ElementNotFound
            | Kind::DocumentUriInvalid
            | Kind::VersionMismatch
            | Kind::McpServerNotFound
            | Kind::CapabilityUnsupported
            | Kind::SkillNameInvalid
            | Kind::SkillResourceUnavailable
            | Kind::BlobUnavailable
            | Kind::BlobWriteFailed
            | Kind::Bug
    )
}
