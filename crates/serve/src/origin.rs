//! Checks the `Origin` and `Host` headers of requests.
//!
//! A browser sends requests of any page, also to 127.0.0.1. So the server refuses pages of other origins unless they
//! are listed. On the loopback interface it accepts only loopback host names, which stops DNS rebinding.

use std::net::IpAddr;

use budao_core::fault::{Fault, Kind, Operation};
use http::{HeaderMap, Uri, header};

/// The allowed origins and host names.
#[derive(Clone, Debug)]
pub(crate) struct OriginPolicy {
    origins: Vec<String>,
    hosts: Vec<String>,
    is_loopback: bool,
}

impl OriginPolicy {
    pub(crate) fn new(origins: &[String], hosts: &[String], is_loopback: bool) -> Self {
        let lower = |texts: &[String]| texts.iter().map(|text| text.to_ascii_lowercase()).collect();
        Self { origins: lower(origins), hosts: lower(hosts), is_loopback }
    }

    /// Checks a request's headers.
    ///
    /// # Errors
    /// `not_allowed`, without the reason.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let host = text(headers, header::HOST);
        let host_is_fine = host.as_deref().is_none_or(|host| self.knows_host(host));
        let origin_is_fine = match text(headers, header::ORIGIN) {
            None => !headers.contains_key(header::ORIGIN),
            Some(origin) => self.knows_origin(&origin, host.as_deref()),
        };
        if host_is_fine && origin_is_fine {
            return Ok(());
        }
        Err(Fault::new(Kind::NotAllowed, Operation::AcceptFrame))
    }

    fn knows_host(&self, host: &str) -> bool {
        let name = name_of(host);
        let known = self.hosts.iter().any(|known| known == host || known == name);
        known || is_loopback_name(name) || (!self.is_loopback && self.hosts.is_empty())
    }

    /// True for the server's own pages and for listed origins. `null`, the origin of files and sandboxed frames, is
    /// refused.
    fn knows_origin(&self, origin: &str, host: Option<&str>) -> bool {
        if self.origins.iter().any(|known| known == origin) {
            return true;
        }
        let Ok(uri) = origin.parse::<Uri>() else { return false };
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().map(http::uri::Authority::as_str);
        is_web && authority.is_some() && authority == host
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_ascii_lowercase())
}

/// The host without its port, and without the brackets of an IPv6 address.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn is_allowed(policy: &OriginPolicy, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        policy.check(&headers).is_ok()
    }

    #[rstest]
    #[case::no_browser("127.0.0.1:7333", None, true)]
    #[case::own_page("127.0.0.1:7333", Some("http://127.0.0.1:7333"), true)]
    #[case::own_page_by_name("localhost:7333", Some("http://localhost:7333"), true)]
    #[case::own_page_v6("[::1]:7333", Some("http://[::1]:7333"), true)]
    #[case::listed("127.0.0.1:7333", Some("https://app.example"), true)]
    #[case::listed_in_capitals("127.0.0.1:7333", Some("https://APP.example"), true)]
    #[case::another_port("127.0.0.1:7333", Some("http://127.0.0.1:8080"), false)]
    #[case::another_page("127.0.0.1:7333", Some("https://evil.example"), false)]
    #[case::lookalike("127.0.0.1:7333", Some("https://app.example.evil.example"), false)]
    #[case::a_file("127.0.0.1:7333", Some("null"), false)]
    #[case::nonsense("127.0.0.1:7333", Some("%%%"), false)]
    #[case::a_name_pointed_at_us("evil.example:7333", Some("http://evil.example:7333"), false)]
    #[case::a_name_without_origin("evil.example:7333", None, false)]
    fn on_loopback_a_page_is_welcome_only_if_it_is_ours_or_listed(
        #[case] host: &str,
        #[case] origin: Option<&str>,
        #[case] expected: bool,
    ) {
        let policy = OriginPolicy::new(&["https://app.example".to_owned()], &[], true);
        assert_eq!(is_allowed(&policy, host, origin), expected);
    }

    #[test]
    fn on_another_interface_any_name_is_ours_unless_names_are_listed() {
        let any = OriginPolicy::new(&[], &[], false);
        assert!(is_allowed(&any, "agents.example", Some("https://agents.example")));
        assert!(!is_allowed(&any, "agents.example", Some("https://evil.example")));
        let listed = OriginPolicy::new(&[], &["agents.example".to_owned()], false);
        assert!(is_allowed(&listed, "agents.example:443", None));
        assert!(!is_allowed(&listed, "other.example", None));
    }
}
