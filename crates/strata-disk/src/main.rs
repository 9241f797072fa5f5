//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use strata_disk::calibrate::{self, Rates, measure, range};
use strata_disk::control::{Added, Asked, LeftByCut, ask};
use strata_disk::daemon::{Place, serve};
use strata_disk::durability::Lie;
use strata_disk::engine::Timing;
use strata_disk::fit::fit;
use strata_disk::front::ublk::NODES;
use strata_disk::front::ublk::control::{Control, PATH as CONTROL};
use strata_disk::log::native::Reader;
use strata_disk::log::{Event, dm_log_writes};
use strata_disk::media::model::{find_model, supplied};
use strata_disk::media::page::render_page;
use strata_disk::media::validation::figures;
use strata_disk::states::State;
use strata_disk::states::condense::condense;
use strata_disk::states::enumerate::{Asked as Wanted, enumerate};
use strata_disk::states::replay::Replay;
use strata_disk::text::read_text;

/// Of one entry of an exported state.
const PIECE_BYTES: u64 = 1 << 20;

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
        /// Logical block, in which a power cut tears
        #[arg(long, default_value_t = 512)]
        block: u64,
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
    /// What the way to a disk costs on this host, and which models are out of range because of it, as JSON
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
        /// Logical block, in which a power cut tears
        #[arg(long, default_value_t = 512)]
        block: u64,
        /// What the disk does about flushes from the first cut on: all of them ignored, or the last ones
        #[arg(long, value_name = "all|NUMBER", value_parser = parse_lie, default_value = "0")]
        ignore_flushes: Lie,
    },
    /// The states of standard input, lines of `states`, with what each has of this log: volatile, kept and digest
    Measure {
        log: PathBuf,
        /// Logical block, in which a power cut tears
        #[arg(long, default_value_t = 512)]
        block: u64,
    },
    /// What may be lost in the state of standard input, a line of `states`, and what of it the state has: a JSON object a
    /// line for each write, with ranges of blocks
    Changes {
        log: PathBuf,
        /// Logical block, in which a power cut tears
        #[arg(long, default_value_t = 512)]
        block: u64,
    },
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
    /// The marks of an event log: a JSON object a line
    Marks { log: PathBuf },
    /// One disk of an event log in the format of dm-log-writes
    ExportLog { log: PathBuf, disk: String, out: PathBuf },
    /// One disk in the state of standard input, a line of `states`, in the same format: to be replayed on zeroes
    ExportState { log: PathBuf, disk: String, out: PathBuf },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Front {
    Ublk,
    Loop,
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strata-disk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<(), String> {
    match verb {
        Verb::Serve { dir, log, background: true } => {
            print!("{}", serve_in_background(&dir, log.as_deref())?);
            Ok(())
        }
        Verb::Serve { dir, log, background: false } => {
            serve(&Place(dir), log.as_deref(), || println!("ready {}", std::process::id()))
        }
        Verb::Add { dir, name, size, media, stretch, timing, seed, block, file, snapshot, base, log, of } => {
            let state = log.zip(of).map(|(log, of)| read_state(absolute(log), of)).transpose()?.map(Box::new);
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
        Verb::Detach { dir, nodes } => nodes.iter().try_for_each(|node| detach(&dir, node)),
        Verb::Stats { dir } => request(&dir, &Asked::Stats),
        Verb::Timing { dir, set, disks } => request(&dir, &Asked::Timing { disks, set }),
        Verb::Stop { dir } => stop(&dir),
        Verb::Ask { dir, request } => tell(ask(&Place(dir).control(), &request)?),
        Verb::Models { json, markdown } => models(json, markdown),
        Verb::Validate { media } => validate(&media),
        Verb::Calibrate { dir, seconds, media } => calibrate(&dir, seconds, &media),
        Verb::Fit { report, name, capacity } => fit_report(&report, &name, capacity),
        Verb::States { log, states, seed, after, until, block, ignore_flushes } => {
            let wanted = Wanted { after, until, states, seed, block_bytes: block, flushes: ignore_flushes };
            print_states(&log, &wanted)
        }
        Verb::Measure { log, block } => measure_states(&log, block),
        Verb::Changes { log, block } => print_changes(&log, block),
        Verb::Condense { log, out, after, until } => condense_log(&log, &out, &after, &until),
        Verb::Events { log } => print_events(&log),
        Verb::Marks { log } => print_marks(&log),
        Verb::ExportLog { log, disk, out } => export_log(&log, &disk, &out),
        Verb::ExportState { log, disk, out } => export_state(&log, &disk, &out),
    }
}

fn request(dir: &Path, asked: &Asked) -> Result<(), String> {
    tell(answer(dir, asked)?)
}

fn answer(dir: &Path, asked: &Asked) -> Result<serde_json::Value, String> {
    let asked = serde_json::to_string(asked).map_err(|error| error.to_string())?;
    ask(&Place(dir.into()).control(), &asked)
}

fn tell(answer: serde_json::Value) -> Result<(), String> {
    println!("{answer}");
    Ok(())
}

/// The daemon lives in another folder: a path must mean the same there.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn absolute_file(media: String) -> String {
    let file = media.contains('/') || media.ends_with(".toml");
    if file { absolute(media.into()).to_string_lossy().into_owned() } else { media }
}

/// What the daemon says once disks can be added.
fn serve_in_background(dir: &Path, log: Option<&Path>) -> Result<String, String> {
    let itself = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    std::fs::create_dir_all(dir).map_err(|error| format!("folder {}: {error}", dir.display()))?;
    let said = dir.join("daemon.log");
    let errors = File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    let mut command = Command::new(itself);
    command.arg("serve").arg(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
    if let Some(log) = log {
        command.arg("--log").arg(log);
    }
    let mut child = command.spawn().map_err(|error| format!("daemon: {error}"))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(|error| format!("daemon: {error}"))?;
    }
    if line.starts_with("ready") {
        return Ok(line);
    }
    let _ = child.wait();
    let errors = std::fs::read_to_string(&said).unwrap_or_default();
    Err(errors.trim().trim_start_matches("strata-disk: ").to_string())
}

fn read_state(log: PathBuf, of: String) -> Result<LeftByCut, String> {
    Ok(LeftByCut { log, of, state: given_state()? })
}

fn given_state() -> Result<State, String> {
    let state = io::read_to_string(io::stdin()).map_err(|error| format!("standard input: {error}"))?;
    serde_json::from_str(&state).map_err(|error| format!("no state: {error}"))
}

/// Returns once the daemon has given up its folder; one that is not there is no error.
fn stop(dir: &Path) -> Result<(), String> {
    let place = Place(dir.into());
    if ask(&place.control(), r#"{"op": "stop"}"#).is_ok() {
        place.wait_until_free()?;
    }
    place.clean()
}

/// Serves a disk without a medium, loads it by each front and takes it away again.
fn calibrate(dir: &Path, seconds: f64, further: &[String]) -> Result<(), String> {
    let further: Result<Vec<_>, _> = further.iter().map(|media| find_model(media)).collect();
    let models = [supplied(), further.map_err(|error| error.to_string())?].concat();
    let each = Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
    serve_in_background(dir, None)?;
    let measured = measure_fronts(dir, each);
    let stopped = stop(dir);
    let fronts = measured?;
    stopped?;
    let ranges: Vec<_> = models.iter().filter_map(|model| Some(range(model, fronts.last()?))).collect();
    let found = serde_json::json!({ "fronts": fronts, "models": ranges });
    println!("{}", serde_json::to_string_pretty(&found).map_err(|error| error.to_string())?);
    Ok(())
}

/// Of the file, and of the block devices that it can be attached as here: the one that stacks stand on is the last.
fn measure_fronts(dir: &Path, each: Duration) -> Result<Vec<Rates>, String> {
    let size = calibrate::SIZE_BYTES;
    let added = format!(r#"{{"op": "add", "disk": "disk", "size": {size}}}"#);
    ask(&Place(dir.into()).control(), &added)?;
    let file = Place(dir.into()).disks().join("disk");
    let load = |front, path: &Path| {
        measure(front, path, each).map_err(|error| format!("loading {}: {error}", path.display()))
    };
    let by_device = |front, by| {
        let node = PathBuf::from(attach(dir, "disk", Some(by))?);
        let rates = load(front, &node);
        detach(dir, &node)?;
        rates
    };
    let mut measured = vec![load("fuse", &file)?, by_device("loop", Front::Loop)?];
    if usual_front() == Front::Ublk {
        measured.push(by_device("ublk", Front::Ublk)?);
    }
    Ok(measured)
}

/// The node. Where neither front was asked for and ublk cannot be used, the reason is told.
fn attach(dir: &Path, name: &str, front: Option<Front>) -> Result<String, String> {
    match front.unwrap_or_else(usual_front) {
        Front::Ublk => {
            let answer = answer(dir, &Asked::Attach { disk: name.into() })?;
            let node = answer["node"].as_str().map(str::to_string);
            node.ok_or_else(|| "the daemon named no device".to_string())
        }
        Front::Loop => {
            losetup(&["--find", "--show", "--direct-io=on"], &Place(dir.into()).disks().join(name))
        }
    }
}

fn usual_front() -> Front {
    if !Path::new(CONTROL).exists() {
        return Front::Loop;
    }
    match Control::open().and_then(|control| control.is_usable()) {
        Ok(()) => Front::Ublk,
        Err(error) => {
            eprintln!("strata-disk: {error}; a loop device instead");
            Front::Loop
        }
    }
}

fn detach(dir: &Path, node: &Path) -> Result<(), String> {
    if node.to_string_lossy().starts_with(NODES) {
        return answer(dir, &Asked::Detach { node: node.into() }).map(drop);
    }
    if !lies_on(node, dir) {
        return Err(format!("{} is no loop device over a disk of {}", node.display(), dir.display()));
    }
    losetup(&["--detach"], node).map(drop)
}

/// Whether a loop device is over a disk of the daemon in this folder.
fn lies_on(node: &Path, dir: &Path) -> bool {
    let name = node.file_name().unwrap_or_default();
    let file = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
    let disks = std::fs::canonicalize(dir).map(|dir| Place(dir).disks());
    matches!((file, disks), (Ok(file), Ok(disks)) if Path::new(file.trim_end()).parent() == Some(&disks))
}

fn losetup(options: &[&str], on: &Path) -> Result<String, String> {
    let done = Command::new("losetup").args(options).arg(on).output();
    let done = done.map_err(|error| format!("losetup: {error}"))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).trim().to_string());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_string())
}

fn validate(media: &str) -> Result<(), String> {
    let model = find_model(media).map_err(|error| error.to_string())?;
    let figures = figures(&model).map_err(|error| error.to_string())?;
    println!("{}", serde_json::to_string_pretty(&figures).map_err(|error| error.to_string())?);
    Ok(())
}

fn models(json: bool, markdown: bool) -> Result<(), String> {
    let models = supplied();
    if markdown {
        print!("{}", render_page(&models).map_err(|error| error.to_string())?);
        return Ok(());
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&models).map_err(|error| error.to_string())?);
        return Ok(());
    }
    for model in models {
        println!("{:14} {}", model.name, model.about);
    }
    Ok(())
}

fn fit_report(report: &Path, name: &str, capacity: Option<u64>) -> Result<(), String> {
    let text = read_text(report).map_err(|error| format!("{}: {error}", report.display()))?;
    let model = fit(&text, name, capacity).map_err(|error| error.to_string())?;
    print!("{}", toml::to_string(&model).map_err(|error| error.to_string())?);
    Ok(())
}

fn parse_lie(text: &str) -> Result<Lie, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(Lie::All),
        (_, Ok(0)) => Ok(Lie::None),
        (_, Ok(count)) => Ok(Lie::Last(count)),
        _ => Err("neither all nor a number".into()),
    }
}

fn parse_timing(text: &str) -> Result<Timing, String> {
    match text {
        "on" => Ok(Timing::On),
        "off" => Ok(Timing::Off),
        _ => Err("neither on nor off".into()),
    }
}

fn print_states(log: &Path, wanted: &Wanted) -> Result<(), String> {
    if ![512, 4096].contains(&wanted.block_bytes) {
        return Err(format!("block of {} bytes is neither 512 nor 4096", wanted.block_bytes));
    }
    let open = || Ok(BufReader::new(File::open(log)?));
    let states = enumerate(open, wanted).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut out = BufWriter::new(io::stdout().lock());
    for state in states {
        let line = serde_json::to_string(&state).map_err(|error| error.to_string())?;
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    out.flush().map_err(|error| error.to_string())
}

fn measure_states(log: &Path, block_bytes: u64) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", log.display());
    let mut current: Option<Replay<BufReader<File>>> = None;
    for line in io::stdin().lines() {
        let line = line.map_err(|error| format!("standard input: {error}"))?;
        let state: State = serde_json::from_str(&line).map_err(|error| format!("no state: {error}"))?;
        let mut replay = match current.take().filter(|replay| replay.reaches(&state)) {
            Some(replay) => replay,
            None => {
                let input = BufReader::new(File::open(log).map_err(|error| told(&error))?);
                Replay::new(input, block_bytes, state.lying).map_err(|error| told(&error))?
            }
        };
        let measured = replay.measured(state).map_err(|error| told(&error))?;
        println!("{}", serde_json::to_string(&measured).map_err(|error| error.to_string())?);
        current = Some(replay);
    }
    Ok(())
}

fn print_changes(log: &Path, block_bytes: u64) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", log.display());
    let state = given_state()?;
    let input = BufReader::new(File::open(log).map_err(|error| told(&error))?);
    let mut replay = Replay::new(input, block_bytes, state.lying).map_err(|error| told(&error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    for changed in replay.changes(&state).map_err(|error| told(&error))? {
        let line = serde_json::to_string(&changed).map_err(|error| error.to_string())?;
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    out.flush().map_err(|error| error.to_string())
}

fn condense_log(log: &Path, out: &Path, after: &str, until: &str) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", log.display());
    let open = || Ok(BufReader::new(File::open(log)?));
    let file = File::create_new(out).map_err(|error| format!("{}: {error}", out.display()))?;
    condense(open, after, until, 512, BufWriter::new(file)).map_err(|error| told(&error))
}

fn print_events(log: &Path) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", log.display());
    let input = BufReader::new(File::open(log).map_err(|error| told(&error))?);
    let mut reader = Reader::new(input).map_err(|error| told(&error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    while let Some(record) = reader.read().map_err(|error| told(&error))? {
        let (seq, disk) = (record.seq, record.disk);
        let line = match record.event {
            Event::Added { name, size } => {
                serde_json::json!({"seq": seq, "disk": disk, "event": "added", "text": name, "length": size})
            }
            Event::Write { offset, fua, data } => {
                serde_json::json!({"seq": seq, "disk": disk, "event": "write", "offset": offset, "length": data.len(), "fua": fua})
            }
            Event::WriteZeroes { offset, length } | Event::Discard { offset, length } => {
                serde_json::json!({"seq": seq, "disk": disk, "event": "zero", "offset": offset, "length": length})
            }
            Event::Flush => serde_json::json!({"seq": seq, "disk": disk, "event": "flush"}),
            Event::Completed { of, failed } => {
                serde_json::json!({"seq": seq, "disk": disk, "event": "completed", "of": of, "failed": failed})
            }
            Event::Mark { text } => serde_json::json!({"seq": seq, "event": "mark", "text": text}),
            Event::Cut => serde_json::json!({"seq": seq, "event": "cut"}),
        };
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    out.flush().map_err(|error| error.to_string())
}

fn print_marks(log: &Path) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", log.display());
    let input = BufReader::new(File::open(log).map_err(|error| told(&error))?);
    let mut reader = Reader::new(input).map_err(|error| told(&error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    while let Some(record) = reader.read().map_err(|error| told(&error))? {
        if let Event::Mark { text } = record.event {
            let line = serde_json::json!({ "seq": record.seq, "text": text });
            writeln!(out, "{line}").map_err(|error| error.to_string())?;
        }
    }
    out.flush().map_err(|error| error.to_string())
}

fn export_log(log: &Path, disk: &str, out: &Path) -> Result<(), String> {
    let told = |error: io::Error| format!("export of {}: {error}", log.display());
    let open =
        || Reader::new(BufReader::new(File::open(log).map_err(told)?)).map_err(|error| error.to_string());
    let mut reader = open()?;
    let id = loop {
        match reader.read().map_err(|error| error.to_string())? {
            Some(record) if matches!(&record.event, Event::Added { name, .. } if name == disk) => {
                break record.disk;
            }
            Some(_) => {}
            None => return Err(format!("no disk {disk:?} in {}", log.display())),
        }
    };
    let mut reader = open()?;
    let records = std::iter::from_fn(|| reader.read().map_err(io::Error::other).transpose());
    let out = BufWriter::new(File::create(out).map_err(told)?);
    let entries = dm_log_writes::export(records, id, out).map_err(told)?;
    println!("{entries} entries");
    Ok(())
}

fn export_state(log: &Path, disk: &str, out: &Path) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("export of {}: {error}", log.display());
    let state = given_state()?;
    let input = BufReader::new(File::open(log).map_err(|error| told(&error))?);
    let mut replay = Replay::new(input, 512, state.lying).map_err(|error| told(&error))?;
    let content = replay.state(&state, disk).map_err(|error| told(&error))?.written(PIECE_BYTES);
    let out = BufWriter::new(File::create(out).map_err(|error| told(&error))?);
    let entries = dm_log_writes::export_content(content, &format!("cut after {}", state.cut), out);
    println!("{} entries", entries.map_err(|error| told(&error))?);
    Ok(())
}
