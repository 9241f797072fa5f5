//! The lexical structure of SQL: the normal form of a statement, its digest, and the replacement of its literals.
//!
//! Source: chapter 4.1 of PostgreSQL's manual, "Lexical Structure".

use memchr::memmem;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// White space and comments.
    Space,
    /// A string in any quoting.
    Text,
    Number,
    /// `$1`.
    Parameter,
    /// A keyword or an identifier without quotes.
    Word,
    /// An identifier in quotes.
    Quoted,
    Symbol,
}

/// Iterates over the tokens of a text, which are the whole text.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// The last token that is no space, for the sign of a number.
    before: u8,
}

fn word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn word_part(byte: u8) -> bool {
    word_start(byte) || byte.is_ascii_digit() || byte == b'$'
}

impl<'a> Tokens<'a> {
    fn new(text: &'a [u8]) -> Tokens<'a> {
        Tokens { text, at: 0, before: b'(' }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&self, from: usize, part: impl Fn(u8) -> bool) -> usize {
        self.text[from..].iter().position(|&byte| !part(byte)).map_or(self.text.len(), |end| from + end)
    }

    /// The end of a quoted text whose first quote is at `from`; doubled quotes are part of it.
    fn quoted(&self, from: usize, quote: u8, backslashes: bool) -> usize {
        let mut at = from + 1;
        while at < self.text.len() {
            match self.text[at] {
                b'\\' if backslashes => at += 2,
                byte if byte == quote && self.text.get(at + 1) == Some(&quote) => at += 2,
                byte if byte == quote => return at + 1,
                _ => at += 1,
            }
        }
        self.text.len()
    }

    fn comment(&self) -> usize {
        let (mut at, mut depth) = (self.at, 0);
        while at < self.text.len() {
            match &self.text[at..] {
                [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
                [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
            if depth == 0 {
                return at;
            }
        }
        self.text.len()
    }

    /// The end of a text between `$tag$`; None if no such text starts here.
    fn dollar(&self) -> Option<usize> {
        let tag_end = self.run(self.at + 1, |byte| word_part(byte) && byte != b'$');
        if self.text.get(tag_end) != Some(&b'$') {
            return None;
        }
        let tag = &self.text[self.at..=tag_end];
        let body = tag_end + 1;
        Some(memmem::find(&self.text[body..], tag).map_or(self.text.len(), |end| body + end + tag.len()))
    }

    fn number(&self, from: usize) -> usize {
        let mut end = self.run(from, |byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_');
        // the sign of an exponent
        if matches!(self.text[end - 1], b'e' | b'E')
            && matches!(self.text.get(end), Some(b'+' | b'-'))
            && !self.text[from..end].starts_with(b"0x")
        {
            end = self.run(end + 1, |byte| byte.is_ascii_digit());
        }
        end
    }

    fn token(&self) -> (Kind, usize) {
        let (here, next) = (self.peek(0), self.peek(1));
        match here {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                (Kind::Space, self.run(self.at, |b| b.is_ascii_whitespace()))
            }
            b'-' if next == b'-' => (Kind::Space, self.run(self.at, |byte| byte != b'\n')),
            b'/' if next == b'*' => (Kind::Space, self.comment()),
            b'\'' => (Kind::Text, self.quoted(self.at, b'\'', false)),
            b'"' => (Kind::Quoted, self.quoted(self.at, b'"', false)),
            b'e' | b'E' if next == b'\'' => (Kind::Text, self.quoted(self.at + 1, b'\'', true)),
            b'b' | b'B' | b'x' | b'X' | b'n' | b'N' if next == b'\'' => {
                (Kind::Text, self.quoted(self.at + 1, b'\'', false))
            }
            b'u' | b'U' if next == b'&' && self.peek(2) == b'\'' => {
                (Kind::Text, self.quoted(self.at + 2, b'\'', false))
            }
            b'$' if next.is_ascii_digit() => {
                (Kind::Parameter, self.run(self.at + 1, |byte| byte.is_ascii_digit()))
            }
            b'$' => self.dollar().map_or((Kind::Symbol, self.at + 1), |end| (Kind::Text, end)),
            b'0'..=b'9' => (Kind::Number, self.number(self.at)),
            b'.' if next.is_ascii_digit() => (Kind::Number, self.number(self.at)),
            b'-' if next.is_ascii_digit() && b"(,=<>+-*/%|[".contains(&self.before) => {
                (Kind::Number, self.number(self.at + 1))
            }
            byte if word_start(byte) => (Kind::Word, self.run(self.at, word_part)),
            _ => (Kind::Symbol, self.at + 1),
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (Kind, &'a [u8]);

    fn next(&mut self) -> Option<(Kind, &'a [u8])> {
        if self.at >= self.text.len() {
            return None;
        }
        let (kind, end) = self.token();
        let end = end.min(self.text.len());
        let token = &self.text[self.at..end];
        if kind != Kind::Space {
            self.before = if kind == Kind::Symbol { token[0] } else { b'a' };
        }
        self.at = end;
        Some((kind, token))
    }
}

/// Writes the normal form of a statement: literals and parameters are `?`, lists of them `?, ...`, repeated rows one
/// row, keywords and plain identifiers in lower case, comments and white space one space.
pub fn normalise(text: &str, out: &mut Vec<u8>) {
    out.clear();
    let mut space = false;
    for (kind, token) in Tokens::new(text.as_bytes()) {
        if kind == Kind::Space {
            space = true;
            continue;
        }
        let tight = matches!(token, b")" | b"," | b";") || matches!(out.last(), None | Some(b'('));
        if !tight && (space || out.last() == Some(&b',')) {
            out.push(b' ');
        }
        space = false;
        match kind {
            Kind::Text | Kind::Number | Kind::Parameter => push_literal(out),
            Kind::Word => out.extend(token.iter().map(u8::to_ascii_lowercase)),
            _ => out.extend_from_slice(token),
        }
        if token == b")" {
            fold_rows(out);
        }
    }
    while matches!(out.last(), Some(b';' | b' ')) {
        out.pop();
    }
}

fn push_literal(out: &mut Vec<u8>) {
    if out.ends_with(b"?, ..., ") {
        out.truncate(out.len() - 2);
    } else if out.ends_with(b"?, ") {
        out.extend_from_slice(b"...");
    } else {
        out.push(b'?');
    }
}

/// Drops the row that ends here if the one before it is the same.
fn fold_rows(out: &mut Vec<u8>) {
    let Some(open) = memchr::memrchr(b'(', out) else { return };
    let Some(before) = out[..open].strip_suffix(b", ") else { return };
    if before.ends_with(&out[open..]) {
        let kept = before.len();
        out.truncate(kept);
    }
}

/// The digest of a normal form (FNV-1a, 64 bits): the same on every machine and in every version.
pub fn digest(normal: &[u8]) -> u64 {
    normal
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Which literals are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Replacement {
    /// None.
    Keep,
    /// Letters and digits of texts that hold a letter; numbers and dates stay.
    Text,
    /// Also numbers and the digits of dates.
    All,
}

/// Replaces literals by ones of the same form. Equal literals have equal replacements under one key.
pub struct Replacer {
    pub which: Replacement,
    pub key: u64,
}

impl Replacer {
    /// The statement with its literals replaced; comments, which may quote data, are dropped.
    pub fn statement(&self, text: &str) -> String {
        if self.which == Replacement::Keep {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        for (kind, token) in Tokens::new(text.as_bytes()) {
            let token = String::from_utf8_lossy(token);
            match kind {
                Kind::Space => out.push(' '),
                Kind::Text => {
                    // the letter before a quote is syntax, as are escapes and the tags of dollar quotes
                    let body = token.find('\'').map_or(0, |quote| quote + 1);
                    if let Some(tagged) = token.strip_prefix('$') {
                        let tag = tagged.find('$').map_or(0, |end| end + 2);
                        let end = token.len().saturating_sub(tag).max(tag);
                        out.push_str(&token[..tag]);
                        out.push_str(&self.value(&token[tag..end]));
                        out.push_str(&token[end..]);
                    } else {
                        out.push_str(&token[..body]);
                        out.push_str(&self.value(&token[body..]));
                    }
                }
                Kind::Number => out.push_str(&self.value(&token)),
                _ => out.push_str(&token),
            }
        }
        out
    }

    /// A value of the same form: letters become letters of the same case, digits digits, anything else stays.
    pub fn value(&self, text: &str) -> String {
        let letters = text.chars().any(char::is_alphabetic);
        let kept = match self.which {
            Replacement::Keep => true,
            Replacement::Text => !letters || is_word_of_sql(text),
            Replacement::All => is_word_of_sql(text),
        };
        if kept {
            return text.to_owned();
        }
        let core = text.trim_end_matches('\'');
        let mut state = digest(core.as_bytes()) ^ self.key;
        let (date, mut digits) = (!letters && looks_like_date(core), 0);
        let mut escaped = false;
        let replaced = |letter: char| {
            state = step(state);
            let drawn = (state >> 33) as u32;
            if std::mem::take(&mut escaped) {
                return letter;
            }
            escaped = letter == '\\';
            match letter {
                'a'..='z' => char::from(b'a' + (drawn % 26) as u8),
                'A'..='Z' => char::from(b'A' + (drawn % 26) as u8),
                '0'..='9' => {
                    digits += 1;
                    char::from(b'0' + digit(letter, digits, date, drawn))
                }
                letter if letter.is_alphabetic() => char::from(b'a' + (drawn % 26) as u8),
                letter => letter,
            }
        };
        text.chars().map(replaced).collect()
    }
}

/// The digit at a place. A date keeps its year and the tens of what follows, and has no day or month 0; a number keeps
/// a leading digit other than 0, so that it stays as long.
fn digit(letter: char, place: usize, date: bool, drawn: u32) -> u8 {
    let old = letter as u8 - b'0';
    match (date, place) {
        (true, 1..=5 | 7 | 9 | 11 | 13) => old,
        (true, 6) if old <= 2 => 1 + (drawn % 2) as u8,
        (true, 8) => 1 + (drawn % 8) as u8,
        (true, 10) => (drawn % 4) as u8,
        (false, 1) if old > 0 => 1 + (drawn % 9) as u8,
        (false, 1) => 0,
        _ => (drawn % 10) as u8,
    }
}

fn looks_like_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[..4].iter().all(u8::is_ascii_digit)
}

/// Texts that are input of a type other than text: replaced, the statement would fail.
fn is_word_of_sql(text: &str) -> bool {
    let text = text.trim_end_matches('\'').to_ascii_lowercase();
    matches!(
        text.as_str(),
        "" | "t"
            | "f"
            | "true"
            | "false"
            | "on"
            | "off"
            | "yes"
            | "no"
            | "now"
            | "today"
            | "infinity"
            | "utc"
    ) || ["second", "minute", "hour", "day", "week", "month", "year", " ms"]
        .iter()
        .any(|unit| text.starts_with(|first: char| first.is_ascii_digit()) && text.contains(unit))
}

fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

#[cfg(test)]
mod tests {
    use super::{Replacement, Replacer, Tokens, normalise};

    fn normal(text: &str) -> String {
        let mut out = Vec::new();
        normalise(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn statements_that_differ_in_literals_have_one_normal_form() {
        for (text, expected) in [
            ("SELECT 1;", "select ?"),
            ("SELECT  'it''s', E'a\\'b', $q$x'y$q$ -- why\n FROM t", "select ?, ... from t"),
            ("UPDATE t SET a = a + -5 WHERE id = $1", "update t set a = a + ? where id = ?"),
            ("UPDATE t SET a = a + 5 WHERE id = 1e-3", "update t set a = a + ? where id = ?"),
            ("SELECT * FROM \"T\" WHERE x IN (1, 2,3 ,4)", "select * from \"T\" where x in (?, ...)"),
            ("INSERT INTO t VALUES (1, 2), (3, 4), (5, 6)", "insert into t values (?, ...)"),
            ("SELECT a-1 /* c /* d */ */ FROM t1", "select a-? from t1"),
            ("SELECT 'cut", "select ?"),
        ] {
            assert_eq!(normal(text), expected, "{text}");
        }
    }

    #[test]
    fn tokens_are_the_whole_text() {
        for text in
            ["a$1 $ $$ x", "'", "\"", "1e", "1e+", "$a$ b", "/* c", "--", "é'ü'", "u&'d' 0x1F .5 E'\\"]
        {
            let joined: Vec<u8> =
                Tokens::new(text.as_bytes()).flat_map(|(_, token)| token.to_vec()).collect();
            assert_eq!(joined, text.as_bytes());
        }
    }

    #[test]
    fn replaced_literals_keep_their_form() {
        let text = Replacer { which: Replacement::Text, key: 7 };
        let said =
            text.statement("SELECT * FROM t WHERE name = 'Ada L.' AND id = 42 AND day > '2024-02-29' -- Ada");
        assert!(!said.contains("Ada"), "{said}");
        assert!(said.contains("id = 42 AND day > '2024-02-29'"), "{said}");
        assert_eq!(text.value("Ada L."), text.value("Ada L."));
        assert_ne!(text.value("Ada L."), Replacer { which: Replacement::Text, key: 8 }.value("Ada L."));

        let all = Replacer { which: Replacement::All, key: 7 };
        let said = all
            .statement("SELECT 1234567, '2024-12-31 23:59:59', interval '3 days', 'true', $$Ada$$, E'a\\nb'");
        for kept in ["interval '3 days'", "'true'", "$$", "\\n", "'2024-1", " 2"] {
            assert!(said.contains(kept), "{kept}: {said}");
        }
        assert!(!said.contains("1234567") && !said.contains("Ada"), "{said}");
        assert_eq!(normal(&said), normal("SELECT 1, '2', interval '3', 't', '', ''"));
    }

    #[test]
    fn a_kept_text_is_the_same() {
        let text = "SELECT 'Ada' /* why */";
        assert_eq!(Replacer { which: Replacement::Keep, key: 1 }.statement(text), text);
    }
}
