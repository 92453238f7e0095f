//! The libc that a Linux program needs, from the version table of its ELF file.

use anyhow::{Context as _, Result, bail};

/// `SHT_GNU_verneed`: the section with the needed versions.
const VERSION_NEEDS: u32 = 0x6fff_fffe;
/// `e_machine` of x86-64.
const X86_64: u16 = 62;

/// The libc of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Libc {
    /// The newest symbol version of glibc that the program needs.
    Glibc { major: u32, minor: u32 },
    /// A program without a libc of the system: linked statically.
    None,
}

impl Libc {
    /// Reads the version table. Only programs for Linux on x86-64 are packed.
    pub(super) fn of(program: &[u8]) -> Result<Self> {
        if program.get(..5) != Some(b"\x7fELF\x02") || u16_at(program, 18)? != X86_64 {
            bail!("the program is not one for Linux on x86-64");
        }
        let newest = versions(program)?.iter().filter_map(|name| parse_glibc(name)).max();
        Ok(newest.map_or(Self::None, |(major, minor)| Self::Glibc { major, minor }))
    }

    /// The platform tag of a wheel: an honest one, because it names the version that the program really needs.
    pub(super) fn wheel_tag(self) -> String {
        match self {
            Self::Glibc { major, minor } => format!("manylinux_{major}_{minor}_x86_64"),
            Self::None => "musllinux_1_2_x86_64".to_owned(),
        }
    }
}

fn parse_glibc(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The names of all needed versions: `GLIBC_2.34`, `GCC_3.0` …
fn versions(program: &[u8]) -> Result<Vec<String>> {
    let sections = usize::try_from(u64_at(program, 0x28)?)?;
    let (size, count) = (usize::from(u16_at(program, 0x3a)?), usize::from(u16_at(program, 0x3c)?));
    let mut found = Vec::new();
    for index in 0..count {
        let header = sections + index * size;
        if u32_at(program, header + 4)? != VERSION_NEEDS {
            continue;
        }
        let names = sections + usize::try_from(u32_at(program, header + 0x28)?)? * size;
        let names = usize::try_from(u64_at(program, names + 0x18)?)?;
        let table = usize::try_from(u64_at(program, header + 0x18)?)?;
        needs(program, table, names, &mut found)?;
    }
    Ok(found)
}

/// Walks the list of libraries at `table`, and for each the list of its versions.
fn needs(program: &[u8], table: usize, names: usize, found: &mut Vec<String>) -> Result<()> {
    let mut library = table;
    loop {
        let mut version = library + usize::try_from(u32_at(program, library + 8)?)?;
        for _ in 0..u16_at(program, library + 2)? {
            found.push(text_at(program, names + usize::try_from(u32_at(program, version + 8)?)?)?);
            version += usize::try_from(u32_at(program, version + 12)?)?;
        }
        match u32_at(program, library + 12)? {
            0 => return Ok(()),
            next => library += usize::try_from(next)?,
        }
    }
}

fn bytes_at<const N: usize>(program: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = program.get(at..at + N).context("the program is cut off")?;
    bytes.try_into().context("the program is cut off")
}

fn u16_at(program: &[u8], at: usize) -> Result<u16> {
    bytes_at(program, at).map(u16::from_le_bytes)
}

fn u32_at(program: &[u8], at: usize) -> Result<u32> {
    bytes_at(program, at).map(u32::from_le_bytes)
}

fn u64_at(program: &[u8], at: usize) -> Result<u64> {
    bytes_at(program, at).map(u64::from_le_bytes)
}

fn text_at(program: &[u8], at: usize) -> Result<String> {
    let rest = program.get(at..).context("the program is cut off")?;
    let end = rest.iter().position(|byte| *byte == 0).context("the program is cut off")?;
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_itself_needs_a_glibc_that_exists() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let libc = Libc::of(&program).unwrap();
        assert!(matches!(libc, Libc::Glibc { major: 2, minor: 2..=99 }), "{libc:?}");
        assert!(Libc::of(b"#!/bin/sh").is_err());
        assert!(Libc::of(&program[..4096]).is_err(), "a program that is cut off");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(parse_glibc("GLIBC_2.4") < parse_glibc("GLIBC_2.34"));
        assert_eq!(parse_glibc("GCC_3.0"), None);
        assert_eq!(Libc::Glibc { major: 2, minor: 34 }.wheel_tag(), "manylinux_2_34_x86_64");
    }
}
