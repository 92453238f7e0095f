//! The protocol's events, grouped by sender and receiver.

/// Requests from an agent to a computer, through the hub. Every request is answered.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum RequestEvent {
    /// Calls a tool.
    #[strum(serialize = "client:tool_call")]
    ToolCall,
    /// Lists the tools of a computer.
    #[strum(serialize = "client:get_tools")]
    GetTools,
    /// Returns the configuration of the computer's MCP servers, without secrets.
    #[strum(serialize = "client:get_config")]
    GetConfig,
    /// Returns the content of the computer's windows.
    #[strum(serialize = "client:get_desktop")]
    GetDesktop,
    /// Lists the resources of one MCP server, in pages.
    #[strum(serialize = "client:get_resources")]
    GetResources,
    /// Lists the skills of a computer.
    #[strum(serialize = "client:get_skills")]
    GetSkills,
    /// Returns a skill's text or one of its files.
    #[strum(serialize = "client:get_skill")]
    GetSkill,
    /// Returns one chunk of stored data.
    #[strum(serialize = "client:get_blob")]
    GetBlob,
    /// Uploads one chunk of a file.
    #[strum(serialize = "client:put_blob")]
    PutBlob,
    /// Lists the documents of a computer; first draft only.
    #[strum(serialize = "client:get_finder")]
    GetFinder,
    /// Returns a document, a page or an element; first draft only.
    #[strum(serialize = "client:get_dpe")]
    GetDpe,
}

/// Messages that the hub handles itself.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum NotificationEvent {
    /// Joins a room.
    #[strum(serialize = "server:join_office")]
    Join,
    /// Leaves a room.
    #[strum(serialize = "server:leave_office")]
    Leave,
    /// Lists the members of a room.
    #[strum(serialize = "server:list_room")]
    List,
    /// Cancels a tool call.
    #[strum(serialize = "server:tool_call_cancel")]
    Cancel,
    /// A computer's configuration changed.
    #[strum(serialize = "server:update_config")]
    UpdateConfig,
    /// A computer's tools changed.
    #[strum(serialize = "server:update_tool_list")]
    UpdateTools,
    /// A computer's windows changed.
    #[strum(serialize = "server:update_desktop")]
    UpdateDesktop,
    /// A computer's skills changed.
    #[strum(serialize = "server:update_skills")]
    UpdateSkills,
    /// A computer's documents changed; first draft only.
    #[strum(serialize = "server:update_finder")]
    UpdateFinder,
}

impl NotificationEvent {
    /// The notification that the room gets for an update; `None` for other events.
    #[must_use]
    pub fn notification(self) -> Option<&'static str> {
        match self {
            Self::UpdateConfig => Some("notify:update_config"),
            Self::UpdateTools => Some("notify:update_tool_list"),
            Self::UpdateDesktop => Some("notify:update_desktop"),
            Self::UpdateSkills => Some("notify:update_skills"),
            Self::UpdateFinder => Some("notify:update_finder"),
            Self::Join | Self::Leave | Self::List | Self::Cancel => None,
        }
    }
}

/// Notification: a member joined the room.
pub const ENTERED: &str = "notify:enter_office";
/// Notification: a member left the room.
pub const LEFT: &str = "notify:leave_office";
/// Notification: the hub closes this connection; the payload is the error with the reason. An extension of the
/// protocol that clients may ignore.
pub const CLOSED: &str = "notify:connection_closed";
/// Notification: a tool call was cancelled.
pub const CANCELLED: &str = "notify:tool_call_cancel";
