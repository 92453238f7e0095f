//! The watermark file beside the journal: it holds the highest numbers in use, so that a lost end is detected.
//!
//! The writer updates it after each durable commit, without a sync. So it may be behind the journal but is ahead only
//! if the journal lost acknowledged data: a damaged write-ahead log, a disk that lied about a sync, an old copy
//! restored in place. A missing or unreadable watermark is ignored.

use std::{
    fs::{File, OpenOptions},
    io::{Error, ErrorKind, Read as _},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::files::{open_regular, open_regular_with};

const MAGIC: [u8; 8] = *b"budaowmk";
const SIZE: usize = 60;

/// Upper bound for a plausible number; a higher one is ignored, since numbers after it could overflow.
const NUMBER_MAX: i64 = 1 << 53;

/// The highest numbers that a journal has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watermark {
    /// Number of the last batch.
    pub(crate) batch_id: i64,
    /// Number of the last command.
    pub(crate) inbox: i64,
    /// The last lease token issued.
    pub(crate) token: i64,
    /// Number of the last stored output.
    pub(crate) blob: i64,
}

impl Watermark {
    /// Whether any number is lower than that of `other`.
    pub(crate) fn is_behind(self, other: Self) -> bool {
        self.batch_id < other.batch_id
            || self.inbox < other.inbox
            || self.token < other.token
            || self.blob < other.blob
    }

    /// The first number that is lower than that of `acknowledged`, in words; `None` if no number is.
    pub(crate) fn describe_loss(self, acknowledged: Self) -> Option<String> {
        let numbers = [
            ("batch", acknowledged.batch_id, self.batch_id),
            ("command", acknowledged.inbox, self.inbox),
            ("lease token", acknowledged.token, self.token),
            ("stored output", acknowledged.blob, self.blob),
        ];
        let (name, recorded, found) = numbers.into_iter().find(|(_, old, new)| new < old)?;
        Some(format!("acknowledged {name} {recorded}, last {name} found {found}"))
    }
}

/// The open watermark file of a journal.
#[derive(Debug)]
pub(super) struct WatermarkFile {
    file: Option<File>,
    journal: [u8; 16],
    last: Watermark,
}

pub(super) fn path_of(journal: &Path) -> PathBuf {
    with_suffix(journal, "-watermark")
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Reads the watermark of this journal; `None` if it is absent, unreadable or of another journal.
pub(super) fn read(journal: &Path, id: [u8; 16]) -> Option<Watermark> {
    // The read is bounded: a foreign file under this name may be of any size.
    let mut bytes = Vec::new();
    let file = open_regular(&path_of(journal)).ok()?;
    file.take(SIZE as u64 + 1).read_to_end(&mut bytes).ok()?;
    decode(&bytes, id)
}

/// Whether a file beside the journal begins like a watermark.
pub(super) fn exists_beside(journal: &Path) -> bool {
    open_regular(&path_of(journal)).is_ok_and(|file| has_magic(&file).is_ok_and(|it| it))
}

fn has_magic(file: &File) -> std::io::Result<bool> {
    let mut magic = [0; MAGIC.len()];
    Ok(file.read_at(&mut magic, 0)? == MAGIC.len() && magic == MAGIC)
}

/// Decodes a watermark; `None` if the bytes are invalid or belong to another journal.
pub(crate) fn decode(bytes: &[u8], id: [u8; 16]) -> Option<Watermark> {
    let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum)
        || content[..8] != MAGIC
        || content[8..24] != id
    {
        return None;
    }
    let number = |at: usize| {
        let number = i64::from_le_bytes(content.get(at..at + 8)?.try_into().ok()?);
        (0..=NUMBER_MAX).contains(&number).then_some(number)
    };
    Some(Watermark {
        batch_id: number(24)?,
        inbox: number(32)?,
        token: number(40)?,
        blob: number(48)?,
    })
}

/// Encodes a watermark as it is stored in the file.
pub(crate) fn encode(mark: Watermark, id: [u8; 16]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..24].copy_from_slice(&id);
    bytes[24..32].copy_from_slice(&mark.batch_id.to_le_bytes());
    bytes[32..40].copy_from_slice(&mark.inbox.to_le_bytes());
    bytes[40..48].copy_from_slice(&mark.token.to_le_bytes());
    bytes[48..56].copy_from_slice(&mark.blob.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..56]);
    bytes[56..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

impl WatermarkFile {
    /// Opens the file for writing. The journal works without it, but cannot detect a lost end. A file under its name
    /// that is neither empty nor a watermark is left unchanged.
    pub(super) fn open(journal: &Path, id: [u8; 16]) -> Self {
        let path = path_of(journal);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open_regular_with(&path, &mut options).and_then(|file| {
            if file.metadata()?.len() == 0 || has_magic(&file)? {
                return Ok(file);
            }
            Err(Error::new(ErrorKind::AlreadyExists, "a file of another program"))
        });
        if let Err(error) = &file {
            tracing::warn!(
                %error, path = %path.display(),
                "opening watermark failed, lost data would go unnoticed"
            );
        }
        Self { file: file.ok(), journal: id, last: Watermark::default() }
    }

    /// Writes the watermark, if it has changed.
    pub(super) fn record(&mut self, mark: Watermark) {
        let Some(file) = self.file.as_ref().filter(|_| mark != self.last) else { return };
        if let Err(error) = file.write_all_at(&encode(mark, self.journal), 0) {
            tracing::debug!(%error, "writing watermark failed");
        }
        self.last = mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_behind_if_any_of_its_numbers_is() {
        let seen = Watermark { batch_id: 5, inbox: 5, token: 5, blob: 5 };
        assert!(!seen.is_behind(seen));
        for behind in [
            Watermark { batch_id: 4, ..seen },
            Watermark { inbox: 4, ..seen },
            Watermark { token: 4, ..seen },
            Watermark { blob: 4, ..seen },
        ] {
            assert!(behind.is_behind(seen), "{behind:?}");
            assert!(!seen.is_behind(behind), "{behind:?}");
        }
    }

    #[test]
    fn a_watermark_counts_only_if_it_is_complete_and_of_its_own_journal() {
        let directory = tempfile::tempdir().expect("a folder");
        let journal = directory.path().join("journal.db");
        let mark = Watermark { batch_id: 1, inbox: 2, token: 3, blob: 4 };
        WatermarkFile::open(&journal, [7; 16]).record(mark);
        assert_eq!(read(&journal, [7; 16]), Some(mark));
        assert_eq!(read(&journal, [8; 16]), None, "of another journal");
        let whole = std::fs::read(path_of(&journal)).expect("it was written");
        // Altered with a matching checksum, and without.
        for (at, is_resealed) in [(0, true), (30, false)] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            if is_resealed {
                let checksum = crc32fast::hash(&bytes[..56]);
                bytes[56..].copy_from_slice(&checksum.to_le_bytes());
            }
            std::fs::write(path_of(&journal), &bytes).expect("it can be written");
            assert_eq!(read(&journal, [7; 16]), None, "byte {at}");
        }
        for number in [i64::MAX, NUMBER_MAX + 1, -1] {
            let bytes = encode(Watermark { token: number, ..mark }, [7; 16]);
            std::fs::write(path_of(&journal), bytes).expect("it can be written");
            assert_eq!(read(&journal, [7; 16]), None, "nothing comes after {number}");
        }
        std::fs::write(path_of(&journal), [&whole[..], b"x"].concat()).expect("it can be written");
        assert_eq!(read(&journal, [7; 16]), None, "longer than it can be");
    }
}
