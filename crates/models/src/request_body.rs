//! Request bodies in parts. What a request has in common with the one before it is encoded once and shared.
//!
//! A history only grows at its end, so nearly all of a request's JSON is that of the request before. A provider keeps the
//! encoded messages of the sessions it served last, within a bound for all of them together. Messages are known again
//! by their allocation: a changed message is another allocation, and the history is then encoded anew.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    ops::Range,
    ptr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use budao_core::{
    message::{Block, Message, ModelRequest, Role},
    tool::ToolSpec,
};
use bytes::Bytes;
use futures::stream;
use serde::Serialize;

/// Encoded messages are gathered into parts of at least this size.
const PART_BYTES: usize = 16 * 1024;
/// Upper bound of what a provider keeps for all sessions together, in bytes of JSON.
const KEPT_BYTES: usize = 16 * 1024 * 1024;
/// Upper bound of the sessions that a provider keeps something for.
const KEPT_SESSIONS: usize = 256;

/// How a service wants a request: an object of options, the tools, and a list of messages.
pub(crate) trait WireFormat {
    /// The name of the list of messages.
    const LIST: &'static str;

    /// Tells encodings of the same message and the same tools apart.
    fn variant(&self) -> u8;

    /// Every field except the tools and the list of messages, as a JSON object that is not empty.
    fn options(&self, request: &ModelRequest) -> Vec<u8>;

    /// The value of the field `tools`; `None` without tools.
    fn tools(&self, request: &ModelRequest) -> Option<Vec<u8>>;

    /// Writes what comes before the first message, each item after a comma.
    fn write_first(&self, _request: &ModelRequest, _out: &mut Vec<u8>) {}

    /// The end of the run of messages from `from` on that are encoded together.
    fn run_end(&self, _history: &[Arc<Message>], from: usize) -> usize {
        from + 1
    }

    /// Writes the items of a run, each after a comma. `is_last` for the last run of the request.
    fn write_run(
        &self,
        history: &[Arc<Message>],
        run: Range<usize>,
        is_last: bool,
        out: &mut Vec<u8>,
    );

    /// The whole body, encoded anew.
    #[cfg(feature = "probe")]
    fn encode(&self, request: &ModelRequest) -> Vec<u8>
    where
        Self: Sized,
    {
        EncodedSessions::default().body(self, request).to_vec()
    }
}

/// Writes an item of a list after a comma.
pub(crate) fn write_item(item: &impl Serialize, out: &mut Vec<u8>) {
    out.push(b',');
    serde_json::to_writer(out, item).expect("strings, numbers and JSON always serialise");
}

/// Serialises a value that always can be.
pub(crate) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and JSON always serialise")
}

/// The end of the run of messages that a service wants as one: those of the same role, with what is not sent between.
pub(crate) fn role_run_end(
    history: &[Arc<Message>],
    from: usize,
    is_sent: impl Fn(&Message) -> bool,
) -> usize {
    let mut role: Option<Role> = None;
    for (index, message) in history.iter().enumerate().skip(from) {
        if role != Some(message.role) && is_sent(message) {
            if role.is_some() {
                return index;
            }
            role = Some(message.role);
        }
    }
    history.len()
}

/// The body of a request, in parts that other requests may share.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody(Vec<Bytes>);

impl RequestBody {
    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// The body for the HTTP client. The caller says its length in a header.
    pub(crate) fn into_http(self) -> reqwest::Body {
        reqwest::Body::wrap_stream(stream::iter(self.0.into_iter().map(Ok::<_, Infallible>)))
    }

    #[cfg(feature = "probe")]
    pub(crate) fn into_parts(self) -> Vec<Bytes> {
        self.0
    }

    #[cfg(feature = "probe")]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// The encoded histories of the sessions that a provider served last.
#[derive(Clone, Default)]
pub(crate) struct EncodedSessions(Arc<Mutex<KeptSessions>>);

#[derive(Default)]
struct KeptSessions {
    by_key: HashMap<Arc<str>, EncodedSession>,
    /// Counts requests; the session with the lowest number was served longest ago.
    requests: u64,
    bytes: usize,
}

impl fmt::Debug for EncodedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedSessions").finish_non_exhaustive()
    }
}

impl EncodedSessions {
    /// The body of a request. Only what is new in its session is encoded.
    pub(crate) fn body<F: WireFormat>(&self, format: &F, request: &ModelRequest) -> RequestBody {
        let key = request.cache_key.as_ref();
        let kept = key.and_then(|key| self.take(key));
        let kept = kept.filter(|kept| kept.is_start_of(format, &request.messages));
        let mut session = kept.unwrap_or_else(|| EncodedSession::new(format.variant()));
        let tools = session.tools(format, request);
        let last = session.extend(format, &request.messages);
        let body = assemble(format, request, tools, (&session.parts, last));
        if let Some(key) = key {
            self.keep(key, session);
        }
        body
    }

    fn take(&self, key: &str) -> Option<EncodedSession> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = kept.by_key.remove(key)?;
        kept.bytes -= session.size();
        Some(session)
    }

    /// Keeps a session, and drops those that are not loaded any more or were served longest ago.
    fn keep(&self, key: &Arc<str>, mut session: EncodedSession) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        kept.requests += 1;
        session.served = kept.requests;
        kept.by_key.insert(Arc::clone(key), session);
        kept.by_key.retain(|_, session| session.is_loaded());
        kept.bytes = kept.by_key.values().map(EncodedSession::size).sum();
        while kept.bytes > KEPT_BYTES || kept.by_key.len() > KEPT_SESSIONS {
            let oldest = kept.by_key.iter().min_by_key(|(_, session)| session.served);
            let Some(oldest) = oldest.map(|(key, _)| Arc::clone(key)) else { break };
            let dropped = kept.by_key.remove(&oldest);
            kept.bytes -= dropped.map_or(0, |session| session.size());
        }
    }
}

/// Joins the parts of a body. Every item of the list has a comma in front; the first one loses it.
fn assemble<F: WireFormat>(
    format: &F,
    request: &ModelRequest,
    tools: Option<Bytes>,
    (kept, last): (&[Bytes], Vec<u8>),
) -> RequestBody {
    let mut options = format.options(request);
    options.pop();
    let mut parts = Vec::with_capacity(kept.len() + 4);
    if let Some(tools) = tools {
        options.extend_from_slice(br#","tools":"#);
        parts.extend([Bytes::from(std::mem::take(&mut options)), tools]);
    }
    options.extend_from_slice(format!(r#","{}":["#, F::LIST).as_bytes());
    let mut first = Vec::new();
    format.write_first(request, &mut first);
    let items = [Bytes::from(first)].into_iter().chain(kept.iter().cloned());
    let mut items = items.chain([Bytes::from(last)]).filter(|part| !part.is_empty());
    parts.push(Bytes::from(options));
    parts.extend(items.next().map(|part| part.slice(1..)));
    parts.extend(items);
    parts.push(Bytes::from_static(b"]}"));
    RequestBody(parts)
}

/// What is encoded of a session: all messages but the last run, which may still grow, and the tools.
struct EncodedSession {
    variant: u8,
    messages: Vec<Weak<Message>>,
    /// The start of the last run of `messages`.
    last_run: usize,
    /// The encoded messages. All but the last part have at least [`PART_BYTES`].
    parts: Vec<Bytes>,
    tools: Option<EncodedTools>,
    served: u64,
}

/// The encoded tools of a session, and what they were encoded from.
struct EncodedTools {
    list: Weak<[Arc<ToolSpec>]>,
    /// The tool of the final answer, which some formats leave out of the list.
    answer: Option<Weak<ToolSpec>>,
    json: Bytes,
}

impl EncodedTools {
    fn are_of(&self, request: &ModelRequest) -> bool {
        let answer = self.answer.as_ref().map(Weak::as_ptr);
        ptr::addr_eq(self.list.as_ptr(), Arc::as_ptr(&request.tools))
            && answer == request.answer.as_ref().map(Arc::as_ptr)
    }
}

impl EncodedSession {
    fn new(variant: u8) -> Self {
        Self {
            variant,
            messages: Vec::new(),
            last_run: 0,
            parts: Vec::new(),
            tools: None,
            served: 0,
        }
    }

    /// Bytes of JSON that are kept.
    fn size(&self) -> usize {
        let tools = self.tools.as_ref().map_or(0, |tools| tools.json.len());
        self.parts.iter().map(Bytes::len).sum::<usize>() + tools
    }

    /// Whether anybody still has the history.
    fn is_loaded(&self) -> bool {
        self.messages.last().is_some_and(|message| message.strong_count() > 0)
    }

    /// Whether the messages of a request begin with those that are encoded. An allocation with a weak reference is never
    /// used again, and changing its message moves the message: the same address is the same message.
    ///
    /// The last run must end where it ended before: another message behind it may belong to it.
    fn is_start_of<F: WireFormat>(&self, format: &F, history: &[Arc<Message>]) -> bool {
        let is_same = |(kept, message): (&Weak<Message>, &Arc<Message>)| {
            ptr::addr_eq(kept.as_ptr(), Arc::as_ptr(message))
        };
        let count = self.messages.len();
        self.variant == format.variant()
            && count < history.len()
            && self.messages.iter().zip(history).all(is_same)
            && (count == 0 || format.run_end(history, self.last_run) == count)
    }

    fn tools<F: WireFormat>(&mut self, format: &F, request: &ModelRequest) -> Option<Bytes> {
        if let Some(kept) = self.tools.as_ref().filter(|kept| kept.are_of(request)) {
            return Some(kept.json.clone());
        }
        let json = format.tools(request).map(|tools| Bytes::from(tools.into_boxed_slice()));
        self.tools = json.clone().map(|json| EncodedTools {
            list: Arc::downgrade(&request.tools),
            answer: request.answer.as_ref().map(Arc::downgrade),
            json,
        });
        json
    }

    /// Encodes what is new. Returns the last run, which is not kept: it may still grow.
    fn extend<F: WireFormat>(&mut self, format: &F, history: &[Arc<Message>]) -> Vec<u8> {
        let run_end = |from| format.run_end(history, from).clamp(from + 1, history.len());
        let mut out = Vec::new();
        let from = self.messages.len();
        if from >= history.len() {
            return out;
        }
        let mut run = from..run_end(from);
        while run.end < history.len() {
            let messages = &history[run.clone()];
            out.reserve(size_of_run(messages));
            self.messages.extend(messages.iter().map(Arc::downgrade));
            self.last_run = run.start;
            let next = run.end..run_end(run.end);
            format.write_run(history, run, false, &mut out);
            if out.len() >= PART_BYTES || next.end == history.len() {
                self.push(&mut out);
            }
            run = next;
        }
        out.reserve(size_of_run(&history[run.clone()]));
        format.write_run(history, run, true, &mut out);
        out.shrink_to_fit();
        out
    }

    fn push(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        let short = self.parts.pop_if(|part| part.len() < PART_BYTES);
        let part = match short {
            Some(short) => [&short[..], &out[..]].concat(),
            None => std::mem::take(out),
        };
        out.clear();
        self.parts.push(Bytes::from(part.into_boxed_slice()));
    }
}

/// About the bytes of JSON of these messages, so that a buffer for a large one does not grow in steps.
fn size_of_run(run: &[Arc<Message>]) -> usize {
    let size = |block: &Block| match block {
        Block::Text(text) | Block::Opaque(text) => text.len(),
        Block::Thinking { text, signature } => {
            text.len() + signature.as_ref().map_or(0, String::len)
        }
        Block::ToolUse(call) => call.arguments.len(),
        Block::ToolResult { content, .. } => content.len() + content.len() / 16,
        Block::Image { data, .. } => data.len(),
    };
    run.iter().flat_map(|message| &message.content).map(|block| size(block) + 128).sum()
}

#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod tests;
