//! Confirmation before a tool runs: by the user at the terminal, a program, or a service.
//!
//! Every failure to get an answer denies the call and states the reason.

use std::time::Duration;

use async_trait::async_trait;
use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};
use budao_smcp::computer::{Confirmation, Confirmer, Question};
use serde_json::Value;

use super::console::Console;
use crate::{
    program::{self, ProgramError},
    texts::localize,
};

/// Maximum bytes of a service's answer.
const ANSWER_MAX: usize = 16 * 1024;

/// Maximum characters of a reason that are passed on.
const REASON_MAX: usize = 300;

fn unanswered(reason: impl Into<String>) -> Confirmation {
    Confirmation::Unanswered(reason.into())
}

/// The trimmed reason, at most [`REASON_MAX`] characters; none if it is empty.
fn reason(text: &str) -> Option<String> {
    let text: String = text.trim().chars().take(REASON_MAX).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Asks the user at the terminal.
#[derive(Debug)]
pub(super) struct TerminalConfirmer {
    pub(super) console: Console,
    pub(super) lang: Lang,
}

#[async_trait]
impl Confirmer for TerminalConfirmer {
    async fn confirm(&self, question: &Question<'_>) -> Confirmation {
        let Question { bundle_id, tool, params, .. } = question;
        let may = localize(self.lang, "smcp-allow-call");
        let words = format!("{bundle_id} {tool} {params}\n{may} [y/N] ");
        match self.console.ask(words, false).await {
            Some(answer) if matches!(answer.as_str(), "y" | "Y" | "yes" | "是") => {
                Confirmation::Yes
            }
            Some(_) => Confirmation::No(None),
            None => unanswered("the user of the computer could not be asked"),
        }
    }
}

/// Asks a program: the question goes to its stdin, its exit status is the answer.
#[derive(Debug)]
pub(super) struct ProgramConfirmer {
    pub(super) words: Vec<String>,
    pub(super) limit: Duration,
}

impl ProgramConfirmer {
    /// # Errors
    /// `configuration_wrong` if the command is empty or its quotes are unbalanced.
    pub(super) fn new(command: &str, limit: Duration) -> Result<Self, Fault> {
        let words = shell_words::split(command).ok().filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| wrong("--confirm-command", "a command"))?;
        Ok(Self { words, limit })
    }
}

#[async_trait]
impl Confirmer for ProgramConfirmer {
    async fn confirm(&self, question: &Question<'_>) -> Confirmation {
        let input = format!("{}\n", question.to_json());
        let (program, args) = (&self.words[0], &self.words[1..]);
        let ended = program::run(program, args, input.as_bytes(), self.limit).await;
        let ended = match ended {
            Ok(ended) => ended,
            Err(ProgramError::NotStarted(reason)) => {
                return unanswered(format!("the confirmation program could not be run: {reason}"));
            }
            Err(ProgramError::TimedOut) => {
                let seconds = self.limit.as_secs();
                return unanswered(format!(
                    "the confirmation program did not answer within {seconds} s"
                ));
            }
        };
        match ended.code {
            Some(0) => Confirmation::Yes,
            Some(1) => Confirmation::No(reason(ended.output.lines().next().unwrap_or_default())),
            Some(code) => unanswered(format!("the confirmation program exited with status {code}")),
            None => unanswered("the confirmation program was killed"),
        }
    }
}

/// Asks a service: posts the question as JSON and expects `{"allow": true}` or `{"allow": false}`.
#[derive(Debug)]
pub(super) struct ServiceConfirmer {
    client: reqwest::Client,
    url: reqwest::Url,
    limit: Duration,
}

impl ServiceConfirmer {
    /// # Errors
    /// `configuration_wrong` if it is not an http or https URL.
    pub(super) fn new(url: &str, limit: Duration) -> Result<Self, Fault> {
        let wrong = || wrong("--confirm-url", "an http or https address");
        let url = reqwest::Url::parse(url).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong());
        }
        // Fails if a provider is installed already, which is fine. Without one, building a client panics.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("budao/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(limit)
            .build();
        Ok(Self { client: client.map_err(|_| wrong())?, url, limit })
    }

    async fn ask(&self, question: &Question<'_>) -> Result<Confirmation, reqwest::Error> {
        let request = self.client.post(self.url.clone()).json(&question.to_json());
        let mut response = request.send().await?;
        let status = response.status();
        if !status.is_success() {
            return Ok(unanswered(format!(
                "the confirmation service answered with status {}",
                status.as_u16()
            )));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await? {
            body.extend_from_slice(&piece);
            if body.len() > ANSWER_MAX {
                break;
            }
        }
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(match answer.get("allow").and_then(Value::as_bool) {
            Some(true) => Confirmation::Yes,
            Some(false) => {
                Confirmation::No(answer.get("reason").and_then(Value::as_str).and_then(reason))
            }
            None => unanswered("the answer of the confirmation service is not a decision"),
        })
    }
}

#[async_trait]
impl Confirmer for ServiceConfirmer {
    async fn confirm(&self, question: &Question<'_>) -> Confirmation {
        match tokio::time::timeout(self.limit, self.ask(question)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_connect() => {
                unanswered("the confirmation service cannot be reached")
            }
            Ok(Err(_)) => unanswered("the connection to the confirmation service broke"),
            Err(_) => {
                let seconds = self.limit.as_secs();
                unanswered(format!("the confirmation service did not answer within {seconds} s"))
            }
        }
    }
}

fn wrong(key: &'static str, expected: &'static str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key)
        .with(Fact::Expected, expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(30);

    async fn ask(confirm: &dyn Confirmer) -> Option<String> {
        let params = json!({ "path": "/" });
        let question = Question { req_id: "r", bundle_id: "s", tool: "t", params: &params };
        confirm.confirm(&question).await.refusal()
    }

    async fn program(command: &str, limit: Duration) -> Option<String> {
        ask(&ProgramConfirmer::new(command, limit).unwrap()).await
    }

    #[tokio::test]
    async fn a_confirmation_program_allows_a_call_only_by_exit_code_zero() {
        assert_eq!(program("true", LONG).await, None);
        let reads = r#"sh -c 'grep -q "\"tool\":\"t\""'"#;
        assert_eq!(program(reads, LONG).await, None, "it is given the call");
        let no = program("sh -c 'echo not on a Sunday; exit 1'", LONG).await.unwrap();
        assert!(no.ends_with("said no: not on a Sunday"), "{no}");
        for (command, words) in [
            ("false", "said no"),
            ("sh -c 'exit 7'", "status 7"),
            ("sh -c 'kill -9 $$'", "was killed"),
            ("/nowhere/at-all", "could not be run"),
        ] {
            let no = program(command, LONG).await.unwrap();
            assert!(no.contains(words), "{command}: {no}");
        }
        let hangs = program("sleep 1000", SHORT).await.unwrap();
        assert!(hangs.contains("did not answer"), "{hangs}");
        assert!(
            ProgramConfirmer::new("", LONG).is_err() && ProgramConfirmer::new("'", LONG).is_err()
        );
    }

    /// Asks a service that answers one request with these bytes, or never.
    async fn service(answer: Option<&'static str>, limit: Duration) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let serving = async {
            let (mut peer, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let _ = peer.read(&mut request).await;
            match answer {
                Some(answer) => {
                    let _ = peer.write_all(answer.as_bytes()).await;
                    let _ = peer.shutdown().await;
                }
                None => std::future::pending().await,
            }
            std::future::pending::<()>().await;
        };
        let service = ServiceConfirmer::new(&url, limit).unwrap();
        tokio::select! {
            answer = ask(&service) => answer,
            () = serving => unreachable!("it serves for ever"),
        }
    }

    #[tokio::test]
    async fn a_confirmation_service_allows_a_call_only_by_an_explicit_yes() {
        let json = |body: &'static str| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            &*Box::leak(format!("{head}{body}").into_boxed_str())
        };
        assert_eq!(service(Some(json(r#"{"allow":true}"#)), LONG).await, None);
        for (answer, words) in [
            (Some(json(r#"{"allow":false,"reason":"too late"}"#)), "said no: too late"),
            (Some(json(r#"{"allow":"yes"}"#)), "not a decision"),
            (Some(json("<html>")), "not a decision"),
            (Some("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"), "status 500"),
            (Some("HTTP/1.1 302 Go\r\nlocation: /yes\r\ncontent-length: 0\r\n\r\n"), "status 302"),
            (Some("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"), "broke"),
            (Some("rubbish"), "broke"),
        ] {
            let no = service(answer, LONG).await.unwrap();
            assert!(no.contains(words), "{answer:?}: {no}");
        }
        let hangs = service(None, SHORT).await.unwrap();
        assert!(hangs.contains("did not answer"), "{hangs}");
        let nobody =
            ask(&ServiceConfirmer::new("http://127.0.0.1:1/", LONG).unwrap()).await.unwrap();
        assert!(nobody.contains("cannot be reached"), "{nobody}");
        assert!(
            ServiceConfirmer::new("ftp://x", LONG).is_err()
                && ServiceConfirmer::new("x", LONG).is_err()
        );
    }
}
