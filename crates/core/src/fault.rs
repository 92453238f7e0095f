//! Faults: everything that can go wrong, sorted by who can do something about it.
//!
//! One type crosses every boundary. What is known about its *kind* stands in the catalog
//! (`catalog/faults.toml`, generated into [`Kind`]); what is known about *this one* is in its fields.
//! A fault is made where the failure happens, and nobody classifies it again.
//!
//! Safe by default: the text of a foreign error is a cause, and causes are for the operator alone.
//! The model and the user read the catalog's sentence, filled with facts, until someone writes
//! [`Advice`] on purpose. `Display` is the operator's line with its causes in it, so
//! [`std::error::Error::source`] returns nothing: told once.

mod detail;
mod kind;
pub mod render;
pub mod repeat;
mod row;
pub mod text;

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize};

pub use detail::{Detail, FactValue, Mismatch, Shape};
pub use kind::{Fact, Kind, Operation};
pub use repeat::{Progress, Repeat};
pub use row::{
    Announcement, CatalogRow, Category, EditorOutcome, ErrorType, Next, Remedy, Severity, Strategy,
};

use crate::{nesting, scrub::Scrubber, trace::Trace};

/// One failure. See the module for what its fields mean to whom.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fault(Box<FaultInner>);

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct FaultInner {
    kind: Kind,
    operation: Operation,
    #[serde(default, skip_serializing_if = "Detail::is_empty")]
    detail: Detail,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mismatches: Vec<Mismatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    advice: Vec<Advice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<Attempts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_none")]
    trace: Trace,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hops: Vec<Hop>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
}

/// By reference, as serde asks.
fn is_none(trace: &Trace) -> bool {
    !trace.is_some()
}

/// Where a fault stands in its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The try that failed; the first is 1.
    pub attempt: u32,
    /// How many tries there are in all, the first counted.
    pub max: u32,
}

/// A place a fault passed on its way here: `mcp server → computer → server → agent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// What sort of place: `mcp_server`, `computer`, `server`, `agent`, `cli`.
    pub role: Cow<'static, str>,
    /// Its name.
    pub name: String,
}

/// A recommendation written for this fault. It stands before the catalog's general ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Advice {
    /// A text of the catalog (`advice-…`), rendered in the reader's language.
    Known {
        /// The message's id without its `advice-` prefix.
        advice: Cow<'static, str>,
        /// What the text is filled with.
        #[serde(default, skip_serializing_if = "Detail::is_empty")]
        with: Detail,
    },
    /// Words of a tool's author, kept as they are.
    Custom(String),
}

impl Advice {
    /// A text of the catalog without arguments.
    #[must_use]
    pub fn known(advice: &'static str) -> Self {
        Self::Known { advice: advice.into(), with: Detail::new() }
    }
}

impl Fault {
    /// A fault of this kind, met while doing `operation`.
    #[must_use]
    pub fn new(kind: Kind, operation: Operation) -> Self {
        Self(Box::new(FaultInner {
            kind,
            operation,
            detail: Detail::new(),
            mismatches: Vec::new(),
            advice: Vec::new(),
            attempts: None,
            retry_after_ms: None,
            trace: Trace::NONE,
            hops: Vec::new(),
            causes: Vec::new(),
        }))
    }

    /// Adds a fact; the last word on a fact wins.
    #[must_use]
    pub fn with(mut self, fact: Fact, value: impl Into<FactValue>) -> Self {
        self.0.detail.set(fact, value.into());
        self
    }

    /// Adds a place where arguments do not fit.
    #[must_use]
    pub fn mismatch(mut self, mut mismatch: Mismatch) -> Self {
        mismatch.allowed.iter_mut().for_each(nesting::bound);
        self.0.mismatches.push(mismatch);
        self
    }

    /// Adds advice behind what is already there.
    #[must_use]
    pub fn advise(mut self, advice: impl IntoIterator<Item = Advice>) -> Self {
        self.0.advice.extend(advice);
        self
    }

    /// Adds a foreign error with its whole chain, for the operator.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Many libraries repeat the cause in their own text; saying it once is enough.
            if !self.0.causes.last().is_some_and(|last| last.ends_with(&text)) {
                self.0.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds a cause in words, for the operator.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.0.causes.push(cause.into());
        self
    }

    /// Says which try this was.
    #[must_use]
    pub fn attempt(mut self, attempt: u32, max: u32) -> Self {
        self.0.attempts = Some(Attempts { attempt, max });
        self
    }

    /// Says when a service wants to be asked again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after_ms = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Says that what was cancelled had not begun, so that nobody looks for traces of it.
    #[must_use]
    pub fn not_started(self) -> Self {
        self.with(Fact::State, "not_started")
    }

    /// Gives it a trace, unless it brought one.
    #[must_use]
    pub fn with_trace(mut self, trace: Trace) -> Self {
        self.0.trace = self.0.trace.or(trace);
        self
    }

    /// Notes a place it passed. Hops are added, never removed.
    #[must_use]
    pub fn via(mut self, role: &'static str, name: impl Into<String>) -> Self {
        self.0.hops.push(Hop { role: role.into(), name: name.into() });
        self
    }

    /// The same fault with every text of it scrubbed: what may be recorded, logged or sent.
    ///
    /// Numbers, names of kinds and operations, and the trace are kept.
    #[must_use]
    pub fn scrub(mut self, scrubber: &Scrubber) -> Self {
        let inner = &mut *self.0;
        inner.detail.scrub(scrubber);
        for mismatch in &mut inner.mismatches {
            mismatch.scrub(scrubber);
        }
        for advice in &mut inner.advice {
            match advice {
                Advice::Known { with, .. } => with.scrub(scrubber),
                Advice::Custom(text) => detail::scrub_string(text, scrubber),
            }
        }
        for cause in &mut inner.causes {
            detail::scrub_string(cause, scrubber);
        }
        for hop in &mut inner.hops {
            detail::scrub_string(&mut hop.name, scrubber);
        }
        self
    }

    /// Which sort of fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What the catalog says about its kind.
    #[must_use]
    pub fn row(&self) -> &'static CatalogRow {
        self.0.kind.row()
    }

    /// What we were doing.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The facts.
    #[must_use]
    pub fn detail(&self) -> &Detail {
        &self.0.detail
    }

    /// Where arguments do not fit.
    #[must_use]
    pub fn mismatches(&self) -> &[Mismatch] {
        &self.0.mismatches
    }

    /// What was written for this one, specific first.
    #[must_use]
    pub fn advice(&self) -> &[Advice] {
        &self.0.advice
    }

    /// Where it stands in its retries.
    #[must_use]
    pub fn attempts(&self) -> Option<Attempts> {
        self.0.attempts
    }

    /// When a service wants to be asked again.
    #[must_use]
    pub fn retry_hint(&self) -> Option<Duration> {
        self.0.retry_after_ms.map(Duration::from_millis)
    }

    /// Its trace.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.0.trace
    }

    /// Where it passed, first place first.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.0.hops
    }

    /// The foreign errors behind it, outermost first. For the operator alone.
    #[must_use]
    pub fn causes(&self) -> &[String] {
        &self.0.causes
    }

    /// May the runtime repeat it by itself? Not when its tries are used up: an outer loop must not
    /// multiply an inner one. And not when the work may have been done: see [`repeat`].
    #[must_use]
    pub fn may_auto_retry(&self) -> bool {
        self.repeat().auto_retry && self.0.attempts.is_none_or(|tries| tries.attempt < tries.max)
    }
}

impl fmt::Display for Fault {
    /// The operator's line: code, operation, summary, where it stands, and the causes, once. One line,
    /// whatever is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        write!(f, "{} {}: ", row.code, self.0.operation)?;
        on_one_line(f, &text::summary(self))?;
        if let Some(tries) = self.0.attempts {
            write!(f, " (attempt {} of {})", tries.attempt, tries.max)?;
        }
        for hop in &self.0.hops {
            write!(f, " via {} ", hop.role)?;
            on_one_line(f, &hop.name)?;
        }
        for cause in &self.0.causes {
            f.write_str(": ")?;
            on_one_line(f, cause)?;
        }
        Ok(())
    }
}

/// Line breaks become `; `, so that nothing in a text can look like another log line.
fn on_one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let lines = text.split(['\n', '\r']).map(str::trim_end).filter(|line| !line.is_empty());
    for (index, line) in lines.enumerate() {
        if index > 0 {
            f.write_str("; ")?;
        }
        f.write_str(line)?;
    }
    Ok(())
}

impl fmt::Debug for Fault {
    /// A page: every field that says something.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.debug_struct("Fault")
            .field("kind", &inner.kind)
            .field("operation", &inner.operation)
            .field("detail", &inner.detail)
            .field("mismatches", &inner.mismatches)
            .field("advice", &inner.advice)
            .field("attempts", &inner.attempts)
            .field("retry_after_ms", &inner.retry_after_ms)
            .field("trace", &inner.trace)
            .field("hops", &inner.hops)
            .field("causes", &inner.causes)
            .finish()
    }
}

impl std::error::Error for Fault {}
