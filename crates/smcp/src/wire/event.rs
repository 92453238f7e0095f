//! The events, by who sends them.

/// Asked by an agent, passed on to a computer, always answered.
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
    /// Call a tool.
    #[strum(serialize = "client:tool_call")]
    ToolCall,
    /// Which tools there are.
    #[strum(serialize = "client:get_tools")]
    GetTools,
    /// How the computer's MCP servers are configured.
    #[strum(serialize = "client:get_config")]
    GetConfig,
    /// What the windows show.
    #[strum(serialize = "client:get_desktop")]
    GetDesktop,
    /// Which resources an MCP server has.
    #[strum(serialize = "client:get_resources")]
    GetResources,
    /// Which skills there are.
    #[strum(serialize = "client:get_skills")]
    GetSkills,
    /// A skill's text or one of its files.
    #[strum(serialize = "client:get_skill")]
    GetSkill,
    /// A piece of stored data.
    #[strum(serialize = "client:get_blob")]
    GetBlob,
    /// A piece of data to store.
    #[strum(serialize = "client:put_blob")]
    PutBlob,
    /// Which documents there are; first draft only.
    #[strum(serialize = "client:get_finder")]
    GetFinder,
    /// A document, a page or an element; first draft only.
    #[strum(serialize = "client:get_dpe")]
    GetDpe,
}

/// Done by the hub itself.
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
    /// Enter a room.
    #[strum(serialize = "server:join_office")]
    Join,
    /// Leave it.
    #[strum(serialize = "server:leave_office")]
    Leave,
    /// Who is in it.
    #[strum(serialize = "server:list_room")]
    List,
    /// Give up a tool call.
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
    /// What the room hears of an update.
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

/// Somebody came into the room.
pub const ENTERED: &str = "notify:enter_office";
/// Somebody left it.
pub const LEFT: &str = "notify:leave_office";
/// The hub closes this connection; the payload is an error that says why. Not in the protocol: who does not know it loses
/// nothing.
pub const CLOSED: &str = "notify:connection_closed";
/// A tool call was given up.
pub const CANCELLED: &str = "notify:tool_call_cancel";
