//! The act with a server, a client whose connection is cut, and a control client whose connection is not.

use std::{net::SocketAddr, time::Duration};

use budao_client::{Client, Error, Event, Events, SessionRequest};
use budao_core::{
    Fault,
    fault::{Fact, Kind, Operation},
    retry::RetryPolicy,
};
use tokio::{
    process::Child,
    sync::{mpsc, watch},
};

use super::{
    CheckedClaims,
    act::{Act, Claim},
    relay::Relay,
    runner::{DemoRunner, lines, not_read},
};
use crate::texts::localize;

/// `SEEN`: answer pieces before the cut. `MISSED`: events that must happen before the connection is restored.
const SEEN: usize = 4;
const MISSED: u64 = 4;

/// Reconnects quickly, so that the act stays short.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    tries: 100,
    base: Duration::from_millis(200),
    max: Duration::from_secs(1),
    multiplier: 1.5,
    hint_ceiling: Duration::from_secs(5),
};

/// Position and name of an event; both clients must receive the same ones.
type EventPosition = (u64, String);

pub(super) async fn play(stage: &mut DemoRunner<'_>) -> Result<CheckedClaims, Fault> {
    let args = ["serve", "--listen", "127.0.0.1:0", "--model", "demo"];
    let mut server = stage.start(&args)?;
    let (address, token) = announced(&mut server).await?;
    let relay = Relay::to(address).await.map_err(|error| not_read().caused_by(&error))?;
    let through = |address: SocketAddr| {
        Client::new(format!("ws://{address}/ws")).token(token.as_str()).retry(RETRY_POLICY)
    };
    let create =
        SessionRequest { language: Some(stage.lang.to_string()), ..SessionRequest::default() };
    let (session, events) = through(relay.address()).create(create).await.map_err(fault)?;
    if let Ok(id) = session.id().parse() {
        stage.remember(Act::Cut, id);
    }
    let (_other, other) = through(address).attach(session.id(), None).await.map_err(fault)?;
    let witness = ControlClient::start(other);
    let task = localize(stage.lang, "demo-count-to-12-slowly");
    stage.show(&format!("> {task}"));
    session.send(task).await.map_err(fault)?;

    let (seen, cut) = follow(stage, events, &relay, &witness).await?;
    let witnessed = witness.all().await;
    stop(server).await;
    let is_rising = seen.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let is_same = !seen.is_empty() && seen == witnessed;
    Ok(vec![
        (Claim::LineWasCut, cut.is_noticed),
        (Claim::RunWentOnMeanwhile, cut.at.is_some_and(|at| cut.mended_at >= at + MISSED)),
        (Claim::NothingMissing, is_same),
        (Claim::NothingTwice, is_rising),
    ])
}

/// The cut, as observed by both clients.
#[derive(Default)]
struct Disconnection {
    /// Position of the client at the cut; none before it.
    at: Option<u64>,
    /// True once the client reported the lost connection.
    is_noticed: bool,
    /// Position of the control client when the connection was restored.
    mended_at: u64,
}

/// Follows the answer, cuts the connection on the way and restores it. Returns every event the client received.
async fn follow(
    stage: &DemoRunner<'_>,
    mut events: Events,
    relay: &Relay,
    witness: &ControlClient,
) -> Result<(Vec<EventPosition>, Disconnection), Fault> {
    let (mut seen, mut cut, mut pieces) = (Vec::new(), Disconnection::default(), 0);
    let mut printer = stage.printer();
    while let Some(event) = events.next().await {
        let event = event?;
        if let (true, Some(at)) = (event.is_local(), cut.at) {
            cut.is_noticed = true;
            let code = event.meta("error_code").as_str().unwrap_or_default();
            stage.show(&format!("✗ {code} {}", event.text()));
            cut.mended_at = witness.reached(at + MISSED).await;
            relay.mend();
            let words = localize(stage.lang, "demo-connection-restored-the-run-is-at");
            stage.show(&format!("↻ {words} {}", cut.mended_at));
            continue;
        }
        if event.event == "agent.partial_answer" {
            printer.say(event.text());
            pieces += 1;
        }
        seen.extend(event_position(&event));
        if is_last(&event) {
            break;
        }
        if pieces == SEEN && cut.at.is_none() {
            let at = events.cursor().seq;
            cut.at = Some(at);
            printer.end_line();
            let words = localize(stage.lang, "demo-connection-cut-the-client-is-at");
            stage.show(&format!("✂ {words} {at}"));
            relay.cut();
        }
    }
    printer.end_line();
    Ok((seen, cut))
}

fn is_last(event: &Event) -> bool {
    event.event == "agent.final_answer"
}

fn event_position(event: &Event) -> Option<EventPosition> {
    Some((event.seq?, event.event.clone()))
}

/// A second client of the session, connected directly to the server.
struct ControlClient {
    at: watch::Receiver<u64>,
    seen: mpsc::Receiver<Vec<EventPosition>>,
}

impl ControlClient {
    fn start(mut events: Events) -> Self {
        let (reached, at) = watch::channel(0);
        let (done, seen) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(Ok(event)) = events.next().await {
                all.extend(event_position(&event));
                reached.send_replace(events.cursor().seq);
                if is_last(&event) {
                    break;
                }
            }
            // The receiver is gone if the act failed earlier.
            let _ = done.send(all).await;
        });
        Self { at, seen }
    }

    /// Waits until the control client has reached `position` or ended; returns its position.
    async fn reached(&self, position: u64) -> u64 {
        let mut at = self.at.clone();
        let _ = at.wait_for(|at| *at >= position).await;
        *at.borrow()
    }

    /// Every event it received; waits for the end of the answer.
    async fn all(mut self) -> Vec<EventPosition> {
        self.seen.recv().await.unwrap_or_default()
    }
}

/// Address and token from the line the server prints on stdout.
async fn announced(server: &mut Child) -> Result<(SocketAddr, String), Fault> {
    let line = lines(server)?.next_line().await.map_err(|error| not_read().caused_by(&error))?;
    let parts = line.as_deref().and_then(|line| {
        let (address, token) = line.strip_prefix("http://")?.split_once("/#token=")?;
        Some((address.parse().ok()?, token.to_owned()))
    });
    parts.ok_or_else(not_read)
}

/// Sends SIGTERM and waits up to 5 s; a server that still runs is killed when the handle is dropped.
async fn stop(mut server: Child) {
    let pid = server.id().and_then(|id| rustix::process::Pid::from_raw(id.try_into().ok()?));
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let _ = tokio::time::timeout(Duration::from_secs(5), server.wait()).await;
}

/// Converts a client error into a fault.
fn fault(error: Error) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        Error::Rejected(event) => Fault::new(Kind::Bug, Operation::SubmitCommand)
            .with(Fact::Received, event.event.clone())
            .with_cause(event.text().to_owned()),
    }
}
