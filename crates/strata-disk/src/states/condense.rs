//! An event log without what happened before a window: where nothing was volatile, what was durable stands for it.
//!
//! States of the window can be made of it as of the whole log, and they have the same content.

use super::Lying;
use super::choice::{Chosen, Whole};
use super::replay::{Replay, ReplayError};
use crate::durability::Seq;
use crate::log::native::{Reader, Writer};
use crate::log::{Event, Record};
use crate::store::PIECE_BYTES;
use std::io::{Read, Write};

/// Writes the log from the last moment before the mark `after` at which nothing was volatile, up to the mark `until`.
/// `open` gives the log from its beginning, each time it is called.
pub fn condense<R: Read, W: Write>(
    open: impl Fn() -> Result<R, ReplayError>,
    after: &str,
    until: &str,
    out: W,
) -> Result<(), ReplayError> {
    let start = quiet_before(Replay::new(open()?, Lying::default())?, after)?;
    let mut writer = Writer::new(out)?;
    let mut reader = Reader::new(open()?)?;
    if start > 0 {
        let mut replay = Replay::new(open()?, Lying::default())?;
        replay.advance(start)?;
        write_durable(&replay, &mut reader, start, &mut writer)?;
    }
    while let Some(record) = reader.read()? {
        writer.write(&record)?;
        if matches!(&record.event, Event::Mark { text } if text == until) {
            break;
        }
    }
    Ok(writer.flush()?)
}

/// The number of the last event before the mark after which nothing was volatile or under way; 0 where there is none.
fn quiet_before<R: Read>(mut replay: Replay<R>, mark: &str) -> Result<Seq, ReplayError> {
    let mut quiet = 0;
    while let Some(next) = replay.next() {
        if matches!(&next.event, Event::Mark { text } if text == mark) {
            return Ok(quiet);
        }
        replay.step()?;
        if replay.is_quiet() {
            quiet = replay.at();
        }
    }
    Err(ReplayError::Unfit(format!("no mark {mark:?}")))
}

/// The disks as they were added, and what was durable of each as writes that are durable at once. The reader goes on
/// behind `start`.
fn write_durable<R: Read, W: Write>(
    replay: &Replay<R>,
    reader: &mut Reader<R>,
    start: Seq,
    writer: &mut Writer<W>,
) -> Result<(), ReplayError> {
    let mut added = Vec::new();
    while let Some(record) = reader.read()? {
        let seq = record.seq;
        if matches!(record.event, Event::Added { .. }) {
            added.push(record);
        }
        if seq == start {
            break;
        }
    }
    let nothing = Chosen { whole: Whole::Nothing, torn: Vec::new() };
    for (disk, content) in replay.numbers().zip(replay.left(&nothing)?) {
        for record in added.iter().filter(|record| record.disk == disk) {
            writer.write(record)?;
            for (offset, data) in content.written(PIECE_BYTES) {
                let event = Event::Write { offset, fua: true, data };
                writer.write(&Record { seq: record.seq, disk, event })?;
                let event = Event::Completed { of: record.seq, failed: false };
                writer.write(&Record { seq: record.seq, disk, event })?;
            }
        }
    }
    writer.write(&Record {
        seq: start,
        disk: crate::log::EVERY,
        event: Event::Mark { text: "durable".into() },
    })?;
    Ok(())
}
