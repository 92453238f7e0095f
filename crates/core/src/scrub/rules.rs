//! The triggers and the scan: one pass of an automaton, then a bounded look at each place it names.
//!
//! A rule that says no has read a bounded number of bytes; a rule that says yes is resumed after what
//! it took. So the whole is linear, whatever the text.

use std::sync::LazyLock;

use super::assignment::{self, SecretKeyword};
use super::replacement::Replacement;
use super::text::ScanText;
use super::token::{self, TokenFormat};
use super::trigger::{self, Hit, Triggers};
use super::{address, encoded_run, header, home_dir, pem, stack_trace, url};

/// No trigger is longer.
pub(super) const TRIGGER_MAX: usize = 48;
/// No rule takes more than this from before its trigger.
pub(super) const TAKEN_BEFORE_MAX: usize = 32;
/// No rule reads further back from its trigger than this.
pub(super) const READ_BEFORE_MAX: usize = 256;

type FindFn = fn(&ScanText<'_>, usize, usize) -> Option<Replacement>;

/// What to do where a trigger stands.
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
    ("://", url::userinfo),
    ("%3A%2F%2F", url::encoded_userinfo),
    ("jdbc:oracle:thin:", url::oracle),
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

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    /// In order, without overlap.
    pub(super) spans: Vec<Replacement>,
    /// The first place whose verdict depends on text beyond the end.
    pub(super) open: Option<UndecidedSpan>,
}

/// A place whose verdict depends on text beyond the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct UndecidedSpan {
    pub(super) start: usize,
    /// What would be replaced if the text ended here.
    pub(super) span: Option<Replacement>,
}

/// How much of a scan is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanScope {
    /// Everything.
    End,
    /// One finding is enough.
    First,
    /// Everything before the first open place.
    BeforeUndecided,
}

/// Finds everything in `source` from `from` on; what stands before it is only looked back at.
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
    // Rules work on bytes; a cut through a character would be our bug, and must not be a panic.
    for span in &mut scan.spans {
        span.end = source.ceil_char_boundary(span.end.min(source.len()));
        span.start = source.floor_char_boundary(span.start.min(span.end));
    }
    super::replacement::join(&mut scan.spans);
    scan
}

fn triggered(text: &ScanText<'_>, bytes: &[u8], from: usize, until: ScanScope) -> ScanResult {
    let mut scan = ScanResult::default();
    // What was taken last. Triggers inside it are done with; those between a name and its value are not.
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

fn apply(text: &ScanText<'_>, hit: &Hit) -> Option<Replacement> {
    match TABLE.rules[hit.trigger] {
        ScrubRule::Token(token) => token::find(text, hit.start, hit.end, token),
        ScrubRule::Assign(word) => assignment::find(text, hit.start, hit.end, word),
        ScrubRule::Find(find) => find(text, hit.start, hit.end),
    }
}

/// Looks through the long runs; says where the first undecided one starts.
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
        encoded_run::shaped(text, &run, found);
        let whole = encoded_run::unwrap_lines(text, &run);
        at = whole.end.max(run.end);
        let peeked = text.take_peeked();
        let secret = whole.decoded(text).any(|inner| holds_secret(&inner));
        let span = secret
            .then(|| Replacement::new(whole.start, whole.end, super::replacement::Marker::Base64));
        found.extend(span);
        if peeked && open.is_none() {
            open = Some(UndecidedSpan { start: run.start, span });
        }
    }
    open
}

/// Whether decoded text holds a secret.
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
