//! Finder: documents as pages of elements, of the protocol's first draft (0.2).
//!
//! A computer offers the documents of a folder and those that its MCP servers have as `dpe://` resources. An agent
//! lists them, then goes down: document, page, element. Addresses are read by [`uri`], files by [`read`], and what
//! is asked for and not there has one of four codes: 4201 to 4204.

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

pub use folder::{DocumentFolder, Limits as ShelfLimits};

use element::{Content, Element, Page};
use read::ParsedDocument;
use uri::{Format, LIMIT, LIMIT_MAX, ReadOptions, Uri, UriTarget};

/// How often a folder is looked at for changes.
pub const LOOK: Duration = Duration::from_secs(2);

/// Names offered instead of one that is not there.
const NEAREST_MAX: usize = 5;

/// Reading a document takes no longer; a file may be made to take for ever.
const READ_MAX: Duration = Duration::from_secs(20);

/// Documents that somebody else has: MCP servers with `dpe://` resources.
#[async_trait]
pub trait DocumentSource: Send + Sync + fmt::Debug {
    /// What there is now, as a list says it. Everything has a `uri` and a `server`.
    async fn documents(&self) -> Vec<Value>;

    /// What an address of one of them leads to, as its server says it; nothing if no server has the host.
    ///
    /// # Errors
    /// What the server said.
    async fn read(&self, uri: &Uri, text: &str) -> Result<Option<Value>, Fault>;
}

/// Nobody else has any.
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

/// The documents of a computer.
#[derive(Clone, Debug)]
pub struct Finder {
    shelf: Option<Arc<DocumentFolder>>,
    library: Arc<dyn DocumentSource>,
}

/// What an agent asks the list for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Documents that have one of these in title, keywords or summary.
    pub keywords: Vec<String>,
    /// Documents of this type.
    pub file_type: Option<String>,
    /// The first one listed.
    pub offset: usize,
    /// How many.
    pub limit: usize,
}

impl Finder {
    /// The documents of a folder, if there is one, and of a library.
    #[must_use]
    pub fn new(shelf: Option<Arc<DocumentFolder>>, library: Arc<dyn DocumentSource>) -> Self {
        Self { shelf, library }
    }

    /// The documents of a folder.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn of_folder(host: &str, folder: &Path) -> Result<Self, Fault> {
        let shelf = DocumentFolder::open(host, folder, ShelfLimits::default())?;
        Ok(Self::new(Some(Arc::new(shelf)), Arc::new(NoDocuments)))
    }

    /// A number that is another one when a document of the folder came, went or changed.
    pub async fn state(&self) -> u64 {
        let Some(shelf) = self.shelf.clone() else { return 0 };
        tokio::task::spawn_blocking(move || shelf.state()).await.unwrap_or_default()
    }

    /// Answers `client:get_finder`. Servers come in the order they were used last, those in `used` first; the documents of
    /// each with the youngest first.
    ///
    /// # Errors
    /// 400 with the field that does not fit.
    pub async fn list(&self, request: &Value, used: &[String]) -> Result<Value, Fault> {
        let query = Query::read(request)?;
        let mut documents = self.documents().await?;
        documents.retain(|document| query.wants(document));
        documents.sort_by_cached_key(|document| {
            let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
            let server = text("server");
            let place = used.iter().position(|used| *used == server).unwrap_or(usize::MAX);
            // The youngest first, those without a time last, and the same order every time.
            (place, server, std::cmp::Reverse(text("last_modified")), text("uri"))
        });
        let total = documents.len();
        let page: Vec<Value> = documents.into_iter().skip(query.offset).take(query.limit).collect();
        Ok(json!({ "documents": page, "total_count": total, "req_id": request["req_id"] }))
    }

    async fn documents(&self) -> Result<Vec<Value>, Fault> {
        let mut documents = match &self.shelf {
            Some(shelf) => self.catalog(shelf).await?,
            None => Vec::new(),
        };
        let others = self.library.documents().await.into_iter();
        documents.extend(others.filter(|document| {
            document["uri"].as_str().is_some_and(|uri| Uri::parse(uri).is_ok())
        }));
        Ok(documents)
    }

    async fn catalog(&self, shelf: &Arc<DocumentFolder>) -> Result<Vec<Value>, Fault> {
        let shelf = Arc::clone(shelf);
        apart(move || Ok(shelf.items().iter().map(|item| shelf.summary(item)).collect())).await
    }

    /// Answers `client:get_dpe`.
    ///
    /// # Errors
    /// 4201 to 4204, or why the document cannot be read.
    pub async fn get(&self, request: &Value) -> Result<Value, Fault> {
        let text = request.get("uri").and_then(Value::as_str).ok_or_else(|| {
            Fault::new(Kind::BadRequest, Operation::ReadDocument)
                .with(Fact::Field, "uri")
                .with(Fact::Expected, "text")
        })?;
        let uri = Uri::parse(text)?;
        let mut answer = match &self.shelf {
            Some(shelf) if shelf.host() == uri.host => self.of_shelf(shelf, &uri).await?,
            _ => match self.library.read(&uri, text).await? {
                Some(answer) => answer,
                None => return Err(unknown_host(&uri)),
            },
        };
        if let Some(map) = answer.as_object_mut() {
            map.insert("req_id".into(), request["req_id"].clone());
        }
        Ok(answer)
    }

    async fn of_shelf(&self, shelf: &Arc<DocumentFolder>, uri: &Uri) -> Result<Value, Fault> {
        let (shelf, uri) = (Arc::clone(shelf), uri.clone());
        if uri.part == UriTarget::Catalog {
            let documents = self.catalog(&shelf).await?;
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
            return Ok(formed(page, uri.wish.format, || text.clone(), || text.clone()));
        }
        apart(move || open(&shelf, &uri)).await
    }
}

/// Reads files where nobody else has to wait for them, for a bounded time, and survives what a file does to its reader.
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

fn open(shelf: &DocumentFolder, uri: &Uri) -> Result<Value, Fault> {
    let (UriTarget::Document(reference)
    | UriTarget::Page(reference, _)
    | UriTarget::Element(reference, _)) = &uri.part
    else {
        return Err(unknown_host(uri));
    };
    let item = shelf.find(reference)?;
    let said = shelf.read_document(&item)?;
    let address = format!("dpe://{}/{}", shelf.host(), uri::escaped(reference));
    match &uri.part {
        UriTarget::Page(_, number) => page(&said, *number, reference, &address, &uri.wish),
        UriTarget::Element(_, id) => element(&said, id, reference, &address, &uri.wish),
        _ => Ok(document(shelf.summary(&item), &said, reference, &address, &uri.wish)),
    }
}

/// A document, with the list of its pages if that is wanted.
fn document(
    mut shown: Value,
    said: &ParsedDocument,
    reference: &str,
    address: &str,
    wish: &ReadOptions,
) -> Value {
    if wish.with_pages {
        let listed = said.pages.iter().enumerate().skip(wish.offset).take(wish.limit);
        let pages: Vec<Value> = listed
            .map(|(index, page)| {
                json!({
                    "page_index": index, "title": page.title, "element_count": page.elements.len(),
                    "uri": format!("{address}/pages/{index}"), "doc_ref": reference,
                })
            })
            .collect();
        shown["pages"] = pages.into();
        shown["page_offset"] = wish.offset.into();
        shown["page_limit"] = wish.limit.into();
        shown["page_total"] = said.pages.len().into();
    }
    let title = shown["title"].as_str().unwrap_or_default().to_owned();
    let lines = said
        .pages
        .iter()
        .enumerate()
        .map(|(index, page)| format!("{}. {}", index, page.title.as_deref().unwrap_or("…")));
    let lines = lines.collect::<Vec<_>>().join("\n");
    formed(shown, wish.format, || format!("# {title}\n\n{lines}"), || format!("{title}\n\n{lines}"))
}

fn page(
    said: &ParsedDocument,
    number: u64,
    reference: &str,
    address: &str,
    wish: &ReadOptions,
) -> Result<Value, Fault> {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    let page: &Page = said.pages.get(index).ok_or_else(|| {
        Fault::new(Kind::PageOutOfRange, Operation::ReadDocument)
            .with(Fact::Page, i64::try_from(number).unwrap_or(i64::MAX))
            .with(Fact::PageCount, i64::try_from(said.pages.len()).unwrap_or(i64::MAX))
            .with(Fact::DocRef, reference.to_owned())
    })?;
    let wanted = |element: &&Element| {
        wish.categories.is_empty() || wish.categories.contains(&element.content.category())
    };
    let elements: Vec<&Element> = page.elements.iter().filter(wanted).collect();
    let shown: Vec<Value> = elements
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
        "uri": format!("{address}/pages/{index}"), "element_count": shown.len(), "elements": shown,
    });
    Ok(formed(data, wish.format, || joined(Content::markdown), || joined(Content::text)))
}

fn element(
    said: &ParsedDocument,
    id: &str,
    reference: &str,
    address: &str,
    wish: &ReadOptions,
) -> Result<Value, Fault> {
    let all = || {
        let pages = said.pages.iter().enumerate();
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
    Ok(formed(data, wish.format, || content.markdown(), || content.text()))
}

/// The answer in the form that is wanted: in another one than data its elements are left out and its text is added.
fn formed(
    mut data: Value,
    format: Format,
    markdown: impl Fn() -> String,
    text: impl Fn() -> String,
) -> Value {
    let (name, said) = match format {
        Format::Json => return data,
        Format::Markdown => ("content_markdown", markdown()),
        Format::Text => ("content_text", text()),
    };
    if let Some(map) = data.as_object_mut() {
        map.remove("elements");
        map.remove("content");
        map.insert(name.into(), said.into());
    }
    data
}

/// 4201.
pub(crate) fn not_found(reference: &str, names: &[&str]) -> Fault {
    Fault::new(Kind::DocumentNotFound, Operation::ReadDocument)
        .with(Fact::DocRef, reference.chars().take(200).collect::<String>())
        .with(Fact::Nearest, nearest(reference, names))
}

/// No document is where nobody has documents.
fn unknown_host(uri: &Uri) -> Fault {
    let reference = match &uri.part {
        UriTarget::Document(reference)
        | UriTarget::Page(reference, _)
        | UriTarget::Element(reference, _) => reference,
        UriTarget::Catalog => &uri.host,
    };
    not_found(reference, &[])
}

/// Names like this one.
fn nearest(name: &str, names: &[&str]) -> Vec<String> {
    let close = budao_tools::suggestions::ranked(name, names.iter().copied());
    close.into_iter().take(NEAREST_MAX).map(str::to_owned).collect()
}

/// A time as text.
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
            // One word is taken for a list of one.
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
