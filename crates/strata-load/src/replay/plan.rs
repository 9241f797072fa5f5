//! Which connection runs which session, and when.

use crate::load::Load;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::str::FromStr;
use thiserror::Error;

/// How fast the time of the log passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    Factor(f64),
    /// No statement waits for its time.
    Max,
}

#[derive(Debug, Error)]
#[error("neither a factor above 0 nor max")]
pub struct SpeedError;

impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Speed, SpeedError> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let factor = text.trim_end_matches('x').parse().map_err(|_| SpeedError)?;
        if f64::is_finite(factor) && factor > 0.0 { Ok(Speed::Factor(factor)) } else { Err(SpeedError) }
    }
}

impl Speed {
    /// Nanoseconds after the start at which a time of the log is due.
    pub(super) fn due_ns(self, log_us: i64) -> u64 {
        match self {
            Speed::Factor(factor) => (log_us as f64 * 1000.0 / factor) as u64,
            Speed::Max => 0,
        }
    }
}

/// The sessions of each connection in order: as many connections as the log had sessions at a time. A session gets the
/// connection that has been free for the longest time.
pub(super) fn connections(load: &Load) -> Vec<Vec<u32>> {
    let bounds = |session: &Vec<crate::load::Statement>| {
        let last = session.last().map_or(0, |one| one.start_us + one.duration_us as i64);
        (session.first().map_or(0, |one| one.start_us), last)
    };
    let mut order: Vec<(i64, i64, u32)> = load
        .sessions
        .iter()
        .enumerate()
        .filter(|(_, session)| !session.is_empty())
        .map(|(number, session)| (bounds(session).0, bounds(session).1, number as u32))
        .collect();
    order.sort_unstable();
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut free: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
    for (first, last, session) in order {
        let connection = match free.peek() {
            Some(&Reverse((end, connection))) if end < first => {
                free.pop();
                connection
            }
            _ => {
                found.push(Vec::new());
                found.len() - 1
            }
        };
        found[connection].push(session);
        free.push(Reverse((last, connection)));
    }
    found
}

/// Statements a second that one thread is given; it can drive twice as many.
const PER_THREAD: f64 = 10_000.0;

/// Threads for the busiest second of a load, at most one a processor.
pub(super) fn threads(load: &Load, speed: Speed, connections: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let most = processors.min(connections).max(1);
    let Speed::Factor(factor) = speed else { return most };
    let mut seconds: BTreeMap<i64, u64> = BTreeMap::new();
    for statement in load.sessions.iter().flatten() {
        *seconds.entry(statement.start_us.div_euclid(1_000_000)).or_default() += 1;
    }
    let busiest = seconds.values().max().copied().unwrap_or(0) as f64 * factor;
    ((busiest / PER_THREAD).ceil() as usize).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::{Speed, connections, threads};
    use crate::load::{Load, Statement, What};

    fn load(sessions: &[&[(i64, u64)]]) -> Load {
        let statement = |&(start_us, duration_us): &(i64, u64)| Statement {
            start_us,
            duration_us,
            digest: 0,
            what: What::Simple("".into()),
        };
        let sessions = sessions.iter().map(|session| session.iter().map(statement).collect()).collect();
        Load { sessions, ..Load::default() }
    }

    #[test]
    fn sessions_after_one_another_share_a_connection() {
        let load = load(&[&[(0, 10), (20, 5)], &[(5, 1)], &[(26, 1)], &[(6, 100)], &[]]);
        assert_eq!(connections(&load), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn a_busy_load_has_more_threads_up_to_the_processors() {
        let second: Vec<(i64, u64)> = (0..100).map(|n| (n * 1000, 1)).collect();
        let load = load(&[&second]);
        assert_eq!(threads(&load, Speed::Factor(1.0), 50), 1);
        let processors = std::thread::available_parallelism().unwrap().get();
        assert_eq!(threads(&load, Speed::Factor(100_000.0), 50), processors.min(50));
        assert_eq!(threads(&load, Speed::Max, 1), 1);
    }

    #[test]
    fn speeds_are_factors_or_max() {
        assert_eq!("2x".parse::<Speed>().unwrap(), Speed::Factor(2.0));
        assert_eq!("max".parse::<Speed>().unwrap(), Speed::Max);
        for wrong in ["0", "-1", "x", "", "inf", "nan", "fast"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
        assert_eq!(Speed::Factor(2.0).due_ns(1000), 500_000);
    }
}
