//! Logs for people: lines that begin with log_line_prefix, also those that RDS and its like offer as files.

use super::catalog::CATALOG;
use super::record::{Damage, Record, parse_time};
use memchr::memchr;
use regex::bytes::{Captures, Regex};
use std::borrow::Cow;
use thiserror::Error;

/// Prefixes that are tried if none is given: PostgreSQL's own, Debian's, that of RDS, of Azure, those that pgBadger asks
/// for.
pub(crate) const KNOWN: [&str; 7] = [
    "%m [%p] %q%u@%d ",
    "%m [%p] ",
    "%t:%r:%u@%d:[%p]:",
    "%m:%r:%u@%d:[%p]:%l:%e:%s:%v:%x:%c:%q%a:",
    "%t [%p]: user=%u,db=%d,app=%a,client=%h ",
    "%t [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
    "%t-%c-",
];

#[derive(Debug, Error, PartialEq)]
pub enum PrefixError {
    #[error("the prefix {0:?} has no time (%m, %t or %n)")]
    Time(String),
    #[error("the prefix {0:?} has neither session (%c) nor process (%p)")]
    Session(String),
    #[error("the prefix {0:?} has the escape %{1}, which PostgreSQL does not know")]
    Escape(String, char),
}

/// A log_line_prefix, as it is configured.
pub(crate) struct Prefix {
    line: Regex,
}

impl Prefix {
    pub(crate) fn new(prefix: &str) -> Result<Prefix, PrefixError> {
        let pattern = pattern(prefix)?;
        let words = |words: &[(&str, &str)]| {
            words.iter().map(|(word, _)| regex::escape(word)).collect::<Vec<_>>().join("|")
        };
        let (severities, fields) = (words(&CATALOG.severities), words(&CATALOG.fields));
        // French has a space before the colon, which may be one that does not break
        let line = format!(
            r"(?s-u)^{pattern}(?:(?P<severity>{severities})(?:[1-5])?|(?P<field>{fields}))(?: |\xc2\xa0)?:(?: |\xc2\xa0)*"
        );
        Ok(Prefix { line: Regex::new(&line).expect("escaped texts and known escapes") })
    }

    /// Of the prefixes that are known, the one that most of the first lines have.
    pub(crate) fn guess(text: &[u8]) -> Option<Prefix> {
        let matching = |prefix: &Prefix| {
            text.split(|&byte| byte == b'\n').take(1000).filter(|line| prefix.line.is_match(line)).count()
        };
        let known = KNOWN.iter().map(|prefix| Prefix::new(prefix).expect("known prefixes are valid"));
        known
            .map(|prefix| (matching(&prefix), prefix))
            .filter(|(count, _)| *count > 0)
            .max_by_key(|(count, _)| *count)
            .map(|(_, prefix)| prefix)
    }
}

fn pattern(prefix: &str) -> Result<String, PrefixError> {
    let (mut out, mut letters, mut open) = (String::new(), prefix.chars().peekable(), 0);
    let (mut has_time, mut has_session) = (false, false);
    let once = |name: &str, has: &mut bool, pattern: &str| {
        let named = if *has { format!("(?:{pattern})") } else { format!("(?P<{name}>{pattern})") };
        *has = true;
        named
    };
    let (mut has_pid, mut has_database, mut has_start, mut has_backend, mut has_state) =
        (false, false, false, false, false);
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push_str(&regex::escape(&letter.to_string()));
            continue;
        }
        // a width pads with spaces
        let padded = letters.next_if(|c| *c == '-').is_some()
            | std::iter::from_fn(|| letters.next_if(char::is_ascii_digit)).count().gt(&0);
        let space = if padded { " *" } else { "" };
        const TIME: &str = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [A-Za-z0-9+:-]+";
        let part = match letters.next() {
            None | Some('%') => "%".to_owned(),
            Some('m' | 't') => once("time", &mut has_time, TIME),
            Some('n') => once("time", &mut has_time, r"\d+\.\d+"),
            Some('s') => once("start", &mut has_start, TIME),
            Some('p') => once("pid", &mut has_pid, r"\d+"),
            Some('c') => once("session", &mut has_session, r"[0-9a-f]+\.[0-9a-f]+"),
            Some('d') => once("database", &mut has_database, r"[^\n]*?"),
            Some('b') => once("backend", &mut has_backend, r"[^\n]*?"),
            Some('e') => once("state", &mut has_state, r"[0-9A-Z]{5}"),
            Some('u' | 'a' | 'h' | 'r' | 'i' | 'L') => r"[^\n]*?".to_owned(),
            Some('l' | 'x' | 'Q' | 'P') => r"-?\d*".to_owned(),
            Some('v') => r"(?:\d+/\d+)?".to_owned(),
            Some('q') => {
                open += 1;
                out.push_str("(?:");
                continue;
            }
            Some(other) => return Err(PrefixError::Escape(prefix.to_owned(), other)),
        };
        out.push_str(&format!("{space}{part}{space}"));
    }
    out.push_str(&")?".repeat(open));
    match (has_time, has_session || has_pid) {
        (false, _) => Err(PrefixError::Time(prefix.to_owned())),
        (_, false) => Err(PrefixError::Session(prefix.to_owned())),
        _ => Ok(out),
    }
}

/// Iterates over the records of a log for people. A message is one record with the lines that follow it: its rest, which
/// PostgreSQL indents by a tab, and its DETAIL.
pub(crate) struct StderrLog<'a> {
    rest: &'a [u8],
    prefix: &'a Prefix,
}

impl<'a> StderrLog<'a> {
    pub(crate) fn new(text: &'a [u8], prefix: &'a Prefix) -> StderrLog<'a> {
        StderrLog { rest: text, prefix }
    }

    fn line(&self) -> (&'a [u8], &'a [u8]) {
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        (
            self.rest[..end].strip_suffix(b"\r").unwrap_or(&self.rest[..end]),
            self.rest.get(end + 1..).unwrap_or_default(),
        )
    }

    /// Text from the first line on, with the indented ones that follow.
    fn text(&mut self, first: &'a [u8]) -> Cow<'a, [u8]> {
        let mut out = Cow::Borrowed(first);
        while self.rest.first() == Some(&b'\t') {
            let (line, rest) = self.line();
            let owned = out.to_mut();
            owned.push(b'\n');
            owned.extend_from_slice(&line[1..]);
            self.rest = rest;
        }
        out
    }

    fn record(&self, found: &Captures<'a>) -> Option<Record<'a>> {
        let named = |name: &str| found.name(name).map_or(&b""[..], |part| part.as_bytes());
        let (time, severity) = (named("time"), named("severity"));
        let english = CATALOG.severities.iter().find(|(word, _)| word.as_bytes() == severity)?.1;
        let session = match named("session") {
            b"" => Cow::Owned([named("pid"), named("start")].concat()),
            session => Cow::Borrowed(session),
        };
        Some(Record {
            time_us: parse_time(time).or_else(|| parse_epoch(time))?,
            session,
            database: named("database").into(),
            backend: named("backend").into(),
            failed: matches!(english, "ERROR" | "FATAL" | "PANIC"),
            ..Record::default()
        })
    }
}

fn parse_epoch(text: &[u8]) -> Option<i64> {
    let (seconds, part) = std::str::from_utf8(text).ok()?.split_once('.')?;
    Some(seconds.parse::<i64>().ok()? * 1_000_000 + format!("{part:0<6}").get(..6)?.parse::<i64>().ok()?)
}

impl<'a> Iterator for StderrLog<'a> {
    type Item = Result<Record<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.line();
        self.rest = rest;
        let found = self.prefix.line.captures(line);
        let record = found.as_ref().and_then(|found| self.record(found));
        let (Some(found), Some(mut record)) = (found, record) else { return Some(Err(Damage::NoRecord)) };
        record.message = self.text(&line[found.get(0).map_or(0, |whole| whole.end())..]);
        while !self.rest.is_empty() {
            let (line, rest) = self.line();
            let Some(found) = self.prefix.line.captures(line) else { break };
            let Some(field) = found.name("field") else { break };
            self.rest = rest;
            let text = self.text(&line[found.get(0).map_or(0, |whole| whole.end())..]);
            if CATALOG
                .fields
                .iter()
                .any(|(word, name)| *name == "DETAIL" && word.as_bytes() == field.as_bytes())
            {
                record.detail = text;
            }
        }
        Some(Ok(record))
    }
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, Prefix, PrefixError, StderrLog};

    #[test]
    fn prefixes_without_time_or_session_are_refused() {
        assert_eq!(Prefix::new("[%p] ").err(), Some(PrefixError::Time("[%p] ".into())));
        assert_eq!(Prefix::new("%m ").err(), Some(PrefixError::Session("%m ".into())));
        assert_eq!(Prefix::new("%m %p %z").err(), Some(PrefixError::Escape("%m %p %z".into(), 'z')));
        for prefix in KNOWN.iter().chain(&["%n %c ", "%-20t|%10p|%%|", "<%m>%q(%u,%d,%h,%i,%e,%L,%b) %c "]) {
            assert!(Prefix::new(prefix).is_ok(), "{prefix}");
        }
    }

    #[test]
    fn a_message_has_its_further_lines() {
        let text =
            b"2026-11-27 19:32:37 UTC:10.0.0.1(4711):ada@shop:[77]:LOG:  statement: SELECT 1,\n\t\t2\n\
            2026-11-27 19:32:37 UTC:10.0.0.1(4711):ada@shop:[77]:DETAIL:  parameters: $1 = 'a\n\tb'\n\
            garbage\n2026-11-27 19:32:38 UTC::@:[5]:LOG:  checkpoint starting: time\n";
        let prefix = Prefix::guess(text).unwrap();
        let records: Vec<_> = StderrLog::new(text, &prefix).collect();
        assert_eq!(records.len(), 3);
        let first = records[0].as_ref().unwrap();
        assert_eq!(
            (&*first.message, &*first.database, &*first.session),
            (&b"statement: SELECT 1,\n\t2"[..], &b"shop"[..], &b"77"[..])
        );
        assert_eq!(&*first.detail, b"parameters: $1 = 'a\nb'");
        assert!(records[1].is_err());
        assert_eq!(&*records[2].as_ref().unwrap().message, b"checkpoint starting: time");
    }
}
