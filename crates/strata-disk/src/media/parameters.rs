//! The parameters of a model, and the reader by which a medium takes its own.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use thiserror::Error;

/// A value, and who states it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    pub value: f64,
    pub source: String,
}

/// Why there is no such model.
#[derive(Debug, Error)]
pub enum ModelError {
    #[error("model: {0}")]
    Text(String),
    #[error("unknown model {name:?}: there are {}, or a file's path", .there.join(", "))]
    Unknown { name: String, there: Vec<String> },
    #[error("model {name}: {source}")]
    File { name: String, source: io::Error },
    #[error("model {model}: {why}")]
    Parameters { model: String, why: ParameterError },
}

/// Why a medium cannot have these parameters.
#[derive(Debug, Error)]
pub enum ParameterError {
    #[error("parameter {0} is missing")]
    Missing(&'static str),
    #[error("parameter {0} has no source")]
    NoSource(&'static str),
    #[error("{name} = {value} is not within {low} and {high}")]
    Range { name: &'static str, value: f64, low: f64, high: f64 },
    #[error("unknown parameter {name}: there are {}", .there.join(", "))]
    Unknown { name: String, there: Vec<&'static str> },
    /// Two of them contradict each other.
    #[error("{0}")]
    Unfit(&'static str),
}

/// Takes parameters out of a model and notices those that nobody takes.
pub(crate) struct Parameters<'a> {
    model: &'a str,
    all: &'a BTreeMap<String, Parameter>,
    read: Vec<&'static str>,
}

impl<'a> Parameters<'a> {
    pub(super) fn new(model: &'a str, all: &'a BTreeMap<String, Parameter>) -> Self {
        Self { model, all, read: Vec::new() }
    }

    pub(super) fn take(&mut self, name: &'static str, range: RangeInclusive<f64>) -> Result<f64, ModelError> {
        self.read.push(name);
        let Some(Parameter { value, source }) = self.all.get(name) else {
            return Err(self.error(ParameterError::Missing(name)));
        };
        if source.trim().is_empty() {
            return Err(self.error(ParameterError::NoSource(name)));
        }
        if !range.contains(value) {
            let (value, low, high) = (*value, *range.start(), *range.end());
            return Err(self.error(ParameterError::Range { name, value, low, high }));
        }
        Ok(*value)
    }

    pub(super) fn error(&self, why: ParameterError) -> ModelError {
        ModelError::Parameters { model: self.model.into(), why }
    }

    pub(super) fn finish(self) -> Result<(), ModelError> {
        match self.all.keys().find(|name| !self.read.contains(&name.as_str())) {
            Some(name) => {
                Err(self.error(ParameterError::Unknown { name: name.clone(), there: self.read.clone() }))
            }
            None => Ok(()),
        }
    }
}
