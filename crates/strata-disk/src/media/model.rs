//! A model is a TOML file: a name, a kind and parameters, each with its source.

use super::Medium;
use super::flash::{Flash, FlashParameters};
use super::hdd::{Hdd, HddParameters};
use super::volume::{Volume, VolumeParameters};
use crate::text::read_text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Hdd,
    Flash,
    Volume,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    pub value: f64,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    pub kind: Family,
    pub about: String,
    /// Whether a power cut loses what completed and was not flushed.
    pub volatile_cache: bool,
    pub parameters: BTreeMap<String, Parameter>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError(pub String);

impl fmt::Display for ModelError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ModelError {}

const SUPPLIED: [&str; 7] = [
    include_str!("../../models/hdd-7200.toml"),
    include_str!("../../models/hdd-5400.toml"),
    include_str!("../../models/sata-ssd.toml"),
    include_str!("../../models/sata-ssd-plp.toml"),
    include_str!("../../models/nvme.toml"),
    include_str!("../../models/nvme-consumer.toml"),
    include_str!("../../models/cloud-volume.toml"),
];

/// The models that come with the program.
pub fn supplied() -> Vec<Model> {
    SUPPLIED
        .iter()
        .map(|text| parse_model(text).expect("a supplied model is valid, which a test checks"))
        .collect()
}

/// The text of a model file, checked as far as that its medium can be built.
pub fn parse_model(text: &str) -> Result<Model, ModelError> {
    let model: Model =
        toml::from_str(text).map_err(|error| ModelError(format!("model: {}", error.message())))?;
    model.medium(0)?;
    Ok(model)
}

/// A supplied model by its name, or one in a file by its path.
pub fn find_model(name: &str) -> Result<Model, ModelError> {
    if let Some(model) = supplied().into_iter().find(|model| model.name == name) {
        return Ok(model);
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        let names: Vec<String> = supplied().into_iter().map(|model| model.name).collect();
        return Err(ModelError(format!(
            "unknown model {name:?}: there are {}, or a file's path",
            names.join(", ")
        )));
    }
    let text = read_text(name.as_ref()).map_err(|error| ModelError(format!("model {name}: {error}")))?;
    parse_model(&text)
}

impl Model {
    pub fn medium(&self, seed: u64) -> Result<Box<dyn Medium>, ModelError> {
        let mut reader = Parameters { model: self, read: Vec::new() };
        let medium: Box<dyn Medium> = match self.kind {
            Family::Hdd => Box::new(Hdd::new(HddParameters::read(&mut reader)?)),
            Family::Flash => Box::new(Flash::new(FlashParameters::read(&mut reader)?, self.volatile_cache)),
            Family::Volume => Box::new(Volume::new(VolumeParameters::read(&mut reader)?, seed)),
        };
        reader.finish()?;
        Ok(medium)
    }

    /// Bytes beyond which the cache writes back on its own.
    pub fn cache_bytes(&self) -> u64 {
        self.parameters.get("cache_bytes").map_or(0, |parameter| parameter.value as u64)
    }

    /// The size of the modelled disk, where it has one: a larger disk cannot be placed on it.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.parameters.get("capacity_bytes").map(|parameter| parameter.value as u64)
    }
}

/// Takes parameters out of a model and notices those that nobody takes.
pub struct Parameters<'a> {
    model: &'a Model,
    read: Vec<&'static str>,
}

impl Parameters<'_> {
    pub fn take(&mut self, name: &'static str, range: RangeInclusive<f64>) -> Result<f64, ModelError> {
        self.read.push(name);
        let Some(parameter) = self.model.parameters.get(name) else {
            return Err(self.error(format!("parameter {name} is missing")));
        };
        if parameter.source.trim().is_empty() {
            return Err(self.error(format!("parameter {name} has no source")));
        }
        if !range.contains(&parameter.value) {
            let (low, high) = (range.start(), range.end());
            return Err(self.error(format!("{name} = {} is not within {low} and {high}", parameter.value)));
        }
        Ok(parameter.value)
    }

    pub fn error(&self, what: String) -> ModelError {
        ModelError(format!("model {}: {what}", self.model.name))
    }

    fn finish(&self) -> Result<(), ModelError> {
        match self.model.parameters.keys().find(|name| !self.read.contains(&name.as_str())) {
            Some(name) => {
                Err(self.error(format!("unknown parameter {name}: there are {}", self.read.join(", "))))
            }
            None => Ok(()),
        }
    }
}
