//! What PostgreSQL's messages about statements are called, in the languages of its catalogues (version 15; the texts
//! that begin a message have not changed from 13 to 18, but for the first letter of `Parameters`, which no rule uses).

use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Statement,
    Execute,
    /// The rest of a portal.
    Fetch,
    Fastpath,
    /// Parse and bind, which say nothing that execute does not repeat.
    Phase,
    /// The duration of a statement that was logged before.
    Duration,
    Replication,
}

/// A message by its beginning and, if that is followed by a duration, by what comes behind the number.
struct Rule {
    kind: Kind,
    before: &'static [u8],
    after: &'static [u8],
}

pub(crate) struct Language {
    rules: Vec<Rule>,
    prepare: &'static str,
}

pub(crate) struct Catalog {
    pub languages: Vec<Language>,
    /// Words that begin a message in a log for people, and what they are in English.
    pub severities: Vec<(&'static str, &'static str)>,
    pub fields: Vec<(&'static str, &'static str)>,
}

/// The catalogue: lines of language, kind, text before and text after the duration.
pub(crate) static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let mut catalog = Catalog { languages: Vec::new(), severities: Vec::new(), fields: Vec::new() };
    let mut name = "";
    for line in include_str!("catalog.tsv").lines() {
        let mut columns = line.split('\t');
        let mut column = || columns.next().expect("four columns");
        let (language, kind, before, after) = (column(), column(), column(), column());
        if language != name {
            name = language;
            catalog.languages.push(Language { rules: Vec::new(), prepare: "" });
        }
        let last = catalog.languages.last_mut().expect("one was pushed");
        let kind = match kind {
            "severity" => {
                catalog.severities.push((before, after));
                continue;
            }
            "field" => {
                catalog.fields.push((before, after));
                continue;
            }
            "prepare" => {
                last.prepare = before;
                continue;
            }
            "statement" => Kind::Statement,
            "execute" => Kind::Execute,
            "fetch" => Kind::Fetch,
            "fastpath" => Kind::Fastpath,
            "phase" => Kind::Phase,
            "duration" => Kind::Duration,
            "replication" => Kind::Replication,
            other => unreachable!("{other} in catalog.tsv"),
        };
        last.rules.push(Rule { kind, before: before.as_bytes(), after: after.as_bytes() });
    }
    catalog
});

/// A message about a statement.
#[derive(Debug, PartialEq)]
pub(crate) struct Message<'a> {
    pub kind: Kind,
    pub duration_us: Option<u64>,
    /// The statement; for `Execute` with its name in front.
    pub rest: &'a [u8],
}

impl Language {
    /// The message, if it is one about a statement in this language.
    pub(crate) fn parse<'a>(&self, message: &'a [u8]) -> Option<Message<'a>> {
        self.rules.iter().find_map(|rule| {
            let rest = message.strip_prefix(rule.before)?;
            if rule.after.is_empty() {
                return Some(Message { kind: rule.kind, duration_us: None, rest });
            }
            let digits = rest.iter().take_while(|&&byte| byte.is_ascii_digit() || byte == b'.').count();
            let duration_us = parse_milliseconds(&rest[..digits])?;
            let rest = rest[digits..].strip_prefix(rule.after)?;
            let whole = rule.kind != Kind::Duration || rest.is_empty();
            whole.then_some(Message { kind: rule.kind, duration_us: Some(duration_us), rest })
        })
    }

    /// The statement of a DETAIL about EXECUTE.
    pub(crate) fn prepare<'a>(&self, detail: &'a str) -> Option<&'a str> {
        detail.strip_prefix(self.prepare)
    }
}

/// Microseconds of `12.345`.
fn parse_milliseconds(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let micros = format!("{:0<3}", part.get(..3).unwrap_or(part));
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(micros.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::{CATALOG, Kind, Message};

    #[test]
    fn every_language_knows_statements() {
        assert_eq!(CATALOG.languages.len(), 12);
        for (message, kind, rest) in [
            ("duration: 0.125 ms  statement: SELECT 1", Kind::Statement, "SELECT 1"),
            ("Dauer: 0.125 ms  Ausführen S_1: SELECT 1", Kind::Execute, "S_1: SELECT 1"),
            ("durée : 0.125 ms, instruction : SELECT 1", Kind::Statement, "SELECT 1"),
            ("продолжительность: 0.125 мс, оператор: SELECT 1", Kind::Statement, "SELECT 1"),
            ("期間: 0.125 ミリ秒  文: SELECT 1", Kind::Statement, "SELECT 1"),
            ("执行时间: 0.125 ms 执行S_1: SELECT 1", Kind::Execute, "S_1: SELECT 1"),
            ("duration: 0.125 ms  execute fetch from S_1/C_2: SELECT 1", Kind::Fetch, "S_1/C_2: SELECT 1"),
            ("duration: 0.125 ms", Kind::Duration, ""),
        ] {
            let found = CATALOG.languages.iter().find_map(|language| language.parse(message.as_bytes()));
            let expected = Message { kind, duration_us: Some(125), rest: rest.as_bytes() };
            assert_eq!(found, Some(expected), "{message}");
        }
    }
}
