//! The older HTTP+SSE transport: the server sends events on one long response, the client posts messages to the URL in
//! the first event.
//!
//! That URL must have the same origin, so that a server cannot redirect the secret headers to another host.

use budao_tools::child::BoundedLine;
use futures::{StreamExt, stream::BoxStream};
use http::{HeaderMap, header};
use reqwest::Url;
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use sse_stream::{Error as SseError, Sse};

use crate::{
    line::{self, ParsedMessage},
    web::{self, BoundedHttpClient, HttpError},
};

/// An open event stream and the URL for messages.
pub(crate) struct SseTransport {
    client: BoundedHttpClient,
    headers: HeaderMap,
    events: BoxStream<'static, Result<Sse, SseError>>,
    post: Url,
}

impl SseTransport {
    /// Opens the stream and waits for the event with the URL for messages.
    pub(crate) async fn open(
        client: BoundedHttpClient,
        url: Url,
        headers: HeaderMap,
    ) -> Result<Self, HttpError> {
        let build = || {
            let request = client.client.get(url.clone()).headers(headers.clone());
            request.header(header::ACCEPT, "text/event-stream")
        };
        let response = client.send(build).await?;
        if let Some(refusal) = web::refusal(&response) {
            return Err(refusal);
        }
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if !media.is_some_and(|media| media.to_ascii_lowercase().starts_with("text/event-stream")) {
            return Err(HttpError::UnexpectedContentType(media.map(str::to_owned)));
        }
        let mut events = client.events(response);
        while let Some(event) = events.next().await.transpose()? {
            if event.event.as_deref() == Some("endpoint") {
                let post = endpoint(&url, &event.data.unwrap_or_default())?;
                return Ok(Self { client, headers, events, post });
            }
        }
        Err(HttpError::UnexpectedEndOfStream)
    }
}

fn endpoint(base: &Url, path: &str) -> Result<Url, HttpError> {
    let refused = |why: &'static str| HttpError::UnexpectedServerResponse(why.into());
    let post = base.join(path.trim()).map_err(|_| refused("the endpoint is no address"))?;
    if post.origin() != base.origin() {
        return Err(refused("the endpoint is of another origin"));
    }
    Ok(post)
}

impl Transport<RoleClient> for SseTransport {
    type Error = HttpError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), HttpError>> + Send + 'static {
        let (client, post, headers) =
            (self.client.clone(), self.post.clone(), self.headers.clone());
        async move {
            let build = || client.client.post(post.clone()).headers(headers.clone()).json(&message);
            let response = client.send(build).await?;
            web::refusal(&response).map_or(Ok(()), Err)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(error) => {
                    tracing::debug!(%error, "event stream failed");
                    return None;
                }
            };
            let is_message = event.event.as_deref().is_none_or(|name| name == "message");
            let Some(data) = event.data.filter(|_| is_message) else { continue };
            match line::read(&BoundedLine::Whole(data.into_bytes())) {
                ParsedMessage::Message(message) | ParsedMessage::StandIn(message) => {
                    return Some(message);
                }
                ParsedMessage::Noise => tracing::debug!("skipping event: not a message"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), HttpError> {
        self.events = futures::stream::empty().boxed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_posted_only_to_the_server_itself() {
        let base = Url::parse("https://example.com/sse?key=1").unwrap();
        let post = endpoint(&base, "/message?sessionId=7\n").unwrap();
        assert_eq!(post.as_str(), "https://example.com/message?sessionId=7");
        for elsewhere in
            ["https://evil.example/x", "//evil.example/x", "http://example.com/x", "ftp:x"]
        {
            assert!(endpoint(&base, elsewhere).is_err(), "{elsewhere}");
        }
    }
}
