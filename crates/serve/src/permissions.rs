//! Permissions that a session remembers: a person allowed a tool for the rest of the session, until it is revoked.

use budao_core::{
    Fault, Kind,
    event::{CommandBody, Decision, QuestionPurpose, SessionId},
    fault::{Fact, Operation},
    session::Session,
    spending::RAISE_CAP,
    trace::{SpanId, Trace},
};
use budao_journal::fold;

use crate::{
    inbound::Request,
    server::{CommandRequest, Server},
};

impl Server {
    /// The tool whose permission a request asks to remember. `None` if it asks for nothing, or its question is closed:
    /// a repeated answer changes nothing.
    pub(crate) async fn tool_to_remember(
        &self,
        session: SessionId,
        request: &Request,
    ) -> Result<Option<String>, Fault> {
        let Request::Response { question, decision: Decision::Allow, remember: true, .. } = request
        else {
            return Ok(None);
        };
        let (state, _) = fold(&*self.journal, session).await?;
        let calls = state.turn.iter().flat_map(|turn| &turn.calls);
        let asked = calls.filter_map(|call| Some((call, call.open_question()?)));
        let mut asked = asked.filter(|(_, open)| open.question == question);
        match asked.next() {
            Some((call, open)) if open.purpose == QuestionPurpose::Permission => {
                check_can_remember(&state, &call.tool).map(|()| Some(call.tool.clone()))
            }
            Some(_) => {
                Err(not_rememberable_fault("only a permission for a call can be remembered"))
            }
            None => Ok(None),
        }
    }

    /// Remembers the permission for a tool, after the question about it was answered.
    pub(crate) async fn remember(
        &self,
        session: SessionId,
        tool: String,
        by: &str,
    ) -> Result<(), Fault> {
        let body = CommandBody::RememberPermission { tool };
        let (trace, parent) = (Trace::NONE, SpanId::NONE);
        let request = CommandRequest { by: by.to_owned(), command: None, trace, parent, body };
        self.submit(session, request).await.map(drop)
    }
}

/// Refuses to remember a permission that no later call would use.
fn check_can_remember(state: &Session, tool: &str) -> Result<(), Fault> {
    if state.settings.is_foreign() {
        return Err(Fault::new(Kind::UnsupportedOperation, Operation::SubmitCommand)
            .with(Fact::Reason, "the engine of this session remembers no permissions"));
    }
    if tool == RAISE_CAP {
        return Err(not_rememberable_fault(
            "a raised cap is not remembered; each one is asked for",
        ));
    }
    Ok(())
}

fn not_rememberable_fault(rule: &'static str) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, "content.remember")
        .with(Fact::Constraint, rule)
        .with(Fact::ProvidedValue, serde_json::json!("session"))
}
