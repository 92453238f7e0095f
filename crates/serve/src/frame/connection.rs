//! Frames about the connection and about commands. They have no position in a session's history.

use budao_core::{
    Fault, Lang, Timestamp,
    event::{CommandId, Epoch, Scope, Seq, SessionId},
};
use budao_journal::GapReason;
use serde_json::{Map, Value, json};

use super::{FaultContext, Frame, fault::millis};
use crate::texts::{translate, translate_with};

/// The protocol version, sent in `system.connected`.
pub const PROTOCOL_VERSION: &str = "1.1";

/// The values of `system.connected`.
#[derive(Clone, Debug)]
pub struct ConnectedFields<'a> {
    /// The connection's id.
    pub connection: &'a str,
    /// The server's version, such as `1.2.3`.
    pub version: &'a str,
    /// Interval between heartbeats.
    pub heartbeat: std::time::Duration,
    /// How long a turn continues without any observer.
    pub unobserved: std::time::Duration,
    /// How long a session is kept after its last event.
    pub retention: std::time::Duration,
    /// Upper bound for a received frame, in bytes.
    pub frame_bytes: usize,
    /// Upper bound for the nesting of received JSON.
    pub json_depth: usize,
    /// Whether workers may offer tools.
    pub takes_offers: bool,
}

/// `system.connected`: the first frame of every connection.
#[must_use]
pub fn render_connected(at: Timestamp, fields: &ConnectedFields<'_>, lang: Lang) -> Frame {
    let mut capabilities =
        vec!["resume", "signed_state", "command_ids", "confirmations", "pipelines", "observers"];
    capabilities.extend(fields.takes_offers.then_some("remote_tools"));
    Frame::new("system.connected", at)
        .text(translate("connected", Lang::En))
        .show(translate("connected", lang))
        .with("connection_id", fields.connection)
        .with("server_name", "budao")
        .with("server_version", fields.version)
        .with("protocol_version", PROTOCOL_VERSION)
        .with("server_time", at.to_string())
        .with("capabilities", json!(capabilities))
        .with("heartbeat_interval_seconds", fields.heartbeat.as_secs())
        .with("unobserved_run_seconds", fields.unobserved.as_secs())
        .with("session_ttl_hours", fields.retention.as_secs() / 3600)
        .with("frame_bytes_max", fields.frame_bytes)
        .with("json_depth_max", fields.json_depth)
}

/// The end of a session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The session that the history belongs to.
    pub session: SessionId,
    /// The incarnation of the history.
    pub epoch: Epoch,
    /// The position of the last record.
    pub seq: Seq,
    /// The position of the last record that became a frame; an up-to-date client has this cursor.
    pub frame: Seq,
}

/// `system.heartbeat`, with the heads of the sessions that the connection observes.
#[must_use]
pub fn render_heartbeat(at: Timestamp, heads: &[Head], uptime_seconds: u64, lang: Lang) -> Frame {
    let listed: Vec<Value> = heads.iter().map(|head| head_json(*head)).collect();
    let only = match heads {
        [head] => head.seq.into(),
        _ => Value::Null,
    };
    Frame::new("system.heartbeat", at)
        .show(translate("heartbeat", lang))
        .with("server_time", at.to_string())
        .with("uptime", uptime_seconds)
        .with("server_uptime_seconds", uptime_seconds)
        .with("active_sessions", heads.len())
        .with("head", only)
        .with("heads", listed)
}

fn head_json(head: Head) -> Value {
    json!({
        "session_id": head.session,
        "epoch": head.epoch.to_string(),
        "seq": head.seq,
        "last_frame_seq": head.frame,
    })
}

/// Identifies a command in its answer.
#[derive(Clone, Copy, Debug)]
pub struct CommandRef<'a> {
    /// The event's name without `user.`, such as `cancel_task`.
    pub action: &'a str,
    /// The session that the command is for.
    pub session: Option<SessionId>,
    /// The command's id, if the client set one.
    pub command: Option<&'a CommandId>,
}

/// `system.notice`: the command was accepted. `more` holds fields specific to the action, such as `task_id` or `mode`.
#[must_use]
pub fn render_accepted(
    at: Timestamp,
    command_ref: CommandRef<'_>,
    more: Map<String, Value>,
    lang: Lang,
) -> Frame {
    notice(at, command_ref.session, command_ref.action)
        .text(translate("accepted", Lang::En))
        .show(translate("accepted", lang))
        .with("ok", true)
        .with("status", "accepted")
        .with("command_id", command_id(command_ref.command))
        .with_all(more)
}

/// `error.validation`: the command was rejected. The fault may be of any kind.
#[must_use]
pub fn render_rejected(
    at: Timestamp,
    command_ref: CommandRef<'_>,
    fault: &Fault,
    lang: Lang,
) -> Frame {
    let scope = Scope::default();
    let context = FaultContext { at, lang, scope: &scope, not_recovered: false };
    add_session(Frame::new("error.validation", at), command_ref.session)
        .with_fault(fault, &context)
        .with("action", command_ref.action)
        .with("ok", false)
        .with("status", "rejected")
        .with("command_id", command_id(command_ref.command))
}

/// `system.error`: a failure of the server that no command caused.
#[must_use]
pub fn render_error(at: Timestamp, session: Option<SessionId>, fault: &Fault, lang: Lang) -> Frame {
    let scope = Scope::default();
    let context = FaultContext { at, lang, scope: &scope, not_recovered: true };
    add_session(Frame::new("system.error", at), session).with_fault(fault, &context)
}

fn command_id(command: Option<&CommandId>) -> Value {
    command.filter(|id| !id.is_own()).map_or(Value::Null, |id| id.to_string().into())
}

fn add_session(frame: Frame, session: Option<SessionId>) -> Frame {
    match session {
        Some(session) => frame.about(session),
        None => frame,
    }
}

fn notice(at: Timestamp, session: Option<SessionId>, action: &str) -> Frame {
    add_session(Frame::new("system.notice", at), session).with("action", action)
}

/// Which part of the requested history a resume delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Everything after the cursor.
    Complete,
    /// Everything except this inclusive range.
    Gap {
        /// The first lost position.
        from: Seq,
        /// The last lost position.
        to: Seq,
        /// The retention bound that removed the records.
        reason: GapReason,
    },
    /// The history or the signed state has expired; the client creates a new session.
    Expired,
    /// The cursor belongs to another epoch; the replay starts at the beginning.
    EpochMismatch,
}

impl Coverage {
    /// The value of the `status` field on the wire.
    #[must_use]
    pub fn status(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Gap { .. } => "gap",
            Self::Expired => "expired",
            Self::EpochMismatch => "epoch_mismatch",
        }
    }
}

/// The values of the answer to a resume.
#[derive(Clone, Copy, Debug)]
pub struct Resumption<'a> {
    /// The session to resume.
    pub session: SessionId,
    /// The id of the resume command, if the client set one.
    pub command: Option<&'a CommandId>,
    /// The current incarnation of the history.
    pub epoch: Epoch,
    /// The cursor that the client sent.
    pub cursor: Seq,
    /// The last position of the history at the time of the request.
    pub head: Seq,
    /// The part of the history that follows.
    pub coverage: Coverage,
    /// Present for a resume with a signed state; the answer is then `agent.state_restored`.
    pub restored: Option<RestoredState<'a>>,
}

/// The session's state when a client resumes with a signed state.
#[derive(Clone, Copy, Debug)]
pub struct RestoredState<'a> {
    /// The number of steps in the running turn; 0 without one.
    pub step: u32,
    /// The number of messages in the model's history.
    pub messages: usize,
    /// The session's stage, if it runs a pipeline.
    pub stage: Option<&'a str>,
}

/// The first answer to a resume; it announces the range that follows. `agent.state_restored` for a signed state,
/// otherwise `system.notice` with the action `resume`.
#[must_use]
pub fn render_resumption(at: Timestamp, resumption: &Resumption<'_>, lang: Lang) -> Frame {
    let Resumption { session, command, epoch, cursor, head, coverage, restored } = *resumption;
    let id = match coverage {
        Coverage::Complete => "resume-complete",
        Coverage::Gap { .. } => "resume-gap",
        Coverage::Expired => "resume-expired",
        Coverage::EpochMismatch => "resume-epoch-mismatch",
    };
    let name = if restored.is_some() { "agent.state_restored" } else { "system.notice" };
    let from = match coverage {
        Coverage::Complete => cursor.saturating_add(1),
        Coverage::Gap { to, .. } => to.saturating_add(1),
        Coverage::Expired | Coverage::EpochMismatch => 1,
    };
    let frame = Frame::new(name, at)
        .about(session)
        .text(translate(id, Lang::En))
        .show(translate(id, lang))
        .with("action", "resume")
        .with("ok", matches!(coverage, Coverage::Complete | Coverage::Gap { .. }))
        .with("status", coverage.status())
        .with("command_id", command_id(command))
        .with("epoch", epoch.to_string())
        .with("cursor", cursor)
        .with("from", from)
        .with("to", head)
        .with("head", head);
    add_restored_fields(add_lost_fields(frame, coverage), at, session, restored)
}

fn add_lost_fields(frame: Frame, coverage: Coverage) -> Frame {
    match coverage {
        Coverage::Gap { from, to, reason } => {
            frame.with("lost", json!([from, to])).with("reason", reason.as_str())
        }
        Coverage::Expired => frame.with("recovery_strategy", "create_new_session"),
        Coverage::Complete | Coverage::EpochMismatch => frame,
    }
}

fn add_restored_fields(
    frame: Frame,
    at: Timestamp,
    session: SessionId,
    restored: Option<RestoredState<'_>>,
) -> Frame {
    let Some(RestoredState { step, messages, stage }) = restored else { return frame };
    frame
        .with("original_session_id", session.to_string())
        .with("restored_at", at.to_string())
        .with("restored_step", step)
        .with("message_count", messages)
        .with("agent_name", "budao")
        .with("previous_stage", stage.map_or(Value::Null, Value::from))
        .with("warnings", json!([]))
}

/// `system.notice` with the action `replay`: the missed frames are sent; live frames follow.
#[must_use]
pub fn render_replayed(
    at: Timestamp,
    head: Head,
    count: u64,
    coverage: Coverage,
    lang: Lang,
) -> Frame {
    let args = [("count", count.into())];
    let last = format!("{}.{}.{}", head.session, head.epoch, head.frame);
    notice(at, Some(head.session), "replay")
        .text(translate_with("replayed", &args, Lang::En))
        .show(translate_with("replayed", &args, lang))
        .with("ok", true)
        .with("status", coverage.status())
        .with("replayed", count)
        .with("count", count)
        .with("last_seq", head.frame)
        .with("last_event_id", last)
        .with("epoch", head.epoch.to_string())
        .with("head", head.seq)
}

/// The values of `agent.state_exported`.
#[derive(Clone, Copy, Debug)]
pub struct ExportedState<'a> {
    /// The session that the state describes.
    pub session: SessionId,
    /// The id of the command that requested the state, if the client set one.
    pub command: Option<&'a CommandId>,
    /// The incarnation of the history.
    pub epoch: Epoch,
    /// The last position that the state covers.
    pub seq: Seq,
    /// The signed state: opaque, base64url.
    pub signed: &'a str,
    /// The time at which the state expires.
    pub valid_until: Timestamp,
    /// The number of messages in the model's history.
    pub messages: usize,
    /// The number of steps in the running turn.
    pub step: u32,
}

/// `agent.state_exported`, the answer to `user.request_state`.
#[must_use]
pub fn render_state(at: Timestamp, state: &ExportedState<'_>, lang: Lang) -> Frame {
    Frame::new("agent.state_exported", at)
        .about(state.session)
        .text(translate("state-exported", Lang::En))
        .show(translate("state-exported", lang))
        .with("command_id", command_id(state.command))
        .with("signed_state", state.signed)
        .with("state_size", state.signed.len())
        .with("exported_at", at.to_string())
        .with("valid_until", state.valid_until.to_string())
        .with("epoch", state.epoch.to_string())
        .with("seq", state.seq)
        .with("message_count", state.messages)
        .with("current_step", state.step)
}

/// `system.notice` with the action `shutdown`: the client reconnects after `wait` and resumes.
#[must_use]
pub fn render_shutdown(at: Timestamp, wait: std::time::Duration, lang: Lang) -> Frame {
    notice(at, None, "shutdown")
        .text(translate("shutting-down", Lang::En))
        .show(translate("shutting-down", lang))
        .with("type", "maintenance")
        .with("severity", "medium")
        .with("retry_after_ms", millis(wait))
}
