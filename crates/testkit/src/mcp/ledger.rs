//! A tool whose effects can be counted, and which can be held on its way: before the effect, and between it and its answer.
//!
//! Every call has a name. Where it stands is a file in a folder, and so is the leave to go on, so whoever watches can kill
//! whom they like meanwhile. Nobody's death undoes a line of the ledger.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Whoever was to give leave is gone for good by then.
const HOLD_TIMEOUT: Duration = Duration::from_secs(60);

/// A folder with a ledger, one line for each effect.
#[derive(Clone, Debug)]
pub struct EffectLedger(PathBuf);

/// Where a call can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Nothing has happened yet.
    BeforeEffect,
    /// It has happened, and nobody knows.
    AfterEffect,
}

impl EffectLedger {
    /// In this folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The tool's work for `{"text": NAME, "holds": true}`; without `holds` it goes straight on.
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

    /// Has the call of this name come so far?
    #[must_use]
    pub fn stands(&self, point: Point, name: &str) -> bool {
        self.place(point, name).exists()
    }

    /// Lets the call of this name go on from there, whether it is there yet or not.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn let_on(&self, point: Point, name: &str) -> io::Result<()> {
        fs::write(self.leave(point, name), "")
    }

    /// The names of the calls whose effect took place, in order.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
