//! Replay of a load: an open loop. A statement is due at its time in the log, whatever the server does; it is sent then,
//! or when its session has the answer to the statement before it.

mod connection;
mod plan;
mod report;
mod request;
mod worker;

use crate::load::Load;
use connection::{Target, password};
use request::Progress;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use worker::Worker;

pub use plan::{Speed, SpeedError};
pub use report::{DigestFigures, Figures, Outcome, Second};
pub use request::{ReplayError, Wanted};

/// Runs a load, and tells of each second.
pub fn replay(load: Load, wanted: Wanted, tell: impl Fn(Second) + Sync) -> Result<Outcome, ReplayError> {
    let connections = plan::connections(&load);
    let threads = wanted.threads.unwrap_or_else(|| plan::threads(&load, wanted.speed, connections.len()));
    let threads = threads.clamp(1, connections.len().max(1));
    let setting = report::Setting {
        sessions: connections.iter().map(Vec::len).sum(),
        connections: connections.len(),
        threads,
        total: load.sessions.iter().map(|session| session.len() as u64).sum(),
    };
    let target = Target {
        password: password(&wanted.host, wanted.port, &wanted.user, &wanted.database),
        host: wanted.host.clone(),
        port: wanted.port,
        user: wanted.user.clone(),
        database: wanted.database.clone(),
    };
    let mut shares: Vec<Vec<Vec<u32>>> = vec![Vec::new(); threads];
    for (number, connection) in connections.into_iter().enumerate() {
        shares[number % threads].push(connection);
    }
    let load = Arc::new(load);
    let opened: Result<Vec<Worker>, ReplayError> =
        shares.into_iter().map(|share| Worker::open(Arc::clone(&load), share, &target, &wanted)).collect();
    let (workers, progress) = (opened?, Progress::default());
    let start = Instant::now();
    let counts = std::thread::scope(|scope| {
        let running: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| worker.run(start, &progress))).collect();
        scope.spawn(|| tell_seconds(start, &progress, &tell));
        let counts: std::io::Result<Vec<_>> =
            running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect();
        progress.ended.store(true, Ordering::Relaxed);
        counts
    })?;
    let counts = counts.into_iter().fold(report::Counts::default(), report::Counts::merge);
    Ok(report::outcome(&counts, &load.digests, &setting))
}

fn tell_seconds(start: Instant, progress: &Progress, tell: &impl Fn(Second)) {
    let (mut second, mut before) = (1, (0, 0));
    while !progress.ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        if start.elapsed() < Duration::from_secs(second) {
            continue;
        }
        let now =
            (progress.statements.load(Ordering::Relaxed), progress.transactions.load(Ordering::Relaxed));
        tell(Second { second, statements: now.0 - before.0, transactions: now.1 - before.1 });
        (second, before) = (second + 1, now);
    }
}
