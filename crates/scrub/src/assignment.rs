//! Names that mark their value as secret: `password=…`, `"api_key": "…"`, `--token …`, `密码：…`.

use super::replacement::{Marker, Replacement, marker_at};
use super::text::{Class, ScanText};
use super::value::{self, Binding, NameEvidence, ValueContext, ValueSpan};

/// A word that, at the end of a name, marks the value as secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretKeyword {
    pub(super) literal: &'static str,
    says: NameEvidence,
    marker: Marker,
}

const fn word(literal: &'static str, says: NameEvidence, marker: Marker) -> SecretKeyword {
    SecretKeyword { literal, says, marker }
}

/// The keywords, in lower case.
#[rustfmt::skip]
pub(super) const WORDS: &[SecretKeyword] = &[
    word("password", NameEvidence::Password, Marker::Password),
    word("passwd", NameEvidence::Password, Marker::Password),
    word("passphrase", NameEvidence::Password, Marker::Password),
    word("passcode", NameEvidence::Password, Marker::Password),
    word("_pass", NameEvidence::Password, Marker::Password),
    word("-pass", NameEvidence::Password, Marker::Password),
    word("pwd", NameEvidence::Password, Marker::Password),
    word("pw", NameEvidence::Password, Marker::Password),
    word("密码", NameEvidence::Password, Marker::Password),
    word("口令", NameEvidence::Password, Marker::Password),
    word("api_key", NameEvidence::Key, Marker::ApiKey),
    word("apikey", NameEvidence::Key, Marker::ApiKey),
    word("api-key", NameEvidence::Key, Marker::ApiKey),
    word("api key", NameEvidence::Key, Marker::ApiKey),
    word("access_key", NameEvidence::Key, Marker::ApiKey),
    word("accesskey", NameEvidence::Key, Marker::ApiKey),
    word("access-key", NameEvidence::Key, Marker::ApiKey),
    word("accountkey", NameEvidence::Key, Marker::ApiKey),
    word("account_key", NameEvidence::Key, Marker::ApiKey),
    word("authkey", NameEvidence::Key, Marker::ApiKey),
    word("auth_key", NameEvidence::Key, Marker::ApiKey),
    word("auth-key", NameEvidence::Key, Marker::ApiKey),
    word("functions-key", NameEvidence::Key, Marker::ApiKey),
    word("key_secret", NameEvidence::Key, Marker::Secret),
    word("keysecret", NameEvidence::Key, Marker::Secret),
    word("sdk_sk", NameEvidence::Key, Marker::Secret),
    word("private-token", NameEvidence::Key, Marker::Token),
    word("private_token", NameEvidence::Key, Marker::Token),
    word("subscription-key", NameEvidence::Key, Marker::ApiKey),
    word("app_key", NameEvidence::Key, Marker::ApiKey),
    word("appkey", NameEvidence::Key, Marker::ApiKey),
    word("application_key", NameEvidence::Key, Marker::ApiKey),
    word("private_key", NameEvidence::Key, Marker::PrivateKey),
    word("privatekey", NameEvidence::Key, Marker::PrivateKey),
    word("private-key", NameEvidence::Key, Marker::PrivateKey),
    word("signing_key", NameEvidence::Key, Marker::Secret),
    word("encryption_key", NameEvidence::Key, Marker::Secret),
    word("encryptionkey", NameEvidence::Key, Marker::Secret),
    word("master_key", NameEvidence::Key, Marker::Secret),
    word("accesstoken", NameEvidence::Key, Marker::Token),
    word("access_token", NameEvidence::Key, Marker::Token),
    word("access-token", NameEvidence::Key, Marker::Token),
    word("refresh_token", NameEvidence::Key, Marker::Token),
    word("refreshtoken", NameEvidence::Key, Marker::Token),
    word("auth_token", NameEvidence::Key, Marker::Token),
    word("authtoken", NameEvidence::Key, Marker::Token),
    word("auth-token", NameEvidence::Key, Marker::Token),
    word("client_secret", NameEvidence::Key, Marker::Secret),
    word("clientsecret", NameEvidence::Key, Marker::Secret),
    word("client-secret", NameEvidence::Key, Marker::Secret),
    word("app_secret", NameEvidence::Key, Marker::Secret),
    word("corpsecret", NameEvidence::Key, Marker::Secret),
    word("appsecret", NameEvidence::Key, Marker::Secret),
    word("secret", NameEvidence::Weak, Marker::Secret),
    word("token", NameEvidence::Weak, Marker::Token),
    word("credential", NameEvidence::Weak, Marker::Credentials),
    word("密钥", NameEvidence::Weak, Marker::Secret),
    word("令牌", NameEvidence::Weak, Marker::Token),
    word("jsessionid", NameEvidence::Key, Marker::Cookie),
    word("phpsessid", NameEvidence::Key, Marker::Cookie),
    word("sessionid", NameEvidence::Weak, Marker::Cookie),
];

/// Suffixes after the keyword that still leave a secret's name.
#[rustfmt::skip]
const SUFFIXES: [&str; 32] = [
    "key", "key_base", "keybase", "value", "val", "b64", "base64", "plain", "plaintext", "raw",
    "old", "new", "current", "prod", "production", "live", "test", "dev", "staging", "main",
    "default", "primary", "secondary", "text", "txt", "string", "str", "hash_key", "data",
    "confirm", "confirmation", "again",
];

/// Prefixes before `token` that mark a harmless one, for pagination, text processing or counting.
#[rustfmt::skip]
const HARMLESS: [&str; 25] = [
    "next", "page", "prev", "previous", "continuation", "sync", "resume", "eos", "bos", "pad",
    "unk", "sep", "cls", "mask", "special", "stop", "start", "end", "max", "min", "num",
    "cancellation", "input", "output", "publickey",
];

/// Finds the secret that belongs to the name around `start..end`.
pub(super) fn find(
    text: &ScanText<'_>,
    start: usize,
    end: usize,
    word: &SecretKeyword,
) -> Option<Replacement> {
    let name = NameSpan::around(text, start, end)?;
    if !name.is_secret(text, word) {
        return None;
    }
    let (tie, at) = name.tie(text, word)?;
    let (tie, at) = annotated(text, tie, at);
    // `map[X-Api-Key:[…]]`: headers as Go prints them.
    let at =
        at + usize::from(text.at(at) == b'[' && text.before(at) == b':' && !marker_at(text, at));
    let open = opening(text, at);
    // `PWD` is the working directory, not a password.
    if marker_at(text, at)
        || text.starts(name.left, b"PWD=/")
        || text.starts(name.left, b"OLDPWD=/")
    {
        return None;
    }
    let value = read(text, open, value::JUDGED_MAX + 1);
    if value.quoted && !name.is_quoted(text) && closes(text, value.start) {
        return None;
    }
    let case = ValueContext {
        says: word.says,
        tie,
        quoted: value.quoted,
        next: if text.starts(value.end, b"</") { b' ' } else { text.at(value.end) },
        alone: text.line_starts(name.left) && line_ends(text, value.end),
    };
    if !value::is_secret(text.slice(value.start, value.end), case) {
        return None;
    }
    let whole = read(text, open, usize::MAX);
    Some(Replacement::new(whole.start, whole.end, word.marker))
}

/// Whether the quote before `start` closes a string (`prompt="Password: ", …`) instead of opening one.
fn closes(text: &ScanText<'_>, start: usize) -> bool {
    let method = text.at(start) == b'.' && text.at(start + 1).is_ascii_lowercase();
    method || matches!(text.at(start), b',' | b')' | b']' | b'}' | b';' | b' ' | b'\n')
}

/// The value at `open`, quoted or bare, up to `limit` bytes.
fn read(text: &ScanText<'_>, open: usize, limit: usize) -> ValueSpan {
    if is_quote(text, open) {
        value::quoted(text, open, limit)
    } else {
        value::bare(text, open, limit)
    }
}

/// Whether `name` (a JSON key) marks its value as secret, and with which marker.
pub(super) fn secret_name(name: &str) -> Option<(NameEvidence, Marker)> {
    let lower = name.to_ascii_lowercase();
    let text = ScanText::new(lower.as_bytes());
    WORDS.iter().find_map(|word| {
        let start = lower.rfind(word.literal)?;
        let name = NameSpan::around(&text, start, start + word.literal.len())?;
        name.is_secret(&text, word).then_some((word.says, word.marker))
    })
}

/// Whether even a number under this name is a password.
pub(super) fn names_password(name: &str) -> bool {
    secret_name(name).is_some_and(|(says, _)| says == NameEvidence::Password)
}

/// A name in the text, and the end of the keyword in it.
struct NameSpan {
    left: usize,
    word: usize,
    word_end: usize,
    right: usize,
}

const NAME_MAX: usize = 48;
/// How many bytes before the name are searched for `login`.
const NETRC_MAX: usize = 96;
/// The shortest value that a blank alone can tie to its name.
const BLANK_TIED_MIN: usize = 16;

impl NameSpan {
    fn around(text: &ScanText<'_>, start: usize, end: usize) -> Option<Self> {
        let mut left = text.run_back(Class::Word, start, NAME_MAX);
        if text.before(left) == b'\\' && left < start && text.escape_ends(left + 1) {
            left += 1;
        }
        let right = text.run_within(Class::Word, end, NAME_MAX);
        (right < end + NAME_MAX).then_some(Self { left, word: start, word_end: end, right })
    }

    fn is_quoted(&self, text: &ScanText<'_>) -> bool {
        self.close(text).1
    }

    fn is_flag(&self, text: &ScanText<'_>) -> bool {
        let name = text.slice(self.left, self.word_end);
        let apart =
            matches!(text.before(self.left), 0 | b' ' | b'\t' | b'\n' | b'"' | b'\'' | b'`');
        (apart && name.starts_with(b"-")) || name.windows(2).any(|pair| pair == b"--")
    }

    fn is_secret(&self, text: &ScanText<'_>, word: &SecretKeyword) -> bool {
        let suffix = text.slice(self.word_end, self.right);
        let prefix = text.slice(self.left, self.word);
        let bare_pass = matches!(word.literal, "_pass" | "-pass" | "pw");
        let inside = word.literal == "pw" && !matches!(prefix.last(), None | Some(b'_' | b'-'));
        let joined = inside || bare_pass && !suffix.is_empty();
        !joined
            && suffix_keeps(suffix, word.literal)
            && !(word.says == NameEvidence::Weak && is_harmless(text, self.left, prefix))
    }

    /// The binding between the name and a value, and where the value may start.
    fn tie(&self, text: &ScanText<'_>, word: &SecretKeyword) -> Option<(Binding, usize)> {
        let says = word.says;
        let (closed, quoted) = self.close(text);
        let at = text.skip_blanks(closed, 4);
        let spaced = at > closed;
        let sealed = self.is_sealed(text);
        let tight = if sealed { Binding::Sealed } else { Binding::Tight };
        let (tie, next) = match text.at(at) {
            b'=' if matches!(text.at(at + 1), b'=' | b'~') => return None,
            b'=' if text.at(at + 1) == b'>' => (Binding::Spaced, at + 2),
            b'=' if spaced || text.at(at + 1) == b' ' => (Binding::Spaced, at + 1),
            b'=' => (tight, at + 1),
            b':' if text.at(at + 1) == b':' || text.starts(at + 1, b"//") => return None,
            b':' if text.at(at + 1) == b'=' => (Binding::Spaced, at + 2),
            b':' => (Binding::Spaced, at + 1),
            b'%' if text.starts_folded(at, b"%3d") => (Binding::Sealed, at + 3),
            b'%' if text.starts_folded(at, b"%3a") => (Binding::Spaced, at + 3),
            b'\\' if text.starts_folded(at, b"\\u003d") => (Binding::Sealed, at + 6),
            b'>' if self.is_element(text) => (Binding::Sealed, at + 1),
            b',' if quoted && is_quote(text, text.skip_blanks(at + 1, 4)) => {
                (Binding::Phrase, at + 1)
            }
            b'"' | b'\'' if spaced && says == NameEvidence::Password && !quoted => {
                (Binding::Tight, at)
            }
            _ if text.starts(at, "：".as_bytes()) || text.starts(at, "＝".as_bytes()) => {
                (Binding::Spaced, at + 3)
            }
            _ if text.starts(at, "是".as_bytes()) || text.starts(at, "为".as_bytes()) => {
                (Binding::Phrase, at + 3)
            }
            _ if spaced && self.is_flag(text) && text.at(at) != b'-' => (Binding::Tight, at),
            _ if spaced && !quoted => (Binding::Phrase, self.after_words(text, at, word)?),
            _ => return None,
        };
        let next = text.skip_blanks(next, 8);
        Some((tie, block(text, next)))
    }

    /// The start of a value that only a blank or a verb ties to the name.
    fn after_words(&self, text: &ScanText<'_>, at: usize, word: &SecretKeyword) -> Option<usize> {
        let says = word.says;
        let verbs: [&[u8]; 6] =
            [b"is: ", b"is ", b"was ", b"provided: ", b"provided is ", b"used: "];
        if let Some(verb) = verbs.iter().find(|verb| text.starts_folded(at, verb)) {
            return Some(at + verb.len());
        }
        // `machine host login user password …`
        let line = text.slice(self.left.saturating_sub(NETRC_MAX), self.left);
        let netrc =
            says == NameEvidence::Password && memchr::memmem::find(line, b"login ").is_some();
        // `invalid api key 4f3a…`: only its appearance shows that the value is a key.
        let long = text.run_within(Class::Padded, at, BLANK_TIED_MIN) == at + BLANK_TIED_MIN;
        let told = says == NameEvidence::Password && value::is_told(text, at, is_terse(word));
        (netrc || told || (says != NameEvidence::Password && long)).then_some(at)
    }

    /// Whether the name is an element: `<password>…</password>`.
    fn is_element(&self, text: &ScanText<'_>) -> bool {
        let inner = self.right + 1;
        let close = (inner..inner + value::JUDGED_MAX).find(|&at| text.at(at) == b'<');
        text.before(self.left) == b'<' && close.is_some_and(|close| text.at(close + 1) == b'/')
    }

    /// Skips the end of a quoted name: `"password"`, `\"password\"`, `["password"]`, `%22password%22`.
    fn close(&self, text: &ScanText<'_>) -> (usize, bool) {
        if text.starts(self.right, b"%22") {
            return (self.right + 3, true);
        }
        let slashes = text.backslashes(self.right);
        let quote = self.right + slashes;
        if !matches!(text.at(quote), b'"' | b'\'' | b'`') {
            return (self.right, false);
        }
        let bracket = usize::from(text.at(quote + 1) == b']');
        (quote + 1 + bracket, true)
    }

    /// Whether the name is an environment variable or a query parameter.
    fn is_sealed(&self, text: &ScanText<'_>) -> bool {
        let name = text.slice(self.left, self.right);
        let shouted =
            !name.iter().any(u8::is_ascii_lowercase) && name.iter().any(u8::is_ascii_uppercase);
        shouted || matches!(text.before(self.left), b'?' | b'&' | b';')
    }
}

/// Whether a name is rare in sentences, so that even a plain word with a digit after it is a password.
fn is_terse(word: &SecretKeyword) -> bool {
    matches!(word.literal, "passwd" | "pw" | "密码" | "口令")
}

fn suffix_keeps(suffix: &[u8], literal: &str) -> bool {
    let dashes = suffix.iter().take_while(|byte| matches!(byte, b'_' | b'-')).count();
    let bare = &suffix[dashes..];
    let plural = literal == "credential" && suffix.eq_ignore_ascii_case(b"s");
    let digits = bare.iter().all(u8::is_ascii_digit);
    let known = || SUFFIXES.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(bare));
    digits || plural || known()
}

fn is_harmless(text: &ScanText<'_>, left: usize, prefix: &[u8]) -> bool {
    let prefix = prefix.to_ascii_lowercase();
    let stem = prefix.strip_suffix(b"_").or(prefix.strip_suffix(b"-")).unwrap_or(&prefix);
    let parsed = text.ends(left, b"xpected ");
    parsed || HARMLESS.iter().any(|word| stem.ends_with(word.as_bytes()))
}

/// The start of the first line of a YAML block (`|` and a new line).
fn block(text: &ScanText<'_>, at: usize) -> usize {
    if !matches!(text.at(at), b'|' | b'>') {
        return at;
    }
    let sign = at + 1 + usize::from(matches!(text.at(at + 1), b'-' | b'+'));
    text.line_break(sign).map_or(at, |length| text.skip_blanks(sign + length, 32))
}

/// Skips a type between name and value: `password: str = "…"`.
fn annotated(text: &ScanText<'_>, tie: Binding, at: usize) -> (Binding, usize) {
    let typed = |byte: u8| byte.is_ascii_alphanumeric() || b"_<>[]&:.?|".contains(&byte);
    let first = text.at(at);
    if tie != Binding::Spaced || !(first.is_ascii_alphabetic() || first == b'&') {
        return (tie, at);
    }
    let lifetime =
        if text.starts(at, b"&'") { text.run_within(Class::Word, at + 2, 12) + 1 } else { at };
    let end = (lifetime..lifetime + 32).find(|&index| !typed(text.at(index))).unwrap_or(at);
    if text.starts(end, b" = ") { (tie, text.skip_blanks(end + 3, 8)) } else { (tie, at) }
}

fn is_quote(text: &ScanText<'_>, at: usize) -> bool {
    matches!(text.at(at + text.backslashes(at)), b'"' | b'\'' | b'`')
}

/// Skips prefixes of a quote: `b`, `[`, `Some(`, `String::from(`.
fn opening(text: &ScanText<'_>, at: usize) -> usize {
    let mut open = at;
    for _ in 0..3 {
        let next = match text.at(open) {
            b'[' if !marker_at(text, open) => open + 1,
            b'b' | b'r' | b'f' | b'u' | b'@' | b'$' => open + 1,
            byte if byte.is_ascii_uppercase() => {
                let end = (open..open + 40)
                    .find(|&index| !Class::Alnum.has(text.at(index)) && text.at(index) != b':')
                    .unwrap_or(open);
                let end =
                    if text.at(end) == b'_' { text.run_within(Class::Word, end, 16) } else { end };
                if text.at(end) != b'(' {
                    return at;
                }
                end + 1
            }
            _ => break,
        };
        open = next;
        if is_quote(text, open) {
            return open;
        }
    }
    if is_quote(text, open) { open } else { at }
}

fn line_ends(text: &ScanText<'_>, at: usize) -> bool {
    text.line_break(at).is_some() || (text.at(at) == 0 && at >= text.len()) || text.at(at) == b'\r'
}
