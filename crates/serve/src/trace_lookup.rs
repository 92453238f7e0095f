//! Further sources about a trace, for operators: a link to the configured trace viewer, and the lines of this server's
//! log file.

use std::{
    fs::File,
    io::{self, BufReader, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
    trace::Trace,
};
use budao_scrub::Scrubber;
use tokio::sync::Mutex;

/// The placeholder for the trace's id in the address of a viewer.
const PLACEHOLDER: &str = "{trace}";
/// Upper bound of the bytes read for one search, counted from the end of the newest file.
const SEARCH_BYTES_MAX: u64 = 64 << 20;
/// Upper bound of the lines of one answer, the newest.
const LINES_MAX: usize = 200;
/// Upper bound of a line in bytes; a longer one is cut.
const LINE_BYTES_MAX: usize = 4_096;

/// The address of a trace in a trace viewer: `https://tempo.example/trace/{trace}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceViewer(String);

impl TraceViewer {
    /// Takes an address with `{trace}` in place of the trace's id.
    ///
    /// # Errors
    /// `configuration_wrong` if the text is not a web address or does not contain `{trace}`.
    pub fn new(template: &str) -> Result<Self, Fault> {
        let is_web = ["http://", "https://"].iter().any(|scheme| template.starts_with(scheme));
        let is_plain = !template.contains(|letter: char| letter.is_control() || letter == ' ');
        if is_web && is_plain && template.contains(PLACEHOLDER) {
            return Ok(Self(template.to_owned()));
        }
        Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "traces.viewer")
            .with(Fact::Expected, "a web address that contains {trace}")
            .with(Fact::Received, template.chars().take(80).collect::<String>()))
    }

    /// The address of one trace.
    #[must_use]
    pub fn link(&self, trace: Trace) -> String {
        self.0.replace(PLACEHOLDER, &trace.to_string())
    }
}

/// The log files of this server, which the date distinguishes: `budao.log.2026-11-18`.
#[derive(Clone, Debug)]
pub struct LogFiles {
    directory: PathBuf,
    name: String,
    /// One search at a time: each may read much.
    search_lock: Arc<Mutex<()>>,
}

/// The lines of a trace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceLines {
    /// The newest lines, the oldest of them first.
    pub(crate) lines: Vec<String>,
    /// Whether older lines were left out, or older parts of the files were not read.
    pub(crate) is_cut: bool,
}

impl LogFiles {
    /// The files that belong to a configured path; `None` if it names no file.
    #[must_use]
    pub fn new(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new(".")).to_owned();
        Some(Self { directory, name, search_lock: Arc::default() })
    }

    /// Searches the newest part of the files for the lines that name a trace. Secrets are removed from them.
    ///
    /// # Errors
    /// If the directory or a file cannot be read.
    pub(crate) async fn find_lines(
        &self,
        trace: Trace,
        scrubber: &Scrubber,
    ) -> io::Result<TraceLines> {
        let _turn = self.search_lock.lock().await;
        let files = self.clone();
        let search =
            tokio::task::spawn_blocking(move || files.search(&trace.to_string(), SEARCH_BYTES_MAX));
        let mut found = search.await.map_err(io::Error::other)??;
        found.lines.iter_mut().for_each(|line| scrubber.clean_text(line));
        Ok(found)
    }

    fn search(&self, wanted: &str, mut budget: u64) -> io::Result<TraceLines> {
        let mut found = TraceLines::default();
        for path in self.newest_first()? {
            if budget == 0 || found.lines.len() >= LINES_MAX {
                found.is_cut = true;
                break;
            }
            let mut file = File::open(path)?;
            let length = file.metadata()?.len();
            let skipped = length.saturating_sub(budget);
            found.is_cut |= skipped > 0;
            budget -= length - skipped;
            file.seek(SeekFrom::Start(skipped))?;
            let (mut lines, is_cut) =
                find_lines_with(wanted, BufReader::with_capacity(1 << 16, file))?;
            found.is_cut |= is_cut;
            lines.append(&mut found.lines);
            found.lines = lines;
        }
        let surplus = found.lines.len().saturating_sub(LINES_MAX);
        found.is_cut |= surplus > 0;
        found.lines.drain(..surplus);
        Ok(found)
    }

    /// The log's file without a date, and those with one. Dates sort as text.
    fn newest_first(&self) -> io::Result<Vec<PathBuf>> {
        let mut names: Vec<String> = std::fs::read_dir(&self.directory)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| self.is_log_file(name))
            .collect();
        names.sort_unstable();
        Ok(names.into_iter().rev().map(|name| self.directory.join(name)).collect())
    }

    fn is_log_file(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&self.name) else { return false };
        let is_date = |date: &str| {
            let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'-';
            date.len() >= 10 && date.bytes().all(is_part)
        };
        rest.is_empty() || rest.strip_prefix('.').is_some_and(is_date)
    }
}

/// The newest lines that contain a text, each cut to its bound, and whether older ones were left out.
fn find_lines_with(wanted: &str, mut reader: impl io::BufRead) -> io::Result<(Vec<String>, bool)> {
    let (mut lines, mut line, mut is_cut) = (Vec::new(), Vec::new(), false);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok((lines, is_cut));
        }
        let text = String::from_utf8_lossy(&line);
        if text.contains(wanted) {
            let text = text.trim_end();
            lines.push(text[..text.floor_char_boundary(LINE_BYTES_MAX)].to_owned());
        }
        if lines.len() >= 2 * LINES_MAX {
            lines.drain(..LINES_MAX);
            is_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const WANTED: &str = "8196dac9cd3f41f7178e1e1052a00640";

    fn files(directory: &Path) -> LogFiles {
        LogFiles::new(&directory.join("budao.log")).unwrap()
    }

    #[test]
    fn a_viewer_is_a_web_address_with_a_place_for_the_trace() {
        let viewer = TraceViewer::new("https://tempo.example/trace/{trace}?tab=1").unwrap();
        let trace: Trace = WANTED.parse().unwrap();
        assert_eq!(viewer.link(trace), format!("https://tempo.example/trace/{WANTED}?tab=1"));
        for wrong in ["javascript:alert({trace})", "https://tempo.example/", "tempo/{trace}"] {
            let fault = TraceViewer::new(wrong).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{wrong}");
        }
    }

    #[test]
    fn the_lines_of_a_trace_come_from_all_log_files_and_from_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
        write("budao.log.2026-11-17", format!("one trace={WANTED}\nanother trace=0000\n"));
        write("budao.log.2026-11-18", format!("{{\"trace\":\"{WANTED}\"}}\n"));
        write("budao.log.gz", format!("packed {WANTED}\n"));
        write("other.log", format!("foreign {WANTED}\n"));
        let found = files(directory.path()).search(WANTED, SEARCH_BYTES_MAX).unwrap();
        let wanted = [format!("one trace={WANTED}"), format!("{{\"trace\":\"{WANTED}\"}}")];
        assert_eq!((found.lines.as_slice(), found.is_cut), (wanted.as_slice(), false));
    }

    #[test]
    fn the_newest_lines_are_shown_with_a_note_about_older_ones() {
        let directory = tempfile::tempdir().unwrap();
        let text: String =
            (0..3 * LINES_MAX).map(|number| format!("line {number} {WANTED}\n")).collect();
        fs::write(directory.path().join("budao.log"), &text).unwrap();
        let found = files(directory.path()).search(WANTED, SEARCH_BYTES_MAX).unwrap();
        assert_eq!((found.lines.len(), found.is_cut), (LINES_MAX, true));
        assert_eq!(found.lines.last().unwrap(), &format!("line {} {WANTED}", 3 * LINES_MAX - 1));
        // A part of the file is beyond the bound of one search.
        let part = files(directory.path()).search(WANTED, 1_000).unwrap();
        assert!(part.is_cut && part.lines.len() < 30, "{}", part.lines.len());
    }

    #[test]
    fn a_log_that_cannot_be_read_is_an_error_and_an_absent_line_is_none() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            files(directory.path()).search(WANTED, SEARCH_BYTES_MAX).unwrap(),
            TraceLines::default()
        );
        files(&directory.path().join("absent")).search(WANTED, SEARCH_BYTES_MAX).unwrap_err();
    }
}
