//! Names of properties, compared by a few words instead of byte by byte.

/// The name of a property. Names of up to 16 bytes are equal if their length and two words are.
#[derive(Debug)]
pub(super) struct PropertyName {
    name: Box<str>,
    words: (u64, u64),
}

impl PropertyName {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), words: split_words(name.as_bytes()) }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.name
    }

    #[inline]
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.len() == name.len()
            && self.words == split_words(name.as_bytes())
            && (name.len() <= 16 || *self.name == *name)
    }
}

/// The first and the last eight bytes; of a shorter name the first and the last four, or all.
#[inline]
fn split_words(name: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    (name.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)), 0)
}
