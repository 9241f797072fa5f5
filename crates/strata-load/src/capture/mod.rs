//! Capture: the logs of a server become a load.

mod catalog;
mod csvlog;
mod jsonlog;
mod parameters;
mod record;
mod stderr;
mod writer;

use crate::load::Summary;
use crate::sql::Replacement;
use catalog::{CATALOG, Kind, Message};
use csvlog::CsvLog;
use jsonlog::JsonLog;
use memmap2::Mmap;
use parameters::{Parameters, parse_parameters};
use record::{Damage, Record};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use stderr::{Prefix, StderrLog};
use thiserror::Error;
use writer::{Captured, Writer};

pub use stderr::PrefixError;

/// What to capture.
pub struct Request {
    pub logs: Vec<PathBuf>,
    pub out: PathBuf,
    pub prefix: Option<String>,
    pub database: Option<String>,
    pub literals: Replacement,
}

#[derive(Debug, Error)]
pub enum CaptureError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{0}: compressed; decompress it first")]
    Compressed(PathBuf),
    #[error(
        "{0}: neither csvlog nor jsonlog, and no line has a known prefix; give log_line_prefix as --prefix"
    )]
    Unknown(PathBuf),
    #[error("{path}: no line has the prefix {prefix:?}")]
    OtherPrefix { path: PathBuf, prefix: String },
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    #[error("the log has statements of several databases ({0}); name one with --database")]
    Databases(String),
    #[error("the log has no statement that can be replayed ({0})")]
    Nothing(String),
}

/// Reasons to leave a statement out, as the summary has them.
mod reason {
    pub(super) const BACKGROUND: &str = "of a process that serves no client";
    pub(super) const COPY: &str = "COPY from the client, whose data is not in the log";
    pub(super) const CUT: &str = "a parameter was cut (log_parameter_max_length)";
    pub(super) const DATABASE: &str = "of another database";
    pub(super) const DAMAGED: &str = "lines that are no record: cut, or of another program";
    pub(super) const ENCODING: &str = "not in UTF-8";
    pub(super) const FAILED: &str = "failed when it was logged";
    pub(super) const FASTPATH: &str = "fastpath function call";
    pub(super) const FETCH: &str = "further rows of an open portal";
    pub(super) const OUTSIDE: &str =
        "acts outside of the database (files, programs, other databases, settings of the server)";
    pub(super) const PARAMETERS: &str = "parameters are not in the log";
    pub(super) const REPLICATION: &str = "replication command";
}

enum Format {
    Csv,
    Json,
    Stderr(Prefix),
}

struct Log {
    path: PathBuf,
    text: Mmap,
    format: Format,
    first_us: i64,
}

impl Log {
    /// Records of the log in order.
    fn records<'a>(&'a self) -> Box<dyn Iterator<Item = Result<Record<'a>, Damage>> + 'a> {
        match &self.format {
            Format::Csv => Box::new(CsvLog::new(&self.text)),
            Format::Json => Box::new(JsonLog::new(&self.text)),
            Format::Stderr(prefix) => Box::new(StderrLog::new(&self.text, prefix)),
        }
    }
}

fn open(path: &Path, prefix: Option<&str>) -> Result<Option<Log>, CaptureError> {
    let failed = |source| CaptureError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: servers append to their logs and rotate them; one that is shortened meanwhile ends this program
    let text = unsafe { Mmap::map(&file) }.map_err(failed)?;
    if text.starts_with(&[0x1f, 0x8b])
        || text.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || text.starts_with(b"BZh")
    {
        return Err(CaptureError::Compressed(path.to_owned()));
    }
    let some = |mut records: Box<dyn Iterator<Item = Result<Record<'_>, Damage>> + '_>| {
        records.by_ref().take(MOST_DAMAGED).any(|record| record.is_ok())
    };
    let format = match prefix {
        Some(prefix) => Format::Stderr(Prefix::new(prefix)?),
        None if some(Box::new(JsonLog::new(&text))) => Format::Json,
        None if some(Box::new(CsvLog::new(&text))) => Format::Csv,
        None => Format::Stderr(Prefix::guess(&text).ok_or_else(|| CaptureError::Unknown(path.to_owned()))?),
    };
    let mut log = Log { path: path.to_owned(), text, format, first_us: 0 };
    let first = log.records().find_map(Result::ok).map(|record| record.time_us);
    log.first_us = match (first, prefix) {
        (Some(first), _) => first,
        (None, Some(prefix)) => {
            return Err(CaptureError::OtherPrefix { path: log.path, prefix: prefix.to_owned() });
        }
        (None, None) => return Err(CaptureError::Unknown(log.path)),
    };
    Ok(Some(log))
}

/// Records that may be damaged before a log is taken for one of another format.
const MOST_DAMAGED: usize = 1000;

/// Writes the load of some logs, and returns its summary.
pub fn capture(request: &Request) -> Result<Summary, CaptureError> {
    let opened: Result<Vec<_>, _> =
        request.logs.iter().map(|path| open(path, request.prefix.as_deref())).collect();
    let mut logs: Vec<Log> = opened?.into_iter().flatten().collect();
    logs.sort_by_key(|log| log.first_us);
    let failed = |source| CaptureError::File { path: request.out.clone(), source };
    let writer = Writer::create(&request.out, request.literals).map_err(failed)?;
    let mut capturing = Capturing::new(request.database.as_deref(), writer);
    for log in &logs {
        capturing.summary.bytes += log.text.len() as u64;
        for record in log.records() {
            match record {
                Ok(record) => capturing.add(&record).map_err(failed)?,
                Err(Damage::NoRecord) => capturing.leave_out(reason::DAMAGED),
            }
        }
    }
    capturing.finish(request).map_err(failed)?
}

/// A statement that is logged before it runs: its duration, or its failure, is in a later record.
type Pending = Option<Captured>;

struct Session {
    number: u32,
    pending: Pending,
    /// PREPAREs that the load has.
    prepared: HashSet<u64>,
    end_us: i64,
}

struct Capturing<'a> {
    database: Option<&'a str>,
    databases: BTreeMap<String, u64>,
    writer: Writer,
    sessions: HashMap<Vec<u8>, Session>,
    language: usize,
    summary: Summary,
}

impl<'a> Capturing<'a> {
    fn new(database: Option<&'a str>, writer: Writer) -> Capturing<'a> {
        let summary =
            Summary { whole_seconds: true, first_us: i64::MAX, last_us: i64::MIN, ..Summary::default() };
        Capturing {
            database,
            databases: BTreeMap::new(),
            writer,
            sessions: HashMap::new(),
            language: 0,
            summary,
        }
    }

    fn leave_out(&mut self, reason: &str) {
        if let Some(count) = self.summary.left_out.get_mut(reason) {
            *count += 1;
        } else {
            self.summary.left_out.insert(reason.to_owned(), 1);
        }
    }

    /// The message in the language of the last one, else in any.
    fn parse<'r>(&mut self, message: &'r [u8]) -> Option<Message<'r>> {
        CATALOG.languages[self.language].parse(message).or_else(|| {
            let found = CATALOG.languages.iter().enumerate();
            let (language, message) = found.filter_map(|(n, one)| Some((n, one.parse(message)?))).next()?;
            self.language = language;
            Some(message)
        })
    }

    fn add(&mut self, record: &Record) -> std::io::Result<()> {
        self.summary.whole_seconds &= record.time_us % 1_000_000 == 0;
        if record.failed {
            let pending = self.sessions.get_mut(&*record.session).and_then(|session| session.pending.take());
            // one that is logged when it has ended is in no other record
            if pending.is_some() || !record.session.is_empty() && !record.database.is_empty() {
                self.leave_out(reason::FAILED);
            }
            return Ok(());
        }
        let Some(message) = self.parse(&record.message) else { return Ok(()) };
        if message.kind == Kind::Phase {
            return Ok(());
        }
        if message.kind == Kind::Duration {
            let Some(session) = self.sessions.get_mut(&*record.session) else { return Ok(()) };
            let Some(mut captured) = session.pending.take() else { return Ok(()) };
            captured.duration_us = message.duration_us;
            return self.write(&record.session, captured);
        }
        let refused = self.refused(record, &message);
        let (statement, first) = match refused.map_or_else(|| self.statement(record, &message), Err) {
            Ok(found) => found,
            Err(reason) => {
                self.flush(&record.session)?;
                self.leave_out(reason);
                return Ok(());
            }
        };
        self.flush(&record.session)?;
        if let Some(first) = first {
            self.write(&record.session, first)?;
        }
        if message.duration_us.is_some() {
            return self.write(&record.session, statement);
        }
        self.session(&record.session).pending = Some(statement);
        Ok(())
    }

    fn refused(&mut self, record: &Record, message: &Message) -> Option<&'static str> {
        match message.kind {
            Kind::Fetch => return Some(reason::FETCH),
            Kind::Fastpath => return Some(reason::FASTPATH),
            Kind::Replication => return Some(reason::REPLICATION),
            _ => {}
        }
        if !matches!(&*record.backend, b"" | b"client backend") {
            return Some(reason::BACKGROUND);
        }
        if record.database.is_empty() {
            return None;
        }
        let database = String::from_utf8_lossy(&record.database);
        if self.database.is_some_and(|wanted| wanted != database) {
            return Some(reason::DATABASE);
        }
        if let Some(count) = self.databases.get_mut(&*database) {
            *count += 1;
        } else {
            self.databases.insert(database.into_owned(), 1);
        }
        None
    }

    /// The statement of a message, and the PREPARE that must run before it.
    fn statement(
        &mut self,
        record: &Record,
        message: &Message,
    ) -> Result<(Captured, Option<Captured>), &'static str> {
        let text = std::str::from_utf8(message.rest).map_err(|_| reason::ENCODING)?;
        let detail = std::str::from_utf8(&record.detail).map_err(|_| reason::ENCODING)?;
        let start_us = record.time_us - message.duration_us.unwrap_or(0) as i64;
        let mut captured =
            Captured { start_us, duration_us: message.duration_us, sql: text.to_owned(), bound: None };
        if message.kind == Kind::Execute {
            let (name, sql) = split_name(text).ok_or(reason::DAMAGED)?;
            let values = match parse_parameters(detail) {
                Parameters::Whole(values) => values,
                Parameters::Cut => return Err(reason::CUT),
                Parameters::Absent if has_parameter(sql) => return Err(reason::PARAMETERS),
                Parameters::Absent => Vec::new(),
            };
            captured.sql = sql.to_owned();
            captured.bound = Some((values, !name.starts_with("<unnamed>")));
        }
        if let Some(reason) = unsafe_or_copy(&captured.sql) {
            return Err(reason);
        }
        let first = CATALOG.languages[self.language].prepare(detail).map(str::to_owned);
        let session = self.session(&record.session);
        let needs = first.filter(|sql| session.prepared.insert(prepared_key(sql)));
        if starts_with_word(&captured.sql, "PREPARE") {
            session.prepared.insert(prepared_key(&captured.sql));
        }
        let first = needs.map(|sql| Captured { start_us, duration_us: None, sql, bound: None });
        Ok((captured, first))
    }

    fn session(&mut self, key: &[u8]) -> &mut Session {
        if !self.sessions.contains_key(key) {
            let fresh =
                Session { number: u32::MAX, pending: None, prepared: HashSet::new(), end_us: i64::MIN };
            self.sessions.insert(key.to_owned(), fresh);
        }
        self.sessions.get_mut(key).expect("it was inserted")
    }

    fn flush(&mut self, key: &[u8]) -> std::io::Result<()> {
        match self.sessions.get_mut(key).and_then(|session| session.pending.take()) {
            Some(pending) => self.write(key, pending),
            None => Ok(()),
        }
    }

    fn write(&mut self, key: &[u8], mut captured: Captured) -> std::io::Result<()> {
        let next = self.summary.sessions;
        let session = self.session(key);
        if session.number == u32::MAX {
            session.number = next as u32;
        }
        // with times of whole seconds a statement would seem to begin before the one before it has ended
        captured.start_us = captured.start_us.max(session.end_us);
        session.end_us = captured.start_us + captured.duration_us.unwrap_or(0) as i64;
        let (number, end_us) = (session.number, session.end_us);
        self.summary.sessions = next.max(u64::from(number) + 1);
        self.summary.statements += 1;
        self.summary.without_duration += u64::from(captured.duration_us.is_none());
        self.summary.first_us = self.summary.first_us.min(captured.start_us);
        self.summary.last_us = self.summary.last_us.max(end_us);
        self.writer.write(number, &captured)
    }

    fn finish(mut self, request: &Request) -> std::io::Result<Result<Summary, CaptureError>> {
        let open: Vec<Vec<u8>> =
            self.sessions.iter().filter(|(_, s)| s.pending.is_some()).map(|(key, _)| key.clone()).collect();
        for key in open {
            self.flush(&key)?;
        }
        if self.databases.len() > 1 {
            let counts: Vec<_> =
                self.databases.iter().map(|(name, count)| format!("{name}: {count}")).collect();
            return Ok(Err(CaptureError::Databases(counts.join(", "))));
        }
        if self.summary.statements == 0 {
            let counts: Vec<_> =
                self.summary.left_out.iter().map(|(why, count)| format!("{count} {why}")).collect();
            let counts =
                if counts.is_empty() { "logging of statements is off".into() } else { counts.join(", ") };
            return Ok(Err(CaptureError::Nothing(counts)));
        }
        self.summary.database = self.databases.into_keys().next().or_else(|| request.database.clone());
        self.writer.finish(self.summary).map(Ok)
    }
}

fn prepared_key(sql: &str) -> u64 {
    crate::sql::digest(sql.trim().trim_end_matches(';').as_bytes())
}

/// The name of `S_1/C_2: SELECT ...` and the statement; French has a space before the colon.
fn split_name(text: &str) -> Option<(&str, &str)> {
    let (name, sql) = text.split_once(": ")?;
    Some((name.trim_end_matches([' ', '\u{a0}']), sql))
}

fn has_parameter(sql: &str) -> bool {
    let mut normal = Vec::new();
    sql.contains('$') && {
        crate::sql::normalise(sql, &mut normal);
        sql.as_bytes().windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
            && normal.contains(&b'?')
    }
}

fn starts_with_word(sql: &str, word: &str) -> bool {
    sql.trim_start().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Words that begin statements which reach beyond the database that is replayed.
const OUTSIDE: [&str; 8] = [
    "create database",
    "drop database",
    "alter database",
    "alter system",
    "create tablespace",
    "drop tablespace",
    "alter tablespace",
    "create subscription",
];

fn unsafe_or_copy(sql: &str) -> Option<&'static str> {
    let first = sql.trim_start().as_bytes().first().map(u8::to_ascii_lowercase);
    if !matches!(first, Some(b'c' | b'd' | b'a' | b'/' | b'-' | b'(')) {
        return None;
    }
    let mut normal = Vec::new();
    crate::sql::normalise(sql, &mut normal);
    let normal = String::from_utf8_lossy(&normal);
    if OUTSIDE.iter().any(|words| normal.starts_with(words)) {
        return Some(reason::OUTSIDE);
    }
    if !normal.starts_with("copy ") {
        return None;
    }
    let from_client = normal.contains(" from stdin");
    let to_client = normal.contains(" to stdout");
    match (from_client, to_client) {
        (true, _) => Some(reason::COPY),
        (_, true) => None,
        _ => Some(reason::OUTSIDE),
    }
}
