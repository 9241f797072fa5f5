//! The daemon: a folder with the mount `disks`, the socket `control` and the lock that tells whether it lives.

use crate::control;
use crate::engine::{Answer, Engine, Op};
use crate::front::disks::Disks;
use crate::front::ublk::wire::Geometry;
use crate::front::{Reply, fuse, ublk};
use crate::log::behind::Behind;
use crate::log::native::Writer;
use crate::media::Ns;
use crate::states::replay::Replay;
use crate::store::Snapshot;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{SigSet, Signal};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most of a wait that is spun: more would take the processor from whoever waits for the answers.
const MOST_SPUN_NS: Ns = 40_000;
/// What mounts of daemons say that they are of.
const SOURCE: &str = "strata-disk";
/// Of linux/prctl.h since 5.6.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

type Replays = HashMap<(PathBuf, u64), Replay<BufReader<File>>>;

pub struct Shared {
    engine: Mutex<Engine<Reply>>,
    pub snapshots: Mutex<HashMap<String, Snapshot>>,
    /// Event logs that states are made from, by file and logical block.
    pub replays: Mutex<Replays>,
    /// Disks that are block devices of ublk, by name.
    devices: Mutex<BTreeMap<String, ublk::Device>>,
    place: Place,
    began: Instant,
    /// When the thread of due answers is to wake; notified when that becomes earlier.
    planned: Mutex<Option<Ns>>,
    earlier: Condvar,
}

impl Shared {
    fn new(place: Place, log: Option<Writer<Behind>>) -> Self {
        Self {
            engine: Mutex::new(Engine::new(log)),
            snapshots: Mutex::new(HashMap::new()),
            replays: Mutex::new(HashMap::new()),
            devices: Mutex::default(),
            place,
            began: Instant::now(),
            planned: Mutex::new(None),
            earlier: Condvar::new(),
        }
    }

    /// A thread that panicked within the engine leaves nothing to go on with.
    pub fn engine(&self) -> MutexGuard<'_, Engine<Reply>> {
        self.engine.lock().expect("no thread panicked within the engine")
    }

    pub fn now(&self) -> Ns {
        self.began.elapsed().as_nanos() as Ns
    }

    pub fn submit(&self, mut engine: MutexGuard<'_, Engine<Reply>>, disk: u32, op: Op<'_>, reply: Reply) {
        let mut answers = Vec::new();
        engine.submit(self.now(), disk, op, reply, Reply::send_before, &mut answers);
        let due = engine.next_due();
        drop(engine);
        self.plan(due);
        send(answers);
    }

    /// Attaches a disk as a block device of ublk; its node.
    pub fn attach(self: &Arc<Self>, name: &str) -> Result<PathBuf, String> {
        let mut devices = self.devices.lock().expect("nothing panics with the devices");
        if let Some(device) = devices.get(name) {
            return Err(format!("disk {name:?} is attached already: {}", device.node().display()));
        }
        let mut engine = self.engine();
        let id = engine.id(name).ok_or_else(|| format!("no disk {name:?}"))?;
        let image = &engine.named(name)?.image;
        let geometry = Geometry {
            bytes: image.size(),
            block_bytes: image.block_bytes(),
            zeroes: image.zeroes_cheaply(),
        };
        drop(engine);
        let served = self.clone();
        let serve = move |op: Op<'_>, reply| served.submit(served.engine(), id, op, Reply::Ublk(reply));
        let device = ublk::Device::attach(self.place.mark()?, &geometry, serve)?;
        let node = device.node();
        devices.insert(name.into(), device);
        if let Ok(disk) = self.engine().named(name) {
            disk.opened += 1;
        }
        Ok(node)
    }

    /// The block devices that `attach` made, by disk.
    pub fn nodes(&self) -> BTreeMap<String, PathBuf> {
        let devices = self.devices.lock().expect("nothing panics with the devices");
        devices.iter().map(|(name, device)| (name.clone(), device.node())).collect()
    }

    /// Takes a block device away that `attach` made, whoever has it open.
    pub fn detach(&self, name: &str) -> Result<(), String> {
        let device = self.devices.lock().expect("nothing panics with the devices").remove(name);
        device.ok_or_else(|| format!("disk {name:?} is not attached"))?.detach()?;
        if let Ok(disk) = self.engine().named(name) {
            disk.opened -= 1;
        }
        Ok(())
    }

    /// The thread of due answers wakes no later than `due`.
    fn plan(&self, due: Option<Ns>) {
        let Some(due) = due else { return };
        let mut planned = self.planned.lock().expect("nothing panics while planning");
        if planned.is_none_or(|at| due < at) {
            *planned = Some(due);
            self.earlier.notify_one();
        }
    }

    fn answer_what_is_due(&self) -> ! {
        wake_before_others();
        let mut margin = Margin::default();
        loop {
            let mut answers = Vec::new();
            let mut engine = self.engine();
            engine.advance(self.now(), &mut answers);
            let due = engine.next_due();
            let mut planned = self.planned.lock().expect("nothing panics while planning");
            *planned = due;
            drop(engine);
            drop(planned);
            send(answers);
            self.wait(&mut margin);
        }
    }

    fn wait(&self, margin: &mut Margin) {
        let mut planned = self.planned.lock().expect("nothing panics while planning");
        loop {
            let Some(due) = *planned else {
                planned = self.earlier.wait(planned).expect("nothing panics while planning");
                continue;
            };
            let slept_until = due.saturating_sub(margin.0);
            let left = slept_until.saturating_sub(self.now());
            if left == 0 {
                drop(planned);
                while self.now() < due {
                    std::hint::spin_loop();
                }
                return;
            }
            let sleep = Duration::from_nanos(left);
            let woken = self.earlier.wait_timeout(planned, sleep).expect("nothing panics while planning");
            if woken.1.timed_out() {
                margin.learn(self.now().saturating_sub(slept_until));
            }
            planned = woken.0;
        }
    }
}

/// How long before an answer is due its thread wakes, to spin for the rest: no less than how late it wakes in nineteen of
/// twenty times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margin(pub Ns);

impl Default for Margin {
    fn default() -> Self {
        Self(MOST_SPUN_NS / 2)
    }
}

impl Margin {
    const STEP_NS: Ns = 100;

    /// Nineteen steps up for one of twenty, one step down for the others: it rests where one in twenty is later.
    pub fn learn(&mut self, late: Ns) {
        self.0 = match late > self.0 {
            true => (self.0 + 19 * Self::STEP_NS).min(MOST_SPUN_NS),
            false => self.0.saturating_sub(Self::STEP_NS),
        };
    }
}

pub fn send(answers: Vec<Answer<Reply>>) {
    answers.into_iter().for_each(|answer| answer.reply.send(answer.result));
}

/// Where the parts of a daemon lie.
#[derive(Debug, Clone)]
pub struct Place(pub PathBuf);

impl Place {
    pub fn disks(&self) -> PathBuf {
        self.0.join("disks")
    }

    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    fn mark_file(&self) -> PathBuf {
        self.0.join("ublk")
    }

    /// The mark of this folder's devices in the driver: it lies here before the first of them is made.
    fn mark(&self) -> Result<u64, String> {
        let path = self.mark_file();
        if let Some(mark) = read_mark(&path) {
            return Ok(mark);
        }
        let mark = RandomState::new().build_hasher().finish();
        let new = path.with_extension("new");
        let written = fs::write(&new, format!("{mark:x}")).and_then(|()| fs::rename(&new, &path));
        written.map(|()| mark).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns once no daemon serves here.
    pub fn wait_until_free(&self) -> Result<(), String> {
        let Ok(file) = File::open(self.lock()) else { return Ok(()) };
        Flock::lock(file, FlockArg::LockExclusive).map(drop).map_err(|(_, error)| format!("lock: {error}"))
    }

    /// Removes what a daemon that was killed left; refused while one serves.
    pub fn clean(&self) -> Result<(), String> {
        if !self.0.exists() {
            return Ok(());
        }
        let _lock = lock(self)?;
        self.forget_the_dead()
    }

    /// Refused where something else is mounted on the disks' folder.
    fn forget_the_dead(&self) -> Result<(), String> {
        let told = |error: io::Error| format!("mounts below {}: {error}", self.0.display());
        let disks = fs::canonicalize(&self.0).map_err(told)?.join("disks");
        while let Some(source) = topmost(&fs::read("/proc/self/mounts").map_err(told)?, &disks) {
            if source != SOURCE.as_bytes() {
                let source = String::from_utf8_lossy(&source);
                return Err(format!("{} is a mount point already, of {source}", disks.display()));
            }
            umount2(&disks, MntFlags::MNT_DETACH)
                .map_err(|error| format!("unmounting {}: {error}", disks.display()))?;
        }
        if let Some(mark) = read_mark(&self.mark_file()) {
            ublk::forget(mark)?;
            let _ = fs::remove_file(self.mark_file());
        }
        let _ = fs::remove_file(self.control());
        Ok(())
    }
}

fn read_mark(path: &Path) -> Option<u64> {
    u64::from_str_radix(fs::read_to_string(path).ok()?.trim(), 16).ok()
}

/// What is mounted at a path, of the lines of /proc/self/mounts: the last of them covers the others.
pub fn topmost(mounts: &[u8], at: &Path) -> Option<Vec<u8>> {
    let escaped: Vec<u8> = at.as_os_str().as_bytes().iter().flat_map(|byte| escape(*byte)).collect();
    let fields = mounts.split(|byte| *byte == b'\n').rev().map(|line| line.split(|byte| *byte == b' '));
    fields
        .filter_map(|mut words| Some((words.next()?, words.next()?)))
        .find_map(|(source, target)| (target == escaped).then(|| source.to_vec()))
}

/// As the kernel writes paths there (mangle_path).
fn escape(byte: u8) -> Vec<u8> {
    if b" \t\n\\".contains(&byte) { format!("\\{byte:03o}").into_bytes() } else { vec![byte] }
}

/// Serves until it is told to stop. `ready` is called once disks can be added.
pub fn serve(place: &Place, log: Option<&Path>, ready: impl FnOnce()) -> Result<(), String> {
    let told = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let folder = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    folder(&place.0).map_err(|error| told(&format!("folder {}", place.0.display()), &error))?;
    let _lock = lock(place)?;
    place.forget_the_dead()?;
    folder(&place.disks()).map_err(|error| told(&format!("folder {}", place.disks().display()), &error))?;
    let signals = block_signals()?;
    stay_out_of_reclaim();
    let log = log.map(open_log).transpose()?;
    let shared = Arc::new(Shared::new(place.clone(), log));
    let listener = control::bind(&place.control()).map_err(|error| told("control socket", &error))?;
    fuse::serve(Disks(shared.clone()), &place.disks(), SOURCE)
        .inspect_err(|_| drop(fs::remove_file(place.control())))?;
    let timer = shared.clone();
    std::thread::Builder::new()
        .name("due".into())
        .spawn(move || timer.answer_what_is_due())
        .map_err(|error| told("thread of due answers", &error))?;
    let served = shared.clone();
    std::thread::spawn(move || control::listen(&listener, &served));
    ready();
    let signal = signals.wait();
    stop(place, &shared);
    signal.map(drop).map_err(|error| told("wait for a signal", &error))
}

/// What is under way fails, so that nothing above hangs.
fn stop(place: &Place, shared: &Shared) {
    let mut engine = shared.engine();
    for (name, _) in engine.list() {
        if let Ok(failed) = engine.pull(&name) {
            send(failed);
        }
    }
    if let Err(error) = engine.flush_log() {
        eprintln!("strata-disk: {error}");
    }
    drop(engine);
    for name in shared.nodes().into_keys() {
        if let Err(error) = shared.detach(&name) {
            eprintln!("strata-disk: {error}");
        }
    }
    // While a loop device has a disk open this fails, and the mount stays: what is left is found by its path.
    let _ = umount2(&place.disks(), MntFlags::empty());
    let _ = fs::remove_file(place.control());
}

fn lock(place: &Place) -> Result<Flock<File>, String> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(place.lock())
        .map_err(|error| format!("lock of {}: {error}", place.0.display()))?;
    let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| format!("another daemon serves {}", place.0.display()))?;
    file.set_len(0)
        .and_then(|()| write!(file, "{}", std::process::id()))
        .map_err(|error| error.to_string())?;
    Ok(file)
}

fn open_log(path: &Path) -> Result<Writer<Behind>, String> {
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    file.and_then(|file| Writer::new(Behind::new(file)?))
        .map_err(|error| format!("event log {}: {error}", path.display()))
}

/// Signals reach the thread that waits for them and no other.
fn block_signals() -> Result<SigSet, String> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block().map_err(|error| format!("signals: {error}"))?;
    Ok(signals)
}

/// Memory that this process asks for must never wait for a filesystem above its own disks, and its threads are to
/// wake on time. Threads inherit both. Without the privilege it still works where memory is plenty.
fn stay_out_of_reclaim() {
    // SAFETY: these calls take numbers and change this process alone.
    unsafe {
        libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
    }
}

/// This thread runs as soon as it wakes, however busy its host is: it sleeps but for the moments around an answer.
/// Without the privilege it wakes as others do.
fn wake_before_others() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads these numbers and changes this thread alone.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest);
    }
}
