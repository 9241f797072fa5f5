//! The queue of one device: a thread takes its requests from a ring and gives the answers back by it, its own and those
//! that other threads have.
//!
//! Each request has a tag, and each tag a buffer: the kernel fills it before a write is handed out, and takes a read's data
//! from it when that is answered.

use super::wire::{self, Asked, DESCRIPTOR_BYTES};
use crate::engine::{Op, Refused};
use crate::front::patience::Patience;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Instant;

pub(crate) const DEPTH: u16 = 128;
pub(crate) const LARGEST_REQUEST: u32 = 512 << 10;
/// What the entry is known by that waits for answers of other threads.
const WOKEN: u64 = u64::MAX;

/// A request that is to be answered.
pub(crate) struct Reply {
    answers: Arc<Answers>,
    tag: u16,
    /// Of a write, how much it wrote.
    written: Option<u32>,
}

impl Reply {
    /// `result` is the data of a read, and empty for what has none.
    pub(crate) fn send(self, result: Result<Vec<u8>, Refused>) {
        let (result, data) = match (result, self.written) {
            (Ok(_), Some(bytes)) => (bytes as i32, Vec::new()),
            (Ok(data), None) => (data.len() as i32, data),
            (Err(refused), _) => (-(refused.errno() as i32), Vec::new()),
        };
        self.answers.put(Answered { tag: self.tag, result, data });
    }
}

struct Answered {
    tag: u16,
    result: i32,
    data: Vec<u8>,
}

struct Answers {
    waiting: Mutex<Vec<Answered>>,
    wake: EventFd,
    /// Who takes them.
    thread: ThreadId,
}

impl Answers {
    fn put(&self, answered: Answered) {
        let mut waiting = self.waiting.lock().expect("nothing panics with the answers");
        let first = waiting.is_empty();
        waiting.push(answered);
        drop(waiting);
        if first && std::thread::current().id() != self.thread {
            // a counter that is full wakes as well
            let _ = self.wake.write(1);
        }
    }

    fn take(&self) -> Vec<Answered> {
        std::mem::take(&mut *self.waiting.lock().expect("nothing panics with the answers"))
    }
}

/// Memory shared with the kernel.
struct Mapped {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is plain memory, which is used by the thread that has it.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Of a device, to be read; of no device, fresh memory.
    fn new(bytes: usize, device: Option<&File>) -> io::Result<Self> {
        let (access, flags) = match device {
            Some(_) => (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE),
            None => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        let file = device.map_or(-1, |device| device.as_raw_fd());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) };
        match NonNull::new(at) {
            Some(new) if at != libc::MAP_FAILED => Ok(Self { at: new.cast(), bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more: the ring of the requests is gone.
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.bytes);
        }
    }
}

pub(crate) struct Queue<S> {
    /// First, so that it is gone before what its requests refer to.
    ring: IoUring,
    device: File,
    descriptors: Mapped,
    buffers: Mapped,
    answers: Arc<Answers>,
    woken: Box<u64>,
    serve: S,
    /// Tags that the kernel took back.
    gone: usize,
}

impl<S: Fn(Op<'_>, Reply)> Queue<S> {
    /// The queue of a device that was added, on the thread that is to serve it: `serve` gets each request. The device can
    /// be started once this returns.
    pub(crate) fn open(path: &Path, serve: S) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(path)?;
        let descriptors = usize::from(DEPTH) * DESCRIPTOR_BYTES;
        let answers = Answers {
            waiting: Mutex::default(),
            wake: EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?,
            thread: std::thread::current().id(),
        };
        let mut queue = Self {
            ring: IoUring::new(2 * u32::from(DEPTH))?,
            descriptors: Mapped::new(descriptors.next_multiple_of(page_bytes()), Some(&device))?,
            buffers: Mapped::new(usize::from(DEPTH) * LARGEST_REQUEST as usize, None)?,
            device,
            answers: Arc::new(answers),
            woken: Box::default(),
            serve,
            gone: 0,
        };
        (0..DEPTH).for_each(|tag| queue.pass(wire::FETCH, tag, 0));
        queue.wait_for_answers();
        queue.ring.submit()?;
        Ok(queue)
    }

    /// Returns once the device is stopped.
    pub(crate) fn run(mut self) {
        let mut patience = Patience::default();
        while self.gone < usize::from(DEPTH) && self.wait(&mut patience).is_ok() {
            let done: Vec<_> =
                self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (of, result) in done {
                match u16::try_from(of) {
                    Ok(tag) if result >= 0 => self.take(tag),
                    Ok(_) => self.gone += 1,
                    Err(_) => self.wait_for_answers(),
                }
            }
            for answered in self.answers.take() {
                self.give(answered);
            }
        }
    }

    /// Hands everything to the kernel and waits until there is something to take.
    fn wait(&mut self, patience: &mut Patience) -> io::Result<()> {
        self.ring.submit()?;
        let began = Instant::now();
        let mut slept = false;
        while self.ring.completion().is_empty() {
            if !slept && began.elapsed() < patience.spun() {
                // on the way back from it the kernel puts requests into the ring
                std::thread::yield_now();
                continue;
            }
            slept = true;
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        patience.learn(slept);
        Ok(())
    }

    fn wait_for_answers(&mut self) {
        let into: *mut u64 = &raw mut *self.woken;
        let wake = Fd(self.answers.wake.as_fd().as_raw_fd());
        let entry = opcode::Read::new(wake, into.cast(), size_of::<u64>() as u32).build().user_data(WOKEN);
        // SAFETY: the number lives as long as the ring does.
        unsafe { self.push(&entry) };
    }

    /// Hands a tag to the kernel, and with it the result of its last request.
    fn pass(&mut self, command: u32, tag: u16, result: i32) {
        let body = wire::request(tag, result, self.buffer(tag).as_ptr() as u64);
        let entry = opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), command).cmd(body).build();
        // SAFETY: the buffer lives as long as the ring, and is not touched before the kernel gives the tag back.
        unsafe { self.push(&entry.user_data(u64::from(tag))) };
    }

    /// # Safety
    ///
    /// What the entry refers to must live until it is completed.
    unsafe fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: as of this function.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring has room for an entry of each tag and one more");
    }

    fn buffer(&self, tag: u16) -> NonNull<u8> {
        // SAFETY: there is a buffer for each tag.
        unsafe { self.buffers.at.add(usize::from(tag) * LARGEST_REQUEST as usize) }
    }

    fn take(&self, tag: u16) {
        let reply = Reply { answers: self.answers.clone(), tag, written: None };
        let at = self.descriptors.at.as_ptr().cast::<[u8; DESCRIPTOR_BYTES]>();
        // SAFETY: there is a descriptor for each tag, which the kernel wrote before it gave the tag out.
        let descriptor = unsafe { at.add(usize::from(tag)).read_volatile() };
        match wire::read_descriptor(&descriptor) {
            Asked::Read { length, .. } | Asked::Write { length, .. }
                if length > u64::from(LARGEST_REQUEST) =>
            {
                reply.send(Err(Refused::OutOfRange));
            }
            Asked::Read { offset, length } => (self.serve)(Op::Read { offset, length }, reply),
            Asked::Write { offset, length, fua } => {
                // SAFETY: the kernel filled so much of the buffer, and touches it again only with the next request.
                let data = unsafe { std::slice::from_raw_parts(self.buffer(tag).as_ptr(), length as usize) };
                let reply = Reply { written: Some(length as u32), ..reply };
                (self.serve)(Op::Write { offset, data, fua }, reply);
            }
            Asked::Zero { offset, length, discard } => {
                (self.serve)(Op::Zero { offset, length, discard }, reply);
            }
            Asked::Flush => (self.serve)(Op::Flush, reply),
            Asked::Other => reply.send(Err(Refused::Unsupported)),
        }
    }

    fn give(&mut self, answered: Answered) {
        let data = &answered.data[..answered.data.len().min(LARGEST_REQUEST as usize)];
        // SAFETY: the tag is ours until the answer is passed on, and no more is written than its buffer holds.
        unsafe {
            self.buffer(answered.tag).as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
        self.pass(wire::COMMIT_AND_FETCH, answered.tag, answered.result);
    }
}

fn page_bytes() -> usize {
    // SAFETY: the call takes a number and gives one.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
