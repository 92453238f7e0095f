//! Locates the CLI's program. Nothing here reads the environment; the caller passes its values.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use budao_core::fault::{Fact, Fault, Kind, Operation};

use crate::PROGRAM;

/// Where to look; the first field that is set decides.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A configured path. If it is wrong, nothing else is tried.
    pub given: Option<PathBuf>,
    /// The value of `CLAUDE_CODE_EXECUTABLE`. If it is wrong, nothing else is tried.
    pub executable: Option<OsString>,
    /// The value of `PATH`.
    pub path: Option<OsString>,
}

/// Returns the path of the CLI's program.
///
/// # Errors
/// `cli_not_installed`, with the path or name that was looked for.
pub fn find(search: &Search) -> Result<PathBuf, Fault> {
    let configured = search.given.clone().or_else(|| {
        let executable = search.executable.clone().filter(|value| !value.is_empty());
        executable.map(PathBuf::from)
    });
    let path = search.path.as_ref();
    let name = configured.as_deref().unwrap_or_else(|| Path::new(PROGRAM));
    // `which_in` searches `PATH` for a bare name and takes anything else as a path.
    which::which_in(name, path, "/").map_err(|error| {
        Fault::new(Kind::CliNotInstalled, Operation::StartCli)
            .with(Fact::Program, name.display().to_string())
            .with(Fact::RequiredConfig, "CLAUDE_CODE_EXECUTABLE")
            .caused_by(&error)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_configured_program_takes_precedence_over_one_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (program(folder.path(), "a"), program(folder.path(), "b"));
        let claude = program(folder.path(), "claude");
        let all = Search {
            given: Some(a.clone()),
            executable: Some(b.clone().into()),
            path: Some(folder.path().into()),
        };
        assert_eq!(find(&all).unwrap(), a);
        let without = Search { given: None, ..all.clone() };
        assert_eq!(find(&without).unwrap(), b);
        let searched = Search { executable: Some(OsString::new()), ..without };
        assert_eq!(find(&searched).unwrap(), claude);
    }

    #[test]
    fn a_path_that_is_wrong_is_not_replaced_by_luck() {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), "claude");
        let wrong = Search {
            given: Some(folder.path().join("missing")),
            path: Some(folder.path().into()),
            ..Search::default()
        };
        let fault = find(&wrong).unwrap_err();
        assert_eq!(fault.kind(), Kind::CliNotInstalled);
        assert!(fault.to_string().contains("missing"), "{fault}");
        assert_eq!(find(&Search::default()).unwrap_err().kind(), Kind::CliNotInstalled);
    }
}
