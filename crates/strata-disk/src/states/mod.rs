//! The states that a power cut could have left, from an event log: which cuts are worth trying, and what of the
//! volatile changes each leaves. Pure and seeded: the same log, window, seed and budget give the same states anywhere.
//!
//! A state is data (`State`): the number of the sequence at which power is lost, and the volatile changes that are kept.
//! `replay` makes its content from the log again, without the enumeration that found it.

pub mod choice;
pub mod condense;
pub mod enumerate;
pub mod replay;

use crate::durability::{Lie, Seq};
use crate::nature::Nature;
use choice::Chosen;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A disk that lies about flushes from a moment on; it counts into what is volatile, so into the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lying {
    pub from: Seq,
    pub flushes: Lie,
}

/// What a power cut after the event `cut` could have left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its place among the states of this enumeration.
    pub id: usize,
    pub cut: Seq,
    pub chosen: Chosen,
    #[serde(default)]
    pub lying: Lying,
    /// Volatile changes at the cut, and how many of them are there in full or in part.
    pub volatile: usize,
    pub kept: usize,
    pub how: String,
    /// The flush epoch whose only state drawn by lot alone this is. None where its cut or its writes were chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<u64>,
    /// What each disk is: a cache that is lost or kept, its block, and the unit that is not torn. Empty in states of earlier
    /// versions, whose disks are as the log has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, Nature>,
    /// Of the content of all disks, in hexadecimal digits: two states of an enumeration never have the same. Empty where it
    /// was not measured yet.
    pub digest: String,
}

/// A change that may be lost at the cut of a state: its blocks that still count, and those of them that the state has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub seq: Seq,
    pub disk: String,
    pub blocks: Vec<(u64, u64)>,
    pub kept: Vec<(u64, u64)>,
}
