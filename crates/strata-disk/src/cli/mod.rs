//! The command line.

mod daemon;
mod error;
mod logs;
mod models;

use crate::daemon::serve;
use crate::durability::Lie;
use crate::engine::Timing;
use crate::fit::{Kind, Known};
use crate::front::attach::{Front, attach, detach};
use crate::place::Place;
use crate::protocol::{Added, Asked, LeftByCut, ask};
use crate::states::enumerate::Asked as Wanted;
use clap::{Parser, Subcommand};
use daemon::{calibrate, request, serve_in_background, stop, tell};
use error::{OptionError, VerbError};
use logs::{Log, given_state};
use models::{fit_report, models, validate};
use std::path::PathBuf;
use std::process::ExitCode;

/// Disks that a host does not have: the timing of real media, a volatile cache, power cuts and faults.
///
/// A daemon serves its disks as files, which are attached as block devices.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve disks: DIR/disks holds them as files, DIR/control is the socket
    Serve {
        dir: PathBuf,
        /// Write every event of all disks to this new file
        #[arg(long)]
        log: Option<PathBuf>,
        /// Return once disks can be added
        #[arg(long)]
        background: bool,
    },
    /// Add a disk
    Add {
        dir: PathBuf,
        name: String,
        /// Bytes
        #[arg(long)]
        size: Option<u64>,
        /// A model's name or file; without one, requests take no time of their own
        #[arg(long)]
        media: Option<String>,
        /// Multiply all times of the medium
        #[arg(long, default_value_t = 1.0)]
        stretch: f64,
        /// Whether requests take the time of the medium; off, they are answered at once until `timing` switches it on
        #[arg(long, value_name = "on|off", value_parser = parse_timing, default_value = "on")]
        timing: Timing,
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Bytes of the logical block; without it those of the model, or 512
        #[arg(long)]
        block: Option<u64>,
        /// Bytes of the aligned unit that a power cut does not tear; without it those of the model, or the block
        #[arg(long)]
        unit: Option<u64>,
        /// Keep the content in this file instead of memory
        #[arg(long)]
        file: Option<PathBuf>,
        /// Start as an overlay of this snapshot
        #[arg(long)]
        snapshot: Option<String>,
        /// Start as an overlay of this file
        #[arg(long)]
        base: Option<PathBuf>,
        /// Start as a power cut left a disk of this event log: standard input has the state, a line of `states`
        #[arg(long, requires = "of")]
        log: Option<PathBuf>,
        /// The disk's name in the event log
        #[arg(long, requires = "log")]
        of: Option<String>,
    },
    /// Remove a disk
    Remove {
        dir: PathBuf,
        name: String,
        /// Even while it is open
        #[arg(long)]
        force: bool,
    },
    /// Attach a disk as a block device; prints its node
    Attach {
        dir: PathBuf,
        name: String,
        /// By the kernel's ublk driver, or as a loop device over the disk's file. Without it by ublk where the driver is
        /// loaded (`modprobe ublk_drv`, Linux 6.5 or later)
        #[arg(long)]
        front: Option<Front>,
    },
    /// Detach block devices that `attach` printed
    Detach {
        dir: PathBuf,
        #[arg(required = true)]
        nodes: Vec<PathBuf>,
    },
    /// What each disk did, as JSON
    Stats { dir: PathBuf },
    /// From now on requests take the time of the medium, or none
    Timing {
        dir: PathBuf,
        #[arg(value_name = "on|off", value_parser = parse_timing)]
        set: Timing,
        #[arg(required = true)]
        disks: Vec<String>,
    },
    /// Send one request of the control socket, as JSON
    Ask { dir: PathBuf, request: String },
    /// Stop the daemon; what is under way fails
    Stop { dir: PathBuf },
    /// The media models with their parameters and sources
    Models {
        #[arg(long)]
        json: bool,
        /// The page of the models, with what each gives on a virtual clock
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
    /// Measure the I/O overhead of this host, and list the models that are out of its range, as JSON
    Calibrate {
        /// Where the disk is served meanwhile: a folder that nothing else uses
        dir: PathBuf,
        /// For each load
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
        /// A file with a further model
        #[arg(long, value_name = "FILE")]
        media: Vec<String>,
    },
    /// What a model gives on a virtual clock beside what its parameters imply, as JSON
    Validate { media: String },
    /// Propose a model of a disk from a report of fio (--output-format=json)
    Fit {
        report: PathBuf,
        #[arg(long, default_value = "fitted")]
        name: String,
        /// Of the disk; without it that of the supplied model stays
        #[arg(long, value_name = "BYTES")]
        capacity: Option<u64>,
        /// Of the disk, where its random reads do not tell
        #[arg(long)]
        kind: Option<Kind>,
        /// Turns a minute of a disk that turns, 7200 if not given
        #[arg(long, value_name = "N")]
        rpm: Option<f64>,
    },
    /// States that a power cut could have left, from an event log: a JSON object a line, in the order of their cuts
    States {
        log: PathBuf,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        states: usize,
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Power is lost after the mark of this text
        #[arg(long)]
        after: Option<String>,
        /// Power is lost before the mark of this text
        #[arg(long)]
        until: Option<String>,
        /// What the disk does about flushes from the first cut on: all of them ignored, or the last ones
        #[arg(long, value_name = "all|NUMBER", value_parser = parse_lie, default_value = "0")]
        ignore_flushes: Lie,
    },
    /// The states of standard input, lines of `states`, with what each has of this log: volatile, kept and digest
    Measure { log: PathBuf },
    /// What may be lost in the state of standard input, a line of `states`, and what of it the state has: a JSON object a
    /// line for each write, with ranges of blocks
    Changes { log: PathBuf },
    /// An event log from the last moment before a mark at which nothing was volatile, with what was durable then
    Condense {
        log: PathBuf,
        out: PathBuf,
        /// The mark before which the new log begins
        #[arg(long)]
        after: String,
        /// The mark that the new log ends with
        #[arg(long)]
        until: String,
    },
    /// What happened in an event log, without contents: a JSON object a line
    Events { log: PathBuf },
    /// The marks of an event log, and how many flushes had completed by then: a JSON object a line
    Marks { log: PathBuf },
    /// One disk of an event log in the format of dm-log-writes
    ExportLog { log: PathBuf, disk: String, out: PathBuf },
    /// One disk in the state of standard input, a line of `states`, in the same format: to be replayed on zeroes
    ExportState { log: PathBuf, disk: String, out: PathBuf },
}

/// The program, with the arguments that it was called with.
pub fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strata-disk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<(), VerbError> {
    match verb {
        Verb::Serve { dir, log, background: true } => {
            print!("{}", serve_in_background(&dir, log.as_deref())?);
            Ok(())
        }
        Verb::Serve { dir, log, background: false } => {
            Ok(serve(&Place(dir), log.as_deref(), || println!("ready {}", std::process::id()))?)
        }
        Verb::Add {
            dir,
            name,
            size,
            media,
            stretch,
            timing,
            seed,
            block,
            unit,
            file,
            snapshot,
            base,
            log,
            of,
        } => {
            let left = |(log, of)| given_state().map(|state| LeftByCut { log: absolute(log), of, state });
            let state = log.zip(of).map(left).transpose()?.map(Box::new);
            let media = media.map(absolute_file);
            let (file, base) = (file.map(absolute), base.map(absolute));
            request(
                &dir,
                &Asked::Add(Added {
                    disk: name,
                    size,
                    media,
                    stretch,
                    timing,
                    seed,
                    block,
                    unit,
                    file,
                    snapshot,
                    base,
                    state,
                }),
            )
        }
        Verb::Remove { dir, name, force } => request(&dir, &Asked::Remove { disk: name, force }),
        Verb::Attach { dir, name, front } => {
            println!("{}", attach(&dir, &name, front)?);
            Ok(())
        }
        Verb::Detach { dir, nodes } => Ok(nodes.iter().try_for_each(|node| detach(&dir, node))?),
        Verb::Stats { dir } => request(&dir, &Asked::Stats),
        Verb::Timing { dir, set, disks } => request(&dir, &Asked::Timing { disks, set }),
        Verb::Stop { dir } => stop(&dir),
        Verb::Ask { dir, request } => {
            tell(&ask(&Place(dir).control(), &request)?);
            Ok(())
        }
        Verb::Models { json, markdown } => models(json, markdown),
        Verb::Validate { media } => validate(&media),
        Verb::Calibrate { dir, seconds, media } => calibrate(&dir, seconds, &media),
        Verb::Fit { report, name, capacity, kind, rpm } => {
            fit_report(&report, &name, Known { capacity_bytes: capacity, kind, rpm })
        }
        Verb::States { log, states, seed, after, until, ignore_flushes } => {
            let wanted = Wanted { after, until, states, seed, flushes: ignore_flushes };
            Log(&log).states(&wanted)
        }
        Verb::Measure { log } => Log(&log).measure(),
        Verb::Changes { log } => Log(&log).changes(),
        Verb::Condense { log, out, after, until } => Log(&log).condense(&out, &after, &until),
        Verb::Events { log } => Log(&log).events(),
        Verb::Marks { log } => Log(&log).marks(),
        Verb::ExportLog { log, disk, out } => Log(&log).export(&disk, &out),
        Verb::ExportState { log, disk, out } => Log(&log).export_state(&disk, &out),
    }
}

/// The daemon lives in another folder: a path must mean the same there.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn absolute_file(media: String) -> String {
    let file = media.contains('/') || media.ends_with(".toml");
    if file { absolute(media.into()).to_string_lossy().into_owned() } else { media }
}

fn parse_lie(text: &str) -> Result<Lie, OptionError> {
    match (text, text.parse()) {
        ("all", _) => Ok(Lie::All),
        (_, Ok(0)) => Ok(Lie::None),
        (_, Ok(count)) => Ok(Lie::Last(count)),
        _ => Err(OptionError::Lie),
    }
}

fn parse_timing(text: &str) -> Result<Timing, OptionError> {
    match text {
        "on" => Ok(Timing::On),
        "off" => Ok(Timing::Off),
        _ => Err(OptionError::Timing),
    }
}
