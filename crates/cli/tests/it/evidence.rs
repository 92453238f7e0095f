//! What `budao journal verify` finds after another program has changed a journal or an exported file.
//!
//! Each test makes a journal with the real binary, changes it behind the binary's back, and reads the position and the
//! reason in the report. Verifying changes nothing.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use budao_testkit::postgres::PostgresServer;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

fn budao(home: &Path, journal: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(args).current_dir(home).env_clear().env("HOME", home).stdin(Stdio::null());
    command.env("BUDAO_JOURNAL", journal).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory with a journal of two sessions.
struct Bench {
    home: TempDir,
    journal: String,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let journal = home.path().join("journal.db").display().to_string();
        Self::with(home, journal)
    }

    fn with(home: TempDir, journal: String) -> Self {
        let bench = Self { home, journal };
        for words in ["say hello", "say hello again"] {
            let done = bench.run(&["run", "--model", "demo:fast", words]);
            assert!(done.status.success(), "{}", text(&done.stderr));
        }
        bench
    }

    fn run(&self, args: &[&str]) -> Output {
        budao(self.home.path(), &self.journal, args)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn sql(&self, statement: &str) {
        Connection::open(&self.journal).unwrap().execute_batch(statement).unwrap();
    }

    fn export(&self) -> Vec<String> {
        let done = self.run(&["journal", "export", &self.journal]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout).lines().map(str::to_owned).collect()
    }

    /// Verifies a journal or a file, with the exit code.
    fn verify(&self, file: &str, more: &[&str]) -> (Option<i32>, Value) {
        let done = self.run(&[&["journal", "verify", "--json", file], more].concat());
        let report = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|_| panic!("no report: {}", text(&done.stderr)));
        (done.status.code(), report)
    }

    /// The only finding: its position, reason and session.
    fn finding(&self, file: &str, more: &[&str]) -> (u64, u64, String) {
        let (code, report) = self.verify(file, more);
        let rows = report["sessions"].as_array().unwrap();
        let broken: Vec<&Value> = rows.iter().filter(|row| !row["broken"].is_null()).collect();
        assert_eq!((code, broken.len()), (Some(1), 1), "{report}");
        let found = &broken[0]["broken"];
        let number = |name: &str| found[name].as_u64().unwrap();
        (number("seq"), number("to"), found["reason"].as_str().unwrap().to_owned())
    }

    fn verify_lines(&self, lines: &[String]) -> (u64, u64, String) {
        let file = self.path("changed.ndjson");
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        self.finding(file.to_str().unwrap(), &[])
    }
}

/// The batches of the first session: number, first and last position.
fn batches(bench: &Bench) -> Vec<(i64, u64, u64)> {
    let connection = Connection::open(&bench.journal).unwrap();
    let mut statement = connection
        .prepare(
            "SELECT batch_id, first, first + count - 1 FROM batch WHERE session = 1 ORDER BY first",
        )
        .unwrap();
    let rows = statement
        .query_map([], |row| {
            Ok((row.get(0)?, row.get::<_, u32>(1)?.into(), row.get::<_, u32>(2)?.into()))
        })
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// Changes one letter of a record and makes the checksums of its batch right again, as a careful program would.
fn alter_with_checksums(bench: &Bench, batch_id: i64) {
    let connection = Connection::open(&bench.journal).unwrap();
    let read = "SELECT s.uuid, b.first, b.count, b.body FROM batch b JOIN session s ON s.id = b.session \
        WHERE batch_id = ?1";
    let (session, first, count, body): ([u8; 16], u32, u32, Vec<u8>) = connection
        .query_row(read, [batch_id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap();
    let altered = budao_journal::probe::alter(session, first.into(), count.into(), &body);
    assert_ne!(altered, body);
    connection
        .execute("UPDATE batch SET body = ?2 WHERE batch_id = ?1", (batch_id, altered))
        .unwrap();
}

fn seq_of(line: &str) -> Option<u64> {
    serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64()
}

/// The lines of the first session's records.
fn record_lines(lines: &[String]) -> Vec<usize> {
    let end = lines.iter().position(|line| line.starts_with("{\"end\"")).unwrap();
    (0..end).filter(|index| seq_of(&lines[*index]).is_some()).collect()
}

#[test]
fn an_untouched_journal_and_its_export_prove_every_record() {
    let bench = Bench::new();
    let before = std::fs::read(&bench.journal).unwrap();
    let (code, report) = bench.verify(&bench.journal, &[]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["sessions"].as_array().unwrap().len(), 2);
    let file = bench.path("export.ndjson");
    std::fs::write(&file, bench.export().join("\n") + "\n").unwrap();
    let (code, exported) = bench.verify(file.to_str().unwrap(), &[]);
    assert_eq!((code, &exported), (Some(0), &report), "the file proves what the journal proves");
    assert_eq!(std::fs::read(&bench.journal).unwrap(), before, "nothing is changed");
    let said = bench.run(&["journal", "verify", &bench.journal]);
    assert!(text(&said.stdout).contains("Every record is as it was written."));
}

#[test]
fn an_altered_record_is_named_even_with_right_checksums() {
    let bench = Bench::new();
    let (batch_id, first, last) = batches(&bench)[1];
    alter_with_checksums(&bench, batch_id);
    let check = bench.run(&["journal", "check", &bench.journal]);
    assert!(check.status.success(), "checksums alone do not show it: {}", text(&check.stdout));
    assert_eq!(bench.finding(&bench.journal, &[]), (first, last, "altered".into()));
    let said = bench.run(&["journal", "verify", &bench.journal]);
    let said = text(&said.stdout);
    assert!(said.contains(&format!("a record between {first} and {last} was altered")), "{said}");
}

#[test]
fn a_carelessly_altered_record_is_named() {
    let bench = Bench::new();
    let (batch_id, first, _) = batches(&bench)[1];
    bench.sql(&format!("UPDATE batch SET body = x'00' WHERE batch_id = {batch_id}"));
    let (seq, _, _) = bench.finding(&bench.journal, &[]);
    assert_eq!(seq, first);
}

#[test]
fn removed_records_are_named() {
    let bench = Bench::new();
    let (batch_id, first, last) = batches(&bench)[1];
    bench.sql(&format!(
        "DELETE FROM batch WHERE batch_id = {batch_id}; DELETE FROM batch_index WHERE batch_id = {batch_id}"
    ));
    assert_eq!(bench.finding(&bench.journal, &[]), (first, last, "removed".into()));
}

#[test]
fn reordered_records_are_named() {
    let bench = Bench::new();
    let all = batches(&bench);
    let pair = all.windows(2).find(|pair| pair[0].2 - pair[0].1 == pair[1].2 - pair[1].1);
    let [(one, first, last), (two, ..)] = pair.expect("two batches of one size") else { panic!() };
    bench.sql(&format!(
        "CREATE TEMP TABLE kept AS SELECT batch_id, body FROM batch WHERE batch_id IN ({one}, {two}); \
         UPDATE batch SET body = (SELECT body FROM kept WHERE batch_id = {two}) WHERE batch_id = {one}; \
         UPDATE batch SET body = (SELECT body FROM kept WHERE batch_id = {one}) WHERE batch_id = {two};"
    ));
    assert_eq!(bench.finding(&bench.journal, &[]), (*first, *last, "reordered".into()));
}

#[test]
fn appended_records_are_named() {
    let bench = Bench::new();
    let (_, _, last) = *batches(&bench).last().unwrap();
    // A batch of the other session, behind the end of this one.
    bench.sql(&format!(
        "INSERT INTO batch SELECT (SELECT max(batch_id) + 1 FROM batch), 1, {last} + 1, count, body \
         FROM batch WHERE session = 2 ORDER BY batch_id LIMIT 1"
    ));
    let (seq, _, reason) = bench.finding(&bench.journal, &[]);
    assert_eq!((seq, reason), (last + 1, "appended".into()));
}

#[test]
fn a_removed_end_is_named() {
    let bench = Bench::new();
    let (batch_id, first, last) = *batches(&bench).last().unwrap();
    bench.sql(&format!(
        "DELETE FROM batch WHERE batch_id = {batch_id}; DELETE FROM batch_index WHERE batch_id = {batch_id}"
    ));
    assert_eq!(bench.finding(&bench.journal, &[]), (first, last, "truncated".into()));
}

#[test]
fn a_history_that_differs_from_an_earlier_report_is_named() {
    let bench = Bench::new();
    let report = bench.path("report.json");
    let (_, earlier) = bench.verify(&bench.journal, &[]);
    std::fs::write(&report, earlier.to_string()).unwrap();
    let against = ["--against", report.to_str().unwrap()];
    assert_eq!(bench.verify(&bench.journal, &against).0, Some(0));
    let mut wrong = earlier.clone();
    wrong["sessions"][0]["digest"] = json!("0".repeat(64));
    std::fs::write(&report, wrong.to_string()).unwrap();
    let head = earlier["sessions"][0]["head"].as_u64().unwrap();
    assert_eq!(bench.finding(&bench.journal, &against), (head, head, "anchor".into()));
    wrong["sessions"][0]["head"] = json!(head + 4);
    std::fs::write(&report, wrong.to_string()).unwrap();
    let cut = (head + 1, head + 4, "truncated".into());
    assert_eq!(bench.finding(&bench.journal, &against), cut);
    // A whole session that is gone.
    let session = earlier["sessions"][0]["session"].as_str().unwrap();
    std::fs::write(&report, earlier.to_string()).unwrap();
    assert!(bench.run(&["sessions", "delete", session]).status.success());
    assert_eq!(bench.finding(&bench.journal, &against), (1, head, "removed".into()));
}

#[test]
fn an_exported_file_names_what_was_altered_removed_reordered_appended_or_cut() {
    let bench = Bench::new();
    let lines = bench.export();
    let records = record_lines(&lines);
    let count = records.len() as u64;
    let mut altered = lines.clone();
    altered[records[3]] = altered[records[3]].replacen("\"turn\":", "\"turn\":1", 1);
    assert_eq!(bench.verify_lines(&altered), (4, 4, "altered".into()));
    let mut removed = lines.clone();
    removed.remove(records[3]);
    assert_eq!(bench.verify_lines(&removed), (4, 4, "removed".into()));
    let mut reordered = lines.clone();
    reordered.swap(records[3], records[4]);
    assert_eq!(bench.verify_lines(&reordered), (4, 4, "reordered".into()));
    let mut cut = lines.clone();
    cut.remove(*records.last().unwrap());
    assert_eq!(bench.verify_lines(&cut), (count, count, "truncated".into()));
    let mut appended = lines.clone();
    let last = appended[*records.last().unwrap()].clone();
    let next = last.replacen(&format!("\"seq\":{count}"), &format!("\"seq\":{}", count + 1), 1);
    appended.insert(records.last().unwrap() + 1, next);
    let (seq, _, _) = bench.verify_lines(&appended);
    assert_eq!(seq, count + 1);
    let half: Vec<String> = lines[..records[5]].to_vec();
    assert_eq!(bench.verify_lines(&half), (6, 6, "truncated".into()));
    let mut start = lines.clone();
    let anchor = start.iter().position(|line| line.starts_with("{\"session\"")).unwrap();
    let mut head: Value = serde_json::from_str(&start[anchor]).unwrap();
    head["digest"] = json!("0".repeat(64));
    start[anchor] = head.to_string();
    assert_eq!(bench.verify_lines(&start), (1, 1, "start".into()));
}

#[test]
fn an_altered_export_is_not_imported() {
    let bench = Bench::new();
    let lines = bench.export();
    let records = record_lines(&lines);
    let mut altered = lines.clone();
    altered[records[3]] = altered[records[3]].replacen("\"turn\":", "\"turn\":1", 1);
    let file = bench.path("altered.ndjson");
    std::fs::write(&file, altered.join("\n") + "\n").unwrap();
    let target = bench.path("other.db").display().to_string();
    let done = bench.run(&["journal", "import", &target, file.to_str().unwrap()]);
    assert!(!done.status.success(), "{}", text(&done.stderr));
    // The whole one keeps its digests, in another journal and under another epoch.
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let done = bench.run(&["journal", "import", &target, file.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let digests = |report: &Value| -> Vec<Value> {
        report["sessions"].as_array().unwrap().iter().map(|row| row["digest"].clone()).collect()
    };
    let (code, there) = bench.verify(&target, &[]);
    assert_eq!(code, Some(0), "{there}");
    assert_eq!(digests(&there), digests(&bench.verify(&bench.journal, &[]).1));
}

#[test]
fn a_journal_in_postgresql_names_what_was_appended_removed_or_cut() {
    let Some(server) = PostgresServer::start() else { return };
    let journal = server.url("budao");
    let bench = Bench::with(tempfile::tempdir().unwrap(), journal.clone());
    assert_eq!(bench.verify(&journal, &[]).0, Some(0));
    let copy = bench.path("copy.db").display().to_string();
    assert!(bench.run(&["journal", "copy", &journal, &copy]).status.success());
    assert_eq!(bench.verify(&copy, &[]).1, bench.verify(&journal, &[]).1);
    let sql = |statement: &str| server.sql(statement);
    sql("INSERT INTO budao.batch SELECT cohort, session, 8, count, body FROM budao.batch \
         ORDER BY session, first LIMIT 1");
    let (seq, _, reason) = bench.finding(&journal, &[]);
    assert_eq!((seq, &*reason), (8, "appended"), "a batch behind the head");
    sql("DELETE FROM budao.batch WHERE first = 8");
    sql("UPDATE budao.session SET head = head + 3 WHERE id = (SELECT min(id) FROM budao.session)");
    assert_eq!(bench.finding(&journal, &[]).2, "truncated");
    sql("UPDATE budao.session SET head = head - 3 WHERE id = (SELECT min(id) FROM budao.session)");
    sql(
        "DELETE FROM budao.batch WHERE (session, first) = (SELECT session, first FROM budao.batch \
         ORDER BY session, first OFFSET 1 LIMIT 1)",
    );
    assert_eq!(bench.finding(&journal, &[]).2, "removed");
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A batch of the first session in PostgreSQL: first position, number of records, body.
type PostgresBatch = (u64, u64, Vec<u8>);

/// The batches of the first session in PostgreSQL, with the id of the session.
fn postgres_batches(server: &PostgresServer) -> ([u8; 16], Vec<PostgresBatch>) {
    let rows = server.sql(
        "SELECT replace(s.uuid::text, '-', ''), b.first, b.count, encode(b.body, 'hex') \
         FROM budao.batch b JOIN budao.session s ON s.id = b.session \
         WHERE s.id = (SELECT min(id) FROM budao.session) ORDER BY b.first",
    );
    let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split('|').collect()).collect();
    let batch = |row: &Vec<&str>| {
        (row[1].parse::<u64>().unwrap(), row[2].parse::<u64>().unwrap(), bytes_of(row[3]))
    };
    (bytes_of(rows[0][0]).try_into().unwrap(), rows.iter().map(batch).collect())
}

fn replace_body(server: &PostgresServer, first: u64, body: &[u8]) {
    server.sql(&format!(
        "UPDATE budao.batch SET body = decode('{}', 'hex') \
         WHERE first = {first} AND session = (SELECT min(id) FROM budao.session)",
        hex_of(body)
    ));
}

#[test]
fn a_journal_in_postgresql_names_what_was_altered_or_reordered() {
    let Some(server) = PostgresServer::start() else { return };
    let journal = server.url("budao");
    let bench = Bench::with(tempfile::tempdir().unwrap(), journal.clone());
    let (session, batches) = postgres_batches(&server);
    // Another program alters a record and makes the checksums right again; the digests of the chain show it.
    let (first, count, body) = &batches[1];
    let last = first + count - 1;
    replace_body(&server, *first, &budao_journal::probe::alter(session, *first, *count, body));
    let check = bench.run(&["journal", "check", &journal]);
    assert!(check.status.success(), "checksums alone do not show it: {}", text(&check.stdout));
    assert_eq!(bench.finding(&journal, &[]), (*first, last, "altered".into()));
    let said = text(&bench.run(&["journal", "verify", &journal]).stdout);
    assert!(said.contains(&format!("a record between {first} and {last} was altered")), "{said}");
    replace_body(&server, *first, body);
    assert_eq!(bench.verify(&journal, &[]).0, Some(0), "the old bytes are right again");
    let pair = batches.windows(2).find(|pair| pair[0].1 == pair[1].1);
    let [(one, count, earlier), (two, _, later)] = pair.expect("two batches of one size") else {
        panic!("a window has two")
    };
    replace_body(&server, *one, later);
    replace_body(&server, *two, earlier);
    assert_eq!(bench.finding(&journal, &[]), (*one, one + count - 1, "reordered".into()));
}

#[test]
fn recorded_sessions_follow_from_the_decisions_of_this_version() {
    let bench = Bench::new();
    let done = bench.run(&["replay", "--verify", "--all"]);
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    assert!(text(&done.stdout).contains("2 sessions agree"), "{}", text(&done.stdout));
    // With other limits, the same inputs lead to another decision, which is named.
    std::fs::write(bench.path("budao.toml"), "[limits]\nsteps = 0\n").unwrap();
    let done = bench.run(&["replay", "--verify", "--all", "--json", "--config", "budao.toml"]);
    let first: Value = serde_json::from_str(text(&done.stdout).lines().next().unwrap()).unwrap();
    assert_eq!(done.status.code(), Some(1), "{first}");
    let (recorded, today) = (&first["difference"]["recorded"], &first["difference"]["today"]);
    assert!(recorded["step_started"].is_object(), "{first}");
    assert!(today["recovery_failed"].is_object(), "{first}");
}
