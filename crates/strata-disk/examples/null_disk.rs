//! A FUSE file that answers everything at once and keeps nothing: what FUSE itself costs, for benches/bench_strata_disk.py.
//!
//! `null_disk DIR BYTES` mounts it, as DIR/disk, as strata-disk does, says `ready`, and ends with its standard input.

use std::error::Error;
use std::io;
use std::path::Path;
use strata_disk::engine::Op;
use strata_disk::front::fuse::{Files, Reply, serve};

struct Null {
    bytes: u64,
}

impl Files for Null {
    fn find(&self, name: &str) -> Option<u32> {
        (name == "disk").then_some(0)
    }

    fn size(&self, _file: u32) -> Option<u64> {
        Some(self.bytes)
    }

    fn list(&self) -> Vec<(String, u32)> {
        vec![("disk".into(), 0)]
    }

    fn open(&self, _file: u32) -> bool {
        true
    }

    fn release(&self, _file: u32) {}

    fn read(&self, _file: u32, offset: u64, length: u64, reply: Reply) {
        let length = length.min(self.bytes.saturating_sub(offset));
        reply.send(Ok(vec![0; length as usize]));
    }

    fn submit(&self, _file: u32, _op: Op<'_>, reply: Reply) {
        reply.send(Ok(Vec::new()));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, bytes] = words.as_slice() else {
        return Err("null_disk DIR BYTES".into());
    };
    let bytes = bytes.parse()?;
    serve(Null { bytes }, Path::new(dir), "null-disk")?;
    println!("ready");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(nix::mount::umount(Path::new(dir))?)
}
