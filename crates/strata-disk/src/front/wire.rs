//! Messages of FUSE, as linux/fuse.h has them: what a request asks, and the bytes of an answer. Pure.
//!
//! Numbers are in the byte order of the host. A request is a header of 40 bytes, the arguments of its kind, and what
//! follows them: a name or data. An answer is a header of 16 bytes and a body.

use crate::front::fields::Fields;

const REQUEST_HEADER: usize = 40;
const ANSWER_HEADER: usize = 16;

/// The revision of the protocol that is spoken: 7.36 knows direct writes in parallel, of Linux 6.2.
const MAJOR: u32 = 7;
const MINOR: u32 = 36;

const ASYNC_READ: u32 = 1 << 0;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
/// Without these a loop device would wait for each request by itself, in pieces of 128 KiB.
const NEEDED: u32 = ASYNC_DIO | MAX_PAGES;

const OPEN_DIRECT_IO: u32 = 1 << 0;
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

pub(crate) const LARGEST_WRITE: usize = 1 << 20;
/// What a request takes at most, with room for its header.
pub(crate) const LARGEST_REQUEST: usize = LARGEST_WRITE + 4096;
const PAGE: usize = 4096;
const UNDER_WAY: u16 = 256;

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// What the answer is told by.
    pub unique: u64,
    pub node: u64,
    pub asked: Asked<'a>,
}

/// What a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    Init {
        major: u32,
        max_readahead: u32,
        offered: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    Getattr,
    Open,
    Opendir,
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Fallocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Readdir {
        offset: u64,
        size: u32,
    },
    Fsync,
    Release,
    Statfs,
    /// A file or folder is closed, or the mount ends: nothing is to be done.
    Closing,
    /// Nothing is done and nothing answered.
    Forget,
    /// What no file here has, interruptions among it.
    Other,
}

/// A message that is shorter than what it says to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).ok_or(Malformed)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    number(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    number(bytes, at).map(u64::from_ne_bytes)
}

/// The number by which a message is answered, where it goes that far.
pub fn unique(message: &[u8]) -> Option<u64> {
    u64_at(message, 8).ok()
}

/// The request that a message is.
pub fn parse(message: &[u8]) -> Result<Call<'_>, Malformed> {
    if u32_at(message, 0)? as usize != message.len() {
        return Err(Malformed);
    }
    let rest = message.get(REQUEST_HEADER..).ok_or(Malformed)?;
    let asked = match u32_at(message, 4)? {
        1 => Asked::Lookup { name: rest.strip_suffix(b"\0").ok_or(Malformed)? },
        2 | 42 => Asked::Forget,
        3 => Asked::Getattr,
        14 => Asked::Open,
        15 => Asked::Read { offset: u64_at(rest, 8)?, size: u32_at(rest, 16)? },
        16 => {
            let data = rest.get(40..).ok_or(Malformed)?;
            let size = u32_at(rest, 16)? as usize;
            Asked::Write { offset: u64_at(rest, 8)?, data: data.get(..size).ok_or(Malformed)? }
        }
        17 => Asked::Statfs,
        18 => Asked::Release,
        20 => Asked::Fsync,
        25 | 29 | 38 => Asked::Closing,
        26 => Asked::Init {
            major: u32_at(rest, 0)?,
            max_readahead: u32_at(rest, 8)?,
            offered: u32_at(rest, 12)?,
        },
        27 => Asked::Opendir,
        28 => Asked::Readdir { offset: u64_at(rest, 8)?, size: u32_at(rest, 16)? },
        43 => {
            Asked::Fallocate { offset: u64_at(rest, 8)?, length: u64_at(rest, 16)?, mode: u32_at(rest, 24)? }
        }
        _ => Asked::Other,
    };
    Ok(Call { unique: u64_at(message, 8)?, node: u64_at(message, 16)?, asked })
}

/// What precedes the body of an answer; `errno` is 0 or positive.
pub fn header(unique: u64, errno: i32, body: usize) -> [u8; ANSWER_HEADER] {
    let mut header = [0; ANSWER_HEADER];
    header[..4].copy_from_slice(&((ANSWER_HEADER + body) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The body that opens a session, or the flags that this kernel lacks.
pub fn init(max_readahead: u32, offered: u32) -> Result<Vec<u8>, u32> {
    if offered & NEEDED != NEEDED {
        return Err(NEEDED & !offered);
    }
    let flags = offered & (ASYNC_READ | BIG_WRITES | NEEDED);
    let fields = Fields::default().u32(MAJOR).u32(MINOR).u32(max_readahead).u32(flags);
    let fields = fields.u16(UNDER_WAY).u16(UNDER_WAY).u32(LARGEST_WRITE as u32).u32(1);
    Ok(fields.u16((LARGEST_WRITE / PAGE) as u16).zeroes(34).0)
}

/// A file of that size, or the folder of them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    Folder,
    File { bytes: u64 },
}

fn with_attributes(fields: Fields, number: u64, node: Node) -> Vec<u8> {
    let (bytes, mode) = match node {
        Node::Folder => (0, libc::S_IFDIR | 0o700),
        Node::File { bytes } => (bytes, libc::S_IFREG | 0o600),
    };
    let times = fields.u64(number).u64(bytes).u64(bytes / 512).zeroes(36);
    // one link, of root, no device
    times.u32(mode).u32(1).zeroes(12).u32(PAGE as u32).u32(0).0
}

/// What a name stands for. It is asked for again whenever it is used.
pub fn entry(number: u64, node: Node) -> Vec<u8> {
    with_attributes(Fields::default().u64(number).zeroes(32), number, node)
}

/// The body that says what a node is.
pub fn attributes(number: u64, node: Node) -> Vec<u8> {
    with_attributes(Fields::default().zeroes(16), number, node)
}

/// A disk: never through the page cache, and several requests at once.
pub fn opened_file() -> Vec<u8> {
    Fields::default().u64(0).u32(OPEN_DIRECT_IO | OPEN_PARALLEL_DIRECT_WRITES).u32(0).0
}

/// The body that opens the folder.
pub fn opened_folder() -> Vec<u8> {
    Fields::default().zeroes(16).0
}

/// The body that says how much was written.
pub fn written(bytes: u32) -> Vec<u8> {
    Fields::default().u32(bytes).u32(0).0
}

/// The body that says how full the mount is: names of up to 255 bytes, and no size.
pub fn statfs() -> Vec<u8> {
    Fields::default().zeroes(40).u32(512).u32(255).zeroes(32).0
}

/// As many of these files as fit, from the one with that index on.
pub fn folder(files: &[(String, u64)], offset: u64, size: u32) -> Vec<u8> {
    const REGULAR_FILE: u32 = 8;
    let mut body = Vec::new();
    for (index, (name, number)) in files.iter().enumerate().skip(offset as usize) {
        let fields = Fields::default().u64(*number).u64(index as u64 + 1).u32(name.len() as u32);
        let mut one = fields.u32(REGULAR_FILE).0;
        one.extend_from_slice(name.as_bytes());
        one.resize(one.len().next_multiple_of(8), 0);
        if body.len() + one.len() > size as usize {
            break;
        }
        body.extend(one);
    }
    body
}
