//! Pages.
use std::collections::BTreeMap;
pub(super) fn all(_:&super::Source)->BTreeMap<String,String>{BTreeMap::new()}
