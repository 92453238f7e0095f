//! The error type of tool code, and its conversion to a failure for the model.

use std::{any::Any, fmt, io};

use budao_core::{
    fault::{Advice, Fact, Fault, Kind, Operation, Progress},
    nesting,
    tool::Failure,
};
use serde_json::Value;

/// The error of a tool. Any error converts to it with `?`; its text then goes to the operator only. Use
/// [`ToolError::new`] for a text that the model should read.
#[derive(Debug)]
pub struct ToolError(Box<ToolErrorInner>);

#[derive(Debug)]
enum ToolErrorInner {
    Refused {
        reason: String,
        advice: Vec<String>,
        data: Option<Value>,
        /// What the author knows of the call's effect.
        progress: Option<Progress>,
        /// The errors behind it, outermost first.
        causes: Vec<String>,
    },
    Fault(Fault),
    Failure(Failure),
    Foreign(Fault),
}

impl ToolError {
    /// An error with a reason that the model reads.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(Box::new(ToolErrorInner::Refused {
            reason: reason.into(),
            advice: Vec::new(),
            data: None,
            progress: None,
            causes: Vec::new(),
        }))
    }

    /// Passes on an existing failure unchanged.
    #[must_use]
    pub fn failure(failure: Failure) -> Self {
        Self(Box::new(ToolErrorInner::Failure(failure)))
    }

    /// Adds a line of advice for the model: what to do with its call. People do not read it.
    #[must_use]
    pub fn advise_model(mut self, line: impl Into<String>) -> Self {
        let line = line.into();
        match &mut *self.0 {
            ToolErrorInner::Refused { advice, .. } => advice.push(line),
            ToolErrorInner::Fault(fault) | ToolErrorInner::Foreign(fault) => {
                *fault = fault.clone().advise_model([Advice::Custom(line)]);
            }
            ToolErrorInner::Failure(failure) => {
                failure.fault = failure.fault.clone().advise_model([Advice::Custom(line)]);
            }
        }
        self
    }

    /// Adds the error behind this one. The operator reads it, the model does not.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        match &mut *self.0 {
            ToolErrorInner::Refused { causes, .. } => {
                let chain = std::iter::successors(Some(error), |error| error.source());
                causes.extend(chain.map(ToString::to_string));
            }
            ToolErrorInner::Fault(fault) | ToolErrorInner::Foreign(fault) => {
                *fault = fault.clone().caused_by(error);
            }
            ToolErrorInner::Failure(failure) => {
                failure.fault = failure.fault.clone().caused_by(error);
            }
        }
        self
    }

    /// States that the call did nothing: it may be made again, and is if its kind allows that.
    #[must_use]
    pub fn did_not_happen(self) -> Self {
        self.progress(Progress::NotBegun)
    }

    /// States that the call may have been done: it is never repeated by itself unless the tool is idempotent.
    #[must_use]
    pub fn may_have_happened(self) -> Self {
        self.progress(Progress::Unconfirmed)
    }

    /// States that the call was done and that only its answer is lost.
    #[must_use]
    pub fn answer_lost(self) -> Self {
        self.progress(Progress::Done)
    }

    fn progress(mut self, known: Progress) -> Self {
        match &mut *self.0 {
            ToolErrorInner::Refused { progress, .. } => *progress = Some(known),
            ToolErrorInner::Fault(fault) | ToolErrorInner::Foreign(fault) => {
                *fault = fault.clone().with_progress(known);
            }
            ToolErrorInner::Failure(failure) => {
                failure.fault = failure.fault.clone().with_progress(known);
            }
        }
        self
    }

    /// Sets the data for the model; earlier data is replaced.
    #[must_use]
    pub fn data(mut self, data: impl Into<Value>) -> Self {
        let mut more = data.into();
        nesting::bound(&mut more);
        match *self.0 {
            ToolErrorInner::Refused { ref mut data, .. } => *data = Some(more),
            ToolErrorInner::Failure(ref mut failure) => failure.data = Some(more),
            ToolErrorInner::Fault(fault) | ToolErrorInner::Foreign(fault) => {
                let failure = Failure { fault, data: Some(more), note: None };
                self.0 = Box::new(ToolErrorInner::Failure(failure));
            }
        }
        self
    }

    /// Converts the error to the failure of a call of `tool`.
    #[must_use]
    pub fn into_failure(self, tool: &str) -> Failure {
        let named = |fault: Fault| match fault.detail().get(Fact::ToolName) {
            Some(_) => fault,
            None => fault.with(Fact::ToolName, tool.to_owned()),
        };
        match *self.0 {
            ToolErrorInner::Refused { reason, advice, data, progress, causes } => {
                let fault = named(Fault::new(Kind::ToolSaidNo, Operation::ToolCall));
                let fault = fault.with(Fact::Reason, reason);
                let fault = fault.with_progress(progress.unwrap_or(Progress::Ended));
                let fault = fault.advise_model(advice.into_iter().map(Advice::Custom));
                let fault = causes.into_iter().fold(fault, Fault::with_cause);
                Failure { fault, data, note: None }
            }
            ToolErrorInner::Fault(fault) | ToolErrorInner::Foreign(fault) => {
                Failure { fault: named(fault), data: None, note: None }
            }
            ToolErrorInner::Failure(failure) => Failure { fault: named(failure.fault), ..failure },
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ToolErrorInner::Refused { reason, .. } => f.write_str(reason),
            ToolErrorInner::Fault(fault) | ToolErrorInner::Foreign(fault) => fault.fmt(f),
            ToolErrorInner::Failure(failure) => failure.fault.fmt(f),
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let any: &dyn Any = &error;
        if let Some(fault) = any.downcast_ref::<Fault>() {
            return Self(Box::new(ToolErrorInner::Fault(fault.clone())));
        }
        let kind = any.downcast_ref::<io::Error>().map_or(Kind::ToolFailed, kind_of_io);
        let fault = Fault::new(kind, Operation::ToolCall).caused_by(&error);
        Self(Box::new(ToolErrorInner::Foreign(fault)))
    }
}

/// The kind for a system error, as far as the error shows who can resolve it.
fn kind_of_io(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::DiskFull,
        io::ErrorKind::ConnectionRefused => Kind::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            Kind::NetworkUnavailable
        }
        io::ErrorKind::TimedOut => Kind::RequestTimedOut,
        io::ErrorKind::OutOfMemory => Kind::OutOfMemory,
        _ => Kind::ToolFailed,
    }
}
