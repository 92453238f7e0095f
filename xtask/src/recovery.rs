//! The recovery code: the files that `coverage` and `mutants` measure.

/// The files of one concern.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) name: &'static str,
    /// The package whose tests must reach every line of the files.
    pub(crate) package: &'static str,
    /// Paths relative to `crates/`.
    pub(crate) files: &'static [&'static str],
}

pub(crate) const AREAS: &[Area] = &[
    Area {
        name: "resume and sealing",
        package: "budao-core",
        files: &[
            "core/src/session.rs",
            "core/src/session/call.rs",
            "core/src/session/pairs.rs",
            "core/src/session/turn.rs",
            "core/src/turn.rs",
            "core/src/turn/calls.rs",
        ],
    },
    Area {
        name: "journal recovery",
        package: "budao-journal",
        files: &[
            "journal/src/fold.rs",
            "journal/src/sqlite/check.rs",
            "journal/src/implement/frame.rs",
            "journal/src/sqlite/open.rs",
            "journal/src/sqlite/reserve.rs",
            "journal/src/sqlite/salvage.rs",
            "journal/src/sqlite/watermark.rs",
        ],
    },
    Area {
        name: "session host",
        package: "budao-engine",
        files: &[
            "engine/src/batch.rs",
            "engine/src/host.rs",
            "engine/src/registry.rs",
            "engine/src/remote.rs",
            "engine/src/restart.rs",
            "engine/src/session_task.rs",
            "engine/src/session_task/run.rs",
            "engine/src/writer.rs",
        ],
    },
    Area {
        name: "reconnect",
        package: "budao-client",
        files: &[
            "client/src/cursor_tracker.rs",
            "client/src/connection_task.rs",
            "client/src/pending.rs",
        ],
    },
    Area { name: "reconnect", package: "budao-socketio", files: &["socketio/src/session.rs"] },
    Area {
        name: "reconnect",
        package: "budao-serve",
        files: &["serve/src/observe.rs", "serve/src/outbox.rs"],
    },
    Area {
        name: "resume",
        package: "budao-runtime",
        files: &["runtime/src/decider.rs", "runtime/src/decider/act.rs"],
    },
    Area {
        name: "correlation",
        package: "budao-claude",
        files: &[
            "claude/src/machine.rs",
            "claude/src/machine/answers.rs",
            "claude/src/machine/calls.rs",
            "claude/src/machine/turn_end.rs",
            "claude/src/machine/lines.rs",
            "claude/src/machine/process.rs",
        ],
    },
];

/// The packages with recovery code, each once, in order; only those in `asked` unless it is empty.
pub(crate) fn packages(asked: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&str> = AREAS.iter().map(|area| area.package).collect();
    names.dedup();
    names.retain(|name| asked.is_empty() || asked.iter().any(|one| one == name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo;

    #[test]
    fn every_file_is_there_and_belongs_to_its_package() {
        for area in AREAS {
            for file in area.files {
                assert!(repo::root().join("crates").join(file).is_file(), "{file}");
                let folder = area.package.strip_prefix("budao-").unwrap();
                assert!(file.starts_with(&format!("{folder}/src/")), "{file}");
            }
        }
        assert_eq!(packages(&["budao-journal".to_owned()]), ["budao-journal"]);
    }
}
