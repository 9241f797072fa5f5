//! Parameters of a statement, as a DETAIL or CONTEXT line has them: `parameters: $1 = '42', $2 = NULL`.

/// Values in order; None is NULL.
pub(crate) type Values = Vec<Option<String>>;

#[derive(Debug, PartialEq)]
pub(crate) enum Parameters {
    /// The text has none.
    Absent,
    Whole(Values),
    /// A value ends in `...`, or its quote is missing.
    Cut,
}

/// Parses the values of a detail in any language.
pub(crate) fn parse_parameters(detail: &str) -> Parameters {
    let Some(begin) = detail.find("$1 = ") else { return Parameters::Absent };
    let mut rest = &detail[begin..];
    let mut values = Vec::new();
    loop {
        let Some(value) = rest.strip_prefix(&format!("${} = ", values.len() + 1)) else {
            return Parameters::Cut;
        };
        if let Some(after) = value.strip_prefix("NULL") {
            values.push(None);
            rest = after;
        } else {
            let Some((text, after)) = value.strip_prefix('\'').and_then(quoted) else {
                return Parameters::Cut;
            };
            if text.ends_with("...") {
                return Parameters::Cut;
            }
            values.push(Some(text));
            rest = after;
        }
        match rest.strip_prefix(", ") {
            Some(next) => rest = next,
            None if rest.trim_end().is_empty() => return Parameters::Whole(values),
            None => return Parameters::Cut,
        }
    }
}

/// The text up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut out, mut rest) = (String::new(), text);
    loop {
        let quote = rest.find('\'')?;
        out.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        let Some(after) = rest.strip_prefix('\'') else { return Some((out, rest)) };
        out.push('\'');
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::{Parameters, parse_parameters};

    #[test]
    fn values_are_read_in_every_language() {
        let whole = |values: &[Option<&str>]| {
            Parameters::Whole(values.iter().map(|v| v.map(str::to_owned)).collect())
        };
        for (detail, expected) in [
            ("parameters: $1 = '42', $2 = NULL", whole(&[Some("42"), None])),
            ("Parameters: $1 = 'it''s, $2 = ''x'''", whole(&[Some("it's, $2 = 'x'")])),
            ("параметры: $1 = ''", whole(&[Some("")])),
            ("", Parameters::Absent),
            ("parameters: $1 = 'long...'", Parameters::Cut),
            ("parameters: $1 = 'open", Parameters::Cut),
            ("parameters: $1 = 1", Parameters::Cut),
            ("parameters: $1 = '1', $3 = '2'", Parameters::Cut),
        ] {
            assert_eq!(parse_parameters(detail), expected, "{detail}");
        }
    }
}
