//! Measures the I/O overhead of this host, without a medium, and lists the models that are faster than that.
//!
//! A request that passes a front takes the front's own time and that of the medium. Where the front alone is slower than
//! the medium would be, a model is out of range here: it would run at the speed of the host.

use crate::media::model::Model;
use crate::media::validation::{Load, loads};
use crate::rng::Rng;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const SIZE_BYTES: u64 = 64 << 20;
const DEEP: usize = 32;
const PAGE: usize = 4096;

/// Requests a second by one way to a disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    pub front: &'static str,
    /// At depth 1, of 4 KiB.
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    /// Of 8 KiB, a flush after each.
    pub flushed_writes_per_s: f64,
    /// At depth 32, of 4 KiB.
    pub deep_reads_per_s: f64,
}

/// One of a model's loads, and what the front gives without a medium.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reached {
    #[serde(flatten)]
    pub load: Load,
    pub implied_per_s: f64,
    pub host_per_s: f64,
}

/// What of a model this host can give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Range {
    pub model: String,
    /// From this stretch of its times on no load of the model is faster than the host.
    pub smallest_stretch: f64,
    /// The loads that this host cannot give unstretched.
    pub beyond: Vec<Reached>,
}

/// What a front can give of a model. Pure.
pub fn range(model: &Model, front: &Rates) -> Range {
    let all: Vec<Reached> = loads(model)
        .into_iter()
        .filter_map(|(load, implied_per_s)| {
            Some(Reached { load, implied_per_s, host_per_s: host(front, load)? })
        })
        .collect();
    let smallest = all.iter().map(|one| one.implied_per_s / one.host_per_s).fold(1.0, f64::max);
    let beyond = all.into_iter().filter(|one| one.host_per_s < one.implied_per_s).collect();
    Range { model: model.name.clone(), smallest_stretch: smallest, beyond }
}

/// Of small requests alone: large ones cost what their copying costs, which no front was measured for.
fn host(front: &Rates, load: Load) -> Option<f64> {
    match (load.rw.contains("read"), load.flush, load.depth) {
        _ if load.bytes > 8192 || load.after_bytes > 0 => None,
        (false, true, _) => Some(front.flushed_writes_per_s),
        (true, _, 1) => Some(front.reads_per_s),
        (false, _, 1) => Some(front.writes_per_s),
        (true, _, _) => Some(front.deep_reads_per_s),
        (false, false, _) => None,
    }
}

/// Loads a disk by its file or device, each load for that long.
pub(crate) fn measure(front: &'static str, path: &Path, each: Duration) -> io::Result<Rates> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let one = |act: &(dyn Fn(&mut Buffer, u64) -> io::Result<()> + Sync)| rate(each, 1, act);
    Ok(Rates {
        front,
        writes_per_s: one(&|buffer, draw| write(&file, buffer, draw, PAGE))?,
        reads_per_s: one(&|buffer, draw| read(&file, buffer, draw))?,
        flushed_writes_per_s: one(&|buffer, draw| {
            write(&file, buffer, draw, 2 * PAGE)?;
            file.sync_data()
        })?,
        deep_reads_per_s: rate(each, DEEP, &|buffer, draw| read(&file, buffer, draw))?,
    })
}

#[repr(align(4096))]
struct Buffer([u8; 2 * PAGE]);

/// Calls a second of `act` by that many threads at once.
fn rate(
    each: Duration,
    threads: usize,
    act: &(dyn Fn(&mut Buffer, u64) -> io::Result<()> + Sync),
) -> io::Result<f64> {
    let began = Instant::now();
    let calls: io::Result<u64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    let (mut buffer, mut rng) = (Buffer([1; 2 * PAGE]), Rng::new(number as u64));
                    let mut calls = 0;
                    while began.elapsed() < each || calls == 0 {
                        act(&mut buffer, rng.draw())?;
                        calls += 1;
                    }
                    Ok(calls)
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().expect("a thread that loads does not panic")).sum()
    });
    Ok(calls? as f64 / began.elapsed().as_secs_f64())
}

fn offset(draw: u64) -> i64 {
    (draw % (SIZE_BYTES / PAGE as u64 - 1)) as i64 * PAGE as i64
}

fn read(file: &File, buffer: &mut Buffer, draw: u64) -> io::Result<()> {
    // SAFETY: the buffer holds more than a page.
    let done = unsafe { libc::pread(file.as_raw_fd(), buffer.0.as_mut_ptr().cast(), PAGE, offset(draw)) };
    whole(done, PAGE)
}

fn write(file: &File, buffer: &Buffer, draw: u64, length: usize) -> io::Result<()> {
    // SAFETY: the buffer holds two pages, which no write exceeds.
    let done = unsafe { libc::pwrite(file.as_raw_fd(), buffer.0.as_ptr().cast(), length, offset(draw)) };
    whole(done, length)
}

fn whole(done: isize, length: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Ok(done) if done == length => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
