//! Faults: everything that can go wrong, classified by which party can act on it.
//!
//! One type crosses every boundary. The catalog (`catalog/faults.toml`, generated into [`Kind`]) describes each kind;
//! the fields describe the single fault. The code that detects a failure creates the fault; no other code reclassifies
//! it.
//!
//! The text of a foreign error is a cause, and only the operator reads causes. The model and the user read the
//! catalog's sentence, filled with facts, and any explicit [`Advice`]. `Display` is the operator's line and includes
//! the causes, so [`std::error::Error::source`] returns none.

mod detail;
mod echo;
mod kind;
pub mod render;
pub mod repeat;
mod row;
pub mod text;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use budao_scrub::Scrubber;
use serde::{Deserialize, Serialize};

pub use detail::{Detail, FactValue, Mismatch, Shape};
pub(crate) use echo::with_own_words;
pub use kind::{Fact, Kind, Operation};
pub use repeat::{Progress, Repeat};
pub use row::{
    Announcement, CatalogRow, Category, EditorOutcome, ErrorType, Next, Remedy, Severity, Strategy,
};

use crate::{nesting, trace::Trace};

/// One failure: a kind, the operation that failed, and typed details.
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
    model_advice: Vec<Advice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    user_advice: Vec<Advice>,
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
    /// The host that scrubbing took from the facts, for operators alone: `10.0.0.7:9000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator_host: Option<String>,
    /// The server that recorded the fault, for operators alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<Arc<NodeIdentity>>,
}

/// Whether serde skips the field; serde passes it by reference.
fn is_none(trace: &Trace) -> bool {
    !trace.is_some()
}

/// The retry count of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// The most attempts there can be in a round, the first included.
    pub max: u32,
    /// Whether another round of attempts follows this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
}

/// A component that a fault passed through: `mcp server → computer → server → agent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The component's role: `mcp_server`, `computer`, `server`, `agent`, `cli`.
    pub role: Cow<'static, str>,
    /// The configured or advertised name of the component.
    pub name: String,
}

/// The server that recorded a fault. A record of a take-over needs none: each fault names its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// The server's name among its peers, such as `host` or `host:port`.
    pub node: String,
    /// The version of the program.
    pub version: String,
}

/// A line of advice for this one fault. It precedes the catalog's general ones for the same audience.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Advice {
    /// A text of the catalog (`advice-…`), rendered in the reader's language.
    Known {
        /// The message's id without its `advice-` prefix.
        advice: Cow<'static, str>,
        /// The facts that the text refers to.
        #[serde(default, skip_serializing_if = "Detail::is_empty")]
        with: Detail,
    },
    /// A text from a tool's author, verbatim and not translated.
    Custom(String),
}

impl Advice {
    /// Advice from the catalog, without arguments; `advice` is the id without its `advice-` prefix.
    #[must_use]
    pub fn known(advice: &'static str) -> Self {
        Self::Known { advice: advice.into(), with: Detail::new() }
    }
}

impl Fault {
    /// A fault of this kind, detected during `operation`.
    #[must_use]
    pub fn new(kind: Kind, operation: Operation) -> Self {
        Self(Box::new(FaultInner {
            kind,
            operation,
            detail: Detail::new(),
            mismatches: Vec::new(),
            model_advice: Vec::new(),
            user_advice: Vec::new(),
            attempts: None,
            retry_after_ms: None,
            trace: Trace::NONE,
            hops: Vec::new(),
            causes: Vec::new(),
            operator_host: None,
            server: None,
        }))
    }

    /// Adds a fact; a second value for the same fact replaces the first.
    #[must_use]
    pub fn with(mut self, fact: Fact, value: impl Into<FactValue>) -> Self {
        self.0.detail.set(fact, value.into());
        self
    }

    /// Adds a mismatch between arguments and schema.
    #[must_use]
    pub fn mismatch(mut self, mut mismatch: Mismatch) -> Self {
        mismatch.allowed.iter_mut().for_each(nesting::bound);
        self.0.mismatches.push(mismatch);
        self
    }

    /// Appends advice for the model: what to do with its call. People never read it.
    #[must_use]
    pub fn advise_model(mut self, advice: impl IntoIterator<Item = Advice>) -> Self {
        self.0.model_advice.extend(advice);
        self
    }

    /// Appends advice for people: the user of a front end, or of the command line. The model never reads it.
    #[must_use]
    pub fn advise_user(mut self, advice: impl IntoIterator<Item = Advice>) -> Self {
        self.0.user_advice.extend(advice);
        self
    }

    /// Adds a foreign error and its whole source chain as causes, for the operator.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Many libraries repeat the source in their own text; a repeated cause is left out.
            if !self.0.causes.last().is_some_and(|last| last.ends_with(&text)) {
                self.0.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds a cause as text, for the operator.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.0.causes.push(cause.into());
        self
    }

    /// Sets the attempt that failed, from 1, and the most attempts there can be.
    #[must_use]
    pub fn attempt(mut self, attempt: u32, max: u32) -> Self {
        self.0.attempts = Some(Attempts { attempt, max, continues: false });
        self
    }

    /// States that another round of attempts follows, so that texts do not call the last attempt of a round the last.
    #[must_use]
    pub fn continues(mut self) -> Self {
        if let Some(attempts) = &mut self.0.attempts {
            attempts.continues = true;
        }
        self
    }

    /// Sets the delay that a service asked for before the next request.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after_ms = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The fault before a turn stated its attempts and the delay until the next one.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        (self.0.retry_after_ms, self.0.attempts) = (None, None);
        self
    }

    /// The fault before the cause that was added last.
    #[must_use]
    pub fn without_last_cause(mut self) -> Self {
        self.0.causes.pop();
        self
    }

    /// States that the cancelled work had not started, so it left no traces.
    #[must_use]
    pub fn not_started(self) -> Self {
        self.with(Fact::State, "not_started")
    }

    /// Sets the trace, unless the fault has one.
    #[must_use]
    pub fn with_trace(mut self, trace: Trace) -> Self {
        self.0.trace = self.0.trace.or(trace);
        self
    }

    /// Appends a component that the fault passed through. Hops are never removed.
    #[must_use]
    pub fn via(mut self, role: &'static str, name: impl Into<String>) -> Self {
        self.0.hops.push(Hop { role: role.into(), name: name.into() });
        self
    }

    /// Scrubs every text of the fault. Required before a fault is recorded, logged or sent.
    ///
    /// Numbers, kind and operation names, and the trace are kept. A host that the facts lose is kept for operators,
    /// without user, password and path: [`Fault::address`].
    #[must_use]
    pub fn scrub(mut self, scrubber: &Scrubber) -> Self {
        let inner = &mut *self.0;
        let host = inner.detail.text(Fact::Host).map(str::to_owned);
        inner.detail.scrub(scrubber);
        if let Some(host) = host
            && inner.detail.text(Fact::Host) != Some(&host)
            && let Some(host) = host_of(&host).filter(|host| scrubber.scrub_exact(host) == *host)
        {
            inner.operator_host = Some(host.to_owned());
        }
        for mismatch in &mut inner.mismatches {
            mismatch.scrub(scrubber);
        }
        for advice in inner.model_advice.iter_mut().chain(&mut inner.user_advice) {
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

    /// The kind, which determines the catalog row.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The catalog's row for the kind.
    #[must_use]
    pub fn row(&self) -> &'static CatalogRow {
        self.0.kind.row()
    }

    /// The operation that failed.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The facts of this fault, in catalog order.
    #[must_use]
    pub fn detail(&self) -> &Detail {
        &self.0.detail
    }

    /// Mismatches between arguments and schema; empty for most kinds.
    #[must_use]
    pub fn mismatches(&self) -> &[Mismatch] {
        &self.0.mismatches
    }

    /// The advice for the model about this one fault, most specific first.
    #[must_use]
    pub fn model_advice(&self) -> &[Advice] {
        &self.0.model_advice
    }

    /// The advice for people about this one fault, most specific first.
    #[must_use]
    pub fn user_advice(&self) -> &[Advice] {
        &self.0.user_advice
    }

    /// The retry count; absent if none was set.
    #[must_use]
    pub fn attempts(&self) -> Option<Attempts> {
        self.0.attempts
    }

    /// The delay that a service asked for before the next request.
    #[must_use]
    pub fn retry_hint(&self) -> Option<Duration> {
        self.0.retry_after_ms.map(Duration::from_millis)
    }

    /// All zeros when the fault belongs to no trace.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.0.trace
    }

    /// The components that the fault passed through, in order.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.0.hops
    }

    /// The foreign errors behind the fault, outermost first. For the operator only.
    #[must_use]
    pub fn causes(&self) -> &[String] {
        &self.0.causes
    }

    /// The address that a network fault concerns, or the host that scrubbing took from the facts of any fault. For
    /// operators and the command line; texts for remote users leave it out.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        if let Some(host) = &self.0.operator_host {
            return Some(host);
        }
        let is_network = self.row().code.starts_with("ERR_NET_");
        let named = [Fact::Host, Fact::Endpoint].into_iter();
        named.filter(|_| is_network).find_map(|fact| self.0.detail.text(fact))
    }

    /// The server that recorded the fault; `None` if its program has no name or the fault is not recorded.
    #[must_use]
    pub fn server(&self) -> Option<&Arc<NodeIdentity>> {
        self.0.server.as_ref()
    }

    /// Sets the server that records the fault, unless another one recorded it before.
    pub fn set_server(&mut self, server: &Arc<NodeIdentity>) {
        self.0.server.get_or_insert_with(|| Arc::clone(server));
    }

    /// Removes what only operators may see, for a copy of the record that a user gets. Returns whether there was any.
    pub fn hide_from_user(&mut self) -> bool {
        let hidden = (self.0.operator_host.take(), self.0.server.take());
        hidden != (None, None)
    }

    /// Whether the runtime may repeat the operation by itself. False when its attempts are used up, so that an outer
    /// loop does not multiply an inner one, and when the work may have been done: see [`repeat`].
    #[must_use]
    pub fn may_auto_retry(&self) -> bool {
        let is_left = |tries: Attempts| tries.attempt < tries.max || tries.continues;
        self.repeat().auto_retry && self.0.attempts.is_none_or(is_left)
    }
}

impl fmt::Display for Fault {
    /// The operator's line: code, operation, summary, address, attempts and causes. Always a single line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        write!(f, "{} {}: ", row.code, self.0.operation)?;
        let summary = text::summary(self);
        on_one_line(f, &summary)?;
        if let Some(address) = self.address().filter(|address| !summary.contains(*address)) {
            f.write_str(" (at ")?;
            on_one_line(f, address)?;
            f.write_str(")")?;
        }
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

/// The host and port of an address, if it has nothing else but a scheme, a user and a path, which are left out.
fn host_of(address: &str) -> Option<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let is_host = (1..=260).contains(&host.len()) && host.bytes().all(is_plain);
    // A marker of the scrubber has brackets too, and a space or no dot.
    (is_host && (!host.starts_with('[') || host.contains(':'))).then_some(host)
}

/// Replaces line breaks with `; `, so that no text can imitate another log line.
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
    /// All non-empty fields, on several lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.debug_struct("Fault")
            .field("kind", &inner.kind)
            .field("operation", &inner.operation)
            .field("detail", &inner.detail)
            .field("mismatches", &inner.mismatches)
            .field("model_advice", &inner.model_advice)
            .field("user_advice", &inner.user_advice)
            .field("attempts", &inner.attempts)
            .field("retry_after_ms", &inner.retry_after_ms)
            .field("trace", &inner.trace)
            .field("hops", &inner.hops)
            .field("causes", &inner.causes)
            .field("operator_host", &inner.operator_host)
            .field("server", &inner.server)
            .finish()
    }
}

impl std::error::Error for Fault {}
