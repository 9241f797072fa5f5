//! The content of a disk: sparse pages in memory or a file, a durable image below and what is not durable above it.
//!
//! Pages are shared: a snapshot, an overlay and the two images of a disk hold the same ones until someone writes.

use crate::durability::{Change, Keep, Lie, Machine, Seq};
use crate::nature::{Cache, Nature};
use crate::rng::Rng;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

const PAGE: usize = 4096;
const CHUNK: usize = 512;
/// Of one write of an event log that stands for a content that is there already.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
pub(crate) const LARGEST_DISK: u64 = 1 << 44;

type Page = [u8; PAGE];
type Chunk = [Option<Arc<Page>>; CHUNK];

static ZEROES: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new([0; PAGE]));

/// Pages by number, in chunks of 2 MiB that copies share until one of them changes.
#[derive(Clone)]
struct PageMap(Vec<Option<Arc<Chunk>>>);

impl PageMap {
    fn new(size: u64) -> Self {
        Self(vec![None; size.div_ceil((PAGE * CHUNK) as u64) as usize])
    }

    fn get(&self, page: u64) -> Option<&Arc<Page>> {
        self.0[page as usize / CHUNK].as_ref()?[page as usize % CHUNK].as_ref()
    }

    fn set(&mut self, page: u64, to: Option<Arc<Page>>) {
        let chunk = self.0[page as usize / CHUNK].get_or_insert_with(|| Arc::new([const { None }; CHUNK]));
        Arc::make_mut(chunk)[page as usize % CHUNK] = to;
    }

    /// Every page of the range becomes `to`; whole chunks at once where that means nothing is stored.
    fn fill(&mut self, pages: Range<u64>, to: Option<&Arc<Page>>) {
        let mut page = pages.start;
        while page < pages.end {
            if to.is_none() && page % CHUNK as u64 == 0 && page + CHUNK as u64 <= pages.end {
                self.0[page as usize / CHUNK] = None;
                page += CHUNK as u64;
            } else {
                self.set(page, to.cloned());
                page += 1;
            }
        }
    }
}

/// A state of a disk that does not change any more, which overlays start from.
#[derive(Clone)]
pub struct Snapshot {
    size: u64,
    pages: PageMap,
    base: Option<Arc<File>>,
}

impl Snapshot {
    /// A content of zeroes.
    pub fn blank(size: u64) -> Self {
        Self { size, pages: PageMap::new(size), base: None }
    }

    /// A file's content, which is never written to.
    pub fn of_file(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len() / PAGE as u64 * PAGE as u64;
        Ok(Self { size, pages: PageMap::new(size), base: Some(Arc::new(file)) })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// What is not zeroes of a content in memory, in whole pages: where, and at most so many bytes at once.
    pub fn written(&self, most_bytes: u64) -> Vec<(u64, Vec<u8>)> {
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        let chunks =
            self.pages.0.iter().enumerate().filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        for (number, page) in chunks.flat_map(|(number, chunk)| (number * CHUNK..).zip(chunk.iter())) {
            let Some(page) = page.as_ref().filter(|page| page.iter().any(|byte| *byte != 0)) else {
                continue;
            };
            let at = (number * PAGE) as u64;
            match found.last_mut() {
                Some((from, data)) if *from + data.len() as u64 == at && (data.len() as u64) < most_bytes => {
                    data.extend_from_slice(&page[..]);
                }
                _ => found.push((at, page.to_vec())),
            }
        }
        found
    }

    /// The digest of this content, given that of an earlier one of the same disk: only what changed is read.
    pub fn digest_after(&self, before: &Snapshot, digest: u64) -> u64 {
        let chunks = before.pages.0.iter().zip(&self.pages.0).enumerate();
        let changed = chunks.filter(|(_, (old, new))| !same(old, new));
        changed.fold(digest, |digest, (number, (old, new))| {
            (0..CHUNK).fold(digest, |digest, index| {
                let (old, new) = (page_of(old, index), page_of(new, index));
                let page = (number * CHUNK + index) as u64;
                if same(old, new) { digest } else { digest ^ page_digest(page, old) ^ page_digest(page, new) }
            })
        })
    }
}

fn page_of(chunk: &Option<Arc<Chunk>>, index: usize) -> &Option<Arc<Page>> {
    chunk.as_ref().map_or(&None, |chunk| &chunk[index])
}

fn same<T>(a: &Option<Arc<T>>, b: &Option<Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// A page of zeroes counts as one that is not there.
fn page_digest(number: u64, page: &Option<Arc<Page>>) -> u64 {
    let Some(page) = page.as_deref().filter(|page| page.iter().any(|byte| *byte != 0)) else { return 0 };
    page.chunks_exact(8).fold(Rng::new(number).draw(), |digest, word| {
        let word = word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Rng::new(digest.rotate_left(23) ^ word).draw()
    })
}

enum Durable {
    Memory(PageMap),
    /// The file has what is durable; memory holds a page while a change of it is not.
    File {
        file: File,
        pins: HashMap<u64, u32>,
    },
}

/// What a change leaves: the pages it touches as they were after it, or zeroes.
pub enum Payload {
    Pages(Vec<Arc<Page>>),
    Zeroes,
}

/// The content of one disk.
pub struct Image {
    size: u64,
    nature: Nature,
    block: u64,
    current: PageMap,
    durable: Durable,
    base: Option<Arc<File>>,
    machine: Machine<Payload>,
    volatile_bytes: u64,
    cache_bytes: u64,
}

/// How a disk keeps what it is given.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    pub nature: Nature,
    /// Beyond so many volatile bytes the oldest become durable on their own.
    pub cache_bytes: u64,
}

impl Image {
    /// A disk that begins with this content, in memory.
    pub fn over(snapshot: &Snapshot, keeping: Keeping) -> Self {
        Self::new(snapshot, Durable::Memory(snapshot.pages.clone()), keeping)
    }

    /// A disk whose content lies in a file, which stays after it.
    pub fn in_file(file: File, size: u64, keeping: Keeping) -> io::Result<Self> {
        file.set_len(size)?;
        Ok(Self::new(&Snapshot::blank(size), Durable::File { file, pins: HashMap::new() }, keeping))
    }

    fn new(snapshot: &Snapshot, durable: Durable, keeping: Keeping) -> Self {
        Self {
            size: snapshot.size,
            nature: keeping.nature,
            block: keeping.nature.block,
            current: snapshot.pages.clone(),
            durable,
            base: snapshot.base.clone(),
            machine: Machine::new(keeping.nature.cache == Cache::Lost),
            volatile_bytes: 0,
            cache_bytes: keeping.cache_bytes,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn nature(&self) -> Nature {
        self.nature
    }

    /// Bytes of writes that a power cut now may lose.
    pub fn volatile_bytes(&self) -> u64 {
        self.volatile_bytes
    }

    /// Whether nothing of it lies in a file.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.durable, Durable::Memory(_)) && self.base.is_none()
    }

    pub(crate) fn zeroes_cheaply(&self) -> bool {
        matches!(self.durable, Durable::Memory(_))
    }

    pub(crate) fn set_lie(&mut self, lie: Lie) {
        self.machine.set_lie(lie);
    }

    /// None for a disk in a file, whose pages others cannot share.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let whole = matches!(self.durable, Durable::Memory(_));
        whole.then(|| Snapshot { size: self.size, pages: self.current.clone(), base: self.base.clone() })
    }

    /// Whether a change that completes now is durable by itself.
    pub(crate) fn settles(&self, seq: Seq) -> bool {
        self.machine.settles(seq)
    }

    /// What may be lost at a power cut, by submission.
    pub(crate) fn volatile(&self) -> impl ExactSizeIterator<Item = &Change<Payload>> {
        self.machine.volatile()
    }

    /// What a power cut at this moment leaves, with these blocks of each volatile change; a disk in memory alone.
    pub fn left<'a>(
        &'a self,
        blocks_of: impl Fn(&'a Change<Payload>) -> Vec<Range<u64>>,
    ) -> io::Result<Snapshot> {
        let Durable::Memory(pages) = &self.durable else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the disk lies in a file"));
        };
        let durable = Snapshot { size: self.size, pages: pages.clone(), base: self.base.clone() };
        let keeping = Keeping { nature: self.nature, cache_bytes: u64::MAX };
        let mut left = Self::over(&durable, keeping);
        for change in self.machine.volatile() {
            for blocks in blocks_of(change) {
                left.make_durable(change, blocks)?;
            }
        }
        let Durable::Memory(pages) = left.durable else { return Ok(durable) };
        Ok(Snapshot { pages, ..durable })
    }

    /// What was written last, durable or not.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let below = match &self.durable {
            Durable::Memory(_) => self.base.as_deref(),
            Durable::File { file, .. } => Some(file),
        };
        let mut out = Vec::with_capacity(length);
        for piece in pieces(offset, length) {
            let (before, at) = (out.len(), offset + out.len() as u64);
            match (self.current.get(at / PAGE as u64), below) {
                (Some(held), _) => out.extend_from_slice(&held[piece]),
                (None, file) => {
                    out.resize(before + piece.len(), 0);
                    file.map_or(Ok(()), |file| file.read_exact_at(&mut out[before..], at))?;
                }
            }
        }
        Ok(out)
    }

    fn page(&self, number: u64) -> io::Result<Page> {
        let mut page: Page = [0; PAGE];
        page.copy_from_slice(&self.read(number * PAGE as u64, PAGE)?);
        Ok(page)
    }

    /// A write is under way; reads see it at once.
    pub fn write(&mut self, seq: Seq, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
        let mut pages = Vec::with_capacity(data.len() / PAGE + 2);
        let mut at = offset;
        for piece in pieces(offset, data.len()) {
            let from = &data[(at - offset) as usize..][..piece.len()];
            let number = at / PAGE as u64;
            at += from.len() as u64;
            // copied once where it is a whole page
            if let Ok(page) = Arc::<Page>::try_from(Arc::<[u8]>::from(from)) {
                pages.push(page);
                continue;
            }
            let mut page = self.page(number)?;
            page[piece].copy_from_slice(from);
            pages.push(Arc::new(page));
        }
        for (number, page) in (offset / PAGE as u64..).zip(&pages) {
            self.current.set(number, Some(page.clone()));
            if let Durable::File { pins, .. } = &mut self.durable {
                *pins.entry(number).or_default() += 1;
            }
        }
        self.volatile_bytes += data.len() as u64;
        let blocks = offset / self.block..(offset + data.len() as u64) / self.block;
        self.machine.submit_change(seq, blocks, fua, Payload::Pages(pages));
        Ok(())
    }

    /// Discard and write of zeroes; only where `zeroes_cheaply`.
    pub fn zero(&mut self, seq: Seq, offset: u64, length: u64) -> io::Result<()> {
        let (first, last) =
            (offset.next_multiple_of(PAGE as u64), (offset + length) / PAGE as u64 * PAGE as u64);
        if first < last {
            let nothing = self.base.as_ref().map(|_| &*ZEROES);
            self.current.fill(first / PAGE as u64..last / PAGE as u64, nothing);
        }
        for edge in [offset..first.min(offset + length), last.max(first)..offset + length] {
            self.zero_within_page(edge)?;
        }
        self.machine.submit_change(
            seq,
            offset / self.block..(offset + length) / self.block,
            false,
            Payload::Zeroes,
        );
        Ok(())
    }

    fn zero_within_page(&mut self, bytes: Range<u64>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut page = self.page(bytes.start / PAGE as u64)?;
        let start = bytes.start as usize % PAGE;
        page[start..start + (bytes.end - bytes.start) as usize].fill(0);
        self.current.set(bytes.start / PAGE as u64, Some(Arc::new(page)));
        Ok(())
    }

    /// A flush is under way.
    pub fn submit_flush(&mut self, seq: Seq) {
        self.machine.submit_flush(seq);
    }

    /// The write or zeroing numbered `seq` completes at `at`.
    pub fn complete_change(&mut self, seq: Seq, at: Seq) -> io::Result<()> {
        if let Some(change) = self.machine.complete_change(seq, at) {
            self.settle(&change)?;
        }
        while self.volatile_bytes > self.cache_bytes {
            let Some(oldest) = self.machine.write_back() else { break };
            self.settle(&oldest)?;
        }
        Ok(())
    }

    /// The flush numbered `seq` completes.
    pub fn complete_flush(&mut self, seq: Seq) -> io::Result<()> {
        self.machine.complete_flush(seq).iter().try_for_each(|change| self.settle(change))?;
        match &self.durable {
            Durable::File { file, .. } => file.sync_data(),
            Durable::Memory(_) => Ok(()),
        }
    }

    /// Power is lost: the image becomes one of its legal states. How many changes were volatile, and how many survived.
    pub fn cut(&mut self, keep: &Keep, torn: bool, rng: &mut Rng) -> io::Result<(usize, usize)> {
        let volatile = self.machine.volatile().len();
        let survivors = self.machine.cut(keep, torn.then(|| self.nature.unit_blocks()), rng);
        for survivor in &survivors {
            for blocks in &survivor.blocks {
                self.make_durable(&survivor.change, blocks.clone())?;
            }
        }
        self.volatile_bytes = 0;
        self.current = match &mut self.durable {
            Durable::Memory(pages) => pages.clone(),
            Durable::File { pins, .. } => {
                pins.clear();
                PageMap::new(self.size)
            }
        };
        Ok((volatile, survivors.len()))
    }

    fn settle(&mut self, change: &Change<Payload>) -> io::Result<()> {
        for blocks in change.effective() {
            self.make_durable(change, blocks)?;
        }
        if let Payload::Pages(pages) = &change.payload {
            self.volatile_bytes -= (change.blocks.end - change.blocks.start) * self.block;
            let first = change.blocks.start * self.block / PAGE as u64;
            (first..).zip(pages).for_each(|(page, _)| self.unpin(page));
        }
        Ok(())
    }

    fn unpin(&mut self, page: u64) {
        let Durable::File { pins, .. } = &mut self.durable else { return };
        let Some(count) = pins.get_mut(&page) else { return };
        *count -= 1;
        if *count == 0 {
            pins.remove(&page);
            self.current.set(page, None);
        }
    }

    fn make_durable(&mut self, change: &Change<Payload>, blocks: Range<u64>) -> io::Result<()> {
        let (start, end) = (blocks.start * self.block, blocks.end * self.block);
        let Payload::Pages(pages) = &change.payload else {
            return self.make_zero(start, end);
        };
        let first = change.blocks.start * self.block / PAGE as u64;
        let mut at = start;
        for piece in pieces(start, (end - start) as usize) {
            let number = at / PAGE as u64;
            at += piece.len() as u64;
            let page = &pages[(number - first) as usize];
            match &mut self.durable {
                Durable::File { file, .. } => {
                    file.write_all_at(&page[piece.clone()], number * PAGE as u64 + piece.start as u64)?;
                }
                Durable::Memory(durable) if piece.len() == PAGE => durable.set(number, Some(page.clone())),
                Durable::Memory(_) => self.patch(number, piece.clone(), &page[piece])?,
            }
        }
        Ok(())
    }

    fn make_zero(&mut self, start: u64, end: u64) -> io::Result<()> {
        let (first, last) = (start.next_multiple_of(PAGE as u64), end / PAGE as u64 * PAGE as u64);
        let nothing = self.base.as_ref().map(|_| &*ZEROES);
        if let Durable::Memory(durable) = &mut self.durable {
            if first < last {
                durable.fill(first / PAGE as u64..last / PAGE as u64, nothing);
            }
        }
        for edge in [start..first.min(end), last.max(first)..end] {
            if !edge.is_empty() {
                let from = edge.start as usize % PAGE;
                let length = (edge.end - edge.start) as usize;
                self.patch(edge.start / PAGE as u64, from..from + length, &[0; PAGE][..length])?;
            }
        }
        Ok(())
    }

    /// Part of a durable page in memory changes.
    fn patch(&mut self, number: u64, place: Range<usize>, bytes: &[u8]) -> io::Result<()> {
        let Durable::Memory(durable) = &mut self.durable else { return Ok(()) };
        let mut page: Page = [0; PAGE];
        match (durable.get(number), &self.base) {
            (Some(held), _) => page = **held,
            (None, Some(base)) => base.read_exact_at(&mut page, number * PAGE as u64)?,
            (None, None) => {}
        }
        page[place].copy_from_slice(bytes);
        durable.set(number, Some(Arc::new(page)));
        Ok(())
    }
}

/// The parts of a range of bytes within each page that it touches.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Range<usize>> {
    let mut left = length;
    let mut start = offset as usize % PAGE;
    std::iter::from_fn(move || {
        let piece = start..(start + left).min(PAGE);
        left -= piece.len();
        start = 0;
        (!piece.is_empty()).then_some(piece)
    })
}
