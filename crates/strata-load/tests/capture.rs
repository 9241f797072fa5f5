//! Logs of real servers of majors 13 to 18 (tests/fixtures/capture), which ran the same statements, and damaged ones.

use std::path::{Path, PathBuf};
use strata_load::capture::{CaptureError, Request, capture};
use strata_load::load::{Load, LoadError, Summary, What, read};
use strata_load::sql::Replacement;
use tempfile::TempDir;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/capture")
}

struct Case {
    folder: TempDir,
}

impl Case {
    fn new() -> Case {
        Case { folder: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn request(&self, logs: &[PathBuf]) -> Request {
        Request {
            logs: logs.to_vec(),
            out: self.folder.path().join("my.load"),
            prefix: None,
            database: None,
            literals: Replacement::Keep,
        }
    }

    fn load(&self, request: &Request) -> (Summary, Load) {
        let summary = capture(request).unwrap();
        (summary, read(&request.out).unwrap())
    }
}

fn sql(load: &Load) -> Vec<String> {
    let text = |what: &What| match what {
        What::Simple(sql) => sql.to_string(),
        What::Bound { text, parameters, prepared } => {
            format!("{} <- {parameters:?} {prepared}", load.texts[*text as usize])
        }
    };
    load.sessions.iter().flatten().map(|one| text(&one.what)).collect()
}

#[test]
fn every_major_format_and_language_gives_the_same_statements() {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(fixtures()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{files:?}");
    for file in files {
        let case = Case::new();
        let (summary, load) = case.load(&case.request(std::slice::from_ref(&file)));
        let name = file.display();
        assert_eq!((summary.statements, summary.sessions, summary.digests), (15, 4, 10), "{name}");
        assert_eq!(summary.database.as_deref(), Some("postgres"), "{name}");
        let left_out: Vec<u64> = summary.left_out.values().copied().collect();
        assert_eq!(left_out, [1, 1, 2], "{name}: {:?}", summary.left_out);
        assert_eq!(summary.whole_seconds, file.to_string_lossy().contains("rds"), "{name}");
        let durations = if file.to_string_lossy().contains("18-all") { 15 } else { 0 };
        assert_eq!(summary.without_duration, durations, "{name}");
        let said = sql(&load);
        assert_eq!(
            said[1], "SELECT name, -- of \"one\"\n       'two\nlines'\n  FROM item\n WHERE id = 1;",
            "{name}"
        );
        assert_eq!(said[8], "SELECT 'grüße', $$dollar 'quoted'$$;", "{name}");
        assert!(said[11].starts_with("SELECT name FROM item WHERE id = $1"), "{name}: {}", said[11]);
        assert!(said[11].ends_with("\")] false") && said[14].ends_with("\")] true"), "{name}: {said:?}");
        for session in &load.sessions {
            let ordered = session.windows(2).all(|pair| pair[0].start_us <= pair[1].start_us);
            assert!(ordered, "{name}");
        }
    }
}

#[test]
fn a_log_that_is_cut_gives_what_is_whole() {
    for name in ["18-duration.csv", "18-duration.json", "18-duration.stderr.log"] {
        let whole = std::fs::read(fixtures().join(name)).unwrap();
        let mut most = 0;
        for cut in (0..whole.len()).step_by(307) {
            let case = Case::new();
            for (part, text) in [("front", &whole[cut..]), ("back", &whole[..cut])] {
                match capture(&case.request(&[case.file(part, text)])) {
                    Ok(summary) => {
                        most = most.max(summary.statements);
                        assert!(summary.statements <= 15, "{name} {part} {cut}");
                    }
                    Err(CaptureError::Nothing(_) | CaptureError::Unknown(_)) => {}
                    Err(other) => panic!("{name} {part} {cut}: {other}"),
                }
            }
        }
        assert_eq!(most, 15, "{name}");
    }
}

#[test]
fn a_missing_quote_costs_one_record() {
    let text = std::fs::read_to_string(fixtures().join("15-duration.csv")).unwrap();
    let damaged = text.replacen("\"duration: ", "duration: \"", 1);
    assert_ne!(text, damaged);
    let case = Case::new();
    let (summary, _) = case.load(&case.request(&[case.file("log", damaged.as_bytes())]));
    assert_eq!(summary.statements, 14);
    assert!(
        summary.left_out.keys().any(|why| why.starts_with("lines that are no record")),
        "{:?}",
        summary.left_out
    );
}

fn csv(second: u32, database: &str, session: &str, message: &str, detail: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    format!(
        "2026-11-27 10:00:{second:02}.500 UTC,\"ada\",\"{database}\",7,\"[local]\",{session},1,\"SELECT\",\
         2026-11-27 10:00:00 UTC,3/4,0,LOG,00000,{},{},,,,,,,,\"\",\"client backend\",,0\n",
        quoted(message),
        quoted(detail)
    )
}

#[test]
fn what_cannot_be_replayed_is_counted_by_reason() {
    let whole = csv(1, "shop", "a.1", "duration: 1.5 ms  statement: SELECT 1", "");
    for (message, detail, reason) in [
        ("duration: 1 ms  execute a: SELECT $1", "", "parameters are not in the log"),
        ("duration: 1 ms  execute a: SELECT $1", "parameters: $1 = 'abc...'", "a parameter was cut"),
        ("duration: 1 ms  execute fetch from a/c: SELECT 1", "", "further rows"),
        ("duration: 1 ms  fastpath function call: \"lo_open\" (OID 952)", "", "fastpath"),
        ("duration: 1 ms  statement: /* x */ copy t FROM stdin", "", "COPY from the client"),
        ("duration: 1 ms  statement: COPY t FROM PROGRAM 'rm x'", "", "acts outside"),
        ("duration: 1 ms  statement: drop  DATABASE shop", "", "acts outside"),
        ("received replication command: IDENTIFY_SYSTEM", "", "replication"),
    ] {
        let case = Case::new();
        let log = format!("{whole}{}", csv(2, "shop", "a.1", message, detail));
        let (summary, _) = case.load(&case.request(&[case.file("log", log.as_bytes())]));
        assert_eq!(summary.statements, 1, "{message}");
        let reasons: Vec<&String> = summary.left_out.keys().collect();
        assert!(reasons.len() == 1 && reasons[0].starts_with(reason), "{message}: {reasons:?}");
    }
}

#[test]
fn logs_come_in_the_order_of_their_times() {
    let case = Case::new();
    let late =
        case.file("1", csv(9, "shop", "a.1", "duration: 1000 ms  statement: SELECT 'late'", "").as_bytes());
    let early =
        case.file("2", csv(1, "shop", "a.1", "duration: 0.25 ms  statement: SELECT 'early'", "").as_bytes());
    let empty = case.file("3", b"");
    let (summary, load) = case.load(&case.request(&[late, empty, early]));
    assert_eq!(sql(&load), ["SELECT 'early'", "SELECT 'late'"]);
    assert_eq!(summary.last_us - summary.first_us, 8_000_250);
    assert_eq!(load.sessions[0][1].start_us - load.sessions[0][0].start_us, 7_000_250);
}

#[test]
fn a_prepare_from_before_the_log_runs_first() {
    let execute =
        csv(1, "shop", "a.1", "duration: 1 ms  statement: EXECUTE p(1)", "prepare: PREPARE p AS SELECT $1");
    let case = Case::new();
    let (_, load) = case.load(&case.request(&[case.file("log", format!("{execute}{execute}").as_bytes())]));
    assert_eq!(sql(&load), ["PREPARE p AS SELECT $1", "EXECUTE p(1)", "EXECUTE p(1)"]);
}

#[test]
fn several_databases_need_a_choice() {
    let log =
        ["shop", "hr"].map(|name| csv(1, name, name, "duration: 1 ms  statement: SELECT 1", "")).concat();
    let case = Case::new();
    let mut request = case.request(&[case.file("log", log.as_bytes())]);
    assert!(matches!(capture(&request), Err(CaptureError::Databases(names)) if names == "hr: 1, shop: 1"));
    assert!(!request.out.exists());
    request.database = Some("hr".to_owned());
    let (summary, _) = case.load(&request);
    assert_eq!((summary.statements, summary.left_out["of another database"]), (1, 1));
}

#[test]
fn literals_are_replaced_on_request() {
    let log = [
        csv(
            1,
            "shop",
            "a.1",
            "duration: 1 ms  statement: SELECT * FROM t WHERE name = 'Ada' AND id = 4711",
            "",
        ),
        csv(2, "shop", "a.1", "duration: 1 ms  execute s: SELECT $1", "parameters: $1 = 'Lovelace'"),
    ];
    let case = Case::new();
    let mut request = case.request(&[case.file("log", log.concat().as_bytes())]);
    request.literals = Replacement::Text;
    capture(&request).unwrap();
    let text = std::fs::read_to_string(&request.out).unwrap();
    assert!(!text.contains("Ada") && !text.contains("Lovelace") && text.contains("4711"), "{text}");
    request.literals = Replacement::All;
    capture(&request).unwrap();
    assert!(!std::fs::read_to_string(&request.out).unwrap().contains("4711"));
}

#[test]
fn a_load_is_of_its_owner_alone_and_whole() {
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new();
    let request = case.request(&[fixtures().join("15-duration.csv")]);
    capture(&request).unwrap();
    assert_eq!(std::fs::metadata(&request.out).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read(&request.out).unwrap();
    for cut in 0..text.len() - 1 {
        let part = case.file("part", &text[..cut]);
        assert!(matches!(read(&part), Err(LoadError::Cut(_))), "{cut}");
    }
    let wrong = String::from_utf8(text).unwrap().replacen("[\"d\",0", "[\"d\",7", 1);
    assert!(matches!(read(&case.file("part", wrong.as_bytes())), Err(LoadError::Line { line: 1, .. })));
}

#[test]
fn other_files_are_refused_in_words() {
    let case = Case::new();
    for (text, said) in [
        (&b"\x1f\x8b\x08\x00"[..], "compressed"),
        (b"hello\nworld\n", "neither csvlog nor jsonlog"),
        (
            b"2026-11-27 10:00:00.000 UTC [7] LOG:  checkpoint starting: time\n",
            "no statement that can be replayed",
        ),
    ] {
        let error = capture(&case.request(&[case.file("log", text)])).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut request = case.request(&[fixtures().join("15-duration.stderr.log")]);
    request.prefix = Some("%t;%p;".to_owned());
    assert!(capture(&request).unwrap_err().to_string().contains("no line has the prefix"));
}
