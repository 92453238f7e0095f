//! A computer: answers correctly, wrongly, late, twice or never; leaves and returns.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use budao_smcp::wire::event;
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{
    MemberAction, SmcpWorld,
    connection::{HubMessage, MemberConnection, MemberId, MemberMessage},
    some_ms,
};
use crate::world::chance;

/// The acknowledgement id of every join; a computer has no other request in flight.
const JOIN: i64 = 1;
const OTHER: i64 = 2;

/// A computer of a room.
pub(super) struct Computer {
    office: Arc<SmcpWorld>,
    who: MemberId,
    dice: StdRng,
    away: Duration,
    doze: Duration,
    finishing: bool,
    /// Scheduled answers, by time.
    due: BTreeMap<(Instant, u64), ScheduledAnswer>,
    next: u64,
}

struct ScheduledAnswer {
    ack: u64,
    req_id: String,
    value: Value,
}

/// The connection was closed.
struct ConnectionLost;

impl Computer {
    pub(super) fn new(office: Arc<SmcpWorld>, who: MemberId) -> Self {
        let dice = chance(office.seed, &format!("computer {} {}", who.room, who.name));
        Self {
            office,
            who,
            dice,
            away: Duration::ZERO,
            doze: Duration::ZERO,
            finishing: false,
            due: BTreeMap::new(),
            next: 0,
        }
    }

    /// Runs until it receives `Finish`.
    pub(super) async fn live(mut self, mut orders: mpsc::UnboundedReceiver<MemberAction>) {
        loop {
            if let Some(mut link) = self.office.connect(&self.who)
                && self.converse(&mut link, &mut orders).await.is_ok()
            {
                return;
            }
            self.due.clear();
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
        while !self.finishing {
            let due = self.due.keys().next().map(|(at, _)| *at);
            let wait = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(order) = orders.recv() => self.perform(link, order).await?,
                () = wait => self.answer(link).await?,
                word = link.from.recv() => self.hear(link, word.ok_or(ConnectionLost)?).await?,
            }
        }
        Ok(())
    }

    async fn say(
        &self,
        link: &MemberConnection,
        name: &'static str,
        payload: Value,
        id: i64,
    ) -> Result<(), ConnectionLost> {
        link.up
            .send(MemberMessage::Event { name, payload, id: Some(id) })
            .await
            .map_err(|_| ConnectionLost)
    }

    async fn join(&self, link: &MemberConnection) -> Result<(), ConnectionLost> {
        let payload =
            json!({ "role": "computer", "name": self.who.name, "office_id": self.who.office() });
        self.say(link, "server:join_office", payload, JOIN).await
    }

    async fn perform(
        &mut self,
        link: &MemberConnection,
        order: MemberAction,
    ) -> Result<(), ConnectionLost> {
        match order {
            MemberAction::Update => {
                let payload = json!({ "computer": self.who.name });
                self.say(link, "server:update_tool_list", payload, OTHER).await?;
            }
            MemberAction::Leave => {
                let payload = json!({ "office_id": self.who.office() });
                self.say(link, "server:leave_office", payload, OTHER).await?;
                self.join(link).await?;
            }
            MemberAction::Doze { for_ms } => self.doze = Duration::from_millis(for_ms),
            MemberAction::Cut { away_ms } => {
                self.away = Duration::from_millis(away_ms);
                return Err(ConnectionLost);
            }
            MemberAction::Finish => self.finishing = true,
            MemberAction::Call { .. } | MemberAction::Cancel { .. } => {}
        }
        Ok(())
    }

    /// Sends the next scheduled answer.
    async fn answer(&mut self, link: &MemberConnection) -> Result<(), ConnectionLost> {
        let Some((_, ScheduledAnswer { ack, value, .. })) = self.due.pop_first() else {
            return Ok(());
        };
        link.up.send(MemberMessage::Ack { ack, value }).await.map_err(|_| ConnectionLost)
    }

    async fn hear(
        &mut self,
        link: &MemberConnection,
        word: HubMessage,
    ) -> Result<(), ConnectionLost> {
        let doze = std::mem::take(&mut self.doze);
        let pause = some_ms(&mut self.dice, &[0, 0, 0, 1, 30]);
        if !(doze + pause).is_zero() {
            tokio::time::sleep(doze + pause).await;
        }
        let office = Arc::clone(&self.office);
        office.book.note(office.clock.elapsed(), &format!("{:?} {word:?}", self.who));
        match word {
            HubMessage::Event { payload, ack: Some(ack), .. } => self.plan(ack, &payload),
            HubMessage::Event { name: event::CANCELLED, payload, .. } => self.give_up(&payload),
            HubMessage::Answer { id: JOIN, args } if args.first() != Some(&Value::Bool(true)) => {
                tokio::time::sleep(Duration::from_millis(80)).await;
                self.join(link).await?;
            }
            _ => {}
        }
        Ok(())
    }

    fn later(&mut self, wait: Duration, due: ScheduledAnswer) {
        self.next += 1;
        self.due.insert((Instant::now() + wait, self.next), due);
    }

    /// Schedules the answer to a request.
    fn plan(&mut self, ack: u64, payload: &Value) {
        let nonce = &payload["nonce"];
        let mut dice = chance(self.office.seed, &format!("do {nonce}"));
        let req_id = payload["req_id"].as_str().unwrap_or_default().to_owned();
        let well = json!({
            "content": [{ "type": "text", "text": nonce.to_string() }], "isError": false, "tools": [],
        });
        let soon = some_ms(&mut dice, &[0, 1, 40, 700]);
        let (wait, value) = match dice.random_range(0..100) {
            0..55 => (soon, well),
            55..70 => (some_ms(&mut dice, &[1_500, 4_000, 8_000, 40_000, 80_000]), well),
            70..76 => return,
            76..82 => (soon, json!({ "code": 4001, "message": "no such tool", "nonce": nonce })),
            82..88 => (soon, json!([null, 7, {}, "text"])[dice.random_range(0..4)].clone()),
            88..92 => (soon, json!({ "content": ["x".repeat(4_000)], "isError": false })),
            // Answers a request that does not exist, then the real one twice.
            _ => {
                let stray = ScheduledAnswer {
                    ack: ack + 1_000,
                    req_id: String::new(),
                    value: well.clone(),
                };
                self.later(soon, stray);
                self.later(
                    soon,
                    ScheduledAnswer { ack, req_id: req_id.clone(), value: well.clone() },
                );
                (soon, well)
            }
        };
        self.later(wait, ScheduledAnswer { ack, req_id, value });
    }

    /// Handles a cancel: in 70 % of cases a cancelled result, sent at once, replaces the scheduled answer.
    fn give_up(&mut self, payload: &Value) {
        let req_id = payload["req_id"].as_str().unwrap_or_default();
        if self.dice.random_bool(0.3) {
            return;
        }
        let of: Vec<_> =
            self.due.iter().filter(|(_, due)| due.req_id == req_id).map(|(at, _)| *at).collect();
        for at in of {
            let Some(due) = self.due.remove(&at) else { continue };
            let value =
                json!({ "content": [], "isError": true, "meta": { "a2c_cancelled": true } });
            self.later(Duration::ZERO, ScheduledAnswer { value, ..due });
        }
    }
}
