//! Checks the `Origin` and `Host` headers of requests.
//!
//! A browser sends requests of any page, also to 127.0.0.1. So the server refuses pages of other origins unless they
//! are listed. On the loopback interface it accepts only loopback host names, which stops DNS rebinding. A request
//! names its host exactly once (RFC 9112, section 3.2).

use std::net::IpAddr;

use budao_core::fault::{Fact, Fault, Kind, Operation};
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

    /// Checks a request's target and headers.
    ///
    /// # Errors
    /// `bad_request` without a host or with several; `not_allowed`, without the reason.
    pub(crate) fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
        let host = read_host(target, headers)?;
        let origin_is_fine = match header_text(headers, header::ORIGIN) {
            None => !headers.contains_key(header::ORIGIN),
            Some(origin) => self.allows_origin(&origin, &host),
        };
        if self.allows_host(&host) && origin_is_fine {
            return Ok(());
        }
        Err(Fault::new(Kind::NotAllowed, Operation::AcceptFrame))
    }

    fn allows_host(&self, host: &str) -> bool {
        let name = host_name(host);
        let known = self.hosts.iter().any(|known| known == host || known == name);
        known || is_loopback_name(name) || (!self.is_loopback && self.hosts.is_empty())
    }

    /// True for the server's own pages and for listed origins. `null`, the origin of files and sandboxed frames, is
    /// refused.
    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        if self.origins.iter().any(|known| known == origin) {
            return true;
        }
        let Ok(uri) = origin.parse::<Uri>() else { return false };
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().map(http::uri::Authority::as_str);
        is_web && authority == Some(host)
    }
}

/// The one host that a request names: in its `Host` header, in an absolute target, or the same in both.
fn read_host(target: &Uri, headers: &HeaderMap) -> Result<String, Fault> {
    let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
    let in_target = target.authority().map(|authority| Some(authority.as_str()));
    let mut hosts = named.chain(in_target).map(|host| host.map(str::to_ascii_lowercase));
    let first = hosts.next().flatten().filter(|host| !host.is_empty());
    let is_same =
        hosts.all(|host| host == first) && headers.get_all(header::HOST).iter().count() < 2;
    first.filter(|_| is_same).ok_or_else(|| {
        Fault::new(Kind::BadRequest, Operation::ServeRequest)
            .with(Fact::Field, "host")
            .with(Fact::Expected, "exactly one Host header, for the host of the request's target")
    })
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_ascii_lowercase())
}

/// The host without its port, and without the brackets of an IPv6 address.
fn host_name(host: &str) -> &str {
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
        policy.check(&Uri::from_static("/"), &headers).is_ok()
    }

    #[rstest]
    #[case::one("/", &["127.0.0.1:7333"], true)]
    #[case::none("/", &[], false)]
    #[case::empty("/", &[""], false)]
    #[case::two("/", &["127.0.0.1:7333", "evil.example"], false)]
    #[case::the_same_twice("/", &["127.0.0.1:7333", "127.0.0.1:7333"], false)]
    #[case::absolute("http://127.0.0.1:7333/", &["127.0.0.1:7333"], true)]
    #[case::absolute_alone("http://127.0.0.1:7333/", &[], true)]
    #[case::absolute_of_another("http://evil.example/", &["127.0.0.1:7333"], false)]
    fn a_request_names_its_host_exactly_once(
        #[case] target: &str,
        #[case] hosts: &[&str],
        #[case] expected: bool,
    ) {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        let policy = OriginPolicy::new(&[], &[], true);
        assert_eq!(policy.check(&target.parse().unwrap(), &headers).is_ok(), expected);
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
    fn a_loopback_server_accepts_only_its_own_page_and_listed_origins(
        #[case] host: &str,
        #[case] origin: Option<&str>,
        #[case] expected: bool,
    ) {
        let policy = OriginPolicy::new(&["https://app.example".to_owned()], &[], true);
        assert_eq!(is_allowed(&policy, host, origin), expected);
    }

    #[test]
    fn a_server_on_another_interface_accepts_any_host_name_unless_names_are_listed() {
        let any = OriginPolicy::new(&[], &[], false);
        assert!(is_allowed(&any, "agents.example", Some("https://agents.example")));
        assert!(!is_allowed(&any, "agents.example", Some("https://evil.example")));
        let listed = OriginPolicy::new(&[], &["agents.example".to_owned()], false);
        assert!(is_allowed(&listed, "agents.example:443", None));
        assert!(!is_allowed(&listed, "other.example", None));
    }
}
