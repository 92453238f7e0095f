//! The triggers and the scan: one pass of an automaton, then a bounded look at each match.
//!
//! A rule that finds nothing has read a bounded number of bytes. After a rule that finds a secret, the scan continues
//! behind the secret. The scan is therefore linear for any text.

use std::sync::LazyLock;

use super::assignment::{self, SecretKeyword};
use super::encoded_run::Base64Run;
use super::replacement::{Marker, Replacement};
use super::text::ScanText;
use super::token::{self, TokenFormat};
use super::trigger::{self, Hit, Triggers};
use super::{address, connection, encoded_run, header, home_dir, host_name, pem, stack_trace, url};

/// The longest trigger, in bytes.
pub(super) const TRIGGER_MAX: usize = 48;
/// The most bytes before its trigger that a rule replaces.
pub(super) const TAKEN_BEFORE_MAX: usize = 96;
/// The most bytes before its trigger that a rule reads.
pub(super) const READ_BEFORE_MAX: usize = 256;

type FindFn = fn(&ScanText<'_>, usize, usize) -> Option<Replacement>;

/// The rule to apply at a trigger.
#[derive(Clone, Copy)]
enum ScrubRule {
    Token(&'static TokenFormat),
    Assign(&'static SecretKeyword),
    Find(FindFn),
}

const FINDERS: &[(&str, FindFn)] = &[
    ("eyJ", token::jwt),
    (".atlasv1.", token::terraform),
    ("Q~", token::azure_client),
    ("00D", token::salesforce),
    ("access_token$", token::braintree),
    ("_mmk", token::maxmind),
    ("hooks.slack.com/services/", token::webhook),
    ("hooks.slack.com/workflows/", token::webhook),
    ("hooks.slack.com/triggers/", token::webhook),
    ("discord.com/api/webhooks/", token::webhook),
    ("discordapp.com/api/webhooks/", token::webhook),
    ("webhook.office.com/webhookb2/", token::webhook),
    ("open.feishu.cn/open-apis/bot/v2/hook/", token::webhook),
    ("open.larksuite.com/open-apis/bot/v2/hook/", token::webhook),
    ("-----BEGIN ", pem::block),
    ("Private-Lines:", pem::putty),
    ("authorization", header::authorization),
    ("bearer ", header::bearer),
    ("basic ", header::basic),
    ("auth plain ", header::auth_plain),
    ("\"auth", header::auth),
    ("_auth", header::auth),
    ("cookie", header::cookie),
    ("sig=", header::signature),
    ("signature=", header::signature),
    ("?key=", header::query_key),
    ("&key=", header::query_key),
    ("://", |text, start, end| {
        connection::url(text, start, end).or_else(|| url::userinfo(text, start, end))
    }),
    ("%3A%2F%2F", |text, start, end| {
        connection::encoded_url(text, start, end)
            .or_else(|| url::encoded_userinfo(text, start, end))
    }),
    ("jdbc:oracle:thin:", |text, start, end| {
        connection::oracle(text, start, end).or_else(|| url::oracle(text, start, end))
    }),
    ("@tcp(", connection::go_mysql),
    ("@unix(", connection::go_mysql),
    (" -u ", url::user_flag),
    ("--user ", url::user_flag),
    ("--user=", url::user_flag),
    ("/home/", home_dir::posix),
    ("/Users/", home_dir::posix),
    ("%2Fhome%2F", home_dir::encoded),
    ("%2FUsers%2F", home_dir::encoded),
    ("/root", home_dir::root),
    ("\\Users\\", home_dir::windows),
    (":/Users/", home_dir::windows_slashed),
    ("Traceback (most recent call last)", stack_trace::python),
    ("stack backtrace:", stack_trace::rust),
    ("goroutine ", stack_trace::go),
    ("   at ", stack_trace::at_lines),
    ("\tat ", stack_trace::at_lines),
    ("\\tat ", stack_trace::at_lines),
    ("\tfrom ", stack_trace::ruby),
    ("\\tfrom ", stack_trace::ruby),
    ("localhost:", address::localhost),
    ("10.", |text, start, _| address::ipv4(text, start)),
    ("127.", |text, start, _| address::ipv4(text, start)),
    ("192.168.", |text, start, _| address::ipv4(text, start)),
    ("169.254.", |text, start, _| address::ipv4(text, start)),
    ("172.", |text, start, _| address::ipv4(text, start)),
    ("100.", |text, start, _| address::ipv4(text, start)),
    ("ip-10-", |text, start, _| address::dashed(text, start, b"ip-")),
    ("ip-172-", |text, start, _| address::dashed(text, start, b"ip-")),
    ("ip-192-168-", |text, start, _| address::dashed(text, start, b"ip-")),
    ("::1", |text, start, _| address::ipv6(text, start)),
];

struct RuleTable {
    triggers: Triggers,
    rules: Vec<ScrubRule>,
}

static TABLE: LazyLock<RuleTable> = LazyLock::new(|| {
    let mut literals: Vec<String> = Vec::new();
    let mut rules = Vec::new();
    let mut add = |literal: String, rule| {
        literals.push(literal);
        rules.push(rule);
    };
    for token in token::TOKENS {
        add(token.prefix.to_owned(), ScrubRule::Token(token));
    }
    for word in assignment::WORDS {
        add(word.literal.to_owned(), ScrubRule::Assign(word));
    }
    for &(literal, find) in FINDERS {
        add(literal.to_owned(), ScrubRule::Find(find));
    }
    for trigger in connection::TRIGGERS {
        add(trigger.to_owned(), ScrubRule::Find(connection::pairs));
    }
    for phrase in host_name::PHRASES {
        add(phrase.to_owned(), ScrubRule::Find(host_name::after_phrase));
    }
    for domain in host_name::DOMAINS {
        add(domain.to_owned(), ScrubRule::Find(host_name::domain));
    }
    for port in host_name::PORTS {
        add(port.to_owned(), ScrubRule::Find(host_name::before_port));
    }
    for (client, _) in url::CLIENTS {
        add(client.to_owned(), ScrubRule::Find(url::client_flag));
    }
    // fc00::/7 and fe80::/10, by the first digits of their first group.
    let local: FindFn = |text, start, _| address::ipv6(text, start);
    for digit in "0123456789abcdef".chars() {
        add(format!("fc{digit}"), ScrubRule::Find(local));
        add(format!("fd{digit}"), ScrubRule::Find(local));
        add(format!("fea{digit}:"), ScrubRule::Find(local));
        add(format!("feb{digit}:"), ScrubRule::Find(local));
    }
    add("fe8".to_owned(), ScrubRule::Find(local));
    add("fe9".to_owned(), ScrubRule::Find(local));
    debug_assert!(
        literals.iter().all(|literal| literal.len() <= TRIGGER_MAX),
        "a stream would cut it"
    );
    RuleTable { triggers: Triggers::new(&literals), rules }
});

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    /// Sorted and without overlap.
    pub(super) spans: Vec<Replacement>,
    /// The first place whose verdict depends on text past the end.
    pub(super) open: Option<UndecidedSpan>,
}

/// A place whose verdict depends on text past the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct UndecidedSpan {
    pub(super) start: usize,
    /// The replacement if the text ended here.
    pub(super) span: Option<Replacement>,
}

/// How much of a scan the caller needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanScope {
    /// All findings up to the end of the text.
    End,
    /// At most one finding.
    First,
    /// All findings before the first undecided place.
    BeforeUndecided,
}

/// Scans `source` from `from`; rules may look back at the text before it.
pub(super) fn scan(source: &str, from: usize, until: ScanScope) -> ScanResult {
    let bytes = source.as_bytes();
    let text = ScanText::new(bytes);
    let mut scan = triggered(&text, bytes, from, until);
    if until == ScanScope::First && !scan.spans.is_empty() {
        return scan;
    }
    let mut more = Vec::new();
    let open = runs(&text, bytes, from, &mut more);
    scan.open = scan.open.into_iter().chain(open).min_by_key(|open| open.start);
    scan.spans.append(&mut more);
    // Rules work on bytes. Rounding to character boundaries keeps a defect in a rule from causing a panic.
    for span in &mut scan.spans {
        span.end = source.ceil_char_boundary(span.end.min(source.len()));
        span.start = source.floor_char_boundary(span.start.min(span.end));
    }
    super::replacement::join(&mut scan.spans);
    scan
}

fn triggered(text: &ScanText<'_>, bytes: &[u8], from: usize, until: ScanScope) -> ScanResult {
    let mut scan = ScanResult::default();
    // The last replaced range. Triggers inside it are skipped; those between a name and its value are not.
    let mut taken = from..from;
    let mut hits = Vec::new();
    for start in (from..bytes.len()).step_by(trigger::BLOCK) {
        let end = bytes.len().min(start + trigger::BLOCK);
        TABLE.triggers.find(bytes, from, start, end, &mut hits);
        for hit in &hits {
            if taken.contains(&hit.start) {
                continue;
            }
            let found = apply(text, hit);
            if text.take_peeked() && scan.open.is_none() {
                let start = found.map_or(hit.start, |span| span.start.min(hit.start));
                scan.open = Some(UndecidedSpan { start, span: found });
                if until == ScanScope::BeforeUndecided {
                    return scan;
                }
            }
            if let Some(mut span) = found {
                span.cause = hit.start.min(span.start);
                taken = span.start..span.end;
                scan.spans.push(span);
                if until == ScanScope::First {
                    return scan;
                }
            }
        }
    }
    scan
}

/// Adds the triggers from `start` on, except in the last bytes, where one may be cut. Returns where these start.
pub(super) fn find_triggers(bytes: &[u8], start: usize, hits: &mut Vec<Hit>) -> usize {
    TABLE.triggers.find_complete(bytes, start, hits)
}

/// Applies the rule of a trigger.
pub(super) fn apply(text: &ScanText<'_>, hit: &Hit) -> Option<Replacement> {
    match TABLE.rules[hit.trigger] {
        ScrubRule::Token(token) => token::find(text, hit.start, hit.end, token),
        ScrubRule::Assign(word) => assignment::find(text, hit.start, hit.end, word),
        ScrubRule::Find(find) => find(text, hit.start, hit.end),
    }
}

/// Scans the long runs; returns the start of the first undecided one.
fn runs(
    text: &ScanText<'_>,
    bytes: &[u8],
    from: usize,
    found: &mut Vec<Replacement>,
) -> Option<UndecidedSpan> {
    let mut open: Option<UndecidedSpan> = None;
    let mut at = from;
    text.take_peeked();
    while let Some(run) = encoded_run::next_run(bytes, at) {
        let judged = judge_run(text, &run, found);
        at = judged.end;
        if judged.reach > text.len() && open.is_none() {
            open = Some(UndecidedSpan { start: run.start, span: judged.span });
        }
    }
    open
}

/// A long run after the rules for runs.
pub(super) struct JudgedRun {
    /// The end of the run, with its further lines if it is wrapped.
    pub(super) end: usize,
    /// One more than the furthest index that the rules read.
    pub(super) reach: usize,
    span: Option<Replacement>,
}

/// Applies the rules for runs to one run.
pub(super) fn judge_run(
    text: &ScanText<'_>,
    run: &Base64Run,
    found: &mut Vec<Replacement>,
) -> JudgedRun {
    encoded_run::shaped(text, run, found);
    let whole = encoded_run::unwrap_lines(text, run);
    let reach = text.take_reach().max(run.end + 1);
    let secret = whole.decoded(text).any(|inner| holds_secret(&inner));
    let span = secret.then(|| Replacement::new(whole.start, whole.end, Marker::Base64));
    found.extend(span);
    JudgedRun { end: whole.end.max(run.end), reach, span }
}

/// Whether decoded text contains a secret.
fn holds_secret(inner: &str) -> bool {
    let bytes = inner.as_bytes();
    let text = ScanText::new(bytes);
    if !triggered(&text, bytes, 0, ScanScope::First).spans.is_empty() {
        return true;
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(run) = encoded_run::next_run(bytes, at) {
        encoded_run::shaped(&text, &run, &mut found);
        at = run.end;
    }
    !found.is_empty()
}
