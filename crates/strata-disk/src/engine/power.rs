//! Losses of power: cuts of all disks or some, and disks that are pulled.

use super::op::Pending;
use super::{Answer, Cut, Engine, EngineError, Power, Refused};
use crate::durability::Seq;
use crate::log::{EVERY, Event};
use crate::rng::Rng;

impl<R> Engine<R> {
    /// The disk is pulled: what it has under way and all that comes fails until it is given power.
    pub fn pull(&mut self, name: &str) -> Result<Vec<Answer<R>>, EngineError> {
        self.named(name)?.power = Power::Gone;
        let id = self.id(name);
        Ok(self.fail(|of| Some(of) == id))
    }

    /// The disk answers again.
    pub fn power_on(&mut self, name: &str) -> Result<(), EngineError> {
        self.named(name)?.power = Power::On;
        Ok(())
    }

    /// Power is cut at once, or as soon as the sequence reaches a number.
    pub fn cut(
        &mut self,
        cut: Cut,
        at: Option<Seq>,
    ) -> Result<(Vec<Answer<R>>, serde_json::Value), EngineError> {
        for name in cut.disks.iter().flatten() {
            self.named(name)?;
        }
        match at.filter(|at| *at > self.seq) {
            Some(at) => {
                self.cut_at = Some((at, cut));
                Ok((Vec::new(), serde_json::json!({ "at": at })))
            }
            None => self.cut_now(&cut),
        }
    }

    pub(super) fn cut_now(&mut self, cut: &Cut) -> Result<(Vec<Answer<R>>, serde_json::Value), EngineError> {
        let seq = self.note(EVERY, Event::Cut);
        let mut rng = Rng::new(cut.seed);
        let mut left = serde_json::Map::new();
        let mut hit = Vec::new();
        for (name, id) in self.list() {
            if cut.disks.as_ref().is_some_and(|names| !names.contains(&name)) {
                continue;
            }
            let Some(disk) = self.disks.get_mut(&id) else { continue };
            let (volatile, kept) = disk
                .image
                .cut(&cut.keep, cut.torn, &mut rng)
                .map_err(|source| EngineError::Cut { disk: name.clone(), source })?;
            disk.power = Power::Cut;
            left.insert(name, serde_json::json!({ "volatile": volatile, "kept": kept }));
            hit.push(id);
        }
        Ok((self.fail(|of| hit.contains(&of)), serde_json::json!({ "seq": seq, "disks": left })))
    }

    /// Everything under way on the chosen disks fails.
    pub(crate) fn fail(&mut self, chosen: impl Fn(u32) -> bool) -> Vec<Answer<R>> {
        let ids: Vec<Seq> =
            self.pending.iter().filter(|(_, (pending, _))| chosen(pending.disk)).map(|(id, _)| *id).collect();
        let pending: Vec<_> = ids.into_iter().filter_map(|id| self.pending.remove(&id)).collect();
        pending.into_iter().map(|(pending, reply)| self.failed(&pending, reply)).collect()
    }

    fn failed(&mut self, pending: &Pending, reply: R) -> Answer<R> {
        if let Some(disk) = self.disks.get_mut(&pending.disk) {
            disk.under_way -= 1;
            disk.counters.errors += 1;
        }
        Answer { reply, result: Err(Refused::Io) }
    }
}
