//! Finds the process that listens on a local port, from `/proc`.

use std::{fs, net::SocketAddr, path::Path};

/// The listening process, such as `process 4711 (budao)`; none if it belongs to another user or `/proc` is absent.
pub(crate) fn listener(address: SocketAddr) -> Option<String> {
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let inodes: Vec<String> = sockets
        .into_iter()
        .flatten()
        .flat_map(|table| inodes(&table, address.port()))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let is_number = |name: &std::ffi::OsStr| {
        name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let owner = processes
        .filter(|process| is_number(&process.file_name()))
        .map(|process| process.path())
        .find(|process| holds(process, &inodes))?;
    let id = owner.file_name()?.to_str()?;
    let name = fs::read_to_string(owner.join("comm")).unwrap_or_default();
    Some(format!("process {id} ({})", name.trim()))
}

/// Inodes of the sockets in a `/proc/net/tcp` table that listen on this port.
fn inodes(table: &str, port: u16) -> Vec<String> {
    const LISTENS: &str = "0A";
    let wanted = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 9 && row[1].ends_with(&wanted) && row[3] == LISTENS)
        .map(|row| row[9].to_owned())
        .collect()
}

fn holds(process: &Path, inodes: &[String]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.into_iter().any(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_listens_at_a_port_is_found() {
        let listener_here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listener(listener_here.local_addr().unwrap()).unwrap();
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
    }
}
