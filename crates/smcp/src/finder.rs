//! Finder: documents as pages of elements, from the first draft of the protocol (0.2).
//!
//! A computer offers the documents of a folder, and those of its MCP servers with `dpe://` resources. An agent lists
//! documents and reads a document, a page or an element. [`uri`] parses addresses and [`read`] parses files. A
//! missing target has one of four codes, 4201 to 4204.

pub mod element;
mod folder;
pub mod read;
pub mod uri;

use std::{
    fmt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::{Value, json};

pub use folder::{DocumentFolder, Limits as FolderLimits};

use element::{Content, Element, Page};
use read::ParsedDocument;
use uri::{Format, LIMIT, LIMIT_MAX, ReadOptions, Uri, UriTarget};

/// Interval between two checks of a folder for changes.
pub const LOOK: Duration = Duration::from_secs(2);

/// Similar names in the fault for a missing document.
const NEAREST_MAX: usize = 5;

/// Time limit for reading documents, because a file can be crafted to take very long.
const READ_MAX: Duration = Duration::from_secs(20);

/// Another source of documents: MCP servers with `dpe://` resources.
#[async_trait]
pub trait DocumentSource: Send + Sync + fmt::Debug {
    /// The documents available now, as list entries. Each entry has a `uri` and a `server`.
    async fn documents(&self) -> Vec<Value>;

    /// Reads an address as its server returns it; `None` if no server has the host.
    ///
    /// # Errors
    /// The server's fault.
    async fn read(&self, uri: &Uri, text: &str) -> Result<Option<Value>, Fault>;
}

/// A source without documents.
#[derive(Clone, Copy, Debug)]
pub struct NoDocuments;

#[async_trait]
impl DocumentSource for NoDocuments {
    async fn documents(&self) -> Vec<Value> {
        Vec::new()
    }

    async fn read(&self, _: &Uri, _: &str) -> Result<Option<Value>, Fault> {
        Ok(None)
    }
}

/// The documents of a computer: its folder and its MCP servers.
#[derive(Clone, Debug)]
pub struct Finder {
    own_folder: Option<Arc<DocumentFolder>>,
    source: Arc<dyn DocumentSource>,
}

/// The filter and the page of a `client:get_finder` request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Keeps documents with one of these lower-case texts in title, keywords or summary; empty keeps all.
    pub keywords: Vec<String>,
    /// Keeps documents of this file type; `None` keeps all.
    pub file_type: Option<String>,
    /// Matching documents to skip.
    pub offset: usize,
    /// Documents in one answer, from 1 to 100. Default 20.
    pub limit: usize,
}

impl Finder {
    /// A finder for a folder, if there is one, and another source.
    #[must_use]
    pub fn new(own_folder: Option<Arc<DocumentFolder>>, source: Arc<dyn DocumentSource>) -> Self {
        Self { own_folder, source }
    }

    /// A finder for one folder with default limits.
    ///
    /// # Errors
    /// If the folder does not exist.
    pub fn of_folder(host: &str, folder: &Path) -> Result<Self, Fault> {
        let own_folder = DocumentFolder::open(host, folder, FolderLimits::default())?;
        Ok(Self::new(Some(Arc::new(own_folder)), Arc::new(NoDocuments)))
    }

    /// A fingerprint of the folder: it changes when a document is added, removed or modified. 0 without a folder.
    pub async fn state(&self) -> u64 {
        let Some(own_folder) = self.own_folder.clone() else { return 0 };
        tokio::task::spawn_blocking(move || own_folder.state()).await.unwrap_or_default()
    }

    /// Answers `client:get_finder`. Servers in `used` come first, in that order. Within a server, the latest
    /// documents come first.
    ///
    /// # Errors
    /// Code 400, with the name of the invalid field.
    pub async fn list(&self, request: &Value, used: &[String]) -> Result<Value, Fault> {
        let query = Query::read(request)?;
        let mut documents = self.documents().await?;
        documents.retain(|document| query.wants(document));
        documents.sort_by_cached_key(|document| {
            let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
            let server = text("server");
            let rank = used.iter().position(|used| *used == server).unwrap_or(usize::MAX);
            // Latest first, documents without a time last; the address makes the order stable.
            (rank, server, std::cmp::Reverse(text("last_modified")), text("uri"))
        });
        let total = documents.len();
        let page: Vec<Value> = documents.into_iter().skip(query.offset).take(query.limit).collect();
        Ok(json!({ "documents": page, "total_count": total, "req_id": request["req_id"] }))
    }

    async fn documents(&self) -> Result<Vec<Value>, Fault> {
        let mut documents = match &self.own_folder {
            Some(own_folder) => self.catalog(own_folder).await?,
            None => Vec::new(),
        };
        let others = self.source.documents().await.into_iter();
        documents.extend(others.filter(|document| {
            document["uri"].as_str().is_some_and(|uri| Uri::parse(uri).is_ok())
        }));
        Ok(documents)
    }

    async fn catalog(&self, own_folder: &Arc<DocumentFolder>) -> Result<Vec<Value>, Fault> {
        let own_folder = Arc::clone(own_folder);
        apart(move || Ok(own_folder.items().iter().map(|item| own_folder.summary(item)).collect()))
            .await
    }

    /// Answers `client:get_dpe`: a document, a page or an element.
    ///
    /// # Errors
    /// Codes 4201 to 4204, or the reason why the document cannot be read.
    pub async fn get(&self, request: &Value) -> Result<Value, Fault> {
        let text = request.get("uri").and_then(Value::as_str).ok_or_else(|| {
            Fault::new(Kind::BadRequest, Operation::ReadDocument)
                .with(Fact::Field, "uri")
                .with(Fact::Expected, "text")
        })?;
        let uri = Uri::parse(text)?;
        let mut answer = match &self.own_folder {
            Some(own_folder) if own_folder.host() == uri.host => {
                self.of_own_folder(own_folder, &uri).await?
            }
            _ => match self.source.read(&uri, text).await? {
                Some(answer) => answer,
                None => return Err(unknown_host(&uri)),
            },
        };
        if let Some(map) = answer.as_object_mut() {
            map.insert("req_id".into(), request["req_id"].clone());
        }
        Ok(answer)
    }

    async fn of_own_folder(
        &self,
        own_folder: &Arc<DocumentFolder>,
        uri: &Uri,
    ) -> Result<Value, Fault> {
        let (own_folder, uri) = (Arc::clone(own_folder), uri.clone());
        if uri.part == UriTarget::Catalog {
            let documents = self.catalog(&own_folder).await?;
            let total = documents.len();
            let lines = documents.iter().map(|document| {
                format!(
                    "- [{}]({})",
                    document["title"].as_str().unwrap_or_default(),
                    document["uri"].as_str().unwrap_or_default()
                )
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            let page = json!({ "documents": documents, "total_count": total });
            return Ok(formed(page, uri.options.format, || text.clone(), || text.clone()));
        }
        apart(move || open(&own_folder, &uri)).await
    }
}

/// Runs file access on a blocking thread, for at most [`READ_MAX`]. A panic becomes a fault.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let slow = || {
        Fault::new(Kind::DeadlinePassed, Operation::ReadDocument).with(Fact::TimeoutMs, READ_MAX)
    };
    match tokio::time::timeout(READ_MAX, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            Err(Fault::new(Kind::PeerFailed, Operation::ReadDocument).caused_by(&error))
        }
        Err(_) => Err(slow()),
    }
}

fn open(own_folder: &DocumentFolder, uri: &Uri) -> Result<Value, Fault> {
    let (UriTarget::Document(reference)
    | UriTarget::Page(reference, _)
    | UriTarget::Element(reference, _)) = &uri.part
    else {
        return Err(unknown_host(uri));
    };
    let item = own_folder.find(reference)?;
    let parsed = own_folder.read_document(&item)?;
    let address = format!("dpe://{}/{}", own_folder.host(), uri::escaped(reference));
    match &uri.part {
        UriTarget::Page(_, number) => page(&parsed, *number, reference, &address, &uri.options),
        UriTarget::Element(_, id) => element(&parsed, id, reference, &address, &uri.options),
        _ => Ok(document(own_folder.summary(&item), &parsed, reference, &address, &uri.options)),
    }
}

/// Renders a document, with a list of its pages if the request wants one.
fn document(
    mut rendered: Value,
    parsed: &ParsedDocument,
    reference: &str,
    address: &str,
    options: &ReadOptions,
) -> Value {
    if options.with_pages {
        let listed = parsed.pages.iter().enumerate().skip(options.offset).take(options.limit);
        let pages: Vec<Value> = listed
            .map(|(index, page)| {
                json!({
                    "page_index": index, "title": page.title, "element_count": page.elements.len(),
                    "uri": format!("{address}/pages/{index}"), "doc_ref": reference,
                })
            })
            .collect();
        rendered["pages"] = pages.into();
        rendered["page_offset"] = options.offset.into();
        rendered["page_limit"] = options.limit.into();
        rendered["page_total"] = parsed.pages.len().into();
    }
    let title = rendered["title"].as_str().unwrap_or_default().to_owned();
    let lines = parsed
        .pages
        .iter()
        .enumerate()
        .map(|(index, page)| format!("{}. {}", index, page.title.as_deref().unwrap_or("…")));
    let lines = lines.collect::<Vec<_>>().join("\n");
    formed(
        rendered,
        options.format,
        || format!("# {title}\n\n{lines}"),
        || format!("{title}\n\n{lines}"),
    )
}

fn page(
    parsed: &ParsedDocument,
    number: u64,
    reference: &str,
    address: &str,
    options: &ReadOptions,
) -> Result<Value, Fault> {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    let page: &Page = parsed.pages.get(index).ok_or_else(|| {
        Fault::new(Kind::PageOutOfRange, Operation::ReadDocument)
            .with(Fact::Page, i64::try_from(number).unwrap_or(i64::MAX))
            .with(Fact::PageCount, i64::try_from(parsed.pages.len()).unwrap_or(i64::MAX))
            .with(Fact::DocRef, reference.to_owned())
    })?;
    let wanted = |element: &&Element| {
        options.categories.is_empty() || options.categories.contains(&element.content.category())
    };
    let elements: Vec<&Element> = page.elements.iter().filter(wanted).collect();
    let rendered: Vec<Value> = elements
        .iter()
        .map(|element| {
            json!({
                "element_id": element.id, "category": element.content.category(),
                "summary": element.content.summary(), "content": element.content.json(),
            })
        })
        .collect();
    let joined = |form: fn(&Content) -> String| {
        elements.iter().map(|element| form(&element.content)).collect::<Vec<_>>().join("\n\n")
    };
    let data = json!({
        "page_index": index, "title": page.title, "doc_ref": reference,
        "uri": format!("{address}/pages/{index}"), "element_count": rendered.len(), "elements": rendered,
    });
    Ok(formed(data, options.format, || joined(Content::markdown), || joined(Content::text)))
}

fn element(
    parsed: &ParsedDocument,
    id: &str,
    reference: &str,
    address: &str,
    options: &ReadOptions,
) -> Result<Value, Fault> {
    let all = || {
        let pages = parsed.pages.iter().enumerate();
        pages.flat_map(|(index, page)| page.elements.iter().map(move |element| (index, element)))
    };
    let Some((index, element)) = all().find(|(_, element)| element.id == id) else {
        let ids: Vec<&str> = all().map(|(_, element)| element.id.as_str()).collect();
        return Err(Fault::new(Kind::ElementNotFound, Operation::ReadDocument)
            .with(Fact::ElementId, id.chars().take(200).collect::<String>())
            .with(Fact::DocRef, reference.to_owned())
            .with(Fact::Nearest, nearest(id, &ids)));
    };
    let content = &element.content;
    let data = json!({
        "element_id": element.id, "category": content.category(), "doc_ref": reference, "page_index": index,
        "uri": format!("{address}/elements/{}", uri::escaped(id)), "summary": content.summary(),
        "content": content.json(), "metadata": {},
    });
    Ok(formed(data, options.format, || content.markdown(), || content.text()))
}

/// Renders the answer in the requested format. Formats other than JSON replace the elements by one text.
fn formed(
    mut data: Value,
    format: Format,
    markdown: impl Fn() -> String,
    text: impl Fn() -> String,
) -> Value {
    let (name, parsed) = match format {
        Format::Json => return data,
        Format::Markdown => ("content_markdown", markdown()),
        Format::Text => ("content_text", text()),
    };
    if let Some(map) = data.as_object_mut() {
        map.remove("elements");
        map.remove("content");
        map.insert(name.into(), parsed.into());
    }
    data
}

/// The fault for a missing document, code 4201, with similar names.
pub(crate) fn not_found(reference: &str, names: &[&str]) -> Fault {
    Fault::new(Kind::DocumentNotFound, Operation::ReadDocument)
        .with(Fact::DocRef, reference.chars().take(200).collect::<String>())
        .with(Fact::Nearest, nearest(reference, names))
}

/// The fault for a host without documents: the same as for a missing document.
fn unknown_host(uri: &Uri) -> Fault {
    let reference = match &uri.part {
        UriTarget::Document(reference)
        | UriTarget::Page(reference, _)
        | UriTarget::Element(reference, _) => reference,
        UriTarget::Catalog => &uri.host,
    };
    not_found(reference, &[])
}

/// The names most similar to `name`, at most [`NEAREST_MAX`].
fn nearest(name: &str, names: &[&str]) -> Vec<String> {
    let close = budao_tools::suggestions::ranked(name, names.iter().copied());
    close.into_iter().take(NEAREST_MAX).map(str::to_owned).collect()
}

/// Formats a time by RFC 3339, in UTC.
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    budao_core::Timestamp::from_micros(micros).to_string()
}

impl Query {
    fn read(request: &Value) -> Result<Self, Fault> {
        let bad = |field: &'static str, expected: &'static str| {
            Fault::new(Kind::BadRequest, Operation::ReadDocument)
                .with(Fact::EventName, "client:get_finder")
                .with(Fact::Field, field)
                .with(Fact::Expected, expected)
        };
        let field = |name: &str| request.get(name).filter(|value| !value.is_null());
        let number = |name: &str| match field(name) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().and_then(|number| usize::try_from(number).ok()).map(Some).ok_or(())
            }
        };
        let keywords = match field("keywords") {
            None => Vec::new(),
            // A single string counts as a list of one keyword.
            Some(Value::String(word)) => vec![word.to_lowercase()],
            Some(Value::Array(words)) => {
                let words = words.iter().map(|word| word.as_str().map(str::to_lowercase));
                words.collect::<Option<_>>().ok_or_else(|| bad("keywords", "a list of texts"))?
            }
            Some(_) => return Err(bad("keywords", "a list of texts")),
        };
        let file_type = match field("file_type") {
            None => None,
            Some(value) => Some(value.as_str().ok_or_else(|| bad("file_type", "text"))?.to_owned()),
        };
        let offset = number("offset").map_err(|()| bad("offset", "a whole number from 0"))?;
        let expected = "a whole number from 1 to 100";
        let limit = number("limit").map_err(|()| bad("limit", expected))?.unwrap_or(LIMIT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(bad("limit", expected));
        }
        Ok(Self { keywords, file_type, offset: offset.unwrap_or_default(), limit })
    }

    fn wants(&self, document: &Value) -> bool {
        let is_type =
            self.file_type.as_ref().is_none_or(|wanted| document["file_type"] == wanted.as_str());
        if !is_type || self.keywords.is_empty() {
            return is_type;
        }
        let own = document["keywords"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let texts = ["title", "summary"].into_iter().filter_map(|name| document[name].as_str());
        let texts: Vec<String> = texts.chain(own).map(str::to_lowercase).collect();
        self.keywords.iter().any(|word| texts.iter().any(|text| text.contains(word)))
    }
}
