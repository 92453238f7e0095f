//! Texts of the session's model that a tool server asks for while a call runs.
//!
//! Each is the answer of a child session without tools and with one step, so it passes the gate, counts towards the
//! caps of its parent's turn, and is recorded. The same request of the same call has the same child.

use budao_core::{
    event::{ChildLink, Event, Origin},
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    turn::Input,
};
use budao_tools::{Sample, SampleRequest};
use tokio_util::sync::CancellationToken;

use crate::{
    child::{self, Child, ChildEvent, ChildOverrides, ChildResult},
    work::WorkContext,
};
use budao_core::event::{TaskEnd, TurnNumber};

/// Runs the child of a request to its end.
pub(crate) async fn run(
    work_context: WorkContext,
    (turn, call): (TurnNumber, CallId),
    request: SampleRequest,
    cancel: CancellationToken,
) -> Result<Sample, Fault> {
    let child = child_for(&work_context, &call, request).await?;
    let opened = Event::ChildOpened(ChildLink {
        child: child.id,
        call: Some(call.clone()),
        stage: None,
        task: None,
    });
    work_context.report(Input::RecordOnly { turn, event: opened }).await;
    let worked = tokio::select! {
        biased;
        () = cancel.cancelled() => child::stop(&work_context.runtime, child.id).await,
        worked = run_child(&work_context, &child) => worked,
    };
    let worked = worked?;
    if let Some(event) = worked.cost_record(&work_context.runtime, child.id) {
        work_context.report(Input::RecordOnly { turn, event }).await;
    }
    let ChildResult { end, usage, .. } = worked;
    let ended =
        Event::ChildEnded { child: child.id, call: Some(call), stage: None, task: None, usage };
    work_context.report(Input::RecordOnly { turn, event: ended }).await;
    match end {
        TaskEnd::Completed { output } => {
            Ok(Sample { text: output, model: child.settings.model.clone() })
        }
        TaskEnd::Failed { fault } => Err(fault),
        TaskEnd::Cancelled { .. } => Err(Fault::new(Kind::Cancelled, Operation::StartAgent)),
    }
}

async fn child_for(
    work_context: &WorkContext,
    call: &CallId,
    request: SampleRequest,
) -> Result<Child, Fault> {
    let (parent, depth) = (work_context.session, work_context.depth);
    let limit = work_context.shared.limits.depth;
    if depth >= limit {
        return Err(Fault::new(Kind::DepthExceeded, Operation::StartAgent)
            .with(Fact::Limit, limit)
            .with(Fact::Depth, depth + 1)
            .with(Fact::LimitName, "depth"));
    }
    let session = work_context.runtime.state(parent).await?;
    let wanted = ChildOverrides {
        title: format!("{}: text for the server", request.server),
        system: Some(request.system.unwrap_or_default().into()),
        tools: Some(Vec::new()),
        max_steps: Some(1),
        ..ChildOverrides::default()
    };
    let mut settings = child::child_settings(&session.settings, wanted);
    let asked = request.max_tokens;
    settings.max_answer_tokens = [settings.max_answer_tokens, asked].into_iter().flatten().min();
    child::share_caps(&mut settings, &work_context.shared.limits, parent, session.turns);
    Ok(Child {
        id: child::child_id(parent, &["sample", &call.0, &request.place, &request.prompt]),
        settings,
        origin: Origin::Call { parent, call: call.clone(), depth: depth + 1 },
        prompt: request.prompt,
        trace: session.trace(),
        span: budao_core::trace::SpanId::of_call(parent, session.turns, call, 1),
    })
}

async fn run_child(work_context: &WorkContext, child: &Child) -> Result<ChildResult, Fault> {
    let mut watch = child::start_and_watch(&work_context.runtime, child).await?;
    loop {
        if let ChildEvent::Ended(result) = watch.next().await? {
            return Ok(result);
        }
    }
}
