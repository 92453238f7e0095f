//! The servers that a server takes for living: the running ones, and for a time those that were killed.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

/// The names of the servers, with the virtual time at which a killed one leaves the list; `None` for a running one.
#[derive(Debug, Default)]
pub(crate) struct ServerList(Mutex<BTreeMap<String, Option<Duration>>>);

impl ServerList {
    /// Lists a server that starts.
    pub(crate) fn start(&self, name: &str) {
        self.0.lock().expect("nobody panics with it").insert(name.to_owned(), None);
    }

    /// Notes that a server was killed. It stays in the list until this virtual time.
    pub(crate) fn end(&self, name: &str, until: Duration) {
        if let Some(entry) = self.0.lock().expect("nobody panics with it").get_mut(name) {
            *entry = Some(until);
        }
    }

    /// The listed servers without this one.
    pub(crate) fn others(&self, own: &str, now: Duration) -> Vec<String> {
        let mut servers = self.0.lock().expect("nobody panics with it");
        servers.retain(|_, until| until.is_none_or(|until| until > now));
        servers.keys().filter(|name| *name != own).cloned().collect()
    }
}
