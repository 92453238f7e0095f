//! The parts common to all pages: language, theme, texts for scripts.

use budao_core::{Lang, trace::Trace};
use http::{HeaderMap, header};

use crate::{server::Server, texts};

const TRY_MODULES: &[&str] = &[
    "kit",
    "api",
    "store",
    "shell",
    "board",
    "fold",
    "cards",
    "transcript",
    "markdown",
    "highlight",
    "copy",
    "results",
    "json-view",
    "fault-renderings",
    "trace",
    "attachments",
    "sidebar",
    "keys",
    "past",
    "record",
    "event-socket",
    "client/index",
    "client/client",
    "client/session",
    "client/event",
    "client/fault",
    "client/line",
    "client/pending",
    "client/queue",
    "client/thread",
];
const SESSION_MODULES: &[&str] = &[
    "kit",
    "api",
    "store",
    "shell",
    "fold",
    "lanes",
    "list",
    "past",
    "bundle",
    "record",
    "keys",
    "copy",
    "json-view",
    "fault-renderings",
    "trace",
    "event-socket",
    "client/index",
    "client/client",
    "client/session",
    "client/event",
    "client/fault",
    "client/line",
    "client/pending",
    "client/queue",
    "client/thread",
];

/// The template data common to all pages.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) lang: Lang,
    pub(super) theme: &'static str,
    /// The page's name, which selects its script, its style and its navigation entry.
    pub(super) name: &'static str,
    pub(super) server: String,
    /// The models that a session may use, the default first.
    pub(super) models: Vec<String>,
    /// True if the default model is the built-in demonstration.
    pub(super) is_demo: bool,
}

impl Shell {
    pub(super) fn new(
        server: &Server,
        (requested, _): &(Lang, Trace),
        headers: &HeaderMap,
        name: &'static str,
    ) -> Self {
        let lang = read_cookie(headers, "lang").and_then(Lang::from_tag).unwrap_or(*requested);
        let theme = match read_cookie(headers, "theme") {
            Some("light") => "light",
            Some("dark") => "dark",
            _ => "auto",
        };
        let models = server.models();
        let is_demo = models.first().is_none_or(|model| model.starts_with("demo"));
        Self { lang, theme, name, server: server.config.name.clone(), models, is_demo }
    }

    /// The text `page-{id}` in the page's language.
    pub(super) fn translate(&self, id: &str) -> String {
        texts::translate(&format!("page-{id}"), self.lang)
    }

    /// The texts for scripts as JSON. Arguments render as `{name}`.
    pub(super) fn words(&self) -> String {
        texts::for_scripts(self.lang)
    }

    /// The modules that the page's script needs. Browsers fetch them at once instead of one after the other.
    pub(super) fn modules(&self) -> &'static [&'static str] {
        match self.name {
            "try" => TRY_MODULES,
            "session" => SESSION_MODULES,
            _ => &["kit", "api", "store", "shell"],
        }
    }

    /// True if this page belongs to the navigation entry `name`.
    pub(super) fn is(&self, name: &str) -> bool {
        let family = match self.name {
            "session" => "sessions",
            "explain" => "faults",
            own => own,
        };
        family == name
    }
}

/// A preference of the reader, from a cookie set by scripts.
fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "other=1; lang=zh".parse().unwrap());
        headers.append(header::COOKIE, "theme=dark".parse().unwrap());
        assert_eq!(read_cookie(&headers, "lang"), Some("zh"));
        assert_eq!(read_cookie(&headers, "theme"), Some("dark"));
        assert_eq!(read_cookie(&headers, "them"), None);
    }
}
