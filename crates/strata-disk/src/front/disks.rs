//! The disks of a daemon as files.

use crate::engine::Op;
use crate::front::Reply;
use crate::front::fuse::{self, Files};
use crate::shared::Shared;
use std::sync::Arc;

pub(crate) struct Disks(pub(crate) Arc<Shared>);

impl Files for Disks {
    fn find(&self, name: &str) -> Option<u32> {
        self.0.engine().id(name)
    }

    fn size(&self, file: u32) -> Option<u64> {
        self.0.engine().disk(file).map(|disk| disk.image.size())
    }

    fn list(&self) -> Vec<(String, u32)> {
        self.0.engine().list()
    }

    fn open(&self, file: u32) -> bool {
        self.0.engine().disk(file).map(|disk| disk.opened += 1).is_some()
    }

    fn release(&self, file: u32) {
        if let Some(disk) = self.0.engine().disk(file) {
            disk.opened -= 1;
        }
    }

    fn read(&self, file: u32, offset: u64, length: u64, reply: fuse::Reply) {
        let mut engine = self.0.engine();
        let end = engine.disk(file).map_or(0, |disk| disk.image.size());
        let (offset, length) = (offset.min(end), length.min(end.saturating_sub(offset)));
        self.0.submit(engine, file, Op::Read { offset, length }, Reply::Fuse(reply));
    }

    fn submit(&self, file: u32, op: Op<'_>, reply: fuse::Reply) {
        self.0.submit(self.0.engine(), file, op, Reply::Fuse(reply));
    }
}
