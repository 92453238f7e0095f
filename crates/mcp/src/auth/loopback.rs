//! The address on this machine to which the browser returns after a login. It answers one kind of request.

use std::{net::Ipv4Addr, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::flow::parse_query;

/// The longest request line and headers that are read, in bytes.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const PATH: &str = "/callback";

/// Waits on a port of this machine for the browser's return.
#[derive(Debug)]
pub struct LoopbackListener {
    listener: TcpListener,
    redirect: String,
}

impl LoopbackListener {
    /// Listens on a port; on any free one if it is 0.
    ///
    /// # Errors
    /// When the port is in use.
    pub async fn bind(port: u16) -> Result<Self, Fault> {
        let in_use = |error: std::io::Error| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "mcp.oauth.redirect_port")
                .with(Fact::Expected, "a free port")
                .with(Fact::Received, port.to_string())
                .caused_by(&error)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(in_use)?;
        let port = listener.local_addr().map_err(in_use)?.port();
        Ok(Self { listener, redirect: format!("http://127.0.0.1:{port}{PATH}") })
    }

    /// The address for the browser.
    #[must_use]
    pub fn redirect(&self) -> &str {
        &self.redirect
    }

    /// Waits for the browser's return to the login with this `state`, and shows it `page`. Returns the address that it
    /// opened. Other requests are refused: any page in the browser can send one.
    pub async fn answer(&self, state: &str, page: &str, world: &World) -> String {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                world.clock.sleep(Duration::from_millis(100)).await;
                continue;
            };
            let read = async { read_target(&mut stream).await };
            let target = tokio::select! {
                biased;
                target = read => target,
                () = world.clock.sleep(REQUEST_MAX) => None,
            };
            let target = target.filter(|target| is_answer(target, state));
            let (status, text) = match &target {
                Some(_) => ("200 OK", page),
                None => ("404 Not Found", ""),
            };
            let response = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
                 referrer-policy: no-referrer\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{text}",
                text.len()
            );
            let written = async {
                // The person sees the outcome in the terminal too.
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.shutdown().await;
            };
            tokio::select! {
                biased;
                () = written => {}
                () = world.clock.sleep(REQUEST_MAX) => {}
            }
            if let Some(target) = target {
                return target;
            }
        }
    }
}

/// The path and query of a GET request.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&chunk[..count]);
        if read.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    let line = read.split(|byte| *byte == b'\r').next()?;
    let target = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?;
    target.split(' ').next().map(str::to_owned)
}

fn is_answer(target: &str, state: &str) -> bool {
    let Some((PATH, query)) = target.split_once('?') else { return false };
    parse_query(query).get("state").is_some_and(|given| given == state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_login_is_taken() {
        assert!(is_answer("/callback?code=a&state=s", "s"));
        for other in [
            "/callback",
            "/callback?code=a",
            "/callback?code=a&state=t",
            "/x?state=s",
            "/favicon.ico",
        ] {
            assert!(!is_answer(other, "s"), "{other}");
        }
    }
}
