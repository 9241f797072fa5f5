//! One record of a log, whatever its format.

use std::borrow::Cow;

/// The fields of a record that a capture needs. Missing ones are empty.
#[derive(Debug, Default)]
pub(crate) struct Record<'a> {
    /// Microseconds since 1970 in the time zone of the log.
    pub time_us: i64,
    /// A key that is unique to a session within the log.
    pub session: Cow<'a, [u8]>,
    pub database: Cow<'a, [u8]>,
    /// `client backend` or another kind of process; PostgreSQL 12 and some prefixes do not say.
    pub backend: Cow<'a, [u8]>,
    /// The statement failed, or the server did.
    pub failed: bool,
    pub message: Cow<'a, [u8]>,
    pub detail: Cow<'a, [u8]>,
}

/// Why no further record comes, or what is wrong with the next one.
#[derive(Debug, PartialEq)]
pub(crate) enum Damage {
    /// Neither a record nor the rest of one: a log that was cut, or another program's lines.
    NoRecord,
}

/// Microseconds of `2026-11-27 19:32:37.123 UTC`; the zone is not evaluated. None for another form.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        text.get(from..to)?
            .iter()
            .try_fold(0i64, |sum, &digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b' '), (13, b':'), (16, b':')];
    if text.len() < 19 || marks.iter().any(|&(at, mark)| text[at] != mark) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    let micros = match text.get(19) {
        Some(b'.') => {
            let digits = text[20..].iter().take_while(|byte| byte.is_ascii_digit()).count().min(6);
            number(20, 20 + digits)? * 10i64.pow(6 - digits as u32)
        }
        _ => 0,
    };
    // days from civil, H. Hinnant, "chrono-Compatible Low-Level Date Algorithms"
    let year = if month <= 2 { year - 1 } else { year };
    let era_year = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = era_year * 365 + era_year / 4 - era_year / 100 + day_of_year;
    let days = year.div_euclid(400) * 146_097 + day_of_era - 719_468;
    Some((days * 86_400 + seconds) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::parse_time;

    #[test]
    fn times_are_microseconds_since_1970() {
        assert_eq!(parse_time(b"1970-01-01 00:00:00 UTC"), Some(0));
        assert_eq!(parse_time(b"2026-11-27 19:32:37.123 CET"), Some(1_795_807_957_123_000));
        assert_eq!(parse_time(b"2024-02-29 00:00:00.5"), Some(1_709_164_800_500_000));
        for wrong in ["", "2026-11-27", "2026-11-27T19:32:37", "2o26-11-27 19:32:37", "1795807957.123"] {
            assert_eq!(parse_time(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
