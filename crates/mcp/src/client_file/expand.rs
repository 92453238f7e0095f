//! Fills references in settings: `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:ID}`, and the folders that
//! editors know.

use std::path::Path;

use secrecy::SecretString;

use crate::process::ProcessVariables;

/// What references refer to.
pub(super) struct Expansion<'a> {
    pub(super) variables: &'a ProcessVariables,
    pub(super) folder: &'a Path,
}

/// A reference that cannot be filled.
#[derive(Debug)]
pub(super) struct ReferenceProblem {
    pub(super) expected: &'static str,
    pub(super) reference: String,
}

impl Expansion<'_> {
    /// The text with its references filled. Values of variables are added to `found`, as secrets.
    pub(super) fn apply(
        &self,
        text: &str,
        found: &mut Vec<SecretString>,
    ) -> Result<String, ReferenceProblem> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let problem =
                |expected| ReferenceProblem { expected, reference: format!("${{{after}") };
            let (reference, after) =
                after.split_once('}').ok_or_else(|| problem("`}` after `${`"))?;
            out.push_str(before);
            out.push_str(&self.value(reference, found).map_err(|expected| ReferenceProblem {
                expected,
                reference: format!("${{{reference}}}"),
            })?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(
        &self,
        reference: &str,
        found: &mut Vec<SecretString>,
    ) -> Result<String, &'static str> {
        let folder = || self.folder.display().to_string();
        let home = || self.variables.get("HOME").ok_or("a home directory");
        let mut secret = |name: &str| {
            let value = self.variables.get(name)?;
            found.push(value.clone().into());
            Some(value)
        };
        match reference {
            "userHome" => return home(),
            "workspaceFolder" | "workspaceRoot" => return Ok(folder()),
            "workspaceFolderBasename" => {
                let name = self.folder.file_name();
                return Ok(name
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default());
            }
            "pathSeparator" | "/" => return Ok("/".to_owned()),
            _ => {}
        }
        if let Some(name) = reference.strip_prefix("env:") {
            return secret(name).ok_or("a variable that is set");
        }
        if let Some(id) = reference.strip_prefix("input:") {
            let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
            let name: String = id.to_ascii_uppercase().chars().map(plain).collect();
            return secret(&format!("INPUT_{name}")).ok_or(
                "a variable INPUT_ and the id in capitals, since only an editor can ask for inputs",
            );
        }
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            return Err("a variable, ${input:ID} or a folder that is known here");
        }
        secret(name).or_else(|| default.map(str::to_owned)).ok_or("a variable that is set")
    }
}
