//! The verbs of media models.

use super::error::VerbError;
use crate::fit::{Known, fit};
use crate::media::model::{find_model, supplied};
use crate::media::page::render_page;
use crate::media::validation::figures;
use crate::text::read_text;
use std::path::Path;

pub(super) fn validate(media: &str) -> Result<(), VerbError> {
    println!("{}", serde_json::to_string_pretty(&figures(&find_model(media)?)?)?);
    Ok(())
}

pub(super) fn models(json: bool, markdown: bool) -> Result<(), VerbError> {
    let models = supplied();
    if markdown {
        print!("{}", render_page(&models)?);
        return Ok(());
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&models)?);
        return Ok(());
    }
    for model in models {
        println!("{:14} {}", model.name, model.about);
    }
    Ok(())
}

pub(super) fn fit_report(report: &Path, name: &str, known: Known) -> Result<(), VerbError> {
    let text = read_text(report).map_err(|source| VerbError::File { path: report.into(), source })?;
    print!("{}", toml::to_string(&fit(&text, name, known)?)?);
    Ok(())
}
