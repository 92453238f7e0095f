//! An agent: sends requests, cancels them, reuses ids, leaves and returns.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    MemberAction, SmcpWorld,
    call_ledger::Call,
    connection::{HubMessage, MemberConnection, MemberId, MemberMessage},
    some_ms,
};
use crate::{script::pick, world::chance};

/// Requests other than tool calls.
const QUESTIONS: &[&str] =
    &["client:get_tools", "client:get_config", "client:get_desktop", "client:get_resources"];

/// The agent of a room.
pub(super) struct Agent {
    office: Arc<SmcpWorld>,
    who: MemberId,
    dice: StdRng,
    next: i64,
    /// Unanswered requests on this connection, by acknowledgement id.
    open: BTreeMap<i64, PendingRequest>,
    joined: bool,
    finishing: bool,
    away: Duration,
    doze: Duration,
    /// Request ids of calls, by step, and the last one.
    ids: BTreeMap<usize, String>,
    last: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum PendingRequest {
    Join,
    Other,
}

/// The connection was closed.
struct ConnectionLost;

impl Agent {
    pub(super) fn new(office: Arc<SmcpWorld>, who: MemberId) -> Self {
        let dice = chance(office.seed, &format!("agent {}", who.room));
        Self {
            office,
            who,
            dice,
            next: 1,
            open: BTreeMap::new(),
            joined: false,
            finishing: false,
            away: Duration::ZERO,
            doze: Duration::ZERO,
            ids: BTreeMap::new(),
            last: None,
        }
    }

    /// Runs until it has received `Finish` and every answer.
    pub(super) async fn live(mut self, mut orders: mpsc::UnboundedReceiver<MemberAction>) {
        loop {
            if let Some(mut link) = self.office.connect(&self.who)
                && self.converse(&mut link, &mut orders).await.is_ok()
            {
                return;
            }
            self.open.clear();
            self.joined = false;
            let away = std::mem::take(&mut self.away).max(Duration::from_millis(50));
            tokio::time::sleep(away).await;
        }
    }

    async fn converse(
        &mut self,
        link: &mut MemberConnection,
        orders: &mut mpsc::UnboundedReceiver<MemberAction>,
    ) -> Result<(), ConnectionLost> {
        self.join(link).await?;
        loop {
            if self.finishing && self.joined && self.open.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(order) = orders.recv(), if self.joined => self.perform(link, order).await?,
                word = link.from.recv() => self.hear(link, word.ok_or(ConnectionLost)?).await?,
            }
        }
    }

    async fn say(
        &mut self,
        link: &MemberConnection,
        name: &'static str,
        payload: Value,
        asked: PendingRequest,
    ) -> Result<(), ConnectionLost> {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, asked);
        link.up
            .send(MemberMessage::Event { name, payload, id: Some(id) })
            .await
            .map_err(|_| ConnectionLost)
    }

    async fn join(&mut self, link: &MemberConnection) -> Result<(), ConnectionLost> {
        let payload =
            json!({ "role": "agent", "name": self.who.name, "office_id": self.who.office() });
        self.say(link, "server:join_office", payload, PendingRequest::Join).await
    }

    async fn perform(
        &mut self,
        link: &mut MemberConnection,
        order: MemberAction,
    ) -> Result<(), ConnectionLost> {
        match order {
            MemberAction::Call { mark, computer, again } => {
                let id = self.call(link, mark, computer, None).await?;
                if again {
                    self.call(link, mark + 5, computer, Some(id)).await?;
                }
            }
            MemberAction::Cancel { of } => {
                let id = of.and_then(|of| self.ids.get(&of).cloned()).or_else(|| self.last.clone());
                // Sometimes it cancels a call that never existed.
                let id = if self.dice.random_bool(0.1) { None } else { id };
                let id = id.unwrap_or_else(|| "r-none".to_owned());
                let payload = json!({ "agent": self.who.name, "req_id": id });
                self.say(link, "server:tool_call_cancel", payload, PendingRequest::Other).await?;
            }
            MemberAction::Leave => {
                let payload = json!({ "office_id": self.who.office() });
                self.say(link, "server:leave_office", payload, PendingRequest::Other).await?;
                self.joined = false;
                self.join(link).await?;
            }
            MemberAction::Update => {}
            MemberAction::Doze { for_ms } => self.doze = Duration::from_millis(for_ms),
            MemberAction::Cut { away_ms } => {
                self.away = Duration::from_millis(away_ms);
                return Err(ConnectionLost);
            }
            MemberAction::Finish => self.finishing = true,
        }
        Ok(())
    }

    /// Sends a request to a computer. Ids come from a small set, so that some are reused while still in flight.
    async fn call(
        &mut self,
        link: &MemberConnection,
        mark: usize,
        computer: usize,
        id: Option<String>,
    ) -> Result<String, ConnectionLost> {
        let nonce = (mark * 8 + self.who.room) as u64;
        let id = id.unwrap_or_else(|| format!("r{}", self.dice.random_range(0..4)));
        let to = self.address(computer);
        let limits = self.office.limits();
        let seconds = *pick(&mut self.dice, &[1, 2, 5, 30, 3600]);
        let is_tool = self.dice.random_bool(0.8);
        let mut payload = json!({
            "agent": self.who.name, "req_id": id, "computer": to.name, "nonce": nonce,
        });
        let mut call = Call::new(self.who.clone(), to.name.clone(), id.clone(), limits.question);
        call.is_tool = is_tool;
        let name = if is_tool {
            call.within = Duration::from_secs(seconds) + limits.grace;
            payload["tool_name"] = "do".into();
            payload["params"] = json!({ "nonce": nonce });
            payload["timeout"] = seconds.into();
            self.ids.insert(mark, id.clone());
            self.last = Some(id.clone());
            "client:tool_call"
        } else {
            *pick(&mut self.dice, QUESTIONS)
        };
        self.office.book.write(nonce, call);
        self.say(link, name, payload, PendingRequest::Other).await?;
        Ok(id)
    }

    /// Usually a computer of its room; sometimes one of another room, which must be unreachable.
    fn address(&mut self, computer: usize) -> MemberId {
        let room = if self.dice.random_bool(0.1) { self.who.room + 1 } else { self.who.room };
        MemberId::computer(room, computer)
    }

    async fn hear(
        &mut self,
        link: &mut MemberConnection,
        word: HubMessage,
    ) -> Result<(), ConnectionLost> {
        let doze = std::mem::take(&mut self.doze);
        let pause = some_ms(&mut self.dice, &[0, 0, 0, 1, 30]);
        if !(doze + pause).is_zero() {
            tokio::time::sleep(doze + pause).await;
        }
        let office = Arc::clone(&self.office);
        office.book.note(office.clock.elapsed(), &format!("{:?} {word:?}", self.who));
        let HubMessage::Answer { id, args } = word else { return Ok(()) };
        let asked = self.open.remove(&id);
        office.violations.expect(asked.is_some(), "an event has one answer", || {
            format!("{id} {args:?} to {:?}", self.who)
        });
        if asked == Some(PendingRequest::Join) {
            self.joined = args.first() == Some(&Value::Bool(true));
            if !self.joined {
                // The hub has not noticed yet that the previous connection is closed.
                tokio::time::sleep(Duration::from_millis(80)).await;
                self.join(link).await?;
            }
        }
        Ok(())
    }
}
