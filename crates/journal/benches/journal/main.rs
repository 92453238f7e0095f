//! The journal's bars, as `cargo xtask bench` reads them: one JSON line per number.
//!
//! Ratios are taken in one run and paired: what is measured and what it is measured against take turns, so a
//! slow second of the machine hits both. Every append is durable when it is counted.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

mod support;

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use budao_journal::{
    Admin, Append, Entry, IfMissing, Lease, LeaseRequest, PageLimits, Reader, Writer,
    sqlite::Sqlite,
};
use budao_testkit::{bench::cpu_time as cpu, world};
use support::{Line, entry, median, open, percentile, report, resident_bytes};

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |name: &str| format!("journal/{name}").contains(&filter) || filter == "journal";
    runtime.block_on(async {
        if wanted("single_append") {
            single_append().await;
        }
        if wanted("group") {
            group_commit().await;
        }
        if wanted("turn") {
            turn_of_twenty().await;
        }
        if wanted("flat") || wanted("file_size") {
            million().await;
        }
        if wanted("read") {
            read_back().await;
        }
        if wanted("idle") || wanted("open") {
            idle_sessions().await;
        }
        if wanted("follow") {
            follow_across_handles().await;
        }
        if wanted("project") {
            project_record().await;
        }
    });
}

async fn lease(journal: &Sqlite) -> Lease {
    let request = LeaseRequest {
        session: budao_core::event::SessionId(world::system().uuid()),
        holder: "bench".into(),
        ttl: Duration::from_secs(3600),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    journal.take_lease(request).await.unwrap()
}

struct Bare(File);

impl Bare {
    fn new(directory: &Path) -> Self {
        let path = directory.join("bare");
        Self(OpenOptions::new().append(true).create(true).open(path).unwrap())
    }

    fn append(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
        self.0.sync_data().unwrap();
    }
}

/// One record of 480 bytes, durable, against appending the same bytes to a bare file.
async fn single_append() {
    let directory = support::directory();
    let journal = open(directory.path()).await;
    let mut bare = Bare::new(directory.path());
    let lease = lease(&journal).await;
    let bytes = entry(480).event.encode();
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..4000_u64 {
        let began = Instant::now();
        bare.append(&bytes);
        let bare_took = began.elapsed().as_secs_f64() * 1e6;
        let append = Append::new(&lease, round, vec![entry(480)]);
        let began = Instant::now();
        journal.append(append).await.unwrap();
        let took = began.elapsed().as_secs_f64() * 1e6;
        if round >= 200 {
            ours.push(took);
            theirs.push(bare_took);
            ratios.push(took / bare_took);
        }
    }
    let ratio = median(&mut ours.clone()) / median(&mut theirs.clone());
    let worst = ours.iter().copied().fold(0.0, f64::max);
    let note = format!(
        "median {:.0} µs against {:.0} µs; middle half of pairs {:.2} to {:.2}",
        median(&mut ours.clone()),
        median(&mut theirs),
        percentile(&mut ratios.clone(), 0.25),
        percentile(&mut ratios, 0.75),
    );
    report(&Line::lower("single_append", ratio, "x bare append+fdatasync", 1.25, note));
    let longest = journal.counters().longest_checkpoint.as_secs_f64() * 1e3;
    let note =
        format!("longest single append; longest checkpoint {longest:.1} ms, after the answer");
    report(&Line::info("single_append_worst", worst / 1e3, "ms", note));
}

struct Group {
    per_second: f64,
    syncs: f64,
    cpu_micros: f64,
}

/// Many sessions append as fast as they are answered.
async fn run_group(sessions: usize, seconds: f64) -> Group {
    let directory = support::directory();
    let journal = open(directory.path()).await;
    let mut leases = Vec::new();
    for _ in 0..sessions {
        leases.push(lease(&journal).await);
    }
    let template = entry(480);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let before = journal.counters();
    let (began, cpu_began) = (Instant::now(), cpu());
    let tasks = leases.into_iter().map(|lease| {
        let (journal, template) = (journal.clone(), template.clone());
        tokio::spawn(async move {
            let mut head = 0;
            while Instant::now() < until {
                let append = Append::new(&lease, head, vec![template.clone()]);
                head = journal.append(append).await.unwrap();
            }
            head
        })
    });
    let mut appends = 0;
    for task in tasks.collect::<Vec<_>>() {
        appends += task.await.unwrap();
    }
    let took = began.elapsed().as_secs_f64();
    let cpu_took = (cpu() - cpu_began).as_secs_f64();
    let after = journal.counters();
    journal.close().await;
    Group {
        per_second: appends as f64 / took,
        syncs: (after.transactions - before.transactions) as f64 / appends as f64,
        cpu_micros: cpu_took * 1e6 / appends as f64,
    }
}

async fn group_commit() {
    let (mut alone, mut sixteen, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        alone.push(run_group(1, 1.0).await);
        sixteen.push(run_group(16, 1.0).await);
        many.push(run_group(128, 1.0).await);
    }
    let middle = |groups: &[Group], of: fn(&Group) -> f64| {
        median(&mut groups.iter().map(of).collect::<Vec<_>>())
    };
    let rate = |groups: &[Group]| middle(groups, |group| group.per_second);
    let base = rate(&alone);
    for (name, groups, bar, syncs_bar) in [("16", &sixteen, 6.0, 0.13), ("128", &many, 25.0, 0.02)]
    {
        let note = format!("{:.0} appends/s against {base:.0} alone", rate(groups));
        let line =
            Line::higher(&format!("group_{name}"), rate(groups) / base, "x one session", bar, note);
        report(&line);
        let syncs = middle(groups, |group| group.syncs);
        let name = format!("group_{name}_syncs");
        report(&Line::lower(&name, syncs, "syncs per append", syncs_bar, String::new()));
    }
    let micros = middle(&many, |group| group.cpu_micros);
    report(&Line::lower("group_128_cpu", micros, "µs CPU per append", 7.0, "whole process".into()));
}

/// A turn's 20 records of 200 bytes in one append, against one sync of the same packed bytes.
async fn turn_of_twenty() {
    let directory = support::directory();
    let journal = open(directory.path()).await;
    let mut bare = Bare::new(directory.path());
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(lease(&journal).await);
    }
    let entries: Vec<Entry> = (0..20).map(|_| entry(200)).collect();
    let packed: Vec<u8> =
        entries.iter().flat_map(|entry| [vec![0; 10], entry.event.encode()].concat()).collect();
    let (mut wall, mut bare_wall, mut used, mut bare_used) = (vec![], vec![], vec![], vec![]);
    for round in 0..100_u64 {
        // CPU clocks are coarse, so each side runs ten times before it is the other's turn.
        let (began, cpu_began) = (Instant::now(), cpu());
        for _ in 0..10 {
            bare.append(&packed);
        }
        bare_used.push((cpu() - cpu_began).as_secs_f64() * 1e5);
        bare_wall.push(began.elapsed().as_secs_f64() * 1e5);
        let (began, cpu_began) = (Instant::now(), cpu());
        for turn in 0..10 {
            let head = (round * 10 + turn) * 20;
            let append = Append::new(&leases[0], head, entries.clone());
            journal.append(append).await.unwrap();
        }
        used.push((cpu() - cpu_began).as_secs_f64() * 1e5);
        wall.push(began.elapsed().as_secs_f64() * 1e5);
    }
    let (ours, theirs) = (median(&mut wall), median(&mut bare_wall));
    let note = format!("{ours:.0} µs against {theirs:.0} µs");
    report(&Line::lower("turn_wall", ours / theirs, "x bare sync", 1.7, note));
    let (ours, theirs) = (median(&mut used), median(&mut bare_used));
    let note = format!("{ours:.0} µs against {theirs:.0} µs, encoding of the events included");
    report(&Line::lower("turn_cpu", ours / theirs, "x CPU of the bare file", 1.4, note));
    groups_of_four(&journal, &leases, &entries).await;
}

async fn groups_of_four(journal: &Sqlite, leases: &[Lease], entries: &[Entry]) {
    let mut heads = vec![20_000, 0, 0, 0];
    let mut used = Vec::new();
    for _ in 0..50 {
        let cpu_began = cpu();
        for _ in 0..10 {
            let turns = leases
                .iter()
                .zip(&heads)
                .map(|(lease, head)| journal.append(Append::new(lease, *head, entries.to_vec())));
            let ends = futures::future::join_all(turns).await;
            heads = ends.into_iter().map(Result::unwrap).collect();
        }
        used.push((cpu() - cpu_began).as_secs_f64() * 1e6 / 40.0);
    }
    let note = "four turns of 20 records submitted together".into();
    report(&Line::lower("turn_cpu_of_four", median(&mut used), "µs CPU per turn", 60.0, note));
}

/// A million appends over 128 sessions: is the last as cheap as the first? How large is the file?
async fn million() {
    const SESSIONS: usize = 128;
    const APPENDS: u64 = 1_000_000;
    let directory = support::directory();
    let journal = open(directory.path()).await;
    let mut leases = Vec::new();
    for _ in 0..SESSIONS {
        leases.push(lease(&journal).await);
    }
    let template = entry(200);
    let mut heads = vec![0; SESSIONS];
    let (mut slices, mut used, mut yardstick, mut slice_began) = (Vec::new(), 0.0, 0.0, 0);
    let mut done = 0;
    while done < APPENDS {
        let began = cpu();
        let ends = futures::future::join_all(leases.iter().zip(&heads).map(|(lease, head)| {
            journal.append(Append::new(lease, *head, vec![template.clone()]))
        }))
        .await;
        heads = ends.into_iter().map(Result::unwrap).collect();
        done += SESSIONS as u64;
        let middle = cpu();
        // The same work every time: what the machine makes of it tells how busy it is.
        for _ in 0..40 {
            std::hint::black_box(template.event.encode().to_vec());
        }
        used += (middle - began).as_secs_f64() * 1e6;
        yardstick += (cpu() - middle).as_secs_f64() * 1e6;
        if done - slice_began >= 100_000 {
            slices.push((used / (done - slice_began) as f64, used / yardstick));
            (used, yardstick, slice_began) = (0.0, 0.0, done);
        }
    }
    let (first, last) = (slices[0], slices[slices.len() - 1]);
    let note = format!(
        "{:.2} µs CPU at first, {:.2} at last, views included; relative to a reference in the same run",
        first.0, last.0
    );
    report(&Line::lower("flat", last.1 / first.1, "x the first 100 000", 1.15, note));
    journal.sessions(budao_journal::Filter::default()).await.unwrap();
    journal.close().await;
    let size = std::fs::metadata(directory.path().join("journal.db")).unwrap().len();
    let payload = heads.iter().sum::<u64>() * template.event.encode().len() as u64;
    let note = "records of 200 bytes appended one by one".into();
    report(&Line::info("file_size_of_singles", size as f64 / payload as f64, "x payload", note));
}

/// Records of 200 bytes in turns of 20, 128 sessions interleaved, checksums verified, warm.
async fn read_back() {
    const SESSIONS: usize = 128;
    const TURNS: u64 = 100;
    let directory = support::directory();
    let journal = open(directory.path()).await;
    let mut leases = Vec::new();
    for _ in 0..SESSIONS {
        leases.push(lease(&journal).await);
    }
    let entries: Vec<Entry> = (0..20).map(|_| entry(200)).collect();
    for turn in 0..TURNS {
        let turns = leases
            .iter()
            .map(|lease| journal.append(Append::new(lease, turn * 20, entries.clone())));
        for end in futures::future::join_all(turns).await {
            end.unwrap();
        }
    }
    // The writer tidies up when it has nothing else to do, which is when histories are read.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut rates = Vec::new();
    for _ in 0..7 {
        let began = cpu();
        let mut count = 0;
        for lease in &leases {
            let limits = PageLimits::default();
            count += journal.read(lease.session, 0, limits).await.unwrap().records.len();
        }
        assert_eq!(count, SESSIONS * 20 * usize::try_from(TURNS).unwrap());
        rates.push(count as f64 / (cpu() - began).as_secs_f64() / 1e6);
    }
    let note = "2 000 records a page, without a memory map".into();
    let unit = "million records per second of CPU";
    report(&Line::higher("read_back", median(&mut rates), unit, 6.0, note));
    journal.close().await;
    let size = std::fs::metadata(directory.path().join("journal.db")).unwrap().len();
    let bytes = entries[0].event.encode().len() as u64;
    let payload = SESSIONS as u64 * TURNS * 20 * bytes;
    let note = "turns of 20 records of 200 bytes, everything included".into();
    report(&Line::lower("file_size", size as f64 / payload as f64, "x payload", 1.15, note));
}

/// 100 000 sessions that were written and let go.
async fn idle_sessions() {
    const SESSIONS: usize = 100_000;
    let directory = support::directory();
    let journal = Arc::new(open(directory.path()).await);
    let open_and_leave = |count: usize| {
        let journal = journal.clone();
        async move {
            for chunk in 0..count / 100 {
                let work = (0..100).map(|_| async {
                    let lease = lease(&journal).await;
                    journal.append(Append::new(&lease, 0, vec![entry(200)])).await.unwrap();
                    journal.release(&lease).await.unwrap();
                });
                futures::future::join_all(work).await;
                std::hint::black_box(chunk);
            }
        }
    };
    open_and_leave(20_000).await;
    let before = resident_bytes();
    open_and_leave(SESSIONS).await;
    let grown = resident_bytes().saturating_sub(before) as f64 / SESSIONS as f64;
    let note = "growth of resident memory over 100 000 sessions written and released".into();
    report(&Line::lower("idle_session", grown, "bytes per idle session", 1024.0, note));
    journal.close().await;
    drop(journal);
    let began = Instant::now();
    let journal = open(directory.path()).await;
    let took = began.elapsed().as_secs_f64() * 1e3;
    let note = "a file with 120 000 sessions".into();
    report(&Line::lower("open_100k", took, "ms", 1000.0, note));
    journal.close().await;
}

/// From the answer to a writer until a follower on another handle has the record.
async fn follow_across_handles() {
    use futures::StreamExt;
    let directory = support::directory();
    let (writer, reader) = (open(directory.path()).await, open(directory.path()).await);
    let lease = lease(&writer).await;
    let mut stream = reader.follow(lease.session, 0);
    let mut waits = Vec::new();
    for head in 0..100 {
        // The follower waits already when the record is written.
        let writing = async {
            tokio::time::sleep(Duration::from_millis(3 + head * 7 % 20)).await;
            writer.append(Append::new(&lease, head, vec![entry(200)])).await.unwrap();
            Instant::now()
        };
        let following = async {
            assert_eq!(stream.next().await.unwrap().unwrap().len(), 1);
            Instant::now()
        };
        let (followed, written) = tokio::join!(following, writing);
        waits.push(followed.saturating_duration_since(written).as_secs_f64() * 1e3);
    }
    let worst = percentile(&mut waits.clone(), 1.0);
    let note = format!("median {:.1} ms; two handles that share only the file", median(&mut waits));
    report(&Line::lower("follow_across", worst, "ms, worst of 100", 50.0, note));
    let cpu_began = cpu();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = (cpu() - cpu_began).as_secs_f64() / 2.0 * 100.0;
    let note = "one follower, no appends".into();
    report(&Line::lower("follow_idle", used, "% of one CPU", 0.5, note));
}

/// A stored record decoded, as a projection needs it.
async fn project_record() {
    let directory = support::directory();
    let journal = open(directory.path()).await;
    let lease = lease(&journal).await;
    let entries: Vec<Entry> = (0..1000).map(|_| entry(200)).collect();
    journal.append(Append::new(&lease, 0, entries)).await.unwrap();
    let page = journal.read(lease.session, 0, PageLimits::default()).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = cpu();
        for stored in &page.records {
            std::hint::black_box(stored.record().unwrap());
        }
        times.push((cpu() - began).as_secs_f64() * 1e6 / 1000.0);
    }
    let note = "decoding only; gateways encode the frames".into();
    report(&Line::lower("project_decode", median(&mut times), "µs CPU per record", 2.0, note));
}
