//! What a daemon serves, for the threads of its fronts and of the control socket.

use crate::due::{Due, Margin, wake_before_others};
use crate::engine::{Answer, Engine, EngineError, Op};
use crate::front::ublk::UblkError;
use crate::front::ublk::wire::Geometry;
use crate::front::{Reply, ublk};
use crate::log::behind::Behind;
use crate::log::native::Writer;
use crate::media::Ns;
use crate::place::{Place, PlaceError};
use crate::states::replay::Replay;
use crate::store::Snapshot;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use thiserror::Error;

type Replays = HashMap<PathBuf, Replay<BufReader<File>>>;

/// Why a disk cannot be attached or detached.
#[derive(Debug, Error)]
pub(crate) enum AttachError {
    #[error("disk {disk:?} is attached already: {node}")]
    Attached { disk: String, node: PathBuf },
    #[error("disk {0:?} is not attached")]
    Detached(String),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Ublk(#[from] UblkError),
}

pub(crate) struct Shared {
    engine: Mutex<Engine<Reply>>,
    pub(crate) snapshots: Mutex<HashMap<String, Snapshot>>,
    /// Event logs that states are made from, by file and logical block.
    pub(crate) replays: Mutex<Replays>,
    /// Disks that are block devices of ublk, by name.
    devices: Mutex<BTreeMap<String, ublk::Device>>,
    place: Place,
    due: Due,
}

impl Shared {
    pub(crate) fn new(place: Place, log: Option<Writer<Behind>>) -> Self {
        Self {
            engine: Mutex::new(Engine::new(log)),
            snapshots: Mutex::new(HashMap::new()),
            replays: Mutex::new(HashMap::new()),
            devices: Mutex::default(),
            place,
            due: Due::new(),
        }
    }

    /// A thread that panicked within the engine leaves nothing to go on with.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine<Reply>> {
        self.engine.lock().expect("no thread panicked within the engine")
    }

    pub(crate) fn now(&self) -> Ns {
        self.due.now()
    }

    pub(crate) fn submit(
        &self,
        mut engine: MutexGuard<'_, Engine<Reply>>,
        disk: u32,
        op: Op<'_>,
        reply: Reply,
    ) {
        let mut answers = Vec::new();
        engine.submit(self.now(), disk, op, reply, Reply::send_before, &mut answers);
        let due = engine.next_due();
        drop(engine);
        self.due.plan(due);
        send(answers);
    }

    /// Attaches a disk as a block device of ublk; its node.
    pub(crate) fn attach(self: &Arc<Self>, name: &str) -> Result<PathBuf, AttachError> {
        let mut devices = self.devices.lock().expect("nothing panics with the devices");
        if let Some(device) = devices.get(name) {
            return Err(AttachError::Attached { disk: name.into(), node: device.node() });
        }
        let mut engine = self.engine();
        let id = engine.known(name)?;
        let image = &engine.named(name)?.image;
        let geometry = Geometry {
            bytes: image.size(),
            block_bytes: image.nature().block,
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
    pub(crate) fn nodes(&self) -> BTreeMap<String, PathBuf> {
        let devices = self.devices.lock().expect("nothing panics with the devices");
        devices.iter().map(|(name, device)| (name.clone(), device.node())).collect()
    }

    /// Takes a block device away that `attach` made, whoever has it open.
    pub(crate) fn detach(&self, name: &str) -> Result<(), AttachError> {
        let device = self.devices.lock().expect("nothing panics with the devices").remove(name);
        device.ok_or_else(|| AttachError::Detached(name.into()))?.detach()?;
        if let Ok(disk) = self.engine().named(name) {
            disk.opened -= 1;
        }
        Ok(())
    }

    pub(crate) fn answer_what_is_due(&self) -> ! {
        wake_before_others();
        let mut margin = Margin::default();
        loop {
            let mut answers = Vec::new();
            let mut engine = self.engine();
            engine.advance(self.now(), &mut answers);
            self.due.plan_anew(engine.next_due());
            drop(engine);
            send(answers);
            self.due.wait(&mut margin);
        }
    }
}

pub(crate) fn send(answers: Vec<Answer<Reply>>) {
    answers.into_iter().for_each(|answer| answer.reply.send(answer.result));
}
