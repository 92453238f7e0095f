//! Converts an editor's prompt into the blocks of a message.

use agent_client_protocol::{
    Error,
    v1::schema::{ContentBlock, EmbeddedResourceResource, McpServer, ResourceLink},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use budao_core::message::Block;

use crate::{
    bridge::{ServerTransport, ToolServer},
    faults::invalid_params,
};

/// Upper bound of a title made from a prompt, in characters.
const TITLE_CHARS: usize = 60;

/// Converts a prompt; refuses an empty one.
pub(crate) fn convert_prompt(prompt: Vec<ContentBlock>) -> Result<Vec<Block>, Error> {
    let blocks: Vec<Block> = prompt.into_iter().map(convert_block).collect::<Result<_, Error>>()?;
    let has_content = blocks.iter().any(|block| match block {
        Block::Text(text) => !text.trim().is_empty(),
        _ => true,
    });
    if has_content {
        Ok(blocks)
    } else {
        Err(invalid_params("prompt", "text that is not blank, an image or a resource"))
    }
}

fn convert_block(block: ContentBlock) -> Result<Block, Error> {
    match block {
        ContentBlock::Text(text) => Ok(Block::Text(text.text)),
        ContentBlock::Image(image) => convert_image(image.mime_type, image.data),
        ContentBlock::ResourceLink(link) => Ok(Block::Text(render_link(&link))),
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                Ok(Block::Text(render_embedded(&text.uri, &text.text)))
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => {
                let media_type = blob.mime_type.unwrap_or_default();
                if media_type.starts_with("image/") {
                    return convert_image(media_type, blob.blob);
                }
                let kind = if media_type.is_empty() { "unknown type" } else { &media_type };
                Ok(Block::Text(format!("[{} ({kind}), attached, not text]", blob.uri)))
            }
            _ => Err(invalid_params("prompt", "made of text or blob resources")),
        },
        ContentBlock::Audio(_) => {
            Err(invalid_params("prompt", "without audio: it was not offered"))
        }
        _ => Err(invalid_params("prompt", "made of text, images and resources")),
    }
}

fn convert_image(media_type: String, data: String) -> Result<Block, Error> {
    if !media_type.starts_with("image/") {
        return Err(invalid_params("prompt.image.mimeType", "an image type"));
    }
    if BASE64_STANDARD.decode(&data).is_err() {
        return Err(invalid_params("prompt.image.data", "base64"));
    }
    Ok(Block::Image { media_type, data })
}

/// Renders a link that the model can follow with its tools; a file becomes its path.
fn render_link(link: &ResourceLink) -> String {
    let path = link.uri.strip_prefix("file://").unwrap_or(&link.uri);
    format!("[@{}]({path})", link.name)
}

/// Renders embedded text, marked with its source.
fn render_embedded(uri: &str, text: &str) -> String {
    let path = uri.strip_prefix("file://").unwrap_or(uri);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("<context ref=\"{}\">\n{text}{end}</context>", path.replace('"', "%22"))
}

/// Makes a session title from the first line of text in its first prompt.
pub(crate) fn title_from(content: &[Block]) -> Option<String> {
    let text = content.iter().find_map(|block| match block {
        Block::Text(text) => text.lines().map(str::trim).find(|line| !line.is_empty()),
        _ => None,
    })?;
    let short: String = text.chars().take(TITLE_CHARS).collect();
    Some(if short.len() == text.len() { short } else { format!("{} …", short.trim_end()) })
}

/// The bytes of a message that count against its limit.
pub(crate) fn count_bytes(content: &[Block]) -> usize {
    let of = |block: &Block| match block {
        Block::Text(text) | Block::Opaque(text) => text.len(),
        Block::Image { data, .. } => data.len(),
        _ => 0,
    };
    content.iter().map(of).sum()
}

/// Converts the tool servers that an editor configured.
pub(crate) fn convert_servers(servers: Vec<McpServer>) -> Result<Vec<ToolServer>, Error> {
    let server = |server: McpServer| match server {
        McpServer::Stdio(stdio) => {
            let Some(command) = stdio.command.to_str().map(str::to_owned) else {
                return Err(invalid_params("mcpServers.command", "valid UTF-8"));
            };
            let env = stdio.env.into_iter().map(|pair| (pair.name, pair.value)).collect();
            let transport = ServerTransport::Stdio { command, args: stdio.args, env };
            Ok(ToolServer { name: stdio.name, transport })
        }
        McpServer::Http(http) => {
            let headers = http.headers.into_iter().map(|pair| (pair.name, pair.value)).collect();
            Ok(ToolServer {
                name: http.name,
                transport: ServerTransport::Http { url: http.url, headers },
            })
        }
        McpServer::Sse(sse) => {
            let headers = sse.headers.into_iter().map(|pair| (pair.name, pair.value)).collect();
            Ok(ToolServer {
                name: sse.name,
                transport: ServerTransport::Sse { url: sse.url, headers },
            })
        }
        _ => Err(invalid_params("mcpServers", "reached by stdio, http or sse")),
    };
    servers.into_iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Block>, Error> {
        convert_prompt(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn everything_an_editor_attaches_reaches_the_model() {
        let prompt = r#"[
            {"type":"text","text":"Look at this"},
            {"type":"resource_link","name":"main.rs","uri":"file:///src/main.rs"},
            {"type":"resource","resource":{"uri":"file:///a \"b\".txt","text":"inside"}},
            {"type":"resource","resource":{"uri":"zed://blob","blob":"AAAA","mimeType":"image/png"}},
            {"type":"resource","resource":{"uri":"zed://other","blob":"AAAA"}},
            {"type":"image","data":"AAAA","mimeType":"image/jpeg"}
        ]"#;
        insta::assert_json_snapshot!(read(prompt).unwrap());
    }

    #[test]
    fn content_that_was_not_offered_or_is_empty_is_refused() {
        for prompt in [
            "[]",
            r#"[{"type":"text","text":"  "}]"#,
            r#"[{"type":"audio","data":"AAAA","mimeType":"audio/wav"}]"#,
            r#"[{"type":"image","data":"not base64!","mimeType":"image/png"}]"#,
            r#"[{"type":"image","data":"AAAA","mimeType":"text/plain"}]"#,
        ] {
            assert_eq!(read(prompt).unwrap_err().code.value(), -32602, "{prompt}");
        }
    }

    #[test]
    fn a_session_is_named_after_its_first_words() {
        let named = |text: &str| title_from(&[Block::Text(text.to_owned())]);
        assert_eq!(named("\n  Fix the build  \nplease").as_deref(), Some("Fix the build"));
        let long = named(&"word ".repeat(40)).unwrap();
        assert!(long.ends_with('…') && long.chars().count() <= TITLE_CHARS + 2, "{long}");
        assert_eq!(
            title_from(&[Block::Image { media_type: "image/png".into(), data: "".into() }]),
            None
        );
    }
}
