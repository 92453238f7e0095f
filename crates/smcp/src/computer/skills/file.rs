//! Opens a file of a skill. No path and no link can reach a file outside of the skill's folder.

use std::{
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use cap_std::{ambient_authority, fs::Dir};
use sha2::{Digest as _, Sha256};

use super::{ENTRY, front_matter};

/// A file that is never returned, whether it exists or not.
const SECRET: &str = ".skillenv";

/// Digests in the cache.
const DIGESTS_MAX: usize = 32;

/// An open file of a skill.
#[derive(Debug)]
pub(in super::super) struct File {
    pub(in super::super) rel_path: String,
    pub(in super::super) mime: &'static str,
    pub(in super::super) bytes: u64,
    pub(in super::super) sha256: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// The text of a `SKILL.md` without its front matter.
    Text(String),
    File(std::fs::File),
}

/// The reason why a file is not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileError {
    Traversal,
    Forbidden,
    NotFound,
    TooLarge(u64),
}

impl FileError {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Traversal => "traversal",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge(_) => "too_large",
        }
    }
}

/// Path, modification time, size and digest of a file.
type DigestEntry = (PathBuf, Option<SystemTime>, u64, String);

/// A cache of digests, so that reading a file in chunks computes its digest once.
#[derive(Clone, Debug, Default)]
pub(super) struct Digests(Arc<Mutex<Vec<DigestEntry>>>);

impl Digests {
    fn of(&self, path: &Path, file: &mut std::fs::File) -> io::Result<String> {
        let meta = file.metadata()?;
        let (changed, bytes) = (meta.modified().ok(), meta.len());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |it: &&DigestEntry| it.0 == path && it.1 == changed && it.2 == bytes;
        if let Some((_, _, _, digest)) = known.iter().find(same) {
            return Ok(digest.clone());
        }
        let mut hasher = Sha256::new();
        let mut block = vec![0; 64 * 1024];
        loop {
            match file.read(&mut block)? {
                0 => break,
                bytes => hasher.update(&block[..bytes]),
            }
        }
        let digest = hex(&hasher.finalize());
        known.retain(|it| it.0 != path);
        if known.len() >= DIGESTS_MAX {
            known.remove(0);
        }
        known.push((path.to_owned(), changed, bytes, digest.clone()));
        Ok(digest)
    }
}

/// Lower-case hex digits.
pub(in super::super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl File {
    /// Reads up to `most` bytes from an offset.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(in super::super) fn read(&mut self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        match &mut self.content {
            Content::Text(text) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let end = start.saturating_add(most).min(text.len());
                Ok(text.as_bytes()[start..end].to_vec())
            }
            Content::File(file) => {
                file.seek(SeekFrom::Start(offset))?;
                let mut piece = Vec::new();
                file.take(most as u64).read_to_end(&mut piece)?;
                Ok(piece)
            }
        }
    }
}

/// The text of a skill's `SKILL.md`; `None` if it is missing, not a file, or too long.
pub(super) fn entry(folder: &Path, bytes_max: u64) -> Option<String> {
    let folder = Dir::open_ambient_dir(folder, ambient_authority()).ok()?;
    let file = folder.open(ENTRY).ok()?;
    let bytes = file.metadata().ok().filter(cap_std::fs::Metadata::is_file)?.len();
    (bytes <= bytes_max).then(|| lossy(file.into_std())).flatten()
}

fn lossy(mut file: std::fs::File) -> Option<String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a file of a skill.
pub(super) fn open(
    folder: &Path,
    rel_path: &str,
    bytes_max: u64,
    digests: &Digests,
) -> Result<File, FileError> {
    let inside = lexical(rel_path)?;
    let is_secret = |path: &Path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().eq_ignore_ascii_case(SECRET))
    };
    // Checked before any file access, so that the answer does not reveal whether the file exists.
    if is_secret(&inside) {
        return Err(FileError::Forbidden);
    }
    let root =
        Dir::open_ambient_dir(folder, ambient_authority()).map_err(|_| FileError::NotFound)?;
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileError::NotFound,
        _ => FileError::Traversal,
    };
    // A link may have another name than its target.
    let real = root.canonicalize(&inside).map_err(refused)?;
    if is_secret(&real) {
        return Err(FileError::Forbidden);
    }
    let file = root.open(&real).map_err(refused)?;
    let meta = file.metadata().map_err(refused)?;
    if !meta.is_file() {
        return Err(FileError::NotFound);
    }
    if meta.len() > bytes_max {
        return Err(FileError::TooLarge(meta.len()));
    }
    let mut file = file.into_std();
    if real.file_name().is_some_and(|name| name == ENTRY) {
        let text = lossy(file).ok_or(FileError::NotFound)?;
        let body = front_matter::split(&text).1.to_owned();
        return Ok(File {
            rel_path: rel_path.to_owned(),
            mime: "text/markdown",
            bytes: body.len() as u64,
            sha256: hex(&Sha256::digest(body.as_bytes())),
            content: Content::Text(body),
        });
    }
    let sha256 = digests.of(&folder.join(&real), &mut file).map_err(refused)?;
    let mime = mime_of(&real);
    let content = Content::File(file);
    Ok(File { rel_path: rel_path.to_owned(), mime, bytes: meta.len(), sha256, content })
}

/// Checks that a path cannot leave the folder by its components alone.
fn lexical(rel_path: &str) -> Result<PathBuf, FileError> {
    let path = PathBuf::from(rel_path);
    let is_plain = |part: Component<'_>| match part {
        Component::Normal(name) => !name.to_string_lossy().contains(':'),
        Component::CurDir => true,
        _ => false,
    };
    let is_odd = rel_path.contains('\\') || rel_path.contains('\0');
    if is_odd || !path.components().all(is_plain) {
        return Err(FileError::Traversal);
    }
    Ok(path)
}

/// The MIME type by the file's extension alone, so that every machine gives the same.
fn mime_of(path: &Path) -> &'static str {
    let end = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match end.as_str() {
        "md" | "markdown" => "text/markdown",
        "txt" => "text/plain",
        "rst" => "text/x-rst",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "wasm" => "application/wasm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}

/// Whether a file of this MIME type may be returned as text.
pub(in super::super) fn is_text(mime: &str) -> bool {
    let plain = ["json", "xml", "yaml", "toml", "javascript"];
    let rest = mime.strip_prefix("application/");
    mime.starts_with("text/")
        || rest.is_some_and(|rest| plain.contains(&rest))
        || ["+json", "+xml", "+yaml"].iter().any(|end| mime.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill() -> tempfile::TempDir {
        let outside = tempfile::tempdir().unwrap();
        let skill = outside.path().join("skill");
        std::fs::create_dir_all(skill.join("sub")).unwrap();
        std::fs::write(outside.path().join("outside.txt"), "secret").unwrap();
        std::fs::write(skill.join("SKILL.md"), "---\ndescription: d\n---\nbody").unwrap();
        std::fs::write(skill.join("sub/a.txt"), "hello").unwrap();
        std::fs::write(skill.join(".skillenv"), "KEY=1").unwrap();
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, skill.join(name)).unwrap();
        };
        link("../outside.txt", "escape.txt");
        link("/etc", "etc");
        link("sub/a.txt", "inside.txt");
        link(".skillenv", "innocent.txt");
        outside
    }

    #[test]
    fn nothing_outside_of_a_skill_can_be_read() {
        let folder = skill();
        let refused = |path: &str| {
            open(&folder.path().join("skill"), path, 1000, &Digests::default()).map(drop)
        };
        for out in
            ["../outside.txt", "/etc/passwd", "sub/../../outside.txt", "escape.txt", "etc/passwd"]
        {
            assert_eq!(refused(out), Err(FileError::Traversal), "{out}");
        }
        for odd in ["..\\outside.txt", "C:/x", "a:b", "a\0"] {
            assert_eq!(refused(odd), Err(FileError::Traversal), "{odd}");
        }
        for secret in [".skillenv", ".SKILLENV", "sub/.skillenv", "innocent.txt"] {
            assert_eq!(refused(secret), Err(FileError::Forbidden), "{secret}");
        }
        for missing in ["none", "sub", "sub/a.txt/b"] {
            assert_eq!(refused(missing), Err(FileError::NotFound), "{missing}");
        }
    }

    #[test]
    fn a_file_is_given_whole_and_in_pieces() {
        let folder = skill();
        let read =
            |path: &str, most| open(&folder.path().join("skill"), path, most, &Digests::default());
        let mut file = read("inside.txt", 1000).unwrap();
        assert_eq!((file.mime, file.bytes), ("text/plain", 5));
        assert_eq!(file.sha256, hex(&Sha256::digest(b"hello")));
        assert_eq!(file.read(1, 3).unwrap(), b"ell");
        assert_eq!(file.read(4, 100).unwrap(), b"o");
        assert_eq!(file.read(100, 100).unwrap(), b"");
        let mut entry = read("SKILL.md", 1000).unwrap();
        assert_eq!((entry.read(0, 100).unwrap(), entry.mime), (b"body".to_vec(), "text/markdown"));
        assert_eq!(entry.read(1, 2).unwrap(), b"od");
        assert_eq!(read("sub/a.txt", 4).map(drop), Err(FileError::TooLarge(5)));
    }

    #[test]
    fn a_changed_file_has_another_digest() {
        let folder = skill();
        let digests = Digests::default();
        let path = folder.path().join("skill/sub/a.txt");
        let digest =
            || open(&folder.path().join("skill"), "sub/a.txt", 1000, &digests).unwrap().sha256;
        let first = digest();
        assert_eq!(digest(), first);
        std::fs::write(&path, "hello, world").unwrap();
        assert_ne!(digest(), first);
    }
}
