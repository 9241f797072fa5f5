//! One thread with many connections.

use super::connection::{Stream, Target};
use super::plan::Speed;
use super::report::Counts;
use super::request::{Progress, ReplayError, Wanted};
use crate::load::{Load, Statement, What};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use polling::{Event, Events, PollMode, Poller};
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Connections of sessions that begin within this time are opened before the clock starts; later ones this long before
/// their first statement.
const AHEAD_NS: u64 = 1_000_000_000;
const BUFFER: usize = 1 << 16;

/// A statement that waits for its answer.
struct Sent {
    due_ns: u64,
    sent_ns: u64,
    digest: u32,
    failed: bool,
    bound: bool,
}

#[derive(Default)]
struct Connection {
    stream: Option<Stream>,
    /// Sessions to come, the next one last.
    sessions: Vec<u32>,
    session: Option<u32>,
    next: usize,
    /// When the answer to the statement before came.
    free_ns: u64,
    sent: Option<Sent>,
    input: BytesMut,
    output: BytesMut,
    prepared: HashSet<u32>,
    opening: bool,
}

/// What comes due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Statement,
    Opening,
}

type Opened = (usize, io::Result<Stream>);

pub(super) struct Worker {
    load: Arc<Load>,
    speed: Speed,
    end_ns: u64,
    patience_ns: u64,
    first_us: i64,
    connections: Vec<Connection>,
    due: BinaryHeap<Reverse<(u64, usize, Due)>>,
    poller: Arc<Poller>,
    target: Target,
    counts: Counts,
    start: Instant,
    buffer: Vec<u8>,
}

impl Worker {
    /// Opens the connections of the sessions that begin first.
    pub(super) fn open(
        load: Arc<Load>,
        share: Vec<Vec<u32>>,
        target: &Target,
        wanted: &Wanted,
    ) -> Result<Worker, ReplayError> {
        let first_us = load.sessions.iter().flatten().map(|one| one.start_us).min().unwrap_or(0);
        let digests = load.digests.len();
        let reversed = |mut sessions: Vec<u32>| {
            sessions.reverse();
            Connection { sessions, ..Connection::default() }
        };
        let mut worker = Worker {
            load,
            speed: wanted.speed,
            end_ns: wanted.seconds.map_or(u64::MAX, |seconds| (seconds * 1e9) as u64),
            patience_ns: (wanted.patience * 1e9) as u64,
            first_us,
            connections: share.into_iter().map(reversed).collect(),
            due: BinaryHeap::new(),
            poller: Arc::new(Poller::new()?),
            target: target.clone(),
            counts: Counts {
                digests: (0..digests).map(|_| Default::default()).collect(),
                ..Counts::default()
            },
            start: Instant::now(),
            buffer: vec![0; BUFFER],
        };
        for number in 0..worker.connections.len() {
            let begin = worker.session_ns(number);
            if begin.is_some_and(|begin| begin <= AHEAD_NS) {
                let failed = |source| ReplayError::Connect { host: target.host.clone(), source };
                let stream = target.connect().map_err(failed)?;
                worker.attach(number, stream)?;
            } else if let Some(begin) = begin {
                worker.due.push(Reverse((begin - AHEAD_NS, number, Due::Opening)));
            }
        }
        Ok(worker)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn statement_ns(&self, statement: &Statement) -> u64 {
        self.speed.due_ns(statement.start_us - self.first_us)
    }

    /// The time of the next session's first statement.
    fn session_ns(&self, number: usize) -> Option<u64> {
        let session = *self.connections[number].sessions.last()?;
        Some(self.statement_ns(self.load.sessions[session as usize].first()?))
    }

    fn attach(&mut self, number: usize, stream: Stream) -> io::Result<()> {
        // SAFETY: the poller forgets the socket before it is closed
        unsafe { self.poller.add_with_mode(&stream.as_fd(), Event::readable(number), PollMode::Level)? };
        let connection = &mut self.connections[number];
        connection.stream = Some(stream);
        connection.session = connection.sessions.pop();
        connection.next = 0;
        connection.opening = false;
        self.schedule(number);
        Ok(())
    }

    fn current(&self, number: usize) -> Option<&Statement> {
        let connection = &self.connections[number];
        self.load.sessions[connection.session? as usize].get(connection.next)
    }

    /// Puts the next statement of a connection among those that are due, or goes on to its next session.
    fn schedule(&mut self, number: usize) {
        if let Some(statement) = self.current(number) {
            let due = self.statement_ns(statement);
            self.due.push(Reverse((due, number, Due::Statement)));
            return;
        }
        self.detach(number, true);
        if let Some(begin) = self.session_ns(number) {
            self.due.push(Reverse((begin.saturating_sub(AHEAD_NS), number, Due::Opening)));
        }
    }

    fn detach(&mut self, number: usize, politely: bool) {
        let connection = &mut self.connections[number];
        if let Some(mut stream) = connection.stream.take() {
            // a socket that is gone was forgotten by the kernel
            let _ = self.poller.delete(stream.as_fd());
            if politely {
                let mut out = BytesMut::new();
                frontend::terminate(&mut out);
                let _ = stream.write(&out);
            }
        }
        let sessions = std::mem::take(&mut connection.sessions);
        *connection = Connection { sessions, free_ns: connection.free_ns, ..Connection::default() };
    }

    /// A connection broke: the rest of its session is lost, the next session gets a new one.
    fn lose(&mut self, number: usize, why: String) {
        self.counts.lost += 1;
        self.counts.lost_because.get_or_insert(why);
        self.detach(number, false);
        self.schedule(number);
    }

    pub(super) fn run(mut self, start: Instant, progress: &Progress) -> io::Result<Counts> {
        self.start = start;
        let (wish, wishes) = channel();
        let (hand, opened) = channel();
        let opener = {
            let (target, poller) = (self.target.clone(), Arc::clone(&self.poller));
            std::thread::spawn(move || open_wished(&target, &poller, &wishes, &hand))
        };
        let ended = self.serve(progress, &wish, &opened);
        drop(wish);
        drop(opened);
        // it ends with its last connection; the next line only waits for that
        let _ = opener.join();
        ended?;
        Ok(self.counts)
    }

    fn serve(
        &mut self,
        progress: &Progress,
        wish: &Sender<usize>,
        opened: &Receiver<Opened>,
    ) -> io::Result<()> {
        let mut events = Events::new();
        let mut heard_ns = 0;
        loop {
            let waiting = self.connections.iter().any(|one| one.sent.is_some() || one.opening);
            let now = self.now_ns();
            self.fire(now, wish)?;
            if now >= self.end_ns || self.due.is_empty() && !waiting && self.idle() {
                break;
            }
            let next = self.due.peek().map_or(u64::MAX, |Reverse((due, ..))| *due).min(self.end_ns);
            if next > now + self.patience_ns && now > heard_ns + self.patience_ns {
                self.counts.gave_up = waiting;
                if waiting {
                    break;
                }
            }
            let now = self.now_ns();
            let pause = Duration::from_nanos(next.saturating_sub(now).min(self.patience_ns.max(1_000_000)));
            events.clear();
            self.poller.wait(&mut events, Some(pause))?;
            let awake = self.now_ns();
            for event in events.iter() {
                heard_ns = awake;
                self.answer(event, awake, progress)?;
            }
            while let Ok((number, stream)) = opened.try_recv() {
                heard_ns = awake;
                match stream {
                    Ok(stream) => self.attach(number, stream)?,
                    Err(error) => {
                        self.connections[number].sessions.pop();
                        self.lose(number, error.to_string());
                    }
                }
            }
        }
        self.counts.end_ns = self.now_ns().min(self.end_ns);
        for number in 0..self.connections.len() {
            self.connections[number].sessions.clear();
            self.detach(number, true);
        }
        Ok(())
    }

    fn idle(&self) -> bool {
        self.connections.iter().all(|one| one.sent.is_none() && !one.opening)
    }

    /// Sends what is due.
    fn fire(&mut self, now: u64, wish: &Sender<usize>) -> io::Result<()> {
        while let Some(&Reverse((due, number, what))) = self.due.peek() {
            if due > now {
                break;
            }
            self.due.pop();
            match what {
                Due::Statement => self.send(number, due)?,
                Due::Opening => {
                    self.connections[number].opening = true;
                    // the opener lives as long as this end of the channel
                    let _ = wish.send(number);
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, number: usize, due: u64) -> io::Result<()> {
        let now = self.now_ns();
        let (load, connection) = (Arc::clone(&self.load), &mut self.connections[number]);
        let Some(session) = connection.session else { return Ok(()) };
        let statement = &load.sessions[session as usize][connection.next];
        let due = if self.speed == Speed::Max { connection.free_ns } else { due };
        let able = due.max(connection.free_ns);
        self.counts.driver.add(now.saturating_sub(able));
        self.counts.server.add(able - due);
        let bound = matches!(statement.what, What::Bound { .. });
        connection.sent =
            Some(Sent { due_ns: due, sent_ns: now, digest: statement.digest, failed: false, bound });
        connection.next += 1;
        encode(&load, &statement.what, connection)?;
        self.flush(number)
    }

    fn flush(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        let Some(stream) = connection.stream.as_mut() else { return Ok(()) };
        while !connection.output.is_empty() {
            match stream.write(&connection.output) {
                Ok(count) => drop(connection.output.split_to(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.poller.modify_with_mode(stream.as_fd(), Event::all(number), PollMode::Level);
                }
                Err(error) => {
                    self.lose(number, error.to_string());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, event: Event, awake: u64, progress: &Progress) -> io::Result<()> {
        let number = event.key;
        if event.writable {
            self.flush(number)?;
            if let (true, Some(stream)) =
                (self.connections[number].output.is_empty(), &self.connections[number].stream)
            {
                self.poller.modify_with_mode(stream.as_fd(), Event::readable(number), PollMode::Level)?;
            }
        }
        if !event.readable {
            return Ok(());
        }
        let connection = &mut self.connections[number];
        let Some(stream) = connection.stream.as_mut() else { return Ok(()) };
        match stream.read(&mut self.buffer) {
            Ok(0) => {
                self.lose(number, "the server closed the connection".to_owned());
                return Ok(());
            }
            Ok(count) => connection.input.extend_from_slice(&self.buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => {
                self.lose(number, error.to_string());
                return Ok(());
            }
        }
        self.messages(number, awake, progress)
    }

    fn messages(&mut self, number: usize, awake: u64, progress: &Progress) -> io::Result<()> {
        loop {
            let connection = &mut self.connections[number];
            match Message::parse(&mut connection.input)? {
                None => return Ok(()),
                Some(Message::ErrorResponse(body)) => {
                    let state = body.fields().filter(|field| Ok(field.type_() == b'C')).next()?;
                    let state = state.map(|field| String::from_utf8_lossy(field.value_bytes()).into_owned());
                    *self.counts.errors.entry(state.unwrap_or_default()).or_default() += 1;
                    if let Some(sent) = &mut connection.sent {
                        sent.failed = true;
                    }
                }
                Some(Message::CopyInResponse(_)) => {
                    frontend::copy_fail("the data is not in the log", &mut connection.output)?;
                    // the first one is not heeded within COPY
                    if connection.sent.as_ref().is_some_and(|sent| sent.bound) {
                        frontend::sync(&mut connection.output);
                    }
                    self.flush(number)?;
                }
                Some(Message::ReadyForQuery(body)) => {
                    let idle = body.status() == b'I';
                    self.complete(number, awake, idle, progress);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }

    fn complete(&mut self, number: usize, awake: u64, idle: bool, progress: &Progress) {
        let Some(sent) = self.connections[number].sent.take() else { return };
        self.connections[number].free_ns = awake;
        let latency = awake.saturating_sub(sent.sent_ns);
        let transaction = u64::from(idle && !sent.failed);
        self.counts.statements += 1;
        self.counts.transactions += transaction;
        self.counts.latency.add(latency);
        self.counts.response.add(awake.saturating_sub(sent.due_ns));
        let digest = &mut self.counts.digests[sent.digest as usize];
        digest.0 += 1;
        digest.1 += u64::from(sent.failed);
        digest.2.add(latency);
        progress.statements.fetch_add(1, Ordering::Relaxed);
        progress.transactions.fetch_add(transaction, Ordering::Relaxed);
        self.schedule(number);
    }
}

/// Opens connections on request: that waits, and statements of others are due meanwhile.
fn open_wished(target: &Target, poller: &Poller, wishes: &Receiver<usize>, hand: &Sender<Opened>) {
    while let Ok(number) = wishes.recv() {
        if hand.send((number, target.connect())).is_err() || poller.notify().is_err() {
            return;
        }
    }
}

fn encode(load: &Load, what: &What, connection: &mut Connection) -> io::Result<()> {
    let out = &mut connection.output;
    match what {
        What::Simple(sql) => frontend::query(sql, out)?,
        What::Bound { text, parameters, prepared } => {
            let name = if *prepared { format!("s{text}") } else { String::new() };
            if !prepared || connection.prepared.insert(*text) {
                frontend::parse(&name, &load.texts[*text as usize], [], out)?;
            }
            let value = |parameter: &Option<Box<str>>, out: &mut BytesMut| {
                Ok(match parameter {
                    None => IsNull::Yes,
                    Some(text) => {
                        out.extend_from_slice(text.as_bytes());
                        IsNull::No
                    }
                })
            };
            frontend::bind("", &name, [], parameters.iter(), value, [], out)
                .map_err(|_| io::Error::other("parameters do not fit into a message"))?;
            frontend::execute("", 0, out)?;
            frontend::sync(out);
        }
    }
    Ok(())
}
