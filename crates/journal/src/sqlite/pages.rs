//! Reads the pages of the file without SQLite, for data that SQLite refuses to read.
//!
//! No pointer is trusted. A page is its newest committed copy in the write-ahead log, or else the one in the file. Only
//! leaf pages and their overflow chains are decoded, since these hold the rows.

use std::{collections::HashMap, fs::File, io, os::unix::fs::FileExt, path::Path};

use super::{files::open_regular, inspect::read_header, watermark::with_suffix};

const LEAF_TABLE: u8 = 0x0d;
const LEAF_INDEX: u8 = 0x0a;
/// The longest value assembled from overflow pages, in bytes.
const VALUE_MAX: usize = 256 << 20;

/// The pages of a database and its write-ahead log.
#[derive(Debug)]
pub(super) struct DatabasePages {
    file: File,
    wal: Option<File>,
    /// The offset of each page's newest committed copy in the write-ahead log.
    in_wal: HashMap<u32, u64>,
    pub(super) page_bytes: usize,
    pub(super) count: u32,
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PageValue {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
    Other,
}

impl PageValue {
    pub(super) fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

/// A row of a leaf page: its rowid (0 in an index) and its values.
pub(super) type PageRow = (i64, Vec<PageValue>);

impl DatabasePages {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let mut header = [0; 100];
        let size = file.metadata()?.len();
        let _ = file.read_at(&mut header, 0)?;
        let wal = open_regular(&with_suffix(path, "-wal")).ok();
        let (in_wal, wal_page) = wal.as_ref().map(read_wal).unwrap_or_default();
        let stored_size = usize::from(u16::from_be_bytes([header[16], header[17]]));
        let page_bytes = match stored_size {
            512..=32768 if stored_size.is_power_of_two() => stored_size,
            _ => wal_page.unwrap_or(4096),
        };
        let last_in_wal = in_wal.keys().copied().max().unwrap_or(0);
        let in_file = u32::try_from(size.div_ceil(page_bytes as u64)).unwrap_or(u32::MAX);
        Ok(Self { file, wal, in_wal, page_bytes, count: in_file.max(last_in_wal) })
    }

    /// Reads a page; a short one is padded with zeros.
    pub(super) fn read_page(&self, number: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; self.page_bytes];
        let from_wal = self.wal.as_ref().zip(self.in_wal.get(&number));
        let (file, start) = match from_wal {
            Some((wal, at)) => (wal, *at),
            None => (&self.file, u64::from(number.checked_sub(1)?) * self.page_bytes as u64),
        };
        let mut filled = 0;
        while filled < page.len() {
            match file.read_at(&mut page[filled..], start + filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => filled += count,
            }
        }
        (filled > 0).then_some(page)
    }

    /// The rows of a leaf page; empty for any other page.
    pub(super) fn read_rows(&self, number: u32) -> Vec<PageRow> {
        let Some(page) = self.read_page(number) else { return Vec::new() };
        let start = if number == 1 { 100 } else { 0 };
        let kind = page[start];
        if kind != LEAF_TABLE && kind != LEAF_INDEX {
            return Vec::new();
        }
        let cells = usize::from(u16::from_be_bytes([page[start + 3], page[start + 4]]));
        let cells = cells.min((self.page_bytes - start - 8) / 2);
        (0..cells)
            .filter_map(|index| {
                let at = start + 8 + 2 * index;
                let cell = usize::from(u16::from_be_bytes([*page.get(at)?, *page.get(at + 1)?]));
                self.read_row(&page, cell, kind == LEAF_TABLE)
            })
            .collect()
    }

    fn read_row(&self, page: &[u8], mut at: usize, is_table: bool) -> Option<PageRow> {
        let length = usize::try_from(read_varint(page, &mut at)?).ok()?;
        if length > VALUE_MAX {
            return None;
        }
        let rowid = if is_table { read_varint(page, &mut at)?.cast_signed() } else { 0 };
        let usable = self.page_bytes;
        let most = if is_table { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
        let payload = if length <= most {
            page.get(at..at + length)?.to_vec()
        } else {
            let least = (usable - 12) * 32 / 255 - 23;
            let fitting = least + (length - least) % (usable - 4);
            let local = if fitting <= most { fitting } else { least };
            let mut payload = page.get(at..at + local)?.to_vec();
            let next = page.get(at + local..at + local + 4)?.try_into().ok()?;
            self.read_overflow(&mut payload, length, u32::from_be_bytes(next))?;
            payload
        };
        Some((rowid, decode_values(&payload)?))
    }

    fn read_overflow(&self, payload: &mut Vec<u8>, length: usize, mut next: u32) -> Option<()> {
        while payload.len() < length {
            if next == 0 || next > self.count {
                return None;
            }
            let page = self.read_page(next)?;
            let part = (length - payload.len()).min(self.page_bytes - 4);
            payload.extend_from_slice(page.get(4..4 + part)?);
            next = u32::from_be_bytes(page.get(..4)?.try_into().ok()?);
        }
        Some(())
    }
}

/// Reads an SQLite varint: up to nine bytes, big-endian, with all eight bits of the ninth.
fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for _ in 0..8 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some(number);
        }
    }
    let byte = *bytes.get(*at)?;
    *at += 1;
    Some(number << 8 | u64::from(byte))
}

fn decode_values(payload: &[u8]) -> Option<Vec<PageValue>> {
    let mut at = 0;
    let header = usize::try_from(read_varint(payload, &mut at)?).ok()?;
    let mut body = header;
    let mut values = Vec::new();
    while at < header {
        let kind = read_varint(payload, &mut at)?;
        let width = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            _ => usize::try_from((kind.checked_sub(12)?) / 2).ok()?,
        };
        let bytes = payload.get(body..body.checked_add(width)?)?;
        body += width;
        values.push(match kind {
            0 => PageValue::Null,
            1..=6 => PageValue::Integer(decode_integer(bytes)),
            8 => PageValue::Integer(0),
            9 => PageValue::Integer(1),
            _ if kind < 12 => PageValue::Other,
            _ if kind % 2 == 0 => PageValue::Blob(bytes.to_vec()),
            _ => PageValue::Text(String::from_utf8_lossy(bytes).into_owned()),
        });
    }
    Some(values)
}

fn decode_integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

/// The beginning of the newest committed copy of the database's first page; `None` if the write-ahead log has none.
pub(super) fn first_page_in_wal(path: &Path) -> Option<Vec<u8>> {
    let wal = open_regular(&with_suffix(path, "-wal")).ok()?;
    let (in_wal, _) = read_wal(&wal);
    read_header(&wal, *in_wal.get(&1)?).ok()
}

fn read_wal(wal: &File) -> (HashMap<u32, u64>, Option<usize>) {
    try_read_wal(wal).unwrap_or_default()
}

fn try_read_wal(wal: &File) -> Option<(HashMap<u32, u64>, Option<usize>)> {
    let mut header = [0; 32];
    wal.read_exact_at(&mut header, 0).ok()?;
    let word = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let is_big = match word(&header, 0)? {
        0x377f_0682 => false,
        0x377f_0683 => true,
        _ => return None,
    };
    let page_bytes = usize::try_from(word(&header, 8)?).ok()?;
    if !(512..=65536).contains(&page_bytes) || !page_bytes.is_power_of_two() {
        return None;
    }
    let mut sum = checksum(&header[..24], (0, 0), is_big);
    if sum != (word(&header, 24)?, word(&header, 28)?) {
        return None;
    }
    let (mut committed, mut pending) = (HashMap::new(), Vec::new());
    let mut frame = vec![0; 24 + page_bytes];
    let mut at = 32;
    while wal.read_exact_at(&mut frame, at).is_ok() {
        let (head, page) = frame.split_at(24);
        sum = checksum(page, checksum(&head[..8], sum, is_big), is_big);
        if head[8..16] != header[16..24] || sum != (word(head, 16)?, word(head, 20)?) {
            break;
        }
        pending.push((word(head, 0)?, at + 24));
        if word(head, 4)? != 0 {
            committed.extend(pending.drain(..));
        }
        at += frame.len() as u64;
    }
    Some((committed, Some(page_bytes)))
}

fn checksum(bytes: &[u8], (mut a, mut b): (u32, u32), is_big: bool) -> (u32, u32) {
    for pair in bytes.chunks_exact(8) {
        let word = |at: usize| {
            let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
            if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        a = a.wrapping_add(word(0)).wrapping_add(b);
        b = b.wrapping_add(word(4)).wrapping_add(a);
    }
    (a, b)
}
