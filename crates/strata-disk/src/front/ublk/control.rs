//! Commands to the driver, by /dev/ublk-control: each a request of a ring of its own.

use super::wire::{self, Geometry, INFO_BYTES};
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use nix::errno::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc::RecvError;
use std::time::Duration;
use thiserror::Error;

pub(crate) const PATH: &str = "/dev/ublk-control";
const DEVICES: &str = "/sys/class/ublk-char";

/// A device starts once its partitions were looked for, with the time of its medium; it stops once what is under way is
/// answered.
const PATIENCE: Duration = Duration::from_secs(600);
/// A device whose filesystem is still mounted goes when that is unmounted.
const PATIENCE_WITH_USERS: Duration = Duration::from_millis(500);

/// Why a disk cannot be a block device of ublk.
#[derive(Debug, Error)]
pub(crate) enum UblkError {
    #[error("{PATH}: {0}")]
    Driver(io::Error),
    #[error("{PATH}: io_uring may not be used here")]
    Forbidden,
    #[error("{PATH}: the driver of this kernel is older than Linux 6.5 ({0})")]
    Old(Errno),
    #[error("cannot {0} a ublk device: {desc}", desc = .1.desc())]
    Command(&'static str, Errno),
    #[error("{path}: {source}")]
    Queue { path: PathBuf, source: io::Error },
    #[error("thread of a ublk device: {0}")]
    Thread(io::Error),
    /// The thread ended before it said whether the device can be started.
    #[error(transparent)]
    Silent(#[from] RecvError),
    #[error("the thread of {0} panicked")]
    Panicked(PathBuf),
}

pub(crate) struct Control(File);

impl Control {
    pub(crate) fn open() -> Result<Self, UblkError> {
        let opened = OpenOptions::new().read(true).write(true).open(PATH);
        opened.map(Self).map_err(UblkError::Driver)
    }

    /// Whether this process may use the driver, and the driver knows these commands.
    pub(crate) fn is_usable(&self) -> Result<(), UblkError> {
        let (result, _) = self.pass(wire::GET_FEATURES, 0, vec![0; wire::FEATURES_BYTES], PATIENCE);
        result.map_err(|error| match error {
            Errno::EPERM => UblkError::Forbidden,
            _ => UblkError::Old(error),
        })
    }

    /// The number of a new device.
    pub(crate) fn add(&self, depth: u16, largest_request: u32, mark: u64) -> Result<u32, UblkError> {
        let (result, info) =
            self.pass(wire::ADD, wire::ANY_DEVICE, wire::info(depth, largest_request, mark), PATIENCE);
        result.map_err(|error| UblkError::Command("add", error))?;
        Ok(whole(&info).map_or(wire::ANY_DEVICE, |info| wire::read_info(info).0))
    }

    pub(crate) fn set_geometry(
        &self,
        device: u32,
        geometry: &Geometry,
        largest_request: u32,
    ) -> Result<(), UblkError> {
        let parameters = wire::parameters(geometry, largest_request);
        let (result, _) = self.pass(wire::SET_PARAMETERS, device, parameters, PATIENCE);
        result.map_err(|error| UblkError::Command("set the parameters of", error))
    }

    /// Its disk is there when this returns; its queue must be served meanwhile.
    pub(crate) fn start(&self, device: u32) -> Result<(), UblkError> {
        let data = u64::from(std::process::id());
        self.ask(wire::START, device, (&mut Vec::new(), data), PATIENCE)
            .map_err(|error| UblkError::Command("start", error))
    }

    /// Its disk is gone when this returns; its queue must be served meanwhile.
    pub(crate) fn stop(&self, device: u32) -> Result<(), UblkError> {
        self.ask(wire::STOP, device, (&mut Vec::new(), 0), PATIENCE)
            .map_err(|error| UblkError::Command("stop", error))
    }

    /// Its number is free when this returns, or nearly: whoever still has its disk open keeps it.
    pub(crate) fn delete(&self, device: u32) -> Result<(), UblkError> {
        match self.ask(wire::DELETE, device, (&mut Vec::new(), 0), PATIENCE_WITH_USERS) {
            Ok(()) | Err(Errno::ETIME | Errno::ENODEV) => Ok(()),
            Err(error) => Err(UblkError::Command("delete", error)),
        }
    }

    /// The devices of this mark, whoever serves them.
    pub(crate) fn of_mark(&self, mark: u64) -> Vec<u32> {
        let listed = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        let names = listed.filter_map(|entry| entry.file_name().into_string().ok());
        let devices = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok());
        devices.filter(|device| self.mark(*device) == Some(mark)).collect()
    }

    fn mark(&self, device: u32) -> Option<u64> {
        let (result, info) = self.pass(wire::GET_INFO, device, vec![0; INFO_BYTES], PATIENCE);
        result.ok()?;
        whole(&info).map(|info| wire::read_info(info).1)
    }

    /// A command with a buffer, which the driver reads or writes.
    fn pass(
        &self,
        command: u32,
        device: u32,
        mut buffer: Vec<u8>,
        patience: Duration,
    ) -> (Result<(), Errno>, Vec<u8>) {
        let result = self.ask(command, device, (&mut buffer, 0), patience);
        if result == Err(Errno::ETIME) {
            // the driver may still come to it
            std::mem::forget(std::mem::take(&mut buffer));
        }
        (result, buffer)
    }

    /// ETIME where the driver does not answer in time: what it was asked for may still come about.
    fn ask(
        &self,
        command: u32,
        device: u32,
        (buffer, data): (&mut Vec<u8>, u64),
        patience: Duration,
    ) -> Result<(), Errno> {
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let body = wire::control(device, address, buffer.len() as u16, data);
        let entry = opcode::UringCmd80::new(Fd(self.0.as_raw_fd()), command).cmd(body).build();
        let of = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        let mut ring: IoUring<Entry128, cqueue::Entry> = IoUring::builder().build(1).map_err(of)?;
        // SAFETY: the buffer lives until the answer is there, and is leaked where none came (`pass`).
        unsafe { ring.submission().push(&entry) }.map_err(|_| Errno::ENOBUFS)?;
        let until = Timespec::from(patience);
        let arguments = SubmitArgs::new().timespec(&until);
        loop {
            match ring.submitter().submit_with_args(1, &arguments).map_err(of) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
            if let Some(answer) = ring.completion().next() {
                return if answer.result() < 0 { Err(Errno::from_raw(-answer.result())) } else { Ok(()) };
            }
        }
    }
}

fn whole(info: &[u8]) -> Option<&[u8; INFO_BYTES]> {
    info.try_into().ok()
}
