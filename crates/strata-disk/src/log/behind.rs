//! A file that is written by a thread of its own: whoever appends waits for memory, not for the file.
//!
//! What a write to the file meets is told to the next append, and to each one after it.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Bytes that are handed to the thread at once.
const PIECE: usize = 1 << 20;
/// Pieces that may wait for the thread; who appends more waits too.
const PIECES: usize = 4;

enum Handed {
    Bytes(Vec<u8>),
    /// What came before is to be in the file; answered once it is.
    Flush(Sender<()>),
}

/// The side that appends.
pub struct Behind {
    piece: Vec<u8>,
    to: SyncSender<Handed>,
    /// Pieces that are in the file, whose memory serves again.
    written: Receiver<Vec<u8>>,
    failed: Arc<OnceLock<io::Error>>,
}

impl Behind {
    /// Fails where no thread can be had.
    pub fn new(file: File) -> io::Result<Self> {
        let (to, from) = sync_channel(PIECES);
        let (back, written) = channel();
        let failed = Arc::new(OnceLock::new());
        let told = failed.clone();
        thread::Builder::new().name("log".into()).spawn(move || write_out(file, &from, &back, &told))?;
        Ok(Self { piece: Vec::with_capacity(PIECE), to, written, failed })
    }

    fn hand(&self, what: Handed) -> io::Result<()> {
        self.to.send(what).map_err(|_| io::Error::other("the thread of the log is gone"))
    }

    fn hand_piece(&mut self) -> io::Result<()> {
        let next = self.written.try_recv().unwrap_or_else(|_| Vec::with_capacity(PIECE));
        let piece = mem::replace(&mut self.piece, next);
        self.hand(Handed::Bytes(piece))
    }

    /// Errors cannot be copied: the first one is told by its words.
    fn check(&self) -> io::Result<()> {
        self.failed.get().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string())))
    }
}

impl Write for Behind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        if self.piece.len() + bytes.len() > PIECE && !self.piece.is_empty() {
            self.hand_piece()?;
        }
        self.piece.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Returns once all that was appended is in the file.
    fn flush(&mut self) -> io::Result<()> {
        let (done, waited) = channel();
        self.hand_piece()?;
        self.hand(Handed::Flush(done))?;
        waited.recv().map_err(|_| io::Error::other("the thread of the log is gone"))?;
        self.check()
    }
}

/// Until the other side is dropped; after an error nothing more is written, so that the file has no hole.
fn write_out(mut file: File, from: &Receiver<Handed>, back: &Sender<Vec<u8>>, failed: &OnceLock<io::Error>) {
    for handed in from {
        match handed {
            Handed::Bytes(mut piece) => {
                if failed.get().is_none() {
                    if let Err(error) = file.write_all(&piece) {
                        let _ = failed.set(error);
                    }
                }
                piece.clear();
                let _ = back.send(piece);
            }
            Handed::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}
