//! A model is a TOML file: a name, a kind and parameters, each with its source.

use super::Medium;
use super::flash::{Flash, FlashParameters};
use super::hdd::{Hdd, HddParameters};
use super::parameters::{ModelError, Parameter, Parameters};
use super::volume::{Volume, VolumeParameters};
use crate::nature::{Cache, Nature};
use crate::text::read_text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What kind of medium a model is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Hdd,
    Flash,
    Volume,
}

/// What a disk is to be like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    pub kind: Family,
    pub about: String,
    /// Whether a power cut loses what completed and was not flushed.
    pub volatile_cache: bool,
    /// Bytes of the logical block, and of the aligned unit that a power cut does not tear.
    #[serde(default = "sector")]
    pub block_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u64>,
    pub parameters: BTreeMap<String, Parameter>,
}

fn sector() -> u64 {
    Nature::default().block
}

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
    let model: Model = toml::from_str(text).map_err(|error| ModelError::Text(error.message().into()))?;
    model.medium(0)?;
    model.nature().check().map_err(|error| ModelError::Text(error.to_string()))?;
    Ok(model)
}

/// A supplied model by its name, or one in a file by its path.
pub fn find_model(name: &str) -> Result<Model, ModelError> {
    if let Some(model) = supplied().into_iter().find(|model| model.name == name) {
        return Ok(model);
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        let there = supplied().into_iter().map(|model| model.name).collect();
        return Err(ModelError::Unknown { name: name.into(), there });
    }
    let text = read_text(name.as_ref()).map_err(|source| ModelError::File { name: name.into(), source })?;
    parse_model(&text)
}

impl Model {
    /// A new medium of this model; its lots follow from the seed.
    pub fn medium(&self, seed: u64) -> Result<Box<dyn Medium>, ModelError> {
        let mut reader = Parameters::new(&self.name, &self.parameters);
        let medium: Box<dyn Medium> = match self.kind {
            Family::Hdd => Box::new(Hdd::new(HddParameters::read(&mut reader)?)),
            Family::Flash => Box::new(Flash::new(FlashParameters::read(&mut reader)?, self.volatile_cache)),
            Family::Volume => Box::new(Volume::new(VolumeParameters::read(&mut reader)?, seed)),
        };
        reader.finish()?;
        Ok(medium)
    }

    /// What a power cut leaves of a disk of this model.
    pub(crate) fn nature(&self) -> Nature {
        let cache = if self.volatile_cache { Cache::Lost } else { Cache::Kept };
        Nature { cache, block: self.block_bytes, unit: self.unit_bytes.unwrap_or(self.block_bytes) }
    }

    /// Bytes beyond which the cache writes back on its own.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.parameters.get("cache_bytes").map_or(0, |parameter| parameter.value as u64)
    }

    /// The size of the modelled disk, where it has one: a larger disk cannot be placed on it.
    pub(crate) fn capacity_bytes(&self) -> Option<u64> {
        self.parameters.get("capacity_bytes").map(|parameter| parameter.value as u64)
    }
}
