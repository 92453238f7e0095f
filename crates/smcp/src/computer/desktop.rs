//! The desktop of a computer: the `window://` resources of its MCP servers, ordered for an agent.
//!
//! The most recently used server comes first. Within a server, windows are ordered by priority, and a full-screen
//! window stands alone. The list of windows is requested anew each time.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use budao_core::fault::Fault;
use budao_mcp::ServerHandle;
use futures::StreamExt as _;
use serde_json::Value;

/// Limits of one answer: windows that are read, and pages of a server's resource list.
const WINDOWS_MAX: usize = 64;
const PAGES_MAX: usize = 20;

/// Windows that are read concurrently, and the time limit for each.
const AT_ONCE: usize = 8;
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// A window and its content.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    server: String,
    uri: String,
    priority: f64,
    is_fullscreen: bool,
    texts: Vec<String>,
}

/// Whether `uri` is the address of a window: `window://` with a host. The query is ignored.
pub(super) fn is_window(uri: &str) -> bool {
    let host = uri.strip_prefix("window://").and_then(|rest| rest.split(['/', '?', '#']).next());
    host.is_some_and(|host| !host.is_empty())
}

/// All resources of a server whose address begins with `scheme`, within limits.
///
/// # Errors
/// If the server does not list its resources.
pub(super) async fn listed(server: &ServerHandle, scheme: &str) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    if server.has_resources() != Some(true) {
        return Ok(found);
    }
    for _ in 0..PAGES_MAX {
        let page = server.resources(cursor.clone(), LIMIT).await?;
        let is_wanted = |it: &Value| it["uri"].as_str().is_some_and(|uri| uri.starts_with(scheme));
        found.extend(page.resources.into_iter().filter(is_wanted));
        if page.next.is_none() || page.next == cursor {
            break;
        }
        cursor = page.next;
    }
    Ok(found)
}

/// The addresses of a server's windows.
pub(super) async fn addresses(server: &ServerHandle) -> Result<BTreeSet<String>, Fault> {
    let listed = listed(server, "window://").await?;
    let uris = listed.iter().filter_map(|it| it["uri"].as_str());
    Ok(uris.filter(|uri| is_window(uri)).map(str::to_owned).collect())
}

/// Reads every window, or only the one with the given address. Windows that cannot be read are skipped and logged.
pub(super) async fn windows(
    servers: Vec<(String, Arc<ServerHandle>)>,
    only: Option<&str>,
) -> Vec<Window> {
    let mut found = Vec::new();
    for (id, server) in servers {
        match listed(&server, "window://").await {
            Ok(resources) => {
                let resources = resources.into_iter().filter(|it| {
                    let uri = it["uri"].as_str().unwrap_or_default();
                    is_window(uri) && only.is_none_or(|only| only == uri)
                });
                found.extend(resources.map(|it| (id.clone(), server.clone(), it)));
            }
            Err(fault) => tracing::warn!(server = id, %fault, "listing windows failed"),
        }
    }
    if found.len() > WINDOWS_MAX {
        tracing::warn!(dropped = found.len() - WINDOWS_MAX, "window list truncated");
        found.truncate(WINDOWS_MAX);
    }
    let read = found.into_iter().map(|(id, server, it)| async move {
        let uri = it["uri"].as_str().unwrap_or_default();
        match server.read_resource(uri, LIMIT).await {
            Ok(contents) => Some(window(id, &it, &contents)),
            Err(fault) => {
                tracing::warn!(server = id, uri, %fault, "reading window failed");
                None
            }
        }
    });
    let read: Vec<Option<Window>> = futures::stream::iter(read).buffered(AT_ONCE).collect().await;
    read.into_iter().flatten().collect()
}

fn window(server: String, resource: &Value, contents: &[Value]) -> Window {
    let priority = resource["annotations"]["priority"].as_f64().unwrap_or_default();
    let texts = contents.iter().filter_map(|part| part["text"].as_str());
    Window {
        server,
        uri: resource["uri"].as_str().unwrap_or_default().to_owned(),
        priority: if (0.0..=1.0).contains(&priority) { priority } else { 0.0 },
        is_fullscreen: resource["_meta"]["fullscreen"] == true,
        texts: texts.filter(|text| !text.is_empty()).map(str::to_owned).collect(),
    }
}

/// Orders the windows for an answer: at most `size` windows and `bytes_max` bytes.
pub(super) fn organised(
    windows: Vec<Window>,
    size: Option<i64>,
    recent: &[String],
    bytes_max: usize,
) -> Vec<String> {
    let size = size.map_or(usize::MAX, |size| usize::try_from(size).unwrap_or_default());
    // A window without readable text is left out.
    let windows: Vec<Window> = windows.into_iter().filter(|it| !it.texts.is_empty()).collect();
    let mut servers: Vec<&str> = recent.iter().map(String::as_str).collect();
    let rest: BTreeSet<&str> = windows.iter().map(|it| it.server.as_str()).collect();
    servers.extend(rest.into_iter().filter(|server| !recent.iter().any(|it| it == server)));
    let mut ordered: Vec<&Window> = Vec::new();
    for server in servers {
        let mut own: Vec<&Window> = windows.iter().filter(|it| it.server == server).collect();
        if let Some(full) = own.iter().find(|it| it.is_fullscreen) {
            ordered.push(full);
            continue;
        }
        // The sort is stable: windows of equal priority keep the server's order.
        own.sort_by(|a, b| b.priority.total_cmp(&a.priority));
        ordered.extend(own);
    }
    let mut left = bytes_max;
    let rendered = ordered.into_iter().map(|it| format!("{}\n\n{}", it.uri, it.texts.join("\n\n")));
    let fits = |text: &String| {
        let fits = text.len() <= left;
        left = left.saturating_sub(if fits { text.len() } else { 0 });
        fits
    };
    rendered.filter(fits).take(size).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(server: &str, path: &str, more: &Value) -> Window {
        let mut resource = json!({ "uri": format!("window://{server}/{path}"), "name": path });
        resource.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        window(server.into(), &resource, &[json!({ "text": path })])
    }

    fn paths(rendered: &[String]) -> Vec<&str> {
        rendered.iter().map(|text| text.split_once("\n\n").unwrap().1).collect()
    }

    #[test]
    fn the_server_used_last_comes_first_and_priority_orders_its_windows() {
        let priority = |priority: f64| json!({ "annotations": { "priority": priority } });
        let windows = vec![
            of("b", "b1", &json!({})),
            of("a", "a-low", &priority(0.1)),
            of("a", "a-high", &priority(0.9)),
            of("a", "a-wrong", &priority(7.0)),
            of("c", "c1", &json!({})),
        ];
        let rendered = |size, recent: &[&str]| {
            let recent: Vec<String> = recent.iter().map(|it| (*it).to_owned()).collect();
            organised(windows.clone(), size, &recent, 1000)
        };
        let by_name = rendered(None, &[]);
        assert_eq!(paths(&by_name), ["a-high", "a-low", "a-wrong", "b1", "c1"]);
        assert_eq!(by_name[0], "window://a/a-high\n\na-high");
        assert_eq!(paths(&rendered(Some(2), &["gone", "c"])), ["c1", "a-high"]);
        assert!(rendered(Some(0), &[]).is_empty() && rendered(Some(-1), &[]).is_empty());
    }

    #[test]
    fn a_full_screen_window_stands_alone_on_its_server() {
        let full = |it: Value| json!({ "_meta": { "fullscreen": it }, "annotations": { "priority": 0.0 } });
        let windows = vec![
            of("a", "first", &json!({ "annotations": { "priority": 1.0 } })),
            of("a", "full", &full(json!(true))),
            of("a", "full-too", &full(json!(true))),
            of("b", "not-really", &full(json!("yes"))),
            of("b", "other", &json!({})),
        ];
        let rendered = organised(windows, None, &[], 1000);
        assert_eq!(paths(&rendered), ["full", "not-really", "other"]);
    }

    #[test]
    fn what_shows_nothing_or_too_much_is_left_out() {
        let empty = Window { texts: Vec::new(), ..of("a", "empty", &json!({})) };
        let long = Window { texts: vec!["x".repeat(500)], ..of("a", "long", &json!({})) };
        let rendered = organised(vec![empty, long, of("a", "short", &json!({}))], None, &[], 100);
        assert_eq!(paths(&rendered), ["short"]);
    }

    #[test]
    fn a_window_has_a_host() {
        assert!(is_window("window://h") && is_window("window://h/a?priority=1"));
        assert!(!is_window("window://") && !is_window("window:///a") && !is_window("file://h/a"));
    }
}
