//! A server with a small file system beside its data, in a mount namespace that ends with the server.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use super::PostgresServer;

/// Mounts a file system at `$1` for the user `$2` and group `$3`, and goes on as them with the rest.
const MOUNT: &str = "user=$2; group=$3; \
    mount -t tmpfs -o size=24m,uid=$user,gid=$group,mode=700 tmpfs \"$1\" && shift 3 && \
    exec setpriv --reuid $user --regid $group --clear-groups \"$@\"";

impl PostgresServer {
    /// Starts a server with a file system of 24 MB, in which a test can make a tablespace. `None` if PostgreSQL is not
    /// installed, or this process is not root and may not mount.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    #[must_use]
    pub fn start_beside_small_disk() -> Option<Self> {
        let mut server = Self::prepare(&[], &[Ipv4Addr::LOCALHOST])?;
        if server.owner.is_none() {
            report_unprivileged();
            return None;
        }
        let disk = server.directory.path().join("small");
        fs::create_dir(&disk).expect("its own directory");
        server.small_disk = Some(disk);
        server.start_first();
        Some(server)
    }

    /// Where the small file system is, as the server sees it.
    ///
    /// # Panics
    /// If the server has none.
    #[must_use]
    pub fn small_disk(&self) -> &Path {
        self.small_disk.as_deref().expect("started with a small disk")
    }

    /// The shell with these arguments, as the server's user, and where the small file system is mounted if there is one.
    pub(super) fn shell(&self, arguments: &[&str]) -> Command {
        let (Some(disk), Some((user, group))) = (&self.small_disk, self.owner) else {
            let mut command = Command::new("/bin/sh");
            command.args(arguments);
            return self.as_owner(command);
        };
        let mut command = Command::new("/usr/bin/unshare");
        command.args(["--mount", "/bin/sh", "-c", MOUNT, "sh"]).arg(disk);
        command.args([user.to_string(), group.to_string()]).arg("/bin/sh").args(arguments);
        self.in_directory(command)
    }
}

/// The place of a small file system, if a server has one.
pub(super) type SmallDisk = Option<PathBuf>;

#[expect(clippy::print_stderr, reason = "a test that was not run is said so")]
fn report_unprivileged() {
    eprintln!("\n*** NOT TESTED: a full disk: only root can mount a small one ***\n");
}
