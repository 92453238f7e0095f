//! A tool with countable effects that can be paused before its effect, and between the effect and its answer.
//!
//! Each call has a name. A call reports its position by creating a file in the folder, and continues when the test
//! creates another. A test can therefore kill any process at a known point; the lines of the ledger survive.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// A paused call fails after this time, because the test that should release it has ended.
const HOLD_TIMEOUT: Duration = Duration::from_secs(60);

/// A folder with the ledger file, which has one line per effect.
#[derive(Clone, Debug)]
pub struct EffectLedger(PathBuf);

/// A point at which a call can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The effect has not happened yet.
    BeforeEffect,
    /// The effect is in the ledger, and the call is not answered yet.
    AfterEffect,
}

impl EffectLedger {
    /// The ledger of this folder, which must exist.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Runs the tool for `{"text": NAME, "holds": true}`; without `holds` the call does not pause.
    pub(super) fn effect(&self, given: &Value) -> io::Result<()> {
        let name = given["text"].as_str().unwrap_or_default();
        let holds = given["holds"] == true;
        self.stand(Point::BeforeEffect, name, holds)?;
        let mut file = OpenOptions::new().append(true).create(true).open(self.file())?;
        file.write_all(format!("{name}\n").as_bytes())?;
        file.sync_data()?;
        self.stand(Point::AfterEffect, name, holds)
    }

    fn stand(&self, point: Point, name: &str, holds: bool) -> io::Result<()> {
        if !holds {
            return Ok(());
        }
        fs::write(self.place(point, name), "")?;
        let end = Instant::now() + HOLD_TIMEOUT;
        while !self.leave(point, name).exists() {
            if Instant::now() > end || !self.0.exists() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.0.join("ledger")
    }

    fn place(&self, point: Point, name: &str) -> PathBuf {
        self.0.join(format!("{name} {point:?}"))
    }

    fn leave(&self, point: Point, name: &str) -> PathBuf {
        self.0.join(format!("{name} {point:?} on"))
    }

    /// Returns whether the call of this name has reached the point.
    #[must_use]
    pub fn stands(&self, point: Point, name: &str) -> bool {
        self.place(point, name).exists()
    }

    /// Releases the call of this name at the point. The call may reach the point later.
    ///
    /// # Errors
    /// When the release file cannot be written.
    pub fn let_on(&self, point: Point, name: &str) -> io::Result<()> {
        fs::write(self.leave(point, name), "")
    }

    /// The names of the calls that had their effect, oldest first; a name appears once per effect.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
