//! JSON Patch (RFC 6902) with a size limit, for the state that a foreign agent shares with its front ends.

use serde_json::Value;

/// The most operations of one patch; further ones make the patch fail.
const OPERATIONS: usize = 10_000;

/// Why a patch was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// An operation does not fit the state. The protocol's own client skips such a patch.
    Unfit,
    /// The result would exceed the size limit.
    TooLarge,
}

/// The size of a value as JSON, in bytes.
#[must_use]
pub fn size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX, |()| counter.0)
}

/// Applies a patch: all of it or, on an error, nothing.
///
/// # Errors
/// [`PatchError`] if an operation does not fit, or if the result would have more than `most` bytes.
pub fn patch(state: &mut Value, operations: &[Value], most: usize) -> Result<(), PatchError> {
    if operations.len() > OPERATIONS {
        return Err(PatchError::Unfit);
    }
    let mut next = state.clone();
    // A copy can double the state with each operation, so the size is known after each.
    let mut bytes = size(&next);
    for operation in operations {
        bytes = bytes.saturating_add(apply(&mut next, operation).ok_or(PatchError::Unfit)?);
        if bytes > most {
            bytes = size(&next);
        }
        if bytes > most {
            return Err(PatchError::TooLarge);
        }
    }
    *state = next;
    Ok(())
}

/// Applies one operation and returns the bytes that it added at most; `None` if it does not fit.
fn apply(state: &mut Value, operation: &Value) -> Option<usize> {
    let path = operation["path"].as_str()?;
    let value = || operation.get("value").cloned();
    match operation["op"].as_str()? {
        "add" => add(state, path, value()?),
        "replace" => {
            let (target, value) = (state.pointer_mut(path)?, value()?);
            let added = size(&value);
            *target = value;
            Some(added)
        }
        "remove" => remove(state, path).map(|_| 0),
        "move" => {
            let from = operation["from"].as_str()?;
            if path.starts_with(&format!("{from}/")) {
                return None;
            }
            let moved = remove(state, from)?;
            add(state, path, moved)
        }
        "copy" => {
            let copied = state.pointer(operation["from"].as_str()?)?.clone();
            add(state, path, copied)
        }
        "test" => (*state.pointer(path)? == value()?).then_some(0),
        _ => None,
    }
}

fn add(state: &mut Value, path: &str, value: Value) -> Option<usize> {
    let added = size(&value).saturating_add(path.len()).saturating_add(4);
    if path.is_empty() {
        *state = value;
        return Some(added);
    }
    let (parent, key) = parent(state, path)?;
    match parent {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key).filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(added)
}

fn remove(state: &mut Value, path: &str) -> Option<Value> {
    if path.is_empty() {
        return Some(std::mem::take(state));
    }
    let (parent, key) = parent(state, path)?;
    match parent {
        Value::Object(map) => map.remove(&key),
        Value::Array(items) => {
            let at = index(&key).filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

/// The value that contains the target of a pointer, and the target's key in it.
fn parent<'a>(state: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, key) = path.rsplit_once('/')?;
    Some((state.pointer_mut(parent)?, key.replace("~1", "/").replace("~0", "~")))
}

fn index(key: &str) -> Option<usize> {
    let is_plain = key == "0" || !key.starts_with(['0', '+']);
    key.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MOST: usize = 1_000;

    #[test]
    fn the_six_patch_operations_follow_the_standard() {
        let mut state = json!({"a": [1, 2], "b": {"c/d": 1}});
        let operations = json!([
            {"op": "test", "path": "/a/0", "value": 1},
            {"op": "add", "path": "/a/-", "value": 3},
            {"op": "add", "path": "/a/0", "value": 0},
            {"op": "replace", "path": "/b/c~1d", "value": 2},
            {"op": "copy", "from": "/b", "path": "/e"},
            {"op": "move", "from": "/b", "path": "/f"},
            {"op": "remove", "path": "/a/1"},
        ]);
        patch(&mut state, operations.as_array().unwrap(), MOST).unwrap();
        assert_eq!(state, json!({"a": [0, 2, 3], "e": {"c/d": 2}, "f": {"c/d": 2}}));
    }

    #[test]
    fn a_patch_that_does_not_fit_changes_nothing() {
        let before = json!({"a": [1], "b": {}});
        for bad in [
            json!({"op": "remove", "path": "/x"}),
            json!({"op": "add", "path": "/a/7", "value": 1}),
            json!({"op": "add", "path": "/a/01", "value": 1}),
            json!({"op": "move", "from": "/b", "path": "/b/c"}),
            json!({"op": "test", "path": "/a/0", "value": 2}),
            json!({"op": "grow", "path": "/a"}),
            json!("add"),
        ] {
            let mut state = before.clone();
            let good = json!({"op": "add", "path": "/c", "value": 1});
            let operations = [good, bad.clone()];
            assert_eq!(patch(&mut state, &operations, MOST), Err(PatchError::Unfit), "{bad}");
            assert_eq!(state, before, "{bad}");
        }
    }

    #[test]
    fn a_state_that_doubles_itself_is_stopped_at_the_limit() {
        let mut state = json!({"a": "0123456789"});
        let double = |n: usize| json!({"op": "copy", "from": "", "path": format!("/{n}")});
        let operations: Vec<Value> = (0..64).map(double).collect();
        assert_eq!(patch(&mut state, &operations, MOST), Err(PatchError::TooLarge));
        assert_eq!(state, json!({"a": "0123456789"}));
    }
}
