//! The tools available to a model: an immutable snapshot, validated when it is built.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, OnceLock},
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    tool::{ToolOrigin, ToolSpec},
};
use budao_scrub::Scrubber;

use crate::{
    advice::AdviceRule,
    contract::Tool,
    pool::{Pool, PoolStats},
    schema::{self, CompiledSchema},
    suggestions,
};

/// Maximum length of a tool name that providers accept, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Maximum suggestions for an unknown name.
const NEAREST_MAX: usize = 3;

/// Maximum known names listed for an unknown name.
const LISTED_MAX: usize = 32;

/// The tools a model may call. Immutable and cheap to clone; a change creates a new toolbox.
#[derive(Clone, Debug)]
pub struct Toolbox(Arc<ToolboxInner>);

struct ToolboxInner {
    by_name: HashMap<Arc<str>, Arc<RegisteredTool>, ByName>,
    /// In the order of registration, so that requests do not depend on the order of a hash map.
    order: Vec<Arc<RegisteredTool>>,
    specs: Arc<[Arc<ToolSpec>]>,
    spec_bytes: OnceLock<usize>,
    shared: ToolboxShared,
}

/// Shared by all calls of a toolbox.
#[derive(Clone, Debug)]
pub(crate) struct ToolboxShared {
    pub(crate) pool: Arc<Pool>,
    pub(crate) rules: Arc<[AdviceRule]>,
    pub(crate) scrubber: Scrubber,
    /// Remarks of tool sources for the model; `None` for none.
    instructions: Option<Arc<str>>,
}

/// A registered tool with its compiled schema.
#[derive(Debug)]
pub(crate) struct RegisteredTool {
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) prepared: CompiledSchema,
    pub(crate) quick: bool,
    pub(crate) once: Option<Arc<str>>,
}

impl Toolbox {
    /// A builder for an empty toolbox.
    pub fn builder() -> Builder {
        Builder {
            order: Vec::new(),
            rules: Vec::new(),
            pool: Arc::new(Pool::threads()),
            scrubber: Scrubber::default(),
        }
    }

    /// The specifications of all tools, in the order of registration.
    #[must_use]
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.0.specs.clone()
    }

    /// The specification of one tool; `None` if the name is unknown.
    #[must_use]
    pub fn spec(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.0.by_name.get(name).map(|entry| &entry.spec)
    }

    /// A copy of the toolbox with this tool added. A tool of the same name is replaced.
    ///
    /// # Errors
    /// When the name or schema is refused.
    pub fn with(&self, tool: impl Tool) -> Result<Self, Fault> {
        self.with_all([Arc::new(tool) as Arc<dyn Tool>])
    }

    /// A copy of the toolbox with these tools added. Tools of the same name are replaced.
    ///
    /// # Errors
    /// When a name or schema is refused.
    pub fn with_all(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, Fault> {
        let mut order = self.0.order.clone();
        for tool in tools {
            let entry = Arc::new(register(tool)?);
            match order.iter_mut().find(|other| other.spec.name == entry.spec.name) {
                Some(slot) => *slot = entry,
                None => order.push(entry),
            }
        }
        Ok(Self::of(order, self.0.shared.clone()))
    }

    /// A copy of the toolbox with the tools of others added, in their order. Of several tools with one name, the first
    /// one stays. Schemas are not compiled again.
    #[must_use]
    pub fn merge<'a>(&self, others: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut order = self.0.order.clone();
        let mut names: HashSet<Arc<str>> =
            order.iter().map(|entry| Arc::clone(&entry.spec.name)).collect();
        for entry in others.into_iter().flat_map(|other| &other.0.order) {
            if names.insert(Arc::clone(&entry.spec.name)) {
                order.push(Arc::clone(entry));
            }
        }
        Self::of(order, self.0.shared.clone())
    }

    /// A copy of the toolbox that adds a remark of a tool source to the system prompt.
    #[must_use]
    pub fn with_instructions(&self, text: &str) -> Self {
        let mut shared = self.0.shared.clone();
        shared.instructions = Some(match &shared.instructions {
            Some(before) => format!("{before}\n\n{text}").into(),
            None => text.into(),
        });
        Self::of(self.0.order.clone(), shared)
    }

    /// The bytes of all specifications in a request: names, descriptions and schemas as JSON.
    #[must_use]
    pub fn spec_bytes(&self) -> usize {
        *self.0.spec_bytes.get_or_init(|| self.0.specs.iter().map(|spec| spec.bytes()).sum())
    }

    /// Remarks of tool sources for the model, to add to the system prompt.
    #[must_use]
    pub fn instructions(&self) -> Option<&Arc<str>> {
        self.0.shared.instructions.as_ref()
    }

    /// A copy of the toolbox without the tools for which `gone` is true.
    #[must_use]
    pub fn without(&self, gone: impl Fn(&ToolSpec) -> bool) -> Self {
        let order = self.0.order.iter().filter(|entry| !gone(&entry.spec)).cloned().collect();
        Self::of(order, self.0.shared.clone())
    }

    /// Rules that were removed from schemas at registration, as pairs of tool name and description.
    pub fn warnings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.order.iter().flat_map(|entry| {
            let warnings = entry.prepared.warnings.iter();
            warnings.map(move |warning| (&*entry.spec.name, warning.as_str()))
        })
    }

    /// The pool's counters: running, abandoned and late calls, and panics.
    #[must_use]
    pub fn counts(&self) -> PoolStats {
        self.0.shared.pool.counts()
    }

    pub(crate) fn shared(&self) -> &ToolboxShared {
        &self.0.shared
    }

    /// The tool of this name, or a fault that lists the known names.
    pub(crate) fn entry(&self, name: &str) -> Result<&Arc<RegisteredTool>, Fault> {
        self.0.by_name.get(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Fault {
        let known = || self.0.order.iter().map(|entry| &*entry.spec.name);
        let mut nearest = suggestions::ranked(name, known());
        nearest.truncate(NEAREST_MAX);
        let nearest: Vec<String> = nearest.into_iter().map(str::to_owned).collect();
        let shown: String = name.chars().take(2 * NAME_BYTES_MAX).collect();
        let mut fault =
            Fault::new(Kind::UnknownTool, Operation::ToolCall).with(Fact::ToolName, shown);
        if !nearest.is_empty() {
            fault = fault.with(Fact::Nearest, nearest);
        }
        let listed: Vec<String> = known().take(LISTED_MAX).map(str::to_owned).collect();
        if listed.is_empty() { fault } else { fault.with(Fact::Allowed, listed) }
    }

    fn of(order: Vec<Arc<RegisteredTool>>, shared: ToolboxShared) -> Self {
        let specs = order.iter().map(|entry| entry.spec.clone()).collect();
        let by_name = order.iter().map(|entry| (entry.spec.name.clone(), entry.clone())).collect();
        Self(Arc::new(ToolboxInner { by_name, order, specs, spec_bytes: OnceLock::new(), shared }))
    }
}

type ByName = BuildHasherDefault<NameHasher>;

/// A fast hash for the look-up in every call, over the length, start, middle and end of a name. Names that agree in
/// all of these collide, which costs only time.
#[derive(Default)]
struct NameHasher(u64);

impl NameHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let word = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
        self.mix(bytes.len() as u64);
        if let Some(first) = word(0) {
            let last = word(bytes.len() - 8).unwrap_or(first);
            let middle = word(bytes.len() / 2 - 4).unwrap_or(first);
            self.mix(u64::from_le_bytes(first) ^ u64::from_le_bytes(middle).rotate_left(32));
            self.mix(u64::from_le_bytes(last));
        } else {
            let all = bytes.iter().fold(0, |all, byte| (all << 8) | u64::from(*byte));
            self.mix(all);
        }
    }

    fn write_u8(&mut self, _end_of_name: u8) {}

    fn finish(&self) -> u64 {
        // The table uses the low bits, which a multiplication mixes least.
        self.0 ^ (self.0 >> 32)
    }
}

impl fmt::Debug for ToolboxInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.order.iter().map(|entry| &*entry.spec.name);
        f.debug_struct("Toolbox").field("tools", &names.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Builds a toolbox tool by tool.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    order: Vec<Arc<RegisteredTool>>,
    rules: Vec<AdviceRule>,
    pool: Arc<Pool>,
    scrubber: Scrubber,
}

impl Builder {
    /// Adds a tool.
    ///
    /// # Errors
    /// When the name is invalid or taken, or the schema is refused; the fault has the reason.
    #[expect(clippy::should_implement_trait, reason = "a tool is put in, nothing is summed up")]
    pub fn add(self, tool: impl Tool) -> Result<Self, Fault> {
        self.add_shared(Arc::new(tool))
    }

    /// Adds a tool that is shared with other toolboxes.
    ///
    /// # Errors
    /// As [`Builder::add`].
    pub fn add_shared(mut self, tool: Arc<dyn Tool>) -> Result<Self, Fault> {
        let entry = register(tool)?;
        if self.order.iter().any(|other| other.spec.name == entry.spec.name) {
            return Err(name_refused(&entry.spec, "another tool has this name"));
        }
        self.order.push(Arc::new(entry));
        Ok(self)
    }

    /// Adds a rule for advice to the model. It takes precedence over the built-in advice.
    pub fn advise_model(mut self, rule: AdviceRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the pool that runs the calls; the default has its own threads.
    pub fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = pool;
        self
    }

    /// Sets the scrubber for faults; the default removes common secret patterns.
    pub fn scrubber(mut self, scrubber: Scrubber) -> Self {
        self.scrubber = scrubber;
        self
    }

    /// Builds the toolbox from the added tools.
    #[must_use]
    pub fn build(self) -> Toolbox {
        let Self { order, rules, pool, scrubber } = self;
        Toolbox::of(
            order,
            ToolboxShared { pool, rules: rules.into(), scrubber, instructions: None },
        )
    }
}

fn register(tool: Arc<dyn Tool>) -> Result<RegisteredTool, Fault> {
    let given = tool.spec();
    if let Some(reason) = name_problem(&given.name) {
        return Err(name_refused(&given, reason));
    }
    let prepared = schema::prepare(&given.schema)
        .map_err(|reason| refused(Kind::SchemaRefused, &given).with(Fact::Reason, reason))?;
    for warning in &prepared.warnings {
        tracing::warn!(tool = %given.name, warning, "schema changed at registration");
    }
    let mut spec = ToolSpec::clone(&given);
    spec.schema = Arc::new(prepared.schema.clone());
    let (quick, once) = (tool.quick(), tool.once());
    if once.as_ref().is_some_and(|argument| !is_required(&spec.schema, argument)) {
        let reason = "`once` names no required argument";
        return Err(refused(Kind::SchemaRefused, &given).with(Fact::Reason, reason));
    }
    Ok(RegisteredTool { spec: Arc::new(spec), tool, prepared, quick, once })
}

fn is_required(schema: &serde_json::Value, argument: &str) -> bool {
    let required = schema.get("required").and_then(serde_json::Value::as_array);
    required.is_some_and(|names| names.iter().any(|name| name == argument))
}

fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a name must not be empty")
    } else if name.len() > NAME_BYTES_MAX {
        Some("a name may have at most 64 characters")
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    {
        Some("a name may have letters, digits, `_` and `-` only")
    } else {
        None
    }
}

fn name_refused(spec: &ToolSpec, reason: &'static str) -> Fault {
    refused(Kind::ToolNameRefused, spec).with(Fact::Reason, reason)
}

fn refused(kind: Kind, spec: &ToolSpec) -> Fault {
    let shown: String = spec.name.chars().take(2 * NAME_BYTES_MAX).collect();
    let fault = Fault::new(kind, Operation::RegisterTool).with(Fact::ToolName, shown);
    match &spec.source {
        ToolOrigin::Mcp { server, .. } => fault.with(Fact::McpServer, server.clone()),
        ToolOrigin::Worker(route) => fault.with(Fact::Worker, route.worker.clone()),
        ToolOrigin::Builtin | ToolOrigin::Registered | ToolOrigin::Computer { .. } => fault,
    }
}
