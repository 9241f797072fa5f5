//! Files of one FUSE mount, for `losetup --direct-io=on`.
//!
//! A flush of the loop device arrives as fsync, a discard or write of zeroes as fallocate. Both are always implemented: the
//! kernel takes ENOSYS as success for ever after, which would make every disk a liar.
//!
//! One thread takes requests. Where they follow one another within microseconds it asks for the next one again and again
//! before it sleeps: to be woken takes longer than to answer.

use crate::engine::{Op, Refused};
use crate::front::patience::Patience;
use crate::front::wire::{self, Asked, Call, LARGEST_REQUEST, Node};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;

const ROOT: u64 = 1;
/// Node numbers of files begin after the folder's.
const FIRST: u64 = 2;

/// A request of FUSE that is to be answered.
pub struct Reply {
    device: Arc<File>,
    unique: u64,
    /// Of a write, how much it wrote.
    written: Option<u32>,
}

impl Reply {
    /// `result` is the data of a read, and empty for what has none.
    pub fn send(self, result: Result<Vec<u8>, Refused>) {
        match (result, self.written) {
            (Ok(_), Some(bytes)) => self.answer(0, &wire::written(bytes)),
            (Ok(data), None) => self.answer(0, &data),
            (Err(refused), _) => self.refuse(refused.errno()),
        }
    }

    fn refuse(self, errno: Errno) {
        self.answer(errno as i32, &[]);
    }

    /// Whoever asked may be gone: then nobody is to be told.
    fn answer(self, errno: i32, body: &[u8]) {
        let header = wire::header(self.unique, errno, body.len());
        let _ = (&*self.device).write_vectored(&[IoSlice::new(&header), IoSlice::new(body)]);
    }
}

/// The files of a mount, by numbers of their own.
pub trait Files: Send + Sync {
    /// The number of the file of this name.
    fn find(&self, name: &str) -> Option<u32>;

    /// Bytes of a file, where there is one.
    fn size(&self, file: u32) -> Option<u64>;

    /// All files, by name.
    fn list(&self) -> Vec<(String, u32)>;

    /// Whether it is there to be opened.
    fn open(&self, file: u32) -> bool;

    /// A file that was opened is closed.
    fn release(&self, file: u32);

    /// What lies beyond the end of a file is not read.
    fn read(&self, file: u32, offset: u64, length: u64, reply: Reply);

    /// A request other than a read.
    fn submit(&self, file: u32, op: Op<'_>, reply: Reply);
}

/// Why files cannot be served.
#[derive(Debug, Error)]
pub enum MountError {
    #[error("/dev/fuse: {0}; disks are files of a FUSE mount")]
    Device(io::Error),
    #[error("mount of {at}: {source}")]
    Mount { at: PathBuf, source: SessionError },
}

/// Why the kernel and a mount do not come together.
#[derive(Debug, Error)]
pub enum SessionError {
    #[error(transparent)]
    Kernel(#[from] Errno),
    #[error("this kernel's fuse lacks the flags {0:#x}")]
    Lacking(u32),
    #[error("the kernel began with {0}")]
    Began(String),
}

/// Mounts the files at a folder, of root alone, and says the source's name to whoever lists mounts. They are served by a
/// thread until the mount is gone.
pub fn serve(files: impl Files + 'static, at: &Path, source: &str) -> Result<(), MountError> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/fuse");
    let device = opened.map_err(MountError::Device)?;
    let told = |source| MountError::Mount { at: at.into(), source };
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions", device.as_raw_fd());
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some(source), at, Some("fuse"), flags, Some(options.as_str()))
        .map_err(|error| told(error.into()))?;
    let session = Session { device: Arc::new(device), files };
    let mut buffer = vec![0; LARGEST_REQUEST];
    session.begin(&mut buffer).map_err(|error| {
        let _ = umount2(at, MntFlags::MNT_DETACH);
        told(error)
    })?;
    std::thread::spawn(move || session.go_on(&mut buffer));
    Ok(())
}

struct Session<F> {
    device: Arc<File>,
    files: F,
}

impl<F: Files> Session<F> {
    /// The kernel asks first what is spoken.
    fn begin(&self, buffer: &mut [u8]) -> Result<(), SessionError> {
        let length = self.receive(buffer, &mut Patience::default())?;
        match wire::parse(&buffer[..length]) {
            Ok(Call { unique, asked: Asked::Init { major: 7, max_readahead, offered }, .. }) => {
                let body = wire::init(max_readahead, offered).map_err(SessionError::Lacking)?;
                self.reply(unique).answer(0, &body);
                Ok(())
            }
            other => Err(SessionError::Began(format!("{other:?}"))),
        }
    }

    fn go_on(&self, buffer: &mut [u8]) {
        let mut patience = Patience::default();
        while let Ok(length) = self.receive(buffer, &mut patience) {
            let message = &buffer[..length];
            match wire::parse(message) {
                Ok(call) => self.take(&call),
                Err(_) => {
                    wire::unique(message).into_iter().for_each(|unique| self.reply(unique).refuse(Errno::EIO))
                }
            }
        }
    }

    /// The next message; an error once the mount is gone.
    fn receive(&self, buffer: &mut [u8], patience: &mut Patience) -> Result<usize, Errno> {
        let began = Instant::now();
        let mut slept = false;
        loop {
            match (&*self.device)
                .read(buffer)
                .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
            {
                Ok(length) => {
                    patience.learn(slept);
                    return Ok(length);
                }
                Err(Errno::EAGAIN) if !slept && began.elapsed() < patience.spun() => std::thread::yield_now(),
                Err(Errno::EAGAIN) => {
                    slept = true;
                    let _ =
                        poll(&mut [PollFd::new(self.device.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                }
                // a signal, or a request that was taken back
                Err(Errno::EINTR | Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn reply(&self, unique: u64) -> Reply {
        Reply { device: self.device.clone(), unique, written: None }
    }

    fn take(&self, call: &Call<'_>) {
        let reply = self.reply(call.unique);
        match call.asked {
            Asked::Read { offset, size } => self.on_file(call.node, reply, |file, reply| {
                self.files.read(file, offset, u64::from(size), reply);
            }),
            Asked::Write { offset, data } => {
                let reply = Reply { written: Some(data.len() as u32), ..reply };
                self.submit(call.node, Op::Write { offset, data, fua: false }, reply);
            }
            Asked::Fsync => self.submit(call.node, Op::Flush, reply),
            Asked::Fallocate { offset, length, mode } => {
                let discard = mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0;
                if !discard && mode & libc::FALLOC_FL_ZERO_RANGE as u32 == 0 {
                    return reply.refuse(Errno::EOPNOTSUPP);
                }
                self.submit(call.node, Op::Zero { offset, length, discard }, reply);
            }
            Asked::Lookup { name } => {
                let file = std::str::from_utf8(name).ok().and_then(|name| self.files.find(name));
                let number = file.map_or(0, |file| u64::from(file) + FIRST);
                tell(reply, self.node(number).map(|node| wire::entry(number, node)));
            }
            Asked::Getattr => tell(reply, self.node(call.node).map(|node| wire::attributes(call.node, node))),
            Asked::Open => {
                let there = file_of(call.node).is_some_and(|file| self.files.open(file));
                tell(reply, there.then(wire::opened_file));
            }
            Asked::Release => {
                file_of(call.node).into_iter().for_each(|file| self.files.release(file));
                reply.answer(0, &[]);
            }
            Asked::Readdir { offset, size } => {
                let files = self.files.list().into_iter().map(|(name, file)| (name, u64::from(file) + FIRST));
                reply.answer(0, &wire::folder(&files.collect::<Vec<_>>(), offset, size));
            }
            Asked::Opendir => reply.answer(0, &wire::opened_folder()),
            Asked::Statfs => reply.answer(0, &wire::statfs()),
            Asked::Closing => reply.answer(0, &[]),
            Asked::Forget => {}
            Asked::Init { .. } | Asked::Other => reply.refuse(Errno::ENOSYS),
        }
    }

    fn node(&self, number: u64) -> Option<Node> {
        match number {
            ROOT => Some(Node::Folder),
            _ => file_of(number).and_then(|file| self.files.size(file)).map(|bytes| Node::File { bytes }),
        }
    }

    fn submit(&self, node: u64, op: Op<'_>, reply: Reply) {
        self.on_file(node, reply, |file, reply| self.files.submit(file, op, reply));
    }

    fn on_file(&self, node: u64, reply: Reply, act: impl FnOnce(u32, Reply)) {
        match file_of(node) {
            Some(file) => act(file, reply),
            None => reply.refuse(Errno::EIO),
        }
    }
}

fn tell(reply: Reply, body: Option<Vec<u8>>) {
    match body {
        Some(body) => reply.answer(0, &body),
        None => reply.refuse(Errno::ENOENT),
    }
}

fn file_of(node: u64) -> Option<u32> {
    node.checked_sub(FIRST)?.try_into().ok()
}
