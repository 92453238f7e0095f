//! A connection to the server's HTTP interface, kept open: one request and one JSON answer at a time.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream},
    net::TcpStream,
};

/// The largest answer that is read, in bytes.
const ANSWER_BYTES: usize = 1024 * 1024;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufStream<TcpStream>,
    host: String,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("connect to the server")?;
        Ok(Self { stream: BufStream::new(stream), host: address.to_owned() })
    }

    /// Sends a request and returns the JSON of its answer, which must be a success.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.stream.write_all((head + &body).as_bytes()).await?;
        self.stream.flush().await?;
        let status = self.line().await?;
        let mut length = 0;
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().context("the length of the answer")?;
            }
        }
        ensure!(length <= ANSWER_BYTES, "an answer of {length} bytes");
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer);
        ensure!(status.starts_with("HTTP/1.1 2"), "{method} {path}: {status}: {text}");
        serde_json::from_slice(&answer).with_context(|| format!("understand `{text}`"))
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
