//! Copies of a server by PostgreSQL's own tools: a base backup that is restored to a point in time, and a dump.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    net::Ipv4Addr,
    process::Stdio,
};

use super::PostgresServer;

impl PostgresServer {
    /// Takes a base backup, which does not run before it is restored.
    ///
    /// # Panics
    /// If `pg_basebackup` fails.
    #[must_use]
    pub fn back_up(&self) -> Self {
        let socket = self.socket().display().to_string();
        self.copy(&socket, "backup", &[Ipv4Addr::LOCALHOST], &[])
    }

    /// Starts a backup of `source` as it was at a restore point, on a timeline of its own.
    ///
    /// # Panics
    /// If it does not reach the point.
    pub fn restore_to(&mut self, source: &Self, point: &str) {
        let log = source.data().join("pg_wal").display().to_string();
        let settings = format!(
            "restore_command = 'cp \"{log}/%f\" \"%p\"'\nrecovery_target_name = '{point}'\n\
             recovery_target_action = 'promote'\nhot_standby = off\n"
        );
        let file = self.data().join("postgresql.auto.conf");
        let mut file = OpenOptions::new().append(true).open(file).expect("its own file");
        file.write_all(settings.as_bytes()).expect("its own file");
        fs::write(self.data().join("recovery.signal"), "").expect("its own directory");
        self.start_first();
    }

    /// The statements that make a schema and its rows again.
    ///
    /// # Panics
    /// If `pg_dump` fails.
    #[must_use]
    pub fn dump(&self, schema: &str) -> String {
        let mut command = self.program("pg_dump");
        command.arg("--schema").arg(schema).args(["-U", super::ADMINISTRATOR]).arg("-h");
        command.arg(self.socket()).args(["-p", &self.port.to_string(), "postgres"]);
        let done = command.output().expect("pg_dump runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("the database is in UTF-8")
    }

    /// Runs a script, such as a dump.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn run_script(&self, script: &str) {
        let mut command = self.psql();
        let mut psql =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("psql runs");
        psql.stdin.take().expect("piped").write_all(script.as_bytes()).expect("psql reads");
        assert!(psql.wait().expect("psql ends").success(), "a statement failed");
    }
}
