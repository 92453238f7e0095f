//! The page's assets, compiled into the program.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// One embedded file.
#[derive(Debug)]
pub(super) struct Asset {
    name: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

macro_rules! assets {
    ($($kind:ident $name:literal)*) => {
        &[$(Asset {
            name: $name,
            kind: $kind,
            text: include_str!(concat!("../../assets/", $name)),
        }),*]
    };
}

static ASSETS: &[Asset] = assets! {
    STYLE "base.css"
    STYLE "try.css"
    STYLE "text.css"
    STYLE "now.css"
    STYLE "missing.css"
    STYLE "sessions.css"
    STYLE "session.css"
    STYLE "faults.css"
    STYLE "explain.css"
    STYLE "machines.css"
    PICTURE "doll.svg"
    SCRIPT "kit.js"
    SCRIPT "api.js"
    SCRIPT "shell.js"
    SCRIPT "past.js"
    SCRIPT "fold.js"
    SCRIPT "cards.js"
    SCRIPT "fault-renderings.js"
    SCRIPT "board.js"
    SCRIPT "trace.js"
    SCRIPT "transcript.js"
    SCRIPT "try.js"
    SCRIPT "sessions.js"
    SCRIPT "session.js"
    SCRIPT "lanes.js"
    SCRIPT "list.js"
    SCRIPT "charts.js"
    SCRIPT "flow.js"
    SCRIPT "faults.js"
    SCRIPT "explain.js"
    SCRIPT "machines.js"
    SCRIPT "store.js"
    SCRIPT "copy.js"
    SCRIPT "highlight.js"
    SCRIPT "markdown.js"
    SCRIPT "json-view.js"
    SCRIPT "results.js"
    SCRIPT "attachments.js"
    SCRIPT "away.js"
    SCRIPT "sidebar.js"
    SCRIPT "keys.js"
    SCRIPT "event-socket.js"
    SCRIPT "missing.js"
    SCRIPT "now.js"
    SCRIPT "trend.js"
    SCRIPT "bulk.js"
    SCRIPT "brush.js"
    SCRIPT "bundle.js"
    SCRIPT "record.js"
    SCRIPT "client/index.js"
    SCRIPT "client/client.js"
    SCRIPT "client/event.js"
    SCRIPT "client/fault.js"
    SCRIPT "client/line.js"
    SCRIPT "client/pending.js"
    SCRIPT "client/queue.js"
    SCRIPT "client/session.js"
    SCRIPT "client/thread.js"
};

/// The `ETag` of all assets: a hash of this build's files.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for asset in ASSETS {
        hash.update(asset.text);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
});

impl Asset {
    pub(super) fn tag(&self) -> &'static str {
        &TAG
    }
}

pub(super) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_served = ASSETS.iter().any(|asset| asset.name == name);
            assert!(is_served || entry.file_type().unwrap().is_dir(), "{name}");
        }
    }

    /// The content security policy would block these; this test keeps them out of the scripts.
    #[test]
    fn no_script_makes_markup_of_text() {
        for asset in ASSETS.iter().filter(|asset| asset.kind == SCRIPT) {
            for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!asset.text.contains(sink), "{}: {sink}", asset.name);
            }
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for asset in ASSETS {
            for remote_reference in ["https://", "@import", "//cdn"] {
                assert!(
                    !asset.text.contains(remote_reference),
                    "{}: {remote_reference}",
                    asset.name
                );
            }
        }
    }
}
