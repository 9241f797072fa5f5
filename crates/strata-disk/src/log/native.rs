//! The native format, version 2, little endian.
//!
//! The file begins with the magic `STRATALG`, the version (u32) and the CRC-32 of these 12 bytes. Each record is a head of
//! 44 bytes and its payload: CRC-32 of the head's other bytes (u32), kind (u8), flags (u8: 1 FUA, 2 failed, 4 cache kept), zero (u16),
//! disk (u32), bytes of payload (u32), sequence (u64), offset or the completed sequence (u64), length (u64), CRC-32 of
//! the payload (u32). The payload is the data written, the text of a mark or the name of a disk. Where a disk is added, the
//! offset has its logical block in the lower 32 bits and the unit that a power cut does not tear in the upper ones. Version 1
//! has zeroes there: sectors of 512 bytes and a cache that is lost.

use super::{Event, Record};
use crate::nature::{Cache, Nature};
use crc32fast::hash;
use std::io::{self, Read, Write};
use thiserror::Error;

const MAGIC: &[u8; 8] = b"STRATALG";
const VERSION: u32 = 2;
const HEAD: usize = 44;
/// No request is larger; a damaged length must not allocate the machine's memory.
const LARGEST_PAYLOAD: u32 = 64 << 20;

const FUA: u8 = 1;
const FAILED: u8 = 2;
const CACHE_KEPT: u8 = 4;

/// Why a log cannot be read.
#[derive(Debug, Error)]
pub enum LogError {
    #[error("event log: {0}")]
    Io(#[from] io::Error),
    /// The file is not a log, or of another version.
    #[error("no event log of this version: {0}")]
    Foreign(String),
    /// The log ends within a record: whoever wrote it was killed.
    #[error("event log ends within a record")]
    Truncated,
    #[error("event log is damaged: {0}")]
    Damaged(String),
}

/// Appends records to a log.
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// A log that begins here.
    pub fn new(mut out: W) -> io::Result<Self> {
        let mut start = MAGIC.to_vec();
        start.extend(VERSION.to_le_bytes());
        start.extend(hash(&start).to_le_bytes());
        out.write_all(&start)?;
        Ok(Self { out })
    }

    /// Appends a record.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        match &record.event {
            Event::Added { name, size, nature } => {
                let flags = if nature.cache == Cache::Kept { CACHE_KEPT } else { 0 };
                self.put(record, 1, flags, nature.block | nature.unit << 32, *size, name.as_bytes())
            }
            Event::Write { offset, fua, data } => {
                self.put_write(record.seq, record.disk, *offset, *fua, data)
            }
            Event::WriteZeroes { offset, length } => self.put(record, 3, 0, *offset, *length, &[]),
            Event::Discard { offset, length } => self.put(record, 4, 0, *offset, *length, &[]),
            Event::Flush => self.put(record, 5, 0, 0, 0, &[]),
            Event::Completed { of, failed } => {
                self.put(record, 6, if *failed { FAILED } else { 0 }, *of, 0, &[])
            }
            Event::Mark { text } => self.put(record, 7, 0, 0, 0, text.as_bytes()),
            Event::Cut => self.put(record, 8, 0, 0, 0, &[]),
        }
    }

    /// As `write` of a `Write`, without a copy of the data.
    pub(crate) fn put_write(
        &mut self,
        seq: u64,
        disk: u32,
        offset: u64,
        fua: bool,
        data: &[u8],
    ) -> io::Result<()> {
        let record = Record { seq, disk, event: Event::Flush };
        self.put(&record, 2, if fua { FUA } else { 0 }, offset, data.len() as u64, data)
    }

    fn put(
        &mut self,
        of: &Record,
        kind: u8,
        flags: u8,
        place: u64,
        length: u64,
        payload: &[u8],
    ) -> io::Result<()> {
        let mut head = [0u8; HEAD];
        head[4] = kind;
        head[5] = flags;
        head[8..12].copy_from_slice(&of.disk.to_le_bytes());
        head[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[16..24].copy_from_slice(&of.seq.to_le_bytes());
        head[24..32].copy_from_slice(&place.to_le_bytes());
        head[32..40].copy_from_slice(&length.to_le_bytes());
        head[40..44].copy_from_slice(&hash(payload).to_le_bytes());
        let sum = hash(&head[4..]);
        head[..4].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(payload)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a log from its beginning.
pub struct Reader<R: Read> {
    input: R,
    version: u32,
    at: u64,
}

impl<R: Read> Reader<R> {
    /// A log that begins here; an error where it is none.
    pub fn new(mut input: R) -> Result<Self, LogError> {
        let mut start = [0u8; 16];
        if fill(&mut input, &mut start)? < start.len() || &start[..8] != MAGIC {
            return Err(LogError::Foreign("it does not begin as one".into()));
        }
        let version = number32(&start[8..]);
        if !(1..=VERSION).contains(&version) || hash(&start[..12]) != number32(&start[12..]) {
            return Err(LogError::Foreign(format!("version {version}")));
        }
        Ok(Self { input, version, at: 16 })
    }

    /// The next record; None at the end of the log.
    pub fn read(&mut self) -> Result<Option<Record>, LogError> {
        let mut head = [0u8; HEAD];
        match fill(&mut self.input, &mut head)? {
            0 => return Ok(None),
            HEAD => {}
            _ => return Err(LogError::Truncated),
        }
        if hash(&head[4..]) != number32(&head) {
            return Err(self.damaged("checksum of a head"));
        }
        let size = number32(&head[12..]);
        if size > LARGEST_PAYLOAD {
            return Err(self.damaged("size of a payload"));
        }
        let mut payload = vec![0u8; size as usize];
        if fill(&mut self.input, &mut payload)? < payload.len() {
            return Err(LogError::Truncated);
        }
        if hash(&payload) != number32(&head[40..]) {
            return Err(self.damaged("checksum of a payload"));
        }
        let event = self.event(&head, payload)?;
        self.at += HEAD as u64 + u64::from(size);
        Ok(Some(Record { seq: number64(&head[16..]), disk: number32(&head[8..]), event }))
    }

    fn event(&self, head: &[u8; HEAD], payload: Vec<u8>) -> Result<Event, LogError> {
        let (place, length) = (number64(&head[24..]), number64(&head[32..]));
        Ok(match head[4] {
            1 => {
                let nature = self.nature(head[5], place)?;
                Event::Added { name: self.text(payload)?, size: length, nature }
            }
            2 => Event::Write { offset: place, fua: head[5] & FUA != 0, data: payload },
            3 => Event::WriteZeroes { offset: place, length },
            4 => Event::Discard { offset: place, length },
            5 => Event::Flush,
            6 => Event::Completed { of: place, failed: head[5] & FAILED != 0 },
            7 => Event::Mark { text: self.text(payload)? },
            8 => Event::Cut,
            _ => return Err(self.damaged("kind of a record")),
        })
    }

    fn nature(&self, flags: u8, place: u64) -> Result<Nature, LogError> {
        if self.version == 1 {
            return Ok(Nature::default());
        }
        let cache = if flags & CACHE_KEPT == 0 { Cache::Lost } else { Cache::Kept };
        let found = Nature { cache, block: place & u64::from(u32::MAX), unit: place >> 32 };
        found.check().map_err(|error| self.damaged(&error.to_string()))
    }

    fn text(&self, payload: Vec<u8>) -> Result<String, LogError> {
        String::from_utf8(payload).map_err(|_| self.damaged("text of a record"))
    }

    fn damaged(&self, what: &str) -> LogError {
        LogError::Damaged(format!("{what} at byte {}", self.at))
    }
}

/// As many bytes as there are, up to the whole buffer.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn number32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn number64(bytes: &[u8]) -> u64 {
    u64::from(number32(bytes)) | u64::from(number32(&bytes[4..])) << 32
}
