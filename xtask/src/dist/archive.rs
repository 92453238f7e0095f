//! Zip and tar archives with constant times and owners, so that the same files give the same bytes.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::Crc;
use flate2::write::{DeflateEncoder, GzEncoder};

/// 1980-01-01, the earliest time of a zip file, as MS-DOS writes it.
const DOS_DATE: u16 = 0x21;

/// How hard the archives are compressed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compression(flate2::Compression);

impl Compression {
    pub(super) fn best() -> Self {
        Self(flate2::Compression::best())
    }

    pub(super) fn fast() -> Self {
        Self(flate2::Compression::fast())
    }
}

/// One file of an archive.
#[derive(Debug, Clone)]
pub(super) struct ArchiveFile {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    mode: u32,
}

impl ArchiveFile {
    pub(super) fn plain(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), bytes, mode: 0o644 }
    }

    /// A file that can be executed.
    pub(super) fn program(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), bytes, mode: 0o755 }
    }
}

/// A gzipped tar archive (ustar) with all files below the folder `top`.
pub(super) fn tar_gz(top: &str, files: &[ArchiveFile], level: Compression) -> Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), level.0);
    for file in files {
        out.write_all(&tar_header(&format!("{top}/{}", file.path), file)?)?;
        out.write_all(&file.bytes)?;
        let rest = file.bytes.len() % 512;
        out.write_all(&vec![0; (512 - rest) % 512])?;
    }
    out.write_all(&[0; 1024])?;
    out.finish().context("compress the archive")
}

fn tar_header(path: &str, file: &ArchiveFile) -> Result<[u8; 512]> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    anyhow::ensure!(path.len() < 100, "the path `{path}` is too long for a tar archive");
    put(0, path);
    put(100, &format!("{:07o}", file.mode));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", file.bytes.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\u{0}").as_bytes());
    Ok(header)
}

/// A zip archive. Files of more than 4 GiB are refused.
pub(super) fn zip(files: &[ArchiveFile], level: Compression) -> Result<Vec<u8>> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        let mut crc = Crc::new();
        crc.update(&file.bytes);
        let mut packer = DeflateEncoder::new(Vec::new(), level.0);
        packer.write_all(&file.bytes)?;
        let packed = packer.finish().context("compress a file")?;
        let offset = u32::try_from(out.len()).context("the archive is too large")?;
        let entry = zip_entry(file, crc.sum(), packed.len())?;
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&entry);
        out.extend_from_slice(file.path.as_bytes());
        out.extend_from_slice(&packed);
        directory.extend_from_slice(b"PK\x01\x02\x14\x03");
        directory.extend_from_slice(&entry);
        // Comment, disk and internal attributes are empty; the mode is in the upper half of the external ones.
        directory.extend_from_slice(&[0; 6]);
        directory.extend_from_slice(&((0o100_000 | file.mode) << 16).to_le_bytes());
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(file.path.as_bytes());
    }
    let start = u32::try_from(out.len()).context("the archive is too large")?;
    let size = u32::try_from(directory.len()).context("the archive has too many files")?;
    let count = u16::try_from(files.len()).context("the archive has too many files")?;
    out.extend_from_slice(&directory);
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    Ok(out)
}

/// The fields that both headers of a zip entry share, from the version up to the length of the extra field.
fn zip_entry(file: &ArchiveFile, crc: u32, packed: usize) -> Result<Vec<u8>> {
    let size =
        |length: usize| u32::try_from(length).context("the file is too large for a zip archive");
    let name = u16::try_from(file.path.len()).context("the path is too long")?;
    let mut entry = Vec::with_capacity(26);
    // Version 2.0, names in UTF-8, deflate.
    for field in [20_u16, 0x0800, 8, 0, DOS_DATE] {
        entry.extend_from_slice(&field.to_le_bytes());
    }
    for field in [crc, size(packed)?, size(file.bytes.len())?] {
        entry.extend_from_slice(&field.to_le_bytes());
    }
    entry.extend_from_slice(&name.to_le_bytes());
    entry.extend_from_slice(&[0, 0]);
    Ok(entry)
}
