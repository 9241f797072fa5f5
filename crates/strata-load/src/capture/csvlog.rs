//! csvlog of PostgreSQL 9.0 to 18: 23 columns, a 24th since 13, 26 since 14. Only the first 24 matter, which kept their
//! places.

use super::record::{Damage, Record, parse_time};
use memchr::{memchr, memchr2};
use std::borrow::Cow;

const DATABASE: usize = 2;
const SESSION: usize = 5;
const STATE: usize = 12;
const MESSAGE: usize = 13;
const DETAIL: usize = 14;
const BACKEND: usize = 23;
const LEAST_COLUMNS: usize = 23;
const COLUMNS: usize = 26;

/// Iterates over the records of a csvlog.
pub(crate) struct CsvLog<'a> {
    text: &'a [u8],
    at: usize,
}

type Field = (usize, usize, bool);

impl<'a> CsvLog<'a> {
    pub(crate) fn new(text: &'a [u8]) -> CsvLog<'a> {
        CsvLog { text, at: 0 }
    }

    /// The bounds of the fields of the record at `at`, with the sign that one holds doubled quotes, their number, and
    /// the end of the record. None if it is damaged.
    fn fields(&self, out: &mut [Field; COLUMNS]) -> Option<(usize, usize)> {
        let (mut at, mut count) = (self.at, 0);
        loop {
            let (field, end) = self.field(at)?;
            *out.get_mut(count)? = field;
            count += 1;
            match self.text.get(end) {
                Some(b',') => at = end + 1,
                Some(b'\r') if self.text.get(end + 1) == Some(&b'\n') => return Some((count, end + 2)),
                Some(b'\n') => return Some((count, end + 1)),
                None => return Some((count, end)),
                Some(_) => return None,
            }
        }
    }

    fn field(&self, at: usize) -> Option<(Field, usize)> {
        if self.text.get(at) != Some(&b'"') {
            let end = memchr2(b',', b'\n', &self.text[at..]).map_or(self.text.len(), |length| at + length);
            let end = if end > at && self.text.get(end) != Some(&b',') && self.text[end - 1] == b'\r' {
                end - 1
            } else {
                end
            };
            return Some(((at, end, false), end));
        }
        let (begin, mut from, mut doubled) = (at + 1, at + 1, false);
        loop {
            let quote = from + memchr(b'"', &self.text[from..])?;
            if self.text.get(quote + 1) != Some(&b'"') {
                return Some(((begin, quote, doubled), quote + 1));
            }
            (doubled, from) = (true, quote + 2);
        }
    }

    fn value(&self, (begin, end, doubled): Field) -> Cow<'a, [u8]> {
        let raw = &self.text[begin..end];
        if !doubled {
            return Cow::Borrowed(raw);
        }
        let mut out = Vec::with_capacity(raw.len());
        let mut rest = raw;
        while let Some(quote) = memchr(b'"', rest) {
            out.extend_from_slice(&rest[..=quote]);
            rest = rest.get(quote + 2..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
        Cow::Owned(out)
    }

    /// Goes to the next line that begins as a record does: a quote that is missing would else swallow the rest.
    fn resynchronise(&mut self) {
        while let Some(line) = memchr(b'\n', &self.text[self.at..]) {
            self.at += line + 1;
            if parse_time(&self.text[self.at..(self.at + 32).min(self.text.len())]).is_some() {
                return;
            }
        }
        self.at = self.text.len();
    }
}

impl<'a> Iterator for CsvLog<'a> {
    type Item = Result<Record<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.text.len() {
            return None;
        }
        let mut fields = [(0, 0, false); COLUMNS];
        let read = self.fields(&mut fields).filter(|&(count, _)| count >= LEAST_COLUMNS);
        let time_us = read.and_then(|_| parse_time(&self.text[fields[0].0..fields[0].1]));
        let (Some((count, end)), Some(time_us)) = (read, time_us) else {
            self.resynchronise();
            return Some(Err(Damage::NoRecord));
        };
        self.at = end;
        let state = self.value(fields[STATE]);
        Some(Ok(Record {
            time_us,
            session: self.value(fields[SESSION]),
            database: self.value(fields[DATABASE]),
            backend: if count > BACKEND { self.value(fields[BACKEND]) } else { Cow::default() },
            failed: failed(&state),
            message: self.value(fields[MESSAGE]),
            detail: self.value(fields[DETAIL]),
        }))
    }
}

/// States of success, warnings and notices begin with 00, 01 and 02.
pub(crate) fn failed(state: &[u8]) -> bool {
    !state.is_empty() && !matches!(state, [b'0', b'0'..=b'2', ..])
}
