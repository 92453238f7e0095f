//! The options that an editor offers, and the effect of a choice on a session's settings.
//!
//! Every mode that is shown is enforced: each is one of the engine's own permission modes.

use std::collections::BTreeMap;

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigSelectOption, SessionMode, SessionModeState, UnstructuredCommandInput,
};
use budao_core::{
    Lang,
    event::{Settings, Thinking},
    tool::Mode,
};

use serde_json::Value;

use crate::texts::localize;

/// The options that an editor can offer to its user.
#[derive(Clone, Debug, Default)]
pub struct EditorOptions {
    /// Name of the engine; sessions of other engines are not listed and cannot be loaded.
    pub engine: String,
    /// The models; the first is the default.
    pub models: Vec<ModelChoice>,
    /// True if the models that the engine reports replace `models`.
    pub models_from_engine: bool,
    /// True to offer a choice of the thinking level.
    pub thinking: bool,
    /// Key and value of the extra setting that turns thinking off. With it, a session without a level leaves the
    /// depth to the engine; without it, such a session does not think.
    pub thinking_off: Option<(String, String)>,
    /// Size of the context in tokens; usage is shown relative to it. 0 until the engine reports it.
    pub context_tokens: u64,
    /// Slash commands that the engine understands.
    pub commands: Vec<SlashCommand>,
    /// Sign-in methods for the editor to offer; empty if the engine needs none.
    pub sign_ins: Vec<SignIn>,
    /// Modes of this engine only, in addition to the standard ones.
    pub modes: Vec<EngineMode>,
    /// Key in a session's extra settings under which the engine reads further directories. `None` if it
    /// supports only one directory.
    pub directories: Option<String>,
}

/// A mode of one engine only, stored in a session's extra settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineMode {
    /// Id of the mode in the protocol.
    pub id: String,
    /// Name for the user.
    pub name: String,
    /// Description for the user.
    pub about: String,
    /// The session's permission mode while this mode is set.
    pub permissions: Mode,
    /// Key and value of the extra setting by which the engine recognizes the mode.
    pub setting: (String, String),
}

/// A model that the user can choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelChoice {
    /// Name of the model in the session's settings.
    pub id: String,
    /// Name for the user.
    pub name: String,
    /// Description for the user; empty if there is none.
    pub about: String,
    /// True if the model's thinking cannot be turned off.
    pub always_thinks: bool,
}

impl ModelChoice {
    /// A model without a description.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), ..Self::default() }
    }

    /// Reads a model from an engine's annotation `{id, name, about, thinking_off}`; `None` without an id.
    pub(crate) fn read(data: &Value) -> Option<Self> {
        let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
        let id = Some(text("id")).filter(|id| !id.is_empty())?;
        let name = Some(text("name")).filter(|name| !name.is_empty());
        Some(Self {
            name: name.unwrap_or_else(|| id.clone()),
            about: text("about"),
            always_thinks: data["thinking_off"] == false,
            id,
        })
    }
}

/// A command that the user can type with a leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// Name without the slash.
    pub name: String,
    /// Description for the user.
    pub about: String,
    /// Hint about the command's argument; `None` shows no hint.
    pub hint: Option<String>,
}

/// A sign-in method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// Id of the method, as passed to [`EditorServices::sign_in`](crate::EditorServices::sign_in).
    pub id: String,
    /// Name for the user.
    pub name: String,
    /// Instructions for the user.
    pub about: String,
}

/// Ids of the options in the protocol.
const MODE_OPTION: &str = "mode";
const MODEL_OPTION: &str = "model";
const THINKING_OPTION: &str = "thought_level";

/// Id and permission mode of each standard mode, in display order.
const MODES: [(&str, Mode); 3] =
    [("default", Mode::Approval), ("plan", Mode::Readonly), ("auto", Mode::Auto)];
/// Ids of the two values without a level.
const LEVEL_OFF: &str = "off";
const LEVEL_DEFAULT: &str = "default";
/// Id and value of each thinking level, in display order.
const LEVELS: [(&str, Thinking); 3] =
    [("low", Thinking::Low), ("medium", Thinking::Medium), ("high", Thinking::High)];

/// A requested change to a session's settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SettingsChange {
    Mode(Mode, BTreeMap<String, Option<String>>),
    Model(String),
    /// A level, or the extra setting that turns thinking off: its key, and its value if thinking is off.
    Thinking(Option<Thinking>, Option<(String, Option<String>)>),
    Title(String),
    /// The working directory, and further directories with the key of their setting.
    Workspace(String, Option<(String, Vec<String>)>),
    /// The tool runs without a question from now on.
    AllowTool(String),
    /// The tool is denied from now on.
    DenyTool(String),
}

impl SettingsChange {
    /// Returns the settings with the change applied.
    pub(crate) fn apply_to(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        match self {
            Self::Mode(mode, own) => {
                settings.permissions.mode = *mode;
                for (key, value) in own {
                    set_extra(&mut settings, key, value.clone().map(Value::from));
                }
            }
            Self::Model(model) => settings.model.clone_from(model),
            Self::Thinking(depth, off) => {
                settings.thinking = *depth;
                if let Some((key, value)) = off {
                    set_extra(&mut settings, key, value.clone().map(Value::from));
                }
            }
            Self::Title(title) => settings.title = Some(title.clone()),
            Self::Workspace(cwd, others) => {
                settings.workspace = Some(cwd.clone());
                settings.labels.insert(CWD.to_owned(), cwd.clone());
                if let Some((key, others)) = others {
                    let others = Some(others).filter(|others| !others.is_empty());
                    set_extra(&mut settings, key, others.cloned().map(Value::from));
                }
            }
            Self::AllowTool(tool) => {
                settings.permissions.deny.retain(|name| name != tool);
                add_tool(&mut settings.permissions.allow, tool);
            }
            Self::DenyTool(tool) => {
                settings.permissions.allow.retain(|name| name != tool);
                add_tool(&mut settings.permissions.deny, tool);
            }
        }
        settings
    }
}

/// Sets or removes one of a session's extra settings.
fn set_extra(settings: &mut Settings, key: &str, value: Option<Value>) {
    match value {
        Some(value) => settings.extra.insert(key.to_owned(), value),
        None => settings.extra.remove(key),
    };
}

fn add_tool(list: &mut Vec<String>, tool: &str) {
    if !list.iter().any(|name| name == tool) {
        list.push(tool.to_owned());
    }
}

/// The session label that holds the working directory.
pub(crate) const CWD: &str = "cwd";

/// The directories in which a session works.
#[derive(Clone, Debug)]
pub(crate) struct WorkingDirectories {
    pub(crate) cwd: String,
    /// Additional directories; empty unless the engine supports them.
    pub(crate) others: Vec<String>,
}

impl EditorOptions {
    /// The change that sets a session's directories.
    pub(crate) fn workspace(&self, directories: WorkingDirectories) -> SettingsChange {
        let others = self.directories.clone().map(|key| (key, directories.others));
        SettingsChange::Workspace(directories.cwd, others)
    }
}

/// Settings of a new session, before its directories are set.
pub(crate) fn settings_for(base: &Settings) -> Settings {
    let mut settings = base.clone();
    settings.labels.insert("gateway".to_owned(), "acp".to_owned());
    settings
}

impl EditorOptions {
    /// The change for an option's value; `None` if the option or value does not exist.
    pub(crate) fn change(
        &self,
        option: &str,
        value: &str,
        now: &Settings,
    ) -> Option<SettingsChange> {
        match option {
            MODE_OPTION => self.mode(value),
            MODEL_OPTION => self
                .models_with(&now.model)
                .into_iter()
                .find(|choice| choice.id == value)
                .map(|choice| SettingsChange::Model(choice.id)),
            THINKING_OPTION if self.thinking => self.thinking_change(value, now),
            _ => None,
        }
    }

    /// The change for a thinking level; `None` if it is not offered for the session's model.
    fn thinking_change(&self, value: &str, now: &Settings) -> Option<SettingsChange> {
        if !self.levels(now).any(|id| id == value) {
            return None;
        }
        let level = LEVELS.iter().find(|(id, _)| *id == value).map(|(_, depth)| *depth);
        let off = self.thinking_off.clone();
        let off = off.map(|(key, off)| (key, (value == LEVEL_OFF).then_some(off)));
        Some(SettingsChange::Thinking(level, off))
    }

    /// Ids of the levels on offer. `off` is missing if the session's model always thinks.
    fn levels(&self, now: &Settings) -> impl Iterator<Item = &'static str> {
        let mut current = self.models.iter().filter(|choice| choice.id == now.model);
        let can_be_off = !current.any(|choice| choice.always_thinks);
        let default = self.thinking_off.as_ref().map(|_| LEVEL_DEFAULT);
        let levels = LEVELS.iter().map(|(id, _)| *id);
        default.into_iter().chain(can_be_off.then_some(LEVEL_OFF)).chain(levels)
    }

    /// Id of the session's thinking level.
    fn level(&self, now: &Settings) -> &'static str {
        if let Some(level) = now.thinking {
            return LEVELS
                .iter()
                .find(|(_, depth)| *depth == level)
                .map_or(LEVEL_DEFAULT, |(id, _)| *id);
        }
        let Some((key, off)) = &self.thinking_off else { return LEVEL_OFF };
        let is_off = now.extra.get(key).and_then(Value::as_str) == Some(off);
        if is_off && self.levels(now).any(|id| id == LEVEL_OFF) { LEVEL_OFF } else { LEVEL_DEFAULT }
    }

    /// The offered models, plus the current one if it is no longer offered.
    fn models_with(&self, current: &str) -> Vec<ModelChoice> {
        let mut models = self.models.clone();
        if !models.iter().any(|choice| choice.id == current) {
            models.push(ModelChoice::new(current, current));
        }
        models
    }

    /// Every option with its current value, in the protocol's form.
    pub(crate) fn config_options(
        &self,
        settings: &Settings,
        lang: Lang,
    ) -> Vec<SessionConfigOption> {
        let modes: Vec<_> = self
            .all_modes(lang)
            .into_iter()
            .map(|(id, name, about)| SessionConfigSelectOption::new(id, name).description(about))
            .collect();
        let models: Vec<_> = self
            .models_with(&settings.model)
            .into_iter()
            .map(|choice| {
                let about = Some(choice.about).filter(|about| !about.is_empty());
                SessionConfigSelectOption::new(choice.id, choice.name).description(about)
            })
            .collect();
        let mut options = vec![
            SessionConfigOption::select(
                MODE_OPTION,
                localize(lang, "editor-options-mode"),
                self.mode_id(settings).to_owned(),
                modes,
            )
            .category(SessionConfigOptionCategory::Mode),
            SessionConfigOption::select(
                MODEL_OPTION,
                localize(lang, "editor-options-model"),
                settings.model.clone(),
                models,
            )
            .category(SessionConfigOptionCategory::Model),
        ];
        if self.thinking {
            let levels: Vec<_> = self
                .levels(settings)
                .map(|id| SessionConfigSelectOption::new(id, level_name(id, lang)))
                .collect();
            let current = self.level(settings);
            options.push(
                SessionConfigOption::select(
                    THINKING_OPTION,
                    localize(lang, "editor-options-thinking"),
                    current,
                    levels,
                )
                .category(SessionConfigOptionCategory::ThoughtLevel),
            );
        }
        options
    }

    /// The slash commands, in the protocol's form.
    pub(crate) fn commands(&self) -> Vec<AvailableCommand> {
        let command = |command: &SlashCommand| {
            let input = command.hint.as_ref().map(|hint| {
                AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint.clone()))
            });
            AvailableCommand::new(command.name.clone(), command.about.clone()).input(input)
        };
        self.commands.iter().map(command).collect()
    }
}

/// Reads a command from an engine's annotation `{name, about, hint}`; `None` without a name.
pub(crate) fn command_of(data: &Value) -> Option<AvailableCommand> {
    let text = |key: &str| data[key].as_str().filter(|text| !text.is_empty());
    let input = text("hint")
        .map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
    let about = text("about").unwrap_or_default();
    Some(AvailableCommand::new(text("name")?, about).input(input))
}

impl EditorOptions {
    /// The change for the mode of this id; `None` if there is no such mode.
    pub(crate) fn mode(&self, id: &str) -> Option<SettingsChange> {
        let own = self.modes.iter().find(|mode| mode.id == id);
        let permissions = match own {
            Some(own) => own.permissions,
            None => MODES.iter().find(|(name, _)| *name == id)?.1,
        };
        // Clears the settings of all other engine modes.
        let mut settings: BTreeMap<String, Option<String>> =
            self.modes.iter().map(|mode| (mode.setting.0.clone(), None)).collect();
        settings.extend(own.map(|own| (own.setting.0.clone(), Some(own.setting.1.clone()))));
        Some(SettingsChange::Mode(permissions, settings))
    }

    /// Id of the session's current mode.
    pub(crate) fn mode_id(&self, settings: &Settings) -> &str {
        let permissions = settings.permissions.mode;
        let is_set = |mode: &&EngineMode| {
            let (key, value) = &mode.setting;
            mode.permissions == permissions
                && settings.extra.get(key).and_then(Value::as_str) == Some(value)
        };
        let standard = || MODES.iter().find(|(_, other)| *other == permissions);
        match self.modes.iter().find(is_set) {
            Some(own) => &own.id,
            None => standard().map_or("default", |(id, _)| *id),
        }
    }

    /// All modes and the current one, in the protocol's form.
    pub(crate) fn modes(&self, settings: &Settings, lang: Lang) -> SessionModeState {
        let mode = |(id, name, about): (String, String, String)| {
            SessionMode::new(id, name).description(about)
        };
        let current = self.mode_id(settings).to_owned();
        SessionModeState::new(current, self.all_modes(lang).into_iter().map(mode).collect())
    }

    /// Id, name and description of every mode: the standard ones, then the engine's.
    fn all_modes(&self, lang: Lang) -> Vec<(String, String, String)> {
        let standard = MODES.iter().map(|(id, mode)| {
            let (name, about) = mode_words(*mode, lang);
            ((*id).to_owned(), name.to_owned(), about.to_owned())
        });
        let own =
            self.modes.iter().map(|mode| (mode.id.clone(), mode.name.clone(), mode.about.clone()));
        standard.chain(own).collect()
    }
}

fn mode_words(mode: Mode, lang: Lang) -> (&'static str, &'static str) {
    match mode {
        Mode::Approval => (
            localize(lang, "editor-options-ask"),
            localize(lang, "editor-options-read-only-calls-run-without-asking"),
        ),
        Mode::Readonly => (
            localize(lang, "editor-options-plan"),
            localize(lang, "editor-options-only-read-only-calls-run-nothing"),
        ),
        Mode::Auto => (
            localize(lang, "editor-options-auto"),
            localize(lang, "editor-options-all-calls-run-without-asking"),
        ),
    }
}

fn level_name(id: &str, lang: Lang) -> &'static str {
    match id {
        LEVEL_OFF => localize(lang, "editor-options-off"),
        "low" => localize(lang, "editor-options-low"),
        "medium" => localize(lang, "editor-options-medium"),
        "high" => localize(lang, "editor-options-high"),
        _ => localize(lang, "editor-options-default"),
    }
}
