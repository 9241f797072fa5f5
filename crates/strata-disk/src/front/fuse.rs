//! Disks as files of one FUSE mount, for `losetup --direct-io=on`.
//!
//! A flush of the loop device arrives as fsync, a discard or write of zeroes as fallocate. Both are always implemented: the
//! kernel takes ENOSYS as success for ever after, which would make every disk a liar.

use crate::daemon::Shared;
use crate::engine::{Op, Refused};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const ROOT: u64 = 1;
/// Inode numbers of disks begin after the root's.
const FIRST: u64 = 2;
const NEVER_CACHED: Duration = Duration::ZERO;
const LARGEST_WRITE: u32 = 1 << 20;

/// What a request of FUSE is answered with.
pub enum Reply {
    Data(ReplyData),
    Written(ReplyWrite, u32),
    Empty(ReplyEmpty),
}

impl Reply {
    pub fn send(self, result: Result<Vec<u8>, Refused>) {
        match (self, result) {
            (Self::Data(reply), Ok(data)) => reply.data(&data),
            (Self::Written(reply, count), Ok(_)) => reply.written(count),
            (Self::Empty(reply), Ok(_)) => reply.ok(),
            (Self::Data(reply), Err(refused)) => reply.error(errno(refused)),
            (Self::Written(reply, _), Err(refused)) => reply.error(errno(refused)),
            (Self::Empty(reply), Err(refused)) => reply.error(errno(refused)),
        }
    }
}

fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::Io => Errno::EIO,
        Refused::OutOfRange => Errno::EINVAL,
        Refused::Unsupported => Errno::EOPNOTSUPP,
    }
}

pub struct Front(pub Arc<Shared>);

impl Front {
    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let mut engine = self.0.engine();
        let size = if inode == ROOT { 0 } else { engine.disk(disk_of(inode)?)?.image.size() };
        let directory = inode == ROOT;
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn submit(&self, inode: INodeNo, op: Op<'_>, reply: Reply) {
        self.0.submit(disk_of(inode.0).unwrap_or(u32::MAX), op, reply);
    }
}

fn disk_of(inode: u64) -> Option<u32> {
    inode.checked_sub(FIRST)?.try_into().ok()
}

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        config
            .add_capabilities(wanted)
            .map_err(|missing| io::Error::other(format!("this kernel's fuse lacks {missing:?}")))?;
        // Values beyond what the kernel takes are lowered by it.
        let _ = config.set_max_write(LARGEST_WRITE);
        let _ = config.set_max_background(256);
        let _ = config.set_congestion_threshold(256);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let id = name.to_str().and_then(|name| self.0.engine().id(name));
        match id.and_then(|id| self.attributes(u64::from(id) + FIRST)) {
            Some(attributes) => reply.entry(&NEVER_CACHED, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode.0) {
            Some(attributes) => reply.attr(&NEVER_CACHED, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match disk_of(inode.0).and_then(|id| self.0.engine().disk(id).map(|disk| disk.opened += 1)) {
            Some(()) => reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(id) = disk_of(inode.0) {
            if let Some(disk) = self.0.engine().disk(id) {
                disk.opened -= 1;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.attributes(inode.0).map_or(0, |attributes| attributes.size);
        let length = u64::from(size).min(end.saturating_sub(offset));
        self.submit(inode, Op::Read { offset: offset.min(end), length }, Reply::Data(reply));
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let op = Op::Write { offset, data, fua: false };
        self.submit(inode, op, Reply::Written(reply, data.len() as u32));
    }

    /// Closing a file is no flush of its disk.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.submit(inode, Op::Flush, Reply::Empty(reply));
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let discard = mode & libc::FALLOC_FL_PUNCH_HOLE != 0;
        if !discard && mode & libc::FALLOC_FL_ZERO_RANGE == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.submit(inode, Op::Zero { offset, length, discard }, Reply::Empty(reply));
    }

    fn readdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = self.0.engine().list();
        for (index, (name, id)) in list.iter().enumerate().skip(offset as usize) {
            let inode = INodeNo(u64::from(*id) + FIRST);
            if reply.add(inode, index as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
