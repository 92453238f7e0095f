//! Keys and tokens with a recognisable prefix.

use super::replacement::{Marker, Replacement};
use super::text::{Class, ScanText};

/// One format: a prefix, then at least `least` bytes of `class`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenFormat {
    pub(super) prefix: &'static str,
    class: Class,
    least: usize,
    marker: Marker,
    looks: BodyShape,
}

/// The required shape of the body, so that a long hyphenated word is not taken for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyShape {
    /// Contains a digit, or both upper and lower case.
    Random,
    /// Contains a digit and both cases: for prefixes that are also the start of ordinary names.
    Mixed,
    /// Starts with a UUID.
    Uuid,
    /// Any bytes of the class; the prefix is proof enough.
    Any,
}

const fn key(prefix: &'static str, class: Class, least: usize) -> TokenFormat {
    TokenFormat { prefix, class, least, marker: Marker::ApiKey, looks: BodyShape::Random }
}

const fn token(prefix: &'static str, class: Class, least: usize) -> TokenFormat {
    TokenFormat { prefix, class, least, marker: Marker::Token, looks: BodyShape::Random }
}

const fn mixed(prefix: &'static str, class: Class, least: usize) -> TokenFormat {
    TokenFormat { prefix, class, least, marker: Marker::ApiKey, looks: BodyShape::Mixed }
}

const fn uuid(prefix: &'static str) -> TokenFormat {
    let looks = BodyShape::Uuid;
    TokenFormat { prefix, class: Class::Word, least: 36, marker: Marker::ApiKey, looks }
}

const fn sure(prefix: &'static str, class: Class, least: usize) -> TokenFormat {
    TokenFormat { prefix, class, least, marker: Marker::ApiKey, looks: BodyShape::Any }
}

/// The formats, by vendor. Minimum lengths are slightly below the real ones, so that truncated keys match too.
#[rustfmt::skip]
pub(super) const TOKENS: &[TokenFormat] = &[
    // Model services. `sk-` serves OpenAI, Anthropic, DeepSeek, DashScope, Moonshot, OpenRouter and more.
    key("sk-", Class::Word, 18),
    key("gsk_", Class::Word, 20),
    key("xai-", Class::Word, 20),
    key("pplx-", Class::Word, 20),
    key("hf_", Class::Alnum, 30),
    key("api_org_", Class::Alnum, 30),
    key("r8_", Class::Alnum, 30),
    key("nvapi-", Class::Word, 20),
    key("csk-", Class::Word, 20),
    key("fw_", Class::Alnum, 20),
    key("tgp_v1_", Class::Word, 20),
    key("pcsk_", Class::Word, 20),
    key("tvly-", Class::Word, 16),
    key("jina_", Class::Word, 20),
    key("lsv2_", Class::Word, 20),
    key("sk_", Class::Alnum, 32),
    key("sk_live_", Class::Alnum, 16),
    key("sk_test_", Class::Alnum, 16),
    key("rk_live_", Class::Word, 16),
    key("rk_test_", Class::Word, 16),
    key("whsec_", Class::Padded, 16),
    key("esecret_", Class::Alnum, 20),
    mixed("pa-", Class::Word, 40),
    key("e2b_", Class::Hex, 32),
    key("fc-", Class::Hex, 32),
    // Cloud providers.
    sure("AKIA", Class::Upper, 16),
    sure("ASIA", Class::Upper, 16),
    sure("ABIA", Class::Upper, 16),
    sure("ACCA", Class::Upper, 16),
    key("ABSK", Class::Padded, 40),
    key("bedrock-api-key-", Class::Padded, 20),
    key("AIza", Class::Word, 30),
    key("GOCSPX-", Class::Word, 20),
    token("ya29.", Class::Dotted, 20),
    token("1//0", Class::Word, 30),
    key("LTAI", Class::Alnum, 12),
    key("AKID", Class::Alnum, 28),
    key("AKLT", Class::Padded, 20),
    key("bce-v3/ALTAK-", Class::Padded, 40),
    mixed("AQVN", Class::Word, 30),
    mixed("t1.9", Class::Dotted, 80),
    token("sha256~", Class::Word, 40),
    key("v1.0-", Class::Word, 100),
    mixed("K00", Class::Base64, 27),
    mixed("4b1d", Class::Alnum, 38),
    token("ddp_", Class::Alnum, 30),
    key("napi_", Class::Alnum, 40),
    token("vcp_", Class::Alnum, 24),
    token("dop_v1_", Class::Alnum, 32),
    token("doo_v1_", Class::Alnum, 32),
    token("dor_v1_", Class::Alnum, 32),
    key("HRKU-", Class::Word, 30),
    token("fo1_", Class::Word, 20),
    token("fm1r_", Class::Padded, 20),
    token("fm1a_", Class::Padded, 20),
    token("fm2_", Class::Padded, 20),
    token("nfp_", Class::Alnum, 30),
    key("rnd_", Class::Alnum, 24),
    token("tskey-", Class::Word, 16),
    // Code hosting and package registries.
    token("ghp_", Class::Word, 20),
    token("gho_", Class::Word, 20),
    token("ghu_", Class::Word, 20),
    token("ghs_", Class::Word, 20),
    token("ghr_", Class::Word, 20),
    token("github_pat_", Class::Word, 22),
    token("glpat-", Class::Dotted, 16),
    token("gldt-", Class::Word, 16),
    token("glrt-", Class::Dotted, 16),
    token("glptt-", Class::Word, 16),
    token("glcbt-", Class::Word, 16),
    token("GR1348941", Class::Word, 18),
    token("glft-", Class::Word, 16),
    token("glimt-", Class::Word, 16),
    token("glagent-", Class::Word, 16),
    token("gloas-", Class::Word, 16),
    token("glsoat-", Class::Word, 16),
    token("glffct-", Class::Word, 16),
    token("ATATT3", Class::Padded, 40),
    token("ATCTT3", Class::Padded, 40),
    token("ATBB", Class::Padded, 24),
    token("npm_", Class::Alnum, 30),
    token("pypi-", Class::Word, 32),
    token("cio", Class::Alnum, 32),
    key("rubygems_", Class::Hex, 32),
    token("oy2", Class::Alnum, 43),
    token("dckr_pat_", Class::Word, 20),
    token("dckr_oat_", Class::Word, 20),
    token("CCIPAT_", Class::Word, 20),
    token("bkua_", Class::Alnum, 32),
    token("sqp_", Class::Alnum, 32),
    token("squ_", Class::Alnum, 32),
    token("sqa_", Class::Alnum, 32),
    key("AKCp", Class::Alnum, 60),
    token("cmVmdGtu", Class::Alnum, 48),
    token("sgp_", Class::Word, 40),
    sure("API-", Class::Upper, 26),
    mixed("pat.", Class::Dotted, 60),
    mixed("sat.", Class::Dotted, 60),
    key("ico-", Class::Alnum, 32),
    token("rdme_", Class::Alnum, 60),
    token("pnu_", Class::Alnum, 30),
    token("tk-us-", Class::Word, 40),
    uuid("api-"),
    uuid("sdk-"),
    uuid("mob-"),
    token("CLOJARS_", Class::Alnum, 40),
    // Databases and platforms.
    token("dapi", Class::Hex, 32),
    token("pscale_tkn_", Class::Dotted, 20),
    token("pscale_pw_", Class::Dotted, 20),
    token("pscale_oauth_", Class::Dotted, 20),
    token("sbp_", Class::Alnum, 32),
    key("sb_secret_", Class::Word, 16),
    token("hvs.", Class::Word, 20),
    token("hvb.", Class::Word, 20),
    token("dp.pt.", Class::Alnum, 32),
    token("dp.st.", Class::Dotted, 32),
    token("dp.ct.", Class::Alnum, 32),
    token("dp.sa.", Class::Alnum, 32),
    token("ops_ey", Class::Padded, 100),
    token("pul-", Class::Hex, 32),
    token("dt0c01.", Class::Dotted, 40),
    // Monitoring and observability.
    token("glsa_", Class::Word, 24),
    token("glc_", Class::Padded, 24),
    key("NRAK-", Class::Alnum, 20),
    key("NRII-", Class::Word, 20),
    key("NRJS-", Class::Hex, 16),
    token("sntrys_", Class::Padded, 32),
    token("sntryu_", Class::Alnum, 32),
    key("PMAK-", Class::Word, 32),
    // Messaging, commerce and office services.
    token("xoxb-", Class::Word, 16),
    token("xoxp-", Class::Word, 16),
    token("xoxa-", Class::Word, 16),
    token("xoxr-", Class::Word, 16),
    token("xoxs-", Class::Word, 16),
    token("xoxe-", Class::Word, 16),
    token("xoxe.xox", Class::Word, 16),
    token("xoxd-", Class::Bearer, 16),
    token("xoxc-", Class::Word, 16),
    token("xapp-", Class::Word, 16),
    key("SG.", Class::Dotted, 40),
    key("key-", Class::Hex, 32),
    key("xkeysib-", Class::Word, 40),
    key("lin_api_", Class::Alnum, 30),
    key("lin_oauth_", Class::Alnum, 30),
    key("ntn_", Class::Alnum, 30),
    key("secret_", Class::Alnum, 32),
    token("figd_", Class::Word, 24),
    token("shpat_", Class::Hex, 24),
    token("shpss_", Class::Hex, 24),
    token("shpca_", Class::Hex, 24),
    token("shppa_", Class::Hex, 24),
    token("sq0atp-", Class::Word, 20),
    token("sq0csp-", Class::Word, 20),
    mixed("EAA", Class::Word, 50),
    mixed("re_", Class::Word, 30),
    token("rzp_live_", Class::Alnum, 14),
    token("rzp_test_", Class::Alnum, 14),
    token("pdl_live_apikey_", Class::Word, 30),
    token("pdl_sdbx_apikey_", Class::Word, 30),
    token("access-sandbox-", Class::Word, 32),
    token("access-development-", Class::Word, 32),
    token("duffel_test_", Class::Word, 32),
    token("FLWSECK_", Class::Word, 16),
    key("EZAK", Class::Alnum, 50),
    key("EZTK", Class::Alnum, 50),
    mixed("AQE", Class::Padded, 100),
    token("AAAAAAAAAAAAAAAAAAAAA", Class::Bearer, 60),
    mixed("sl.", Class::Dotted, 100),
    uuid("pat-na1-"),
    uuid("pat-eu1-"),
    token("fio-u-", Class::Word, 50),
    token("dnkey-", Class::Word, 50),
    key("p8e-", Class::Alnum, 30),
    token("sm_aat_", Class::Alnum, 16),
    token("sm_pat_", Class::Alnum, 16),
    token("sm_sat_", Class::Alnum, 16),
    token("s-s4t2ud-", Class::Hex, 60),
    token("s-s4t2af-", Class::Hex, 60),
    token("EAACEdEose0cBA", Class::Alnum, 10),
    token("CFPAT-", Class::Word, 32),
    token("duffel_live_", Class::Word, 32),
    token("FLWSECK-", Class::Word, 12),
    token("shippo_live_", Class::Hex, 32),
    token("tfp_", Class::Dotted, 32),
    token("access-production-", Class::Word, 32),
    sure("AGE-SECRET-KEY-1", Class::Upper, 50),
];

/// The most bytes of a body that are examined.
const BODY_MAX: usize = 64;

/// The token whose prefix is at `start..end`.
pub(super) fn find(
    text: &ScanText<'_>,
    start: usize,
    end: usize,
    token: &TokenFormat,
) -> Option<Replacement> {
    if !text.word_starts(start) || !text.starts(start, token.prefix.as_bytes()) {
        return None;
    }
    let mut stop = text.run(token.class, end);
    while stop > end && text.before(stop) == b'.' {
        stop -= 1;
    }
    let long_enough = stop >= end + token.least;
    if !long_enough || Class::Alnum.has(text.at(stop)) {
        return None;
    }
    let body = text.slice(end, stop.min(end + BODY_MAX));
    let fits = match token.looks {
        BodyShape::Random => looks_random(body),
        BodyShape::Mixed => is_mixed(body) || is_jumpy(body),
        BodyShape::Uuid => is_uuid(body),
        BodyShape::Any => true,
    };
    fits.then(|| Replacement::new(start, stop, token.marker))
}

/// Whether a body contains a digit and both cases.
pub(super) fn is_mixed(body: &[u8]) -> bool {
    let has = |test: fn(&u8) -> bool| body.iter().any(test);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// The least number of irregular runs in long random letters.
const JUMPY_MIN: usize = 5;

/// Whether long letters change their case too irregularly for words joined by camel case.
pub(super) fn is_jumpy(body: &[u8]) -> bool {
    body.len() >= 24 && irregular_runs(body) >= JUMPY_MIN
}

/// The number of small letters between other characters, and of runs of two capitals or more.
pub(super) fn irregular_runs(key: &[u8]) -> usize {
    let sort = |byte: &u8| (byte.is_ascii_lowercase(), byte.is_ascii_uppercase());
    key.chunk_by(|one, next| sort(one) == sort(next))
        .filter(|run| match run[0] {
            b'a'..=b'z' => run.len() == 1,
            b'A'..=b'Z' => run.len() >= 2,
            _ => false,
        })
        .count()
}

/// Whether a body starts with a UUID.
fn is_uuid(body: &[u8]) -> bool {
    body.len() >= 36
        && body[..36].iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Whether a body is more than a word: it contains a digit, or both cases.
pub(super) fn looks_random(body: &[u8]) -> bool {
    let (mut upper, mut lower) = (false, false);
    for byte in body {
        upper |= byte.is_ascii_uppercase();
        lower |= byte.is_ascii_lowercase();
        if byte.is_ascii_digit() || (upper && lower) {
            return true;
        }
    }
    false
}

/// `eyJ….eyJ….…`: a signed or encrypted JSON token of at least two parts.
pub(super) fn jwt(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if !text.word_starts(start) || !text.starts(start, b"eyJ") {
        return None;
    }
    let head = text.run(Class::Word, end);
    if head < end + 8
        || text.at(head) != b'.'
        || text.run_within(Class::Word, head + 1, 4) < head + 5
    {
        return None;
    }
    let mut stop = text.run(Class::Dotted, start);
    while text.before(stop) == b'.' {
        stop -= 1;
    }
    Some(Replacement::new(start, stop, Marker::Token))
}

/// `hooks.slack.com/services/…` and similar: the path is the secret, the host is not.
pub(super) fn webhook(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let path = |index: usize| {
        let byte = text.at(index);
        Class::Base64.has(byte) || byte == b'.' || byte == b'@'
    };
    if Class::Alnum.has(text.before(start)) || text.at(end) == b'[' {
        return None;
    }
    let mut stop = end;
    while path(stop) {
        stop += 1;
    }
    while text.before(stop) == b'.' {
        stop -= 1;
    }
    (stop >= end + 16).then(|| Replacement::new(end, stop, Marker::Webhook))
}

/// Terraform: fourteen letters and digits, `.atlasv1.`, then the body. Found by its middle.
pub(super) fn terraform(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let head = text.run_back(Class::Alnum, start, 24);
    let stop = text.run(Class::Word, end);
    (start >= head + 10 && stop >= end + 32).then(|| Replacement::new(head, stop, Marker::Token))
}

/// Azure client secrets: three characters, a digit, `Q~`, then the body. Found by `Q~`.
pub(super) fn azure_client(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let exact = text.starts(start, b"Q~") && text.before(start).is_ascii_digit();
    let head = text.run_back(Class::Dotted, start, 4);
    if !exact || start != head + 4 || !text.word_starts(head) {
        return None;
    }
    let stop = text.run(Class::Bearer, end);
    (stop >= end + 31).then(|| Replacement::new(head, stop, Marker::Secret))
}

/// Salesforce: the id of an organisation, `!`, then the body. Found by the id's start.
pub(super) fn salesforce(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if !text.word_starts(start) || !text.starts(start, b"00D") {
        return None;
    }
    let bang = text.run_within(Class::Alnum, end, 16);
    if text.at(bang) != b'!' || bang < end + 12 {
        return None;
    }
    let stop = text.run(Class::Bearer, bang + 1);
    (stop >= bang + 60).then(|| Replacement::new(start, stop, Marker::Token))
}

/// Braintree: `access_token$production$`, a name and 32 hex digits. Found by its start.
pub(super) fn braintree(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let part = |at: usize| text.run_within(Class::Alnum, at, 64);
    let place = part(end);
    let name = part(place + 1);
    let stop = part(name + 1);
    let dollars = text.at(place) == b'$' && text.at(name) == b'$';
    (dollars && stop >= name + 20).then(|| Replacement::new(start, stop, Marker::Token))
}

/// MaxMind: six characters, 29 characters, `_mmk`. Found by its end.
pub(super) fn maxmind(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let head = text.run_back(Class::Word, start, 40);
    let exact = start == head + 36 && text.at(head + 6) == b'_' && !Class::Word.has(text.at(end));
    exact.then(|| Replacement::new(head, end, Marker::ApiKey))
}
