//! Texts from files that somebody names: one may have no end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const LONGEST_BYTES: u64 = 64 << 20;

/// The text of a file; an error where it is longer than 64 MiB, or no UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST_BYTES {
        return Err(io::Error::other(format!("longer than {} MiB", LONGEST_BYTES >> 20)));
    }
    Ok(text)
}
