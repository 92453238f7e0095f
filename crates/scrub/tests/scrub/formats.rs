//! Secrets that are drawn at random from the formats of `corpus/formats.txt`, and the settings they are planted in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

const FORMATS: &str = include_str!("../corpus/formats.txt");

/// The seed of every run; `BUDAO_SEED` sets another.
const SEED: u64 = 20_261_116;

pub(crate) fn seed() -> u64 {
    std::env::var("BUDAO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED)
}

/// A drawn secret in the text that its format needs.
pub(crate) struct DrawnSecret {
    pub(crate) format: &'static str,
    pub(crate) text: String,
    /// The parts of the text that must not appear anywhere.
    pub(crate) hidden: Vec<String>,
}

/// `examples` secrets of every format.
pub(crate) fn draw(seed: u64, examples: usize) -> Vec<DrawnSecret> {
    let mut bits = Bits(seed);
    let lines = FORMATS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let formats = lines.map(|line| line.split_once('\t').expect("a name, a tab and a text"));
    formats
        .flat_map(|(format, template)| (0..examples).map(move |_| (format, template)))
        .map(|(format, template)| drawn(format, template, &mut bits))
        .collect()
}

fn drawn(format: &'static str, template: &str, bits: &mut Bits) -> DrawnSecret {
    let (mut text, mut hidden) = (String::new(), Vec::new());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('‹') {
        text.push_str(&filled(before, bits));
        let (secret, after) = after.split_once('›').expect("a closed secret");
        let secret = filled(secret, bits);
        text.push_str(&secret);
        hidden.extend(secret.split('\n').map(str::to_owned));
        rest = after;
    }
    text.push_str(&filled(rest, bits));
    DrawnSecret { format, text, hidden }
}

/// A template with its fields drawn.
fn filled(template: &str, bits: &mut Bits) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let close = open + rest[open..].find('}').expect("a closed field");
        match field(&rest[open + 1..close], bits) {
            Some(field) => out.push_str(&field),
            None => out.push_str(&rest[open..=close]),
        }
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    out.replace("\\n", "\n")
}

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";

/// What a field of a template becomes; `None` if it is no field.
fn field(field: &str, bits: &mut Bits) -> Option<String> {
    let (class, length) = field.split_once(':').unwrap_or((field, "0"));
    let length = length.parse().ok()?;
    let alphabet = match class {
        "hex" => "0123456789abcdef".to_owned(),
        "lo" => [LOWER, DIGITS].concat(),
        "an" => [LOWER, UPPER, DIGITS].concat(),
        "AN" => [UPPER, DIGITS].concat(),
        "w" => [LOWER, UPPER, DIGITS, "_-"].concat(),
        "b64" | "aws" => [LOWER, UPPER, DIGITS, "+/"].concat(),
        "d" => DIGITS.to_owned(),
        "d1" => "123456789".to_owned(),
        "pk" => return Some(["PRI", "VATE KEY"].concat()),
        "uuid" => return Some(uuid(bits)),
        "pw" => return Some(password(bits)),
        "user" => return Some(format!("svc_{}", bits.string(LOWER, 7))),
        "db" => return Some(format!("orders_{}", bits.string(LOWER, 6))),
        "host" => return Some(host(bits)),
        _ => return None,
    };
    Some(bits.body(&alphabet, length))
}

fn uuid(bits: &mut Bits) -> String {
    let mut part = |length| bits.string("0123456789abcdef", length);
    format!("{}-{}-4{}-a{}-{}", part(8), part(4), part(3), part(3), part(12))
}

/// Letters, digits and a sign, as password managers make them.
fn password(bits: &mut Bits) -> String {
    let alphabet = [LOWER, UPPER, DIGITS].concat();
    let (head, tail) = (bits.string(&alphabet, 7), bits.string(&alphabet, 6));
    let sign = bits.string("!+*_-.~^", 1);
    format!("{head}{sign}{}{}{tail}", bits.string(LOWER, 1), bits.string(DIGITS, 1))
}

fn host(bits: &mut Bits) -> String {
    let name = bits.string(LOWER, 8);
    let domain = ["internal", "example.com", "prod.example.net", "svc.cluster.local", "corp"];
    format!("db-{name}.{}", domain[bits.below(domain.len())])
}

/// Pseudo-random numbers (splitmix64): the same ones for a seed, on every machine.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap()
    }

    fn string(&mut self, alphabet: &str, length: usize) -> String {
        let alphabet = alphabet.as_bytes();
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }

    /// A body that starts and ends with a letter or digit, as issued keys do.
    fn body(&mut self, alphabet: &str, length: usize) -> String {
        loop {
            let body = self.string(alphabet, length);
            let edge = |char: Option<char>| char.is_some_and(|it| it.is_ascii_alphanumeric());
            if edge(body.chars().next()) && edge(body.chars().last()) {
                return body;
            }
        }
    }
}

/// The text in every setting that can hold it, in English and in Chinese.
pub(crate) fn settings(text: &str) -> Vec<(&'static str, String)> {
    let inner = json!({ "detail": text, "code": 7 }).to_string();
    let mut all = vec![
        ("JSON", json!({ "code": 7, "detail": text, "ok": false }).to_string()),
        ("escaped JSON", json!({ "message": inner }).to_string()),
        ("Debug output", format!("Error {{ code: 7, detail: {text:?} }}")),
        ("after a line", format!("the call failed:\n{text}\ngave up")),
        ("base64", STANDARD.encode(format!("the call failed: {text}\n"))),
        ("lines of a log", format!("10:11:12 INFO start\n{text}\n10:11:13 INFO end\n")),
        ("Chinese lines", format!("调用失败，详情如下：\n{text}\n已放弃。")),
        ("diff", format!("@@ -1,2 +1,2 @@\n mode=fast\n+{text}\n next=1\n")),
        ("JSON list", json!(["first", text, "last"]).to_string()),
        ("pretty JSON", format!("{:#}", json!({ "ok": false, "note": text }))),
    ];
    if !text.contains('\n') {
        all.extend(one_line(text));
    }
    all
}

/// The settings of a text in one line.
fn one_line(text: &str) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("English sentence", format!("The call failed with {text} and was retried.")),
        ("end of a sentence", format!("We saw {text}.")),
        ("Chinese sentence", format!("请求失败，原因：{text}，请联系管理员。")),
        ("Chinese words", format!("使用 {text} 时出错")),
        ("Chinese brackets", format!("配置有误（{text}）。")),
        ("YAML", format!("settings:\n  mode: fast\n  value: {text}\n  next: true\n")),
        ("log line", format!("2026-03-01T10:11:12Z ERROR db: failed detail=\"{text}\" attempt=2")),
        ("Python exception", format!("ValueError: cannot use {text}")),
    ];
    if !text.contains(['"', '\'', '`', '<', '\\']) {
        all.extend([
            (".env file", format!("MODE=fast\nSETTING={text}\nNEXT=1\n")),
            ("shell", format!("$ tool --note '{text}' --fast")),
            ("Python repr", format!("Config(mode='fast', value='{text}', retries=3)")),
            ("XML", format!("<entry><mode>fast</mode><value>{text}</value></entry>")),
            ("HTTP header", format!("Accept: */*\r\nX-Note: {text}\r\nHost: example.com\r\n")),
            ("Markdown", format!("see `{text}`, then go on")),
            ("TOML", format!("mode = \"fast\"\nvalue = \"{text}\"\n")),
        ]);
    }
    if !text.contains([' ', '"', '\'', '&', '?']) {
        all.push((
            "URL query",
            format!("GET https://api.vendor.test/v1?page=2&note={text} failed"),
        ));
    }
    all
}
