//! Workers of other servers on the same journal: each server tells the others what waits here and who is connected here.
//!
//! A server writes one note and reads those of the others. A call that no process of this server takes is offered by a
//! server that has one; its claim and its result are commands to the session, which find their way by themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    engine::Engine,
    event::{Command, CommandBody, CommandId},
    fault::Fault,
    remote::WorkerReport,
    time::Timestamp,
};

use crate::{
    calls::{CallKey, CallOffer, CallPurpose, CancelReason, WorkerMessage},
    peer_notes::{PeerAnswer, PeerCall, PeerNote, PeerOutput, PeerVerdict},
    roster::{Deliveries, ProcessKey, Roster, RosterProcess},
    workers::Workers,
};

/// The most waiting calls that one server shows to the others.
const WAITING: usize = 256;
/// How long others are told that a call should stop, what it showed, and what was found out about it.
const SHOWN: Duration = Duration::from_secs(10);
/// The most pieces of progress, and of answers, that one server shows to the others.
const PIECES: usize = 256;

/// A call of a session on another server that was offered to a process here.
#[derive(Debug)]
pub(crate) struct ForeignCall {
    pub(crate) offer: Arc<CallOffer>,
    pub(crate) process: ProcessKey,
    pub(crate) is_claimed: bool,
    /// Pieces and bytes of progress so far.
    pub(crate) outputs: u64,
    pub(crate) output_bytes: usize,
}

/// What the other servers count for the bounds of each tenant.
#[derive(Debug, Default)]
pub(crate) struct PeerCounts {
    pub(crate) workers: BTreeSet<ProcessKey>,
    pub(crate) open: BTreeMap<String, usize>,
}

impl PeerCounts {
    /// Processes of a tenant that are connected elsewhere.
    pub(crate) fn workers_of(&self, tenant: &str) -> usize {
        self.workers.iter().filter(|id| *id.tenant == *tenant).count()
    }

    /// Calls of a tenant that are open elsewhere.
    pub(crate) fn open_of(&self, tenant: &str) -> usize {
        self.open.get(tenant).copied().unwrap_or_default()
    }
}

/// A process here that is gone with a call of a session on another server.
pub(crate) type LostCall = (CallKey, u32, ProcessKey);

impl Roster {
    /// What the other servers should know.
    fn peer_note(&mut self, holder: &str, now: Timestamp) -> PeerNote {
        self.cancels.retain(|(at, _)| now.since(*at) < SHOWN);
        self.outputs.retain(|(at, _)| now.since(*at) < SHOWN);
        self.answers.retain(|(at, _)| now.since(*at) < SHOWN);
        let waits =
            self.calls.values().filter(|call| call.offered_to.is_empty() && call.claim().is_none());
        let mut waiting: Vec<PeerCall> =
            waits.filter_map(|call| PeerCall::of(&call.tenant, &call.offer)).collect();
        waiting.sort_by_key(PeerCall::key);
        waiting.truncate(WAITING);
        let connected = self.processes.iter().filter(|(_, worker)| worker.link.is_some());
        PeerNote {
            holder: holder.to_owned(),
            waiting,
            cancels: self.cancels.iter().map(|(_, cancel)| cancel.clone()).collect(),
            outputs: self.outputs.iter().map(|(_, output)| output.clone()).collect(),
            answers: self.answers.iter().map(|(_, answer)| answer.clone()).collect(),
            open: self.open.iter().map(|(tenant, open)| (tenant.to_string(), *open)).collect(),
            workers: connected.map(|(id, _)| id.clone()).collect(),
        }
    }

    /// Offers the calls that wait on another server to processes here.
    fn take_peer_calls(&mut self, note: &PeerNote, out: &mut Deliveries) {
        for call in &note.waiting {
            let key = call.key();
            let is_answered = self
                .answers
                .iter()
                .any(|(_, answer)| answer.key() == key && answer.opened == call.opened);
            if is_answered || self.foreign.contains_key(&key) || self.calls.contains_key(&key) {
                continue;
            }
            let (tenant, offer): (Arc<str>, _) =
                (call.tenant.as_str().into(), Arc::new(call.offer()));
            let Some((id, link)) = self.free_worker(&tenant, &offer, &[]) else { continue };
            if let Some(worker) = self.processes.get_mut(&id) {
                worker.offered.insert(key.clone());
            }
            let worker_id = Arc::clone(&id.id);
            let message = WorkerMessage::Call { worker_id, offer: Arc::clone(&offer) };
            out.push((link, message));
            let (process, is_claimed, outputs, output_bytes) = (id, false, 0, 0);
            let foreign = ForeignCall { offer, process, is_claimed, outputs, output_bytes };
            self.foreign.insert(key, foreign);
        }
    }

    /// Stops calls that another server wants stopped.
    fn take_peer_cancels(&mut self, note: &PeerNote, out: &mut Deliveries) {
        for cancel in &note.cancels {
            let (key, reason) = (cancel.key(), cancel.reason());
            let id = &cancel.process;
            let is_held = self.foreign.get(&key).is_some_and(|it| {
                it.is_claimed && it.process == *id && it.offer.attempt == cancel.attempt
            });
            let worker = self.processes.get(id);
            // A process that claimed the call on another server came here with it.
            let declares =
                worker.is_some_and(|it| it.declared.contains(&(key.clone(), cancel.attempt)));
            if !is_held && !declares {
                continue;
            }
            let link = worker.and_then(|worker| worker.link.as_ref());
            if let Some((_, link)) = link {
                let (worker_id, attempt) = (Arc::clone(&id.id), cancel.attempt);
                let message =
                    WorkerMessage::Cancel { worker_id, key: key.clone(), attempt, reason };
                out.push((Arc::clone(link), message));
            }
            if reason == CancelReason::Cancelled {
                continue;
            }
            match self.processes.get_mut(id) {
                Some(worker) if !is_held => {
                    worker.declared.remove(&(key, cancel.attempt));
                }
                _ => self.forget_foreign(&key),
            }
        }
    }

    /// Shows what processes on another server reported of calls here, and takes what they found out.
    fn take_peer_reports(&mut self, note: &PeerNote) {
        for output in &note.outputs {
            let Some(call) = self.calls.get_mut(&output.key()) else { continue };
            let is_holder = call.claim().is_some_and(|claim| claim == output.process);
            if is_holder && call.offer.attempt == output.attempt && output.number > call.shown {
                call.shown = output.number;
                // A full channel drops the piece: progress is best effort.
                drop(call.output.try_send(output.text.clone()));
            }
        }
        for answer in &note.answers {
            let Some(call) = self.calls.get(&answer.key()) else { continue };
            let is_question = call.offer.purpose == CallPurpose::Reconcile;
            let asked = (call.offer.attempt, call.offer.opened);
            if is_question && asked == (answer.attempt, answer.opened) {
                call.status.send_modify(|status| match answer.verdict.clone().into_result() {
                    Ok(found) => status.reconciliation = Some(found),
                    Err(report) => status.report = Some(*report),
                });
            }
        }
    }

    /// Keeps progress of a call for the server that has its session. Returns false if the process has no such call.
    pub(crate) fn show_elsewhere(
        &mut self,
        key: &CallKey,
        process: &ProcessKey,
        (text, limit): (String, usize),
        now: Timestamp,
    ) -> bool {
        let foreign = self.foreign.get_mut(key);
        let Some(call) = foreign.filter(|it| it.is_claimed && it.process == *process) else {
            return false;
        };
        let bytes = call.output_bytes.saturating_add(text.len());
        if bytes <= limit && self.outputs.len() < PIECES {
            (call.outputs, call.output_bytes) = (call.outputs + 1, bytes);
            let piece = (call.outputs, text);
            self.outputs.push((now, PeerOutput::new(key, call.offer.attempt, process, piece)));
        }
        true
    }

    /// Keeps what a process found out for the server that has the session. Returns false if it was not asked.
    pub(crate) fn answer_elsewhere(
        &mut self,
        key: &CallKey,
        process: &ProcessKey,
        verdict: PeerVerdict,
        now: Timestamp,
    ) -> bool {
        let is_asked = |call: &&ForeignCall| {
            let is_question = call.offer.purpose == CallPurpose::Reconcile;
            is_question && call.is_claimed && call.process == *process
        };
        let Some(call) = self.foreign.get(key).filter(is_asked) else { return false };
        if self.answers.len() < PIECES {
            self.answers.push((now, PeerAnswer::new(&call.offer, verdict)));
        }
        self.forget_foreign(key);
        true
    }

    /// Forgets offers of calls that wait nowhere any more. A call that its process is about to claim has an answer to come:
    /// the server that showed it may be dead, and the claim is decided by the next one.
    fn drop_settled_calls(&mut self, waiting: &BTreeSet<CallKey>) {
        let is_claiming = |key: &CallKey, call: &ForeignCall| {
            let claim = (key.clone(), call.offer.attempt);
            self.processes.get(&call.process).is_some_and(|worker| worker.declared.contains(&claim))
        };
        let settled: Vec<CallKey> = self
            .foreign
            .iter()
            .filter(|(key, call)| !call.is_claimed && !waiting.contains(*key))
            .filter(|(key, call)| !is_claiming(key, call))
            .map(|(key, _)| key.clone())
            .collect();
        for key in settled {
            self.forget_foreign(&key);
        }
    }

    /// Forgets a call of another server's session: it ended, or its claim was refused.
    pub(crate) fn forget_foreign(&mut self, key: &CallKey) {
        let Some(call) = self.foreign.remove(key) else { return };
        if let Some(worker) = self.processes.get_mut(&call.process) {
            worker.offered.remove(key);
            worker.held.remove(key);
            worker.declared.remove(&(key.clone(), call.offer.attempt));
        }
    }

    /// Forgets the processes that left this server for another one. The calls of other servers' sessions that they hold are
    /// awaited by those servers.
    fn forget_departed(&mut self) {
        let departed: Vec<ProcessKey> = self
            .processes
            .iter()
            .filter(|(id, worker)| worker.link.is_none() && self.elsewhere.workers.contains(*id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in departed {
            self.processes.remove(&id);
            self.foreign.retain(|_, call| call.process != id);
        }
    }

    /// Claimed calls whose process is connected nowhere: each is awaited here, for the grace. Those whose process is on
    /// another server are not.
    fn await_processes(&mut self, now: Timestamp) -> Vec<ProcessKey> {
        let claims: Vec<(ProcessKey, CallKey, String)> = self
            .calls
            .iter()
            .filter(|(_, call)| !call.status.borrow().is_lost)
            .filter_map(|(key, call)| {
                Some((call.claim()?, key.clone(), call.offer.route.worker.clone()))
            })
            .collect();
        let mut awaited = Vec::new();
        for (id, key, name) in claims {
            let is_elsewhere = self.elsewhere.workers.contains(&id);
            let is_here = self.processes.get(&id).map(|worker| worker.link.is_some());
            if is_elsewhere && is_here != Some(true) {
                self.processes.remove(&id);
                continue;
            }
            if is_here.is_none() {
                self.processes.insert(id.clone(), RosterProcess::absent(&name, now));
                awaited.push(id.clone());
            }
            if let Some(worker) = self.processes.get_mut(&id) {
                worker.held.insert(key);
            }
        }
        awaited
    }
}

impl Workers {
    /// Exchanges notes with the other living servers, and keeps the tools of connected processes known. `engine` takes the report of a process here that is gone with a
    /// call of a session elsewhere.
    ///
    /// # Errors
    /// When the journal fails. The next exchange tries again.
    pub async fn exchange(
        &self,
        holder: &str,
        peers: &[String],
        engine: &dyn Engine,
    ) -> Result<(), Fault> {
        self.keep_tools().await;
        if peers.is_empty() {
            self.forget_peers();
            return Ok(());
        }
        self.refresh().await;
        let note = self.roster().peer_note(holder, self.now());
        self.write_note(&note, peers).await?;
        let notes = self.read_notes(holder, peers).await?;
        let now = self.now();
        let mut out = Deliveries::new();
        let (lost, awaited) = {
            let mut roster = self.roster();
            let waiting = notes.iter().flat_map(|note| note.waiting.iter().map(PeerCall::key));
            let waiting: BTreeSet<CallKey> = waiting.collect();
            roster.drop_settled_calls(&waiting);
            for note in &notes {
                roster.take_peer_cancels(note, &mut out);
                roster.take_peer_calls(note, &mut out);
                roster.take_peer_reports(note);
            }
            roster.elsewhere = count(notes);
            roster.forget_departed();
            let awaited = roster.await_processes(now);
            (std::mem::take(&mut roster.lost_elsewhere), awaited)
        };
        Self::send(out);
        for id in awaited {
            self.expire_later(id, now);
        }
        for lost in lost {
            self.report_lost(lost, engine).await;
        }
        Ok(())
    }

    /// Forgets the other servers. A process that was connected to one of them is awaited here, for the grace.
    fn forget_peers(&self) {
        let now = self.now();
        let awaited = {
            let mut roster = self.roster();
            match std::mem::take(&mut roster.elsewhere).workers.is_empty() {
                true => Vec::new(),
                false => roster.await_processes(now),
            }
        };
        for id in awaited {
            self.expire_later(id, now);
        }
    }

    /// Reports in place of a process that is gone, in the name of its user. The session decides what follows.
    async fn report_lost(&self, (key, attempt, process): LostCall, engine: &dyn Engine) {
        let (worker, by) = (process.id.to_string(), process.owner.to_string());
        let id = CommandId::from(format!("lost-{}-{attempt}-{worker}", key.call));
        let report = Box::new(WorkerReport::Lost);
        let body = CommandBody::ReportCall { call: key.call, attempt, worker, report };
        if let Err(fault) = engine.submit(key.session, Command::new(id, by, body)).await {
            tracing::warn!(session = %key.session, %fault, "reporting a lost worker failed");
        }
    }
}

/// What the servers that wrote these notes count.
fn count(notes: Vec<PeerNote>) -> PeerCounts {
    let mut counts = PeerCounts::default();
    for note in notes {
        counts.workers.extend(note.workers);
        for (tenant, open) in note.open {
            *counts.open.entry(tenant).or_default() += open;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use budao_tools::Reconciliation;
    use serde_json::json;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::{
        calls::{CallStatus, OpenCall},
        peer_notes::PeerCancel,
        workers::{ClaimCheck, WorkerLink},
    };

    #[derive(Debug)]
    struct Link;

    impl WorkerLink for Link {
        fn deliver(&self, _: WorkerMessage) {}

        fn number(&self) -> u64 {
            0
        }
    }

    /// A call that another server shows.
    fn shown(reconciles: bool) -> PeerCall {
        serde_json::from_value(json!({
            "tenant": "acme", "session": "01900000-0000-7000-8000-000000000001", "call": "call_1_1_1",
            "tool": "pay", "route": { "worker": "billing", "version": "v1" }, "attempt": 1,
            "reconciles": reconciles, "arguments": {}, "idempotency_key": "k", "traceparent": "",
            "deadline_ms": 1,
        }))
        .unwrap()
    }

    #[test]
    fn an_answer_to_an_earlier_question_about_the_same_call_counts_no_more() {
        let earlier = shown(true).offer();
        let opened = earlier.opened.after(Duration::from_secs(5));
        let question = CallOffer { opened, ..earlier.clone() };
        let mut roster = Roster::default();
        let call = OpenCall {
            serial: 0,
            tenant: "acme".into(),
            offer: Arc::new(question.clone()),
            status: watch::channel(CallStatus::default()).0,
            output: mpsc::channel(1).0,
            shown: 0,
            output_bytes: 0,
            offered_to: Vec::new(),
        };
        roster.calls.insert(question.key.clone(), call);
        let mut verdict_after = |offer: &CallOffer| {
            let answers = vec![PeerAnswer::new(offer, PeerVerdict::DidNotHappen)];
            roster.take_peer_reports(&PeerNote { answers, ..PeerNote::default() });
            roster.calls[&question.key].status.borrow().reconciliation.clone()
        };
        assert_eq!(verdict_after(&earlier), None);
        assert_eq!(verdict_after(&question), Some(Reconciliation::DidNotHappen));
    }

    /// Connects a process that can take one call at a time.
    fn connect(roster: &mut Roster, id: &str) -> ProcessKey {
        let id = ProcessKey { tenant: "acme".into(), owner: "acme/bot".into(), id: id.into() };
        let mut process = RosterProcess::absent("billing", Timestamp::default());
        process.tools.insert("pay".to_owned(), "v1".to_owned());
        process.link = Some((id.id.to_string(), Arc::new(Link)));
        process.capacity = 1;
        roster.processes.insert(id.clone(), process);
        id
    }

    #[test]
    fn a_claim_under_way_outlives_the_server_that_showed_the_call() {
        let mut roster = Roster::default();
        let id = connect(&mut roster, "w-1");
        let note = PeerNote { waiting: vec![shown(false)], ..PeerNote::default() };
        let key = note.waiting[0].key();
        roster.take_peer_calls(&note, &mut Deliveries::new());
        roster.processes.get_mut(&id).unwrap().declared.insert((key.clone(), 1));
        roster.drop_settled_calls(&BTreeSet::new());
        assert!(roster.foreign.contains_key(&key), "the claim has no answer yet");
        assert!(roster.processes[&id].declared.contains(&(key.clone(), 1)));
        roster.processes.get_mut(&id).unwrap().declared.clear();
        roster.drop_settled_calls(&BTreeSet::new());
        assert!(roster.foreign.is_empty(), "nobody claims it");
    }

    #[test]
    fn a_process_that_moved_servers_with_its_call_is_asked_to_stop_it() {
        let mut roster = Roster::default();
        let id = connect(&mut roster, "w-1");
        let key = shown(false).key();
        roster.processes.get_mut(&id).unwrap().declared.insert((key.clone(), 1));
        let stops = |roster: &mut Roster, attempt, reason| {
            let cancels = vec![PeerCancel::new(&id, &key, attempt, reason)];
            let mut out = Deliveries::new();
            roster.take_peer_cancels(&PeerNote { cancels, ..PeerNote::default() }, &mut out);
            out.len()
        };
        assert_eq!(stops(&mut roster, 2, CancelReason::Cancelled), 0, "it holds another attempt");
        assert_eq!(stops(&mut roster, 1, CancelReason::Cancelled), 1);
        assert_eq!(stops(&mut roster, 1, CancelReason::Deadline), 1);
        assert_eq!(stops(&mut roster, 1, CancelReason::Deadline), 0, "it was told");
    }

    #[test]
    fn the_session_decides_about_a_repeated_claim_of_a_call_that_another_process_was_offered() {
        let mut roster = Roster::default();
        let offered = connect(&mut roster, "w-1");
        for reconciles in [false, true] {
            let note = PeerNote { waiting: vec![shown(reconciles)], ..PeerNote::default() };
            let key = note.waiting[0].key();
            roster.take_peer_calls(&note, &mut Deliveries::new());
            let other = connect(&mut roster, "w-2");
            assert!(roster.check_claim(&offered, &key, 1).is_ok());
            assert!(
                roster.check_claim(&other, &key, 1).is_err(),
                "it neither has nor had an offer"
            );
            // Its claim on a server that died since may still become durable.
            roster.processes.get_mut(&other).unwrap().declared.insert((key.clone(), 1));
            let check = roster.check_claim(&other, &key, 1).ok();
            assert_eq!(check, (!reconciles).then_some(ClaimCheck::Declared));
            roster.forget_foreign(&key);
            roster.processes.remove(&other);
        }
    }
}
