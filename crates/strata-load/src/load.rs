//! The file of a load: JSON lines, written as they come, with a summary as the last line.
//!
//! `["d", number, "digest", "normal form"]` names a digest before its first use, `["q", number, "sql"]` a text with
//! parameters, `["x", session, start in us, duration in us or null, digest, sql]` is a statement in simple protocol and
//! `["x", session, start, duration, digest, number of the text, parameters, prepared]` one with parameters. A file
//! without its summary was cut.

use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use thiserror::Error;

pub const FORMAT: u32 = 1;

/// What was captured, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub format: u32,
    pub statements: u64,
    pub sessions: u64,
    pub digests: u64,
    pub first_us: i64,
    pub last_us: i64,
    /// Statements of which the log says no duration.
    pub without_duration: u64,
    /// Times of whole seconds: gaps below one second are unknown.
    pub whole_seconds: bool,
    /// keep, text or all.
    pub literals: String,
    pub database: Option<String>,
    /// Number of statements in the log that are not in the load, by reason.
    pub left_out: BTreeMap<String, u64>,
    pub bytes: u64,
}

/// One line of the file.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// `d` or `q`.
    Named(char, u32, String),
    Digest(char, u32, String, String),
    Simple(char, u32, i64, Option<u64>, u32, String),
    Bound(char, u32, i64, Option<u64>, u32, u32, Vec<Option<String>>, bool),
}

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{0}: no load of `pgstrata capture`, or cut: it does not end in its summary")]
    Cut(PathBuf),
    #[error("{path}: a load of format {format}, not {FORMAT}")]
    Format { path: PathBuf, format: u32 },
    #[error("{path}: line {line} is not understood: {why}")]
    Line { path: PathBuf, line: usize, why: String },
}

/// A statement to replay.
#[derive(Debug)]
pub struct Statement {
    pub start_us: i64,
    pub duration_us: u64,
    pub digest: u32,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    Simple(Box<str>),
    Bound { text: u32, parameters: Box<[Option<Box<str>>]>, prepared: bool },
}

/// A load in memory.
#[derive(Debug, Default)]
pub struct Load {
    /// Digest and normal form.
    pub digests: Vec<(String, String)>,
    pub texts: Vec<String>,
    /// The statements of each session in order.
    pub sessions: Vec<Vec<Statement>>,
    pub summary: Summary,
}

/// Reads a load.
pub fn read(path: &Path) -> Result<Load, LoadError> {
    let failed = |source| LoadError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() == 0 {
        return Err(LoadError::Cut(path.to_owned()));
    }
    // SAFETY: a load is written whole and renamed; nothing shortens it afterwards
    let mapped = unsafe { Mmap::map(&file) }.map_err(failed)?;
    let text = mapped.strip_suffix(b"\n").ok_or_else(|| LoadError::Cut(path.to_owned()))?;
    let last = memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
    let summary: Summary =
        serde_json::from_slice(&text[last..]).map_err(|_| LoadError::Cut(path.to_owned()))?;
    if summary.format != FORMAT {
        return Err(LoadError::Format { path: path.to_owned(), format: summary.format });
    }
    let mut load = Load { summary, ..Load::default() };
    for (number, line) in
        text[..last].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
    {
        let wrong = |why: String| LoadError::Line { path: path.to_owned(), line: number + 1, why };
        let parsed = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
        load.add(parsed).map_err(|why| wrong(why.to_owned()))?;
    }
    Ok(load)
}

impl Load {
    fn add(&mut self, line: Line) -> Result<(), &'static str> {
        let (session, start_us, duration_us, digest, what) = match line {
            Line::Digest('d', number, digest, normal) if number as usize == self.digests.len() => {
                self.digests.push((digest, normal));
                return Ok(());
            }
            Line::Named('q', number, text) if number as usize == self.texts.len() => {
                self.texts.push(text);
                return Ok(());
            }
            Line::Simple('x', session, start, duration, digest, sql) => {
                (session, start, duration, digest, What::Simple(sql.into()))
            }
            Line::Bound('x', session, start, duration, digest, text, parameters, prepared) => {
                if text as usize >= self.texts.len() {
                    return Err("a text that no line names");
                }
                let parameters = parameters.into_iter().map(|one| one.map(String::into_boxed_str)).collect();
                (session, start, duration, digest, What::Bound { text, parameters, prepared })
            }
            _ => return Err("no line of a load"),
        };
        if digest as usize >= self.digests.len() {
            return Err("a digest that no line names");
        }
        let session = session as usize;
        if session > self.sessions.len() {
            return Err("a session out of order");
        }
        if session == self.sessions.len() {
            self.sessions.push(Vec::new());
        }
        let duration_us = duration_us.unwrap_or(0);
        self.sessions[session].push(Statement { start_us, duration_us, digest, what });
        Ok(())
    }
}
