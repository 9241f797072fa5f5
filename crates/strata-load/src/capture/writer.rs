//! The writer of a load.

use super::parameters::Values;
use crate::load::{FORMAT, Summary};
use crate::sql::{Replacement, Replacer, digest, normalise};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A statement of a log. `bound` has parameters and the sign that the statement has a name.
pub(super) struct Captured {
    pub start_us: i64,
    pub duration_us: Option<u64>,
    pub sql: String,
    pub bound: Option<(Values, bool)>,
}

/// Writes to a file beside the one that is to be, which has it whole or not at all. Its data is production's: nobody
/// else may read it.
pub(super) struct Writer {
    file: BufWriter<File>,
    partly: PathBuf,
    to: PathBuf,
    digests: HashMap<u64, u32>,
    texts: HashMap<String, u32>,
    replacer: Replacer,
    normal: Vec<u8>,
    whole: bool,
}

impl Writer {
    pub(super) fn create(to: &Path, literals: Replacement) -> std::io::Result<Writer> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let partly = to.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partly)?;
        // the key is forgotten: no replacement leads back
        let replacer = Replacer { which: literals, key: RandomState::new().hash_one(std::process::id()) };
        Ok(Writer {
            file: BufWriter::with_capacity(1 << 20, file),
            partly,
            to: to.to_owned(),
            digests: HashMap::new(),
            texts: HashMap::new(),
            replacer,
            normal: Vec::new(),
            whole: false,
        })
    }

    fn line(&mut self, line: &impl serde::Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")
    }

    pub(super) fn write(&mut self, session: u32, captured: &Captured) -> std::io::Result<()> {
        let digest = self.digest(&captured.sql)?;
        let (start, duration) = (captured.start_us, captured.duration_us);
        let keep = self.replacer.which == Replacement::Keep;
        match &captured.bound {
            None if keep => self.line(&("x", session, start, duration, digest, &captured.sql)),
            None => {
                let sql = self.replacer.statement(&captured.sql);
                self.line(&("x", session, start, duration, digest, sql))
            }
            Some((values, prepared)) => {
                let text = self.text(&captured.sql)?;
                let replaced =
                    |value: &Option<String>| value.as_ref().map(|value| self.replacer.value(value));
                let values: Values = values.iter().map(replaced).collect();
                self.line(&("x", session, start, duration, digest, text, values, prepared))
            }
        }
    }

    fn digest(&mut self, sql: &str) -> std::io::Result<u32> {
        normalise(sql, &mut self.normal);
        let hash = digest(&self.normal);
        if let Some(number) = self.digests.get(&hash) {
            return Ok(*number);
        }
        let number = self.digests.len() as u32;
        self.digests.insert(hash, number);
        let normal = String::from_utf8_lossy(&self.normal).into_owned();
        self.line(&("d", number, format!("{hash:016x}"), normal))?;
        Ok(number)
    }

    fn text(&mut self, sql: &str) -> std::io::Result<u32> {
        if let Some(number) = self.texts.get(sql) {
            return Ok(*number);
        }
        let number = self.texts.len() as u32;
        self.texts.insert(sql.to_owned(), number);
        let replaced = self.replacer.statement(sql);
        self.line(&("q", number, replaced))?;
        Ok(number)
    }

    pub(super) fn finish(mut self, summary: Summary) -> std::io::Result<Summary> {
        let literals = match self.replacer.which {
            Replacement::Keep => "keep",
            Replacement::Text => "text",
            Replacement::All => "all",
        };
        let digests = self.digests.len() as u64;
        let summary = Summary { format: FORMAT, digests, literals: literals.to_owned(), ..summary };
        self.line(&summary)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        std::fs::rename(&self.partly, &self.to)?;
        self.whole = true;
        Ok(summary)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.whole {
            // nothing more can be done about a file that cannot be removed
            let _ = std::fs::remove_file(&self.partly);
        }
    }
}
