//! Simulated processes, which can be started, shut down and killed, and the state they share.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{engine::Engine as _, fault::NodeIdentity, limits::Limits, world::Spawn as _};
use budao_runtime::{Builder, HolderLiveness, ModelSource, OneModel, Runtime, ToolSource};
use budao_tools::pool::Pool;
use tokio::sync::oneshot;

use crate::{
    check::Violations,
    disk::Disk,
    model::FaultyModel,
    script::{Script, World},
    services_world::Services,
    tools::{EffectLedger, toolbox},
    world::{SimClock, Tasks, world},
};

/// How long a killed process stays in the list of living servers, in virtual milliseconds.
#[cfg(feature = "gateways")]
const LISTED_MS: &[u64] = &[0, 0, 600, 1_500, 4_000];

/// The processes, and the state that survives them.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) seed: u64,
    pub(crate) clock: SimClock,
    pub(crate) disk: Disk,
    pub(crate) ledger: EffectLedger,
    pub(crate) violations: Violations,
    models: Arc<dyn ModelSource>,
    /// Nobody observes the sessions: they are not loaded while their turns wait.
    is_background: bool,
    /// The services of [`World::Services`](crate::World::Services).
    pub(crate) services: Option<Arc<Services>>,
    pub(crate) limits: Limits,
    #[cfg(feature = "gateways")]
    served: bool,
    #[cfg(feature = "gateways")]
    has_workers: bool,
    /// The processes that the others take for living servers.
    #[cfg(feature = "gateways")]
    listed: Arc<crate::workers_world::ServerList>,
    liveness: Option<Arc<ProcessLiveness>>,
    slots: Mutex<Vec<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    started: u32,
    process: Option<Process>,
}

/// A running process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) runtime: Runtime,
    pub(crate) tasks: Arc<Tasks>,
    /// The session server; `None` if the script has none.
    #[cfg(feature = "gateways")]
    pub(crate) server: Option<budao_serve::in_process::InProcessServer>,
    holder: String,
}

/// The holder names of running processes. Only scripts with `liveness` use it.
#[derive(Debug, Default)]
struct ProcessLiveness(Mutex<BTreeSet<String>>);

impl HolderLiveness for ProcessLiveness {
    fn is_dead(&self, holder: &str) -> bool {
        !self.0.lock().expect("nobody panics with it").contains(holder)
    }
}

impl Machine {
    pub(crate) fn new(
        script: &Script,
        clock: SimClock,
        disk: Disk,
        violations: Violations,
    ) -> Self {
        let services =
            (script.world == World::Services).then(|| Services::new(script.seed, &clock));
        let models: Arc<dyn ModelSource> = match &services {
            Some(services) => Arc::clone(services) as _,
            #[cfg(feature = "gateways")]
            None if script.world == World::Workers => {
                Arc::new(OneModel(crate::workers_world::WorkerModel::new(script.seed) as _))
            }
            None => Arc::new(OneModel(FaultyModel::new(script, violations.clone()) as _)),
        };
        let mut limits = limits(script.tight && services.is_none());
        if services.is_some() {
            // The laws know one patience.
            limits.gate.patience_background = limits.gate.patience_watched;
        }
        let slots = (0..script.processes).map(|_| Slot::default()).collect();
        Self {
            seed: script.seed,
            clock,
            disk,
            ledger: EffectLedger::default(),
            models,
            limits,
            is_background: services.is_some() && script.seed.is_multiple_of(2),
            services,
            violations,
            #[cfg(feature = "gateways")]
            served: matches!(script.world, World::Served | World::Workers),
            #[cfg(feature = "gateways")]
            has_workers: script.world == World::Workers,
            #[cfg(feature = "gateways")]
            listed: Arc::default(),
            liveness: script.liveness.then(Arc::default),
            slots: Mutex::new(slots),
        }
    }

    /// Starts a process in its slot; does nothing if one runs. The process resumes unfinished sessions.
    pub(crate) fn start(&self, slot: usize) {
        let mut slots = self.slots.lock().expect("nobody panics with it");
        let slots_len = slots.len();
        let place = &mut slots[slot % slots_len];
        if place.process.is_some() {
            return;
        }
        place.started += 1;
        let holder = format!("process {} {}", slot % slots_len, place.started);
        let tasks = Arc::new(Tasks::default());
        let world = world(&self.clock, self.seed, &holder, Arc::clone(&tasks));
        #[cfg(feature = "gateways")]
        let workers =
            self.has_workers.then(|| crate::workers_world::workers(&world, self.disk.journal()));
        let own: Arc<dyn ToolSource> = Arc::new(toolbox(self.seed, &self.ledger));
        #[cfg(feature = "gateways")]
        let own = match &workers {
            Some(workers) => Arc::new(crate::workers_world::WorkerTools(workers.clone())),
            None => own,
        };
        let mut builder = Builder::new(self.disk.journal(), Arc::clone(&self.models), own)
            .world(world)
            .limits(self.limits.clone())
            .pool(Arc::new(Pool::tasks()))
            .holder(holder.clone())
            .server(NodeIdentity { node: holder.clone(), version: "sim".to_owned() });
        if let Some(living) = &self.liveness {
            living.0.lock().expect("nobody panics with it").insert(holder.clone());
            builder = builder.liveness(Arc::clone(living) as _);
        }
        let runtime = builder.build().expect("the simulator's limits make sense");
        if self.is_background {
            runtime.track_observers();
        }
        #[cfg(feature = "gateways")]
        let server = self.served.then(|| {
            let name = format!("hall {holder}");
            let world = crate::world::world(&self.clock, self.seed, &name, Arc::clone(&tasks));
            let journal = self.disk.journal();
            crate::client::server(Arc::new(runtime.clone()), journal, world, workers.clone())
        });
        #[cfg(feature = "gateways")]
        if let Some(workers) = workers {
            self.exchange(workers, &holder, (&runtime, &tasks));
        }
        let recovering = runtime.clone();
        tasks.spawn(Box::pin(async move {
            while recovering.recover().await.is_err() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }));
        place.process = Some(Process {
            runtime,
            tasks,
            #[cfg(feature = "gateways")]
            server,
            holder,
        });
    }

    /// Lets a process exchange open calls of workers with the other running ones.
    #[cfg(feature = "gateways")]
    fn exchange(
        &self,
        workers: budao_remote::Workers,
        holder: &str,
        (runtime, tasks): (&Runtime, &Arc<Tasks>),
    ) {
        let (listed, own, clock) =
            (Arc::clone(&self.listed), holder.to_owned(), self.clock.clone());
        listed.start(&own);
        let others = move || listed.others(&own, clock.elapsed());
        let engine = Arc::new(runtime.clone());
        let holder = holder.to_owned();
        tasks.spawn(Box::pin(crate::workers_world::exchange(workers, holder, others, engine)));
    }

    /// Kills the process of a slot, if one runs: none of its tasks is polled again. Returns whether one ran.
    pub(crate) fn kill(&self, slot: usize) -> bool {
        let process = {
            let mut slots = self.slots.lock().expect("nobody panics with it");
            let slots_len = slots.len();
            slots[slot % slots_len].process.take()
        };
        let Some(process) = process else { return false };
        process.tasks.kill();
        #[cfg(feature = "gateways")]
        {
            let mut dice = crate::world::chance(self.seed, &format!("listed {}", process.holder));
            let stays = Duration::from_millis(*crate::script::pick(&mut dice, LISTED_MS));
            self.listed.end(&process.holder, self.clock.elapsed() + stays);
        }
        if let Some(living) = &self.liveness {
            living.0.lock().expect("nobody panics with it").remove(&process.holder);
        }
        true
    }

    /// A running process, preferably the one in this slot; `None` if none runs.
    pub(crate) fn process(&self, via: usize) -> Option<Process> {
        let slots = self.slots.lock().expect("nobody panics with it");
        let order = (0..slots.len()).map(|step| &slots[(via + step) % slots.len()]);
        order.filter_map(|slot| slot.process.clone()).next()
    }

    /// The process in exactly this slot; `None` if it does not run.
    pub(crate) fn own(&self, slot: usize) -> Option<Process> {
        let slots = self.slots.lock().expect("nobody panics with it");
        slots[slot % slots.len()].process.clone()
    }

    /// Runs a future in some process and waits for it. `None` if no process runs, or if it is killed meanwhile.
    pub(crate) async fn ask<T, F>(&self, via: usize, ask: impl FnOnce(Runtime) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.process(via)?.ask(ask).await
    }
}

impl Process {
    /// Runs a future in this process and waits for it. `None` if the process is killed meanwhile.
    pub(crate) async fn ask<T, F>(&self, ask: impl FnOnce(Runtime) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work = ask(self.runtime.clone());
        self.tasks.spawn(Box::pin(async move {
            // The receiver may have been dropped.
            drop(reply.send(work.await));
        }));
        answer.await.ok()
    }
}

/// The usual limits, or tight ones that a simulation reaches often.
fn limits(tight: bool) -> Limits {
    if !tight {
        return Limits { snapshot_records: 20, ..Limits::default() };
    }
    Limits {
        steps: 5,
        failures_in_a_row: 3,
        parallel_calls: 2,
        calls_per_step: 3,
        context_tokens: 120,
        queued_messages: 3,
        snapshot_records: 7,
        tool_deadline: Duration::from_secs(5),
        ..Limits::default()
    }
}
