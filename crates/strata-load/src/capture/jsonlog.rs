//! jsonlog of PostgreSQL 15 to 18: an object a line.

use super::csvlog::failed;
use super::record::{Damage, Record, parse_time};
use memchr::memchr;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow, default)]
    dbname: Cow<'a, str>,
    #[serde(borrow, default)]
    session_id: Cow<'a, str>,
    #[serde(borrow, default)]
    state_code: Cow<'a, str>,
    #[serde(borrow, default)]
    backend_type: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    detail: Cow<'a, str>,
}

/// Iterates over the records of a jsonlog.
pub(crate) struct JsonLog<'a> {
    rest: &'a [u8],
}

impl<'a> JsonLog<'a> {
    pub(crate) fn new(text: &'a [u8]) -> JsonLog<'a> {
        JsonLog { rest: text }
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

impl<'a> Iterator for JsonLog<'a> {
    type Item = Result<Record<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        let read = serde_json::from_slice::<Object>(line).ok();
        Some(read.and_then(|object| Some((parse_time(object.timestamp.as_bytes())?, object))).map_or(
            Err(Damage::NoRecord),
            |(time_us, object)| {
                Ok(Record {
                    time_us,
                    session: bytes(object.session_id),
                    database: bytes(object.dbname),
                    backend: bytes(object.backend_type),
                    failed: failed(object.state_code.as_bytes()),
                    message: bytes(object.message),
                    detail: bytes(object.detail),
                })
            },
        ))
    }
}
