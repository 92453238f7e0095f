//! Mutates inputs: bits, numbers, pieces of other inputs, and words that parsers look for.

/// A seeded random number generator.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The same seed gives the same sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `sides`; 0 if `sides` is 0.
    pub fn below(&mut self, sides: usize) -> usize {
        let sides = u64::try_from(sides).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.bits() % sides).unwrap_or(0)
    }

    /// A random element of `all`, which must not be empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Words that parsers treat specially or often mishandle.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xe4\xb8\x8d",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e400",
    b"-0.0",
    b"9223372036854775807",
    b"18446744073709551615",
    b"18446744073709551616",
    b"{\"a\":{\"a\":{\"a\":",
    b"[[[[[[[[",
    b"\"id\":",
    b"\"type\":",
    b"\"method\":",
    b"\"params\":",
    b"\"result\":",
    b"\"error\":",
    b"\"$ref\":\"#\"",
    b"\"$ref\":\"http://127.0.0.1:1/\"",
    b"\"pattern\":\"(a+)+$\"",
    b"\"anyOf\":[",
    b"\"default\":",
    b"\"enum\":[",
    b"\"required\":[\"a\"]",
    b"data: ",
    b"event: ",
    b"data: [DONE]",
    b"---\n",
    b"%PDF-1.4\n",
    b"stream\n",
    b"endstream",
    b"<script>",
    b"<!--",
    b"</",
    b"&#x110000;",
    b"![](",
    b"```",
    b"|",
    b"../",
    b"%2e%2e%2f",
    b"dpe://",
    b"://",
    b"?",
    b"#",
    b"&",
    b"=",
    b"sk-ant-api03-",
    b"password=",
    b"-----BEGIN PRIVATE KEY-----",
    b"eyJhbGciOi",
    b"51-[",
    b"42[\"",
    b"0{\"sid\":",
    b"client:tool_call",
    b"user.message",
];

/// Upper bound for the length of an input.
const BYTES_MAX: usize = 64 * 1024;

/// Generates inputs from a corpus.
#[derive(Debug)]
pub struct Mutator<'a> {
    corpus: &'a [Vec<u8>],
    dice: SeededRng,
}

impl<'a> Mutator<'a> {
    /// The same corpus and seed give the same inputs.
    #[must_use]
    pub fn new(corpus: &'a [Vec<u8>], seed: u64) -> Self {
        Self { corpus, dice: SeededRng::new(seed) }
    }

    /// The next input: an element of the corpus with a few mutations.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = match self.corpus {
            [] => Vec::new(),
            corpus => self.dice.pick(corpus).clone(),
        };
        for _ in 0..=self.dice.below(6) {
            self.change(&mut input);
        }
        input.truncate(BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let dice = &mut self.dice;
        let at = dice.below(input.len() + 1);
        match dice.below(10) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = u8::try_from(dice.below(256)).unwrap_or(0),
            2 => drop(input.splice(at..at, dice.pick(WORDS).iter().copied())),
            3 => {
                let end = (at + 1 + dice.below(24)).min(input.len());
                drop(input.drain(at.min(end)..end));
            }
            4 => input.truncate(at),
            5 => {
                let end = (at + 1 + dice.below(64)).min(input.len());
                let piece = input[at.min(end)..end].repeat(1 + dice.below(4));
                drop(input.splice(at..at, piece));
            }
            // Repetition, for deep, long or numerous structures.
            6 if dice.below(8) == 0 => {
                let word = *dice.pick(WORDS);
                let times = 1 << dice.below(12);
                drop(input.splice(at..at, word.repeat(times)));
            }
            7 if !self.corpus.is_empty() => {
                let other = dice.pick(self.corpus);
                let from = dice.below(other.len() + 1);
                let to = (from + dice.below(200)).min(other.len());
                drop(input.splice(at..at, other[from..to].iter().copied()));
            }
            8 => number(input, at, dice),
            _ => {
                let word = *dice.pick(WORDS);
                let end = (at + word.len()).min(input.len());
                drop(input.splice(at..end, word.iter().copied()));
            }
        }
    }
}

/// Replaces the number at `at` by another.
fn number(input: &mut Vec<u8>, at: usize, dice: &mut SeededRng) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = input[at..].iter().position(is_digit).map(|found| at + found) else { return };
    let end =
        input[start..].iter().position(|byte| !is_digit(byte)).map_or(input.len(), |n| start + n);
    let numbers: [&[u8]; 8] = [
        b"0",
        b"1",
        b"255",
        b"65536",
        b"4294967296",
        b"9223372036854775807",
        b"18446744073709551615",
        b"1e999",
    ];
    drop(input.splice(start..end, dice.pick(&numbers).iter().copied()));
}
