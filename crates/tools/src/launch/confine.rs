//! Applies Landlock to a command completely, or returns the reason why that is impossible.

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
};

use super::Confinement;

/// The required Landlock version: the first that also restricts truncation and moving files between directories
/// (Linux 6.2).
const REQUIRED: ABI = ABI::V3;

/// Restricts the calling thread and every process it starts afterwards.
pub(super) fn restrict_thread(confine: &Confinement) -> Result<(), String> {
    let status = ruleset(confine)?.restrict_self().map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err("the kernel enforces only a part of it".to_owned())
        }
    }
}

fn ruleset(confine: &Confinement) -> Result<RulesetCreated, String> {
    let describe = |error: RulesetError| error.to_string();
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED))
        .map_err(describe)?
        .create()
        .map_err(describe)?
        .add_rules(path_beneath_rules(&confine.read, AccessFs::from_read(REQUIRED)))
        .map_err(describe)?;
    for path in &confine.write {
        let handle = PathFd::new(path).map_err(|error| error.to_string())?;
        let access = if path.is_dir() {
            AccessFs::from_all(REQUIRED)
        } else {
            AccessFs::from_all(REQUIRED) & AccessFs::from_file(REQUIRED)
        };
        rules = rules.add_rule(PathBeneath::new(handle, access)).map_err(describe)?;
    }
    Ok(rules)
}
