//! The verbs that a daemon is begun, asked and stopped by.

use super::error::VerbError;
use crate::calibrate::{self, Rates, measure, range};
use crate::daemon::ServeError;
use crate::front::attach::{Front, attach, detach, usual_front};
use crate::media::model::{find_model, supplied};
use crate::place::Place;
use crate::private;
use crate::protocol::{Asked, answer, ask};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(super) fn request(dir: &Path, asked: &Asked) -> Result<(), VerbError> {
    tell(&answer(dir, asked)?);
    Ok(())
}

pub(super) fn tell(answer: &serde_json::Value) {
    println!("{answer}");
}

/// What the daemon says once disks can be added.
pub(super) fn serve_in_background(dir: &Path, log: Option<&Path>) -> Result<String, VerbError> {
    let itself = std::env::current_exe().map_err(VerbError::OwnProgram)?;
    private::folder(dir).map_err(|source| ServeError::Folder { path: dir.into(), source })?;
    let said = dir.join("daemon.log");
    let errors = private::log(&said).map_err(|source| VerbError::File { path: said.clone(), source })?;
    let mut command = Command::new(itself);
    command.arg("serve").arg(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
    if let Some(log) = log {
        command.arg("--log").arg(log);
    }
    let mut child = command.spawn().map_err(VerbError::Daemon)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(VerbError::Daemon)?;
    }
    if line.starts_with("ready") {
        return Ok(line);
    }
    let _ = child.wait();
    let errors = std::fs::read_to_string(&said).unwrap_or_default();
    Err(VerbError::NotBegun(errors.trim().trim_start_matches("strata-disk: ").into()))
}

/// Returns once the daemon has given up its folder; one that is not there is no error.
pub(super) fn stop(dir: &Path) -> Result<(), VerbError> {
    let place = Place(dir.into());
    if ask(&place.control(), r#"{"op": "stop"}"#).is_ok() {
        place.wait_until_free()?;
    }
    Ok(place.clean()?)
}

/// Serves a disk without a medium, loads it by each front and takes it away again.
pub(super) fn calibrate(dir: &Path, seconds: f64, further: &[String]) -> Result<(), VerbError> {
    let further: Result<Vec<_>, _> = further.iter().map(|media| find_model(media)).collect();
    let models = [supplied(), further?].concat();
    let each = Duration::try_from_secs_f64(seconds)?;
    serve_in_background(dir, None)?;
    let measured = measure_fronts(dir, each);
    let stopped = stop(dir);
    let fronts = measured?;
    stopped?;
    let ranges: Vec<_> = models.iter().filter_map(|model| Some(range(model, fronts.last()?))).collect();
    let found = serde_json::json!({ "fronts": fronts, "models": ranges });
    println!("{}", serde_json::to_string_pretty(&found)?);
    Ok(())
}

/// Of the file, and of the block devices that it can be attached as here: the one that stacks stand on is the last.
fn measure_fronts(dir: &Path, each: Duration) -> Result<Vec<Rates>, VerbError> {
    let size = calibrate::SIZE_BYTES;
    let added = format!(r#"{{"op": "add", "disk": "disk", "size": {size}}}"#);
    ask(&Place(dir.into()).control(), &added)?;
    let file = Place(dir.into()).disks().join("disk");
    let load = |front, path: &Path| {
        measure(front, path, each).map_err(|source| VerbError::Load { path: path.into(), source })
    };
    let by_device = |front, by| {
        let node = PathBuf::from(attach(dir, "disk", Some(by))?);
        let rates = load(front, &node);
        detach(dir, &node)?;
        rates
    };
    let mut measured = vec![load("fuse", &file)?, by_device("loop", Front::Loop)?];
    if usual_front() == Front::Ublk {
        measured.push(by_device("ublk", Front::Ublk)?);
    }
    Ok(measured)
}
