//! The verbs of event logs.

use super::error::{Unread, VerbError};
use crate::log::native::{LogError, Reader};
use crate::log::{Event, Record, dm_log_writes};
use crate::states::State;
use crate::states::condense::condense;
use crate::states::enumerate::{Asked, enumerate};
use crate::states::replay::Replay;
use crate::store::PIECE_BYTES;
use serde::Serialize;
use serde_json::json;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

type Input = BufReader<File>;

/// The event log that a verb reads.
#[derive(Clone, Copy)]
pub(super) struct Log<'a>(pub(super) &'a Path);

impl Log<'_> {
    fn open(self) -> io::Result<Input> {
        Ok(BufReader::new(File::open(self.0)?))
    }

    fn unread(self, why: impl Into<Unread>) -> VerbError {
        VerbError::Log { log: self.0.into(), why: why.into() }
    }

    fn not_exported(self, why: impl Into<Unread>) -> VerbError {
        VerbError::Export { log: self.0.into(), why: why.into() }
    }

    fn replay(self, state: &State) -> Result<Replay<Input>, Unread> {
        Ok(Replay::new(self.open()?, state.lying)?)
    }

    fn records(self) -> Result<impl Iterator<Item = Result<Record, LogError>>, Unread> {
        let mut reader = Reader::new(self.open()?)?;
        Ok(std::iter::from_fn(move || reader.read().transpose()))
    }

    pub(super) fn states(self, asked: &Asked) -> Result<(), VerbError> {
        let states = enumerate(|| Ok(self.open()?), asked).map_err(|error| self.unread(error))?;
        print_lines(states.into_iter().map(Ok))
    }

    /// Each answer is printed before the next state is read.
    pub(super) fn measure(self) -> Result<(), VerbError> {
        let mut current: Option<Replay<Input>> = None;
        for line in io::stdin().lines() {
            let state: State =
                serde_json::from_str(&line.map_err(VerbError::Input)?).map_err(VerbError::State)?;
            let mut replay = match current.take().filter(|replay| replay.reaches(&state)) {
                Some(replay) => replay,
                None => self.replay(&state).map_err(|error| self.unread(error))?,
            };
            let measured = replay.measured(state).map_err(|error| self.unread(error))?;
            println!("{}", serde_json::to_string(&measured)?);
            current = Some(replay);
        }
        Ok(())
    }

    pub(super) fn changes(self) -> Result<(), VerbError> {
        let state = given_state()?;
        let mut replay = self.replay(&state).map_err(|error| self.unread(error))?;
        print_lines(replay.changes(&state).map_err(|error| self.unread(error))?.into_iter().map(Ok))
    }

    pub(super) fn condense(self, out: &Path, after: &str, until: &str) -> Result<(), VerbError> {
        let file = File::create_new(out).map_err(|source| VerbError::File { path: out.into(), source })?;
        condense(|| Ok(self.open()?), after, until, BufWriter::new(file)).map_err(|error| self.unread(error))
    }

    pub(super) fn events(self) -> Result<(), VerbError> {
        let records = self.records().map_err(|error| self.unread(error))?;
        print_lines(records.map(|record| Ok(described(record.map_err(|error| self.unread(error))?))))
    }

    pub(super) fn marks(self) -> Result<(), VerbError> {
        let records = self.records().map_err(|error| self.unread(error))?;
        let (mut open, mut flushes) = (HashSet::new(), 0);
        print_lines(records.filter_map(|record| match record {
            Ok(Record { seq, event: Event::Mark { text }, .. }) => {
                Some(Ok(json!({ "seq": seq, "text": text, "flushes": flushes })))
            }
            Ok(Record { seq, event: Event::Flush, .. }) => {
                open.insert(seq);
                None
            }
            Ok(Record { event: Event::Completed { of, failed: false }, .. }) => {
                flushes += u64::from(open.remove(&of));
                None
            }
            Ok(_) => None,
            Err(error) => Some(Err(self.unread(error))),
        }))
    }

    pub(super) fn export(self, disk: &str, out: &Path) -> Result<(), VerbError> {
        let open = || {
            self.records().map_err(|why| match why {
                Unread::File(error) => self.not_exported(error),
                why => why.into(),
            })
        };
        let added = |record: &Result<Record, LogError>| match record {
            Ok(Record { event: Event::Added { name, .. }, .. }) => name == disk,
            Ok(_) => false,
            Err(_) => true,
        };
        let found = open()?.find(added).transpose().map_err(Unread::from)?;
        let nowhere = || VerbError::NoDisk { disk: disk.into(), log: self.0.into() };
        let id = found.ok_or_else(nowhere)?.disk;
        let records = open()?.map(|record| record.map_err(io::Error::other));
        let entries = File::create(out)
            .and_then(|file| dm_log_writes::export(records, id, BufWriter::new(file)))
            .map_err(|error| self.not_exported(error))?;
        println!("{entries} entries");
        Ok(())
    }

    pub(super) fn export_state(self, disk: &str, out: &Path) -> Result<(), VerbError> {
        let state = given_state()?;
        let entries = self.write_state(&state, disk, out).map_err(|why| self.not_exported(why))?;
        println!("{entries} entries");
        Ok(())
    }

    fn write_state(self, state: &State, disk: &str, out: &Path) -> Result<u64, Unread> {
        let content = self.replay(state)?.state(state, disk)?.0.written(PIECE_BYTES);
        let out = BufWriter::new(File::create(out)?);
        Ok(dm_log_writes::export_content(content, &format!("cut after {}", state.cut), out)?)
    }
}

/// The state of standard input.
pub(super) fn given_state() -> Result<State, VerbError> {
    let state = io::read_to_string(io::stdin()).map_err(VerbError::Input)?;
    serde_json::from_str(&state).map_err(VerbError::State)
}

/// Each as JSON in a line; those before an error are printed too.
fn print_lines<T: Serialize>(items: impl Iterator<Item = Result<T, VerbError>>) -> Result<(), VerbError> {
    let mut out = BufWriter::new(io::stdout().lock());
    for item in items {
        let line = serde_json::to_string(&item?)?;
        writeln!(out, "{line}").map_err(VerbError::Output)?;
    }
    out.flush().map_err(VerbError::Output)
}

/// An event without its content.
fn described(record: Record) -> serde_json::Value {
    let (seq, disk) = (record.seq, record.disk);
    match record.event {
        Event::Added { name, size, nature } => {
            json!({"seq": seq, "disk": disk, "event": "added", "text": name, "length": size, "nature": nature})
        }
        Event::Write { offset, fua, data } => {
            json!({"seq": seq, "disk": disk, "event": "write", "offset": offset, "length": data.len(), "fua": fua})
        }
        Event::WriteZeroes { offset, length } | Event::Discard { offset, length } => {
            json!({"seq": seq, "disk": disk, "event": "zero", "offset": offset, "length": length})
        }
        Event::Flush => json!({"seq": seq, "disk": disk, "event": "flush"}),
        Event::Completed { of, failed } => {
            json!({"seq": seq, "disk": disk, "event": "completed", "of": of, "failed": failed})
        }
        Event::Mark { text } => json!({"seq": seq, "event": "mark", "text": text}),
        Event::Cut => json!({"seq": seq, "event": "cut"}),
    }
}
