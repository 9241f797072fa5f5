//! A FUSE file that answers everything at once and keeps nothing: what FUSE itself costs, for benches/bench_strata_disk.py.
//!
//! `null_disk DIR BYTES` mounts it, as DIR/disk, with the options of strata-disk, says `ready`, and ends with its standard input.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

const ROOT: u64 = 1;
const DISK: u64 = 2;
const LARGEST: usize = 1 << 20;

struct Null {
    size: u64,
    zeroes: Vec<u8>,
}

impl Null {
    fn attributes(&self, inode: u64) -> FileAttr {
        let (size, kind, perm) = if inode == ROOT {
            (0, FileType::Directory, 0o700)
        } else {
            (self.size, FileType::RegularFile, 0o600)
        };
        FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Null {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES)
            .map_err(|missing| io::Error::other(format!("this kernel's fuse lacks {missing:?}")))?;
        let _ = config.set_max_write(LARGEST as u32);
        let _ = config.set_max_background(256);
        let _ = config.set_congestion_threshold(256);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&Duration::ZERO, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &self.attributes(inode.0));
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = u64::from(size).min(self.size.saturating_sub(offset)) as usize;
        reply.data(&self.zeroes[..length.min(LARGEST)]);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }

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
        _inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, size] = words.as_slice() else {
        return Err(io::Error::other("null_disk DIR BYTES"));
    };
    let size = size.parse().map_err(io::Error::other)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("null-disk".into())];
    config.n_threads = Some(2);
    config.clone_fd = true;
    let session = Session::new(Null { size, zeroes: vec![0; LARGEST] }, dir, &config)?.spawn()?;
    println!("ready");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    drop(session);
    Ok(())
}
