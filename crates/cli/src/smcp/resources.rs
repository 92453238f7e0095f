//! `budao smcp skills` and `budao smcp documents`: lists and reads the skills and documents of computers.

use budao_core::{
    Fault,
    fault::{Fact, Kind, Operation},
};
use budao_smcp::{
    agent::Agent,
    wire::{Dialect, event::RequestEvent},
};
use serde_json::{Map, Value, json};

use super::{ConnectArgs, show::Printer};
use crate::{exit::Exit, terminal::Terminal};

/// Documents per request; the most a computer returns at once.
const PAGE: usize = 100;

#[derive(Debug, clap::Args)]
pub(super) struct SkillsArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Print one JSON object per skill
    #[arg(long)]
    pub(super) json: bool,
    /// The room
    room: String,
    /// List only skills of this computer
    computer: Option<String>,
    /// Print a file of this skill instead
    skill: Option<String>,
    /// The file to print
    #[arg(default_value = "SKILL.md")]
    file: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct DocumentsArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Print one JSON object per document, and the content of an address as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// List only documents with this word in title, keywords or summary; can be repeated
    #[arg(long, value_name = "WORD")]
    keyword: Vec<String>,
    /// List only documents of this type: txt, md, html, pdf
    #[arg(long = "type", value_name = "TYPE")]
    file_type: Option<String>,
    /// The room
    room: String,
    /// List only documents of this computer
    computer: Option<String>,
    /// Show the content of this address: `dpe://HOST/DOCUMENT`, then `/pages/N` or `/elements/ID`
    address: Option<String>,
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The named computer, or all computers in the room.
async fn computers(agent: &Agent, named: Option<&String>) -> Result<Vec<String>, Fault> {
    match named {
        Some(name) => Ok(vec![name.clone()]),
        None => agent.computers().await,
    }
}

fn garbled(computer: &str) -> Fault {
    Fault::new(Kind::PeerFailed, Operation::RelayCall).with(Fact::Computer, computer.to_owned())
}

/// The items of a list in an answer; a fault if the answer has no such list.
fn listed(mut answer: Value, list: &str, computer: &str) -> Result<Vec<Value>, Fault> {
    match answer[list].take() {
        Value::Array(items) => Ok(items),
        _ => Err(garbled(computer)),
    }
}

/// One line of text: computer, name, and the first line of the description.
fn line(item: &Value, computer: &str, fields: [&str; 3], terminal: &Terminal) -> String {
    let [name, description, more] = fields.map(|field| item[field].as_str().unwrap_or_default());
    let description = description.lines().next().unwrap_or_default();
    let more = if more.is_empty() { String::new() } else { format!("  {}", terminal.faint(more)) };
    format!("{computer}  {}  {description}{more}\n", terminal.name(name))
}

fn print(mut item: Value, computer: &str, as_json: bool, fields: [&str; 3], terminal: &Terminal) {
    let text = if as_json {
        item["computer"] = computer.into();
        format!("{item}\n")
    } else {
        line(&item, computer, fields, terminal)
    };
    terminal.data(&text);
}

pub(super) async fn skills(args: &SkillsArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    let agent = args.connection.join(&args.room).await?;
    if let (Some(computer), Some(skill)) = (&args.computer, &args.skill) {
        return match file(&agent, computer, skill, &args.file).await {
            Ok(bytes) => {
                show.terminal.bytes(&bytes);
                Ok(Exit::Success)
            }
            Err(fault) => Ok(show.fault(fault)),
        };
    }
    for computer in computers(&agent, args.computer.as_ref()).await? {
        let answer = agent.ask(RequestEvent::GetSkills, &computer, Map::new()).await?;
        for skill in listed(answer, "skills", &computer)? {
            print(skill, &computer, args.json, ["name", "description", "version"], show.terminal);
        }
    }
    Ok(Exit::Success)
}

/// A file of a skill, from the answer itself or fetched by its blob handle.
async fn file(agent: &Agent, computer: &str, skill: &str, file: &str) -> Result<Vec<u8>, Fault> {
    let request = object(json!({ "name": skill, "rel_path": file }));
    let answer = agent.ask(RequestEvent::GetSkill, computer, request).await?;
    if let Some(body) = answer["body"].as_str() {
        return Ok(body.as_bytes().to_vec());
    }
    let handle = answer["blob_handle"].as_str().ok_or_else(|| garbled(computer))?;
    agent.fetch(computer, handle).await
}

pub(super) async fn documents(args: &DocumentsArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    // Only the first draft of the protocol has documents.
    let agent = args.connection.join_by(&args.room, Dialect::V02, super::CONNECT_LIMIT).await?;
    if let (Some(computer), Some(address)) = (&args.computer, &args.address) {
        let request = object(json!({ "uri": address }));
        return match agent.ask(RequestEvent::GetDpe, computer, request).await {
            Ok(found) => {
                show.line(render_document(&found, args.json));
                Ok(Exit::Success)
            }
            Err(fault) => Ok(show.fault(fault)),
        };
    }
    for computer in computers(&agent, args.computer.as_ref()).await? {
        list(&agent, &computer, args, show.terminal).await?;
    }
    Ok(Exit::Success)
}

/// Lists all documents of a computer, page by page.
async fn list(
    agent: &Agent,
    computer: &str,
    args: &DocumentsArgs,
    terminal: &Terminal,
) -> Result<(), Fault> {
    let mut offset = 0;
    loop {
        let mut request = json!({ "offset": offset, "limit": PAGE });
        if !args.keyword.is_empty() {
            request["keywords"] = json!(args.keyword);
        }
        if let Some(file_type) = &args.file_type {
            request["file_type"] = file_type.clone().into();
        }
        let answer = agent.ask(RequestEvent::GetFinder, computer, object(request)).await?;
        let page = listed(answer, "documents", computer)?;
        let count = page.len();
        for document in page {
            print(document, computer, args.json, ["uri", "title", "file_type"], terminal);
        }
        offset += count;
        if count < PAGE {
            return Ok(());
        }
    }
}

/// The document's text, else the whole answer as JSON. With `--json`, always the whole answer.
fn render_document(found: &Value, as_json: bool) -> String {
    let text = found["content_markdown"].as_str().or_else(|| found["content_text"].as_str());
    match text {
        Some(text) if !as_json => text.to_owned(),
        _ if as_json => found.to_string(),
        _ => serde_json::to_string_pretty(found).unwrap_or_default(),
    }
}
