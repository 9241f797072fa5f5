//! One disk's log in the format of the kernel's dm-log-writes, which `replay-log` of xfstests reads.
//!
//! As the kernel does it, a write is logged once the flush after it was submitted, in order of completion; what was never
//! flushed follows at the end, before the mark `dm-log-writes-end`. Writes of zeroes are logged with their zeroes,
//! which are a hole of the file.

use super::{EVERY, Event, Record};
use crate::durability::Seq;
use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
/// Bytes of the unit in which the format counts.
pub const SECTOR: u64 = 512;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// A logged request: where and how long in bytes, its flags and its data. A write that is longer than its data goes on
/// with zeroes.
struct Entry {
    offset: u64,
    length: u64,
    flags: u64,
    data: Vec<u8>,
}

struct Export<W> {
    out: W,
    entries: u64,
}

/// Writes the records of `disk` to `out`; how many entries that made.
pub fn export<W: Write + Seek>(
    records: impl Iterator<Item = io::Result<Record>>,
    disk: u32,
    out: W,
) -> io::Result<u64> {
    let mut export = Export { out, entries: 0 };
    export.superblock()?;
    let mut open: BTreeMap<Seq, Entry> = BTreeMap::new();
    let mut unflushed: Vec<Entry> = Vec::new();
    let mut flushing: BTreeMap<Seq, Vec<Entry>> = BTreeMap::new();
    for record in records {
        let record = record?;
        if record.disk != disk && record.disk != EVERY {
            continue;
        }
        match record.event {
            Event::Flush => {
                flushing.insert(record.seq, std::mem::take(&mut unflushed));
            }
            Event::Mark { text } => export.mark(&text)?,
            Event::Completed { of, failed } => {
                if let Some(before) = flushing.remove(&of) {
                    export.put_all(before)?;
                    if !failed {
                        export.put(Entry { offset: 0, length: 0, flags: FLUSH, data: Vec::new() })?;
                    }
                } else if let Some(entry) = open.remove(&of).filter(|_| !failed) {
                    unflushed.push(entry);
                }
            }
            event => {
                open.extend(changed(event).map(|entry| (record.seq, entry)));
            }
        }
    }
    export.put_all(flushing.into_values().flatten().chain(unflushed).collect())?;
    export.mark("dm-log-writes-end")?;
    export.superblock()?;
    Ok(export.entries)
}

/// Writes a content to `out`, as writes that are durable at once, with a mark at the end: replayed on a disk of zeroes
/// they leave it. How many entries that made.
pub fn export_content<W: Write + Seek>(pieces: Vec<(u64, Vec<u8>)>, mark: &str, out: W) -> io::Result<u64> {
    let mut export = Export { out, entries: 0 };
    export.superblock()?;
    for (offset, data) in pieces {
        export.put(Entry { offset, length: data.len() as u64, flags: FUA, data })?;
    }
    export.mark(mark)?;
    export.superblock()?;
    Ok(export.entries)
}

fn changed(event: Event) -> Option<Entry> {
    match event {
        Event::Write { offset, fua, data } => {
            Some(Entry { offset, length: data.len() as u64, flags: if fua { FUA } else { 0 }, data })
        }
        Event::WriteZeroes { offset, length } => Some(Entry { offset, length, flags: 0, data: Vec::new() }),
        Event::Discard { offset, length } => Some(Entry { offset, length, flags: DISCARD, data: Vec::new() }),
        _ => None,
    }
}

impl<W: Write + Seek> Export<W> {
    fn superblock(&mut self) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        let mut sector = Vec::with_capacity(SECTOR as usize);
        for field in [MAGIC, VERSION, self.entries] {
            sector.extend(field.to_le_bytes());
        }
        sector.extend((SECTOR as u32).to_le_bytes());
        self.padded(sector)
    }

    fn put_all(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        entries.into_iter().try_for_each(|entry| self.put(entry))
    }

    fn put(&mut self, entry: Entry) -> io::Result<()> {
        self.head(entry.offset / SECTOR, entry.length / SECTOR, entry.flags, &[])?;
        let zeroes = if entry.flags & DISCARD == 0 { entry.length - entry.data.len() as u64 } else { 0 };
        self.padded(entry.data)?;
        self.hole(zeroes)
    }

    /// An entry follows the last write in every log, so that no hole is at the end of the file.
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        if bytes > 0 {
            let sectors = bytes.checked_next_multiple_of(SECTOR).and_then(|whole| i64::try_from(whole).ok());
            let forward = sectors.ok_or_else(|| io::Error::other(format!("{bytes} bytes of zeroes")))?;
            self.out.seek(SeekFrom::Current(forward))?;
        }
        Ok(())
    }

    fn mark(&mut self, text: &str) -> io::Result<()> {
        let room = SECTOR as usize - 32;
        self.head(0, 0, MARK, &text.as_bytes()[..text.len().min(room)])
    }

    fn head(&mut self, sector: u64, sectors: u64, flags: u64, text: &[u8]) -> io::Result<()> {
        let mut head = Vec::with_capacity(SECTOR as usize);
        for field in [sector, sectors, flags, text.len() as u64] {
            head.extend(field.to_le_bytes());
        }
        head.extend(text);
        self.entries += 1;
        self.padded(head)
    }

    fn padded(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
        self.out.write_all(&bytes)
    }
}
