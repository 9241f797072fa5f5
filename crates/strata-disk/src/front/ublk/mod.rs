//! Disks as block devices of the kernel's ublk driver, without a file and a loop device between.
//!
//! A device has one queue and one thread. The driver keeps a mark of each device, by which those of a daemon that was
//! killed are found and no others.

pub(crate) mod control;
pub(crate) mod queue;
pub mod wire;

pub(crate) use control::UblkError;

use crate::engine::Op;
use control::Control;
use queue::{DEPTH, LARGEST_REQUEST, Queue, Reply};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use wire::Geometry;

/// What nodes of such devices begin with.
pub(crate) const NODES: &str = "/dev/ublkb";

/// A disk that is attached.
pub(crate) struct Device {
    control: Control,
    number: u32,
    thread: JoinHandle<()>,
}

impl Device {
    /// Attaches a disk: `serve` gets its requests, on a thread of the device's own.
    pub(crate) fn attach(
        mark: u64,
        geometry: &Geometry,
        serve: impl Fn(Op<'_>, Reply) + Send + 'static,
    ) -> Result<Self, UblkError> {
        let control = Control::open()?;
        let number = control.add(DEPTH, LARGEST_REQUEST, mark)?;
        let begun = control
            .set_geometry(number, geometry, LARGEST_REQUEST)
            .and_then(|()| spawn(number, serve))
            .and_then(|thread| control.start(number).map(|()| thread));
        match begun {
            Ok(thread) => Ok(Self { control, number, thread }),
            Err(error) => {
                let _ = control.stop(number).and_then(|()| control.delete(number));
                Err(error)
            }
        }
    }

    pub(crate) fn node(&self) -> PathBuf {
        format!("{NODES}{}", self.number).into()
    }

    /// What is under way is answered first. Whoever has it open gets errors from then on.
    pub(crate) fn detach(self) -> Result<(), UblkError> {
        let node = self.node();
        self.control.stop(self.number)?;
        self.thread.join().map_err(|_| UblkError::Panicked(node))?;
        self.control.delete(self.number)
    }
}

/// Returns once the device can be started.
fn spawn(number: u32, serve: impl Fn(Op<'_>, Reply) + Send + 'static) -> Result<JoinHandle<()>, UblkError> {
    let path = PathBuf::from(format!("/dev/ublkc{number}"));
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name(format!("ublk{number}")).spawn(move || {
        match Queue::open(&path, serve) {
            Ok(queue) => {
                let _ = tell.send(Ok(()));
                queue.run();
            }
            Err(source) => drop(tell.send(Err(UblkError::Queue { path, source }))),
        }
    });
    let thread = thread.map_err(UblkError::Thread)?;
    told.recv()??;
    Ok(thread)
}

/// Takes away what a daemon that is dead left of its devices.
pub(crate) fn forget(mark: u64) -> Result<(), UblkError> {
    let Ok(control) = Control::open() else { return Ok(()) };
    for number in control.of_mark(mark) {
        control.stop(number).and_then(|()| control.delete(number))?;
    }
    Ok(())
}
