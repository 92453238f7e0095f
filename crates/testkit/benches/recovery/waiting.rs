//! Ten thousand turns that wait for a service that is away: memory of each and wake-ups of the server, compared with as
//! many sessions whose turn was answered and that are idle.
//!
//! A tenth as many sessions come first. What the server needs for them stays: connections, caches, and room for the
//! sessions that are loaded at the same time. Measured is what the others add.

use std::{collections::HashMap, ffi::OsString, fs, ops::Range, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use budao_testkit::{
    bench::{Better, Measurement, emit},
    storm::{Failure, StormService, Weather},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use crate::{
    budao::{Server, ServerSetup},
    http::Connection,
};

/// Its name on the command line.
pub(crate) const NAME: &str = "waiting";
/// Connections that open sessions and send messages.
const CONNECTIONS: usize = 32;
/// Time for the server to come to rest before it is measured.
const SETTLE: Duration = Duration::from_secs(10);
/// How long wake-ups are counted.
const WATCH: Duration = Duration::from_secs(10);
/// The sessions before the measured ones: one for so many of these.
const FIRST_SHARE: usize = 10;
/// Sessions that are asked whether they really wait.
const SAMPLE: usize = 100;

/// The cost of a server with many sessions at rest.
#[derive(Debug)]
struct RestingCost {
    resident: f64,
    /// Resident bytes that the sessions after the first ones added.
    added: f64,
    /// Wake-ups of all its threads, for each second.
    wake_ups: f64,
    /// Of the sample, sessions that are idle.
    idle: usize,
}

/// Measures and prints both figures.
pub(crate) async fn run(program: &Path, sessions: usize) -> Result<()> {
    let idle = measure(program, sessions, Weather::default()).await?;
    ensure!(idle.idle == SAMPLE, "only {} of {SAMPLE} turns were answered in time", idle.idle);
    let outage = Weather {
        outages: vec![Duration::ZERO..Duration::MAX],
        outage_failures: vec![Failure::Status(503, None)],
        ..Weather::default()
    };
    let waiting = measure(program, sessions, outage).await?;
    if waiting.idle > 0 {
        println!(
            "  budao: NOT SUPPORTED, SKIPPED: {} of {SAMPLE} turns failed instead of waiting",
            waiting.idle
        );
        return Ok(());
    }
    let bytes = (waiting.added - idle.added) / sessions as f64;
    let kib = |bytes: f64| bytes / 1024.0;
    let note = format!(
        "{sessions} sessions add {:.0} KiB waiting, {:.0} KiB idle; the server has {:.0} and {:.0} KiB",
        kib(waiting.added),
        kib(idle.added),
        kib(waiting.resident),
        kib(idle.resident)
    );
    line("bytes", (bytes, "bytes"), Some(1024.0), note);
    let note = format!(
        "a second: {:.1} with {sessions} waiting, {:.1} idle",
        waiting.wake_ups, idle.wake_ups
    );
    line("wake-ups", (waiting.wake_ups - idle.wake_ups, "/s more"), None, note);
    Ok(())
}

fn line(figure: &str, (value, unit): (f64, &str), bar: Option<f64>, note: String) {
    println!("  budao: {figure}: {note}");
    let bench = format!("recovery/{NAME}_{figure}");
    let (unit, better) = (unit.to_owned(), Better::Lower);
    emit(&Measurement { bench, value, unit, bar, better, low: None, high: None, note: Some(note) });
}

async fn measure(program: &Path, sessions: usize, weather: Weather) -> Result<RestingCost> {
    let service = StormService::start(weather, 1).await;
    let folder = tempfile::tempdir().context("make a folder")?;
    let setup = ServerSetup::new(program, &[service.url()], folder.path())?;
    let server = setup.start("127.0.0.1:0").await?;
    let first = sessions / FIRST_SHARE;
    send_all(&server.address, 0..first).await?;
    let before = resident(&server)?;
    let ids = send_all(&server.address, first..first + sessions).await?;
    let wake_ups = watch_wake_ups(&server).await?;
    let resident = resident(&server)?;
    let idle = count_idle(&server.address, ids.iter().take(SAMPLE)).await?;
    Ok(RestingCost { resident, added: resident - before, wake_ups, idle })
}

/// Opens a session for each number, sends it its message, and lets the server come to rest; returns the ids.
async fn send_all(address: &str, numbers: Range<usize>) -> Result<Vec<String>> {
    let workers = stream::iter(0..CONNECTIONS).map(|worker| {
        send_messages(address, numbers.clone().skip(worker).step_by(CONNECTIONS).collect())
    });
    let ids: Vec<Vec<String>> = workers.buffer_unordered(CONNECTIONS).try_collect().await?;
    tokio::time::sleep(SETTLE).await;
    Ok(ids.into_iter().flatten().collect())
}

/// Opens a session for each number and sends it its message; returns the ids.
async fn send_messages(address: &str, numbers: Vec<usize>) -> Result<Vec<String>> {
    let mut connection = Connection::open(address).await?;
    let mut ids = Vec::with_capacity(numbers.len());
    for number in numbers {
        let opened = connection.ask("POST", "/v1/sessions", &json!({})).await?;
        let id = opened["session_id"].as_str().context("a session has an id")?.to_owned();
        let message = json!({"content": format!("turn-{number}")});
        connection.ask("POST", &format!("/v1/sessions/{id}/messages"), &message).await?;
        ids.push(id);
    }
    Ok(ids)
}

async fn count_idle(address: &str, ids: impl Iterator<Item = &String>) -> Result<usize> {
    let mut connection = Connection::open(address).await?;
    let mut idle = 0;
    for id in ids {
        let session = connection.ask("GET", &format!("/v1/sessions/{id}"), &Value::Null).await?;
        idle += usize::from(session["status"] == "idle");
    }
    Ok(idle)
}

/// Resident bytes of the server's process.
fn resident(server: &Server) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process_id()?))?;
    let kib: f64 = number_after(&status, "VmRSS:")? as f64;
    Ok(kib * 1024.0)
}

/// How often each thread of the server has gone to sleep so far. A thread that ends meanwhile is left out.
fn sleeps(server: &Server) -> Result<HashMap<OsString, u64>> {
    let threads = fs::read_dir(format!("/proc/{}/task", server.process_id()?))?;
    let count = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        Some((thread.file_name(), number_after(&status, "\nvoluntary_ctxt_switches:").ok()?))
    };
    Ok(threads.flatten().filter_map(count).collect())
}

/// Wake-ups of all threads in [`WATCH`], for each second.
async fn watch_wake_ups(server: &Server) -> Result<f64> {
    let before = sleeps(server)?;
    tokio::time::sleep(WATCH).await;
    let after = sleeps(server)?;
    let more = after.iter().map(|(thread, count)| count - before.get(thread).unwrap_or(&0));
    Ok(more.sum::<u64>() as f64 / WATCH.as_secs_f64())
}

fn number_after(text: &str, label: &str) -> Result<u64> {
    let rest = text.split_once(label).with_context(|| format!("no `{}`", label.trim()))?.1;
    let word = rest.split_whitespace().next().unwrap_or_default();
    word.parse().with_context(|| format!("`{word}` is no number"))
}
