//! A model from a report of fio.

use proptest::prelude::*;
use strata_disk::fit::{FitError, Kind, Known, fit};
use strata_disk::media::model::{Family, Model, parse_model};
use strata_disk::media::validation::figures;

fn job(rw: &str, mb_s: f64, latency_us: f64, flush_us: f64) -> String {
    let side = format!(r#"{{"bw_bytes": {}, "clat_ns": {{"mean": {}}}}}"#, mb_s * 1e6, latency_us * 1e3);
    let sync = format!(r#"{{"lat_ns": {{"mean": {}}}}}"#, flush_us * 1e3);
    format!(r#"{{"job options": {{"rw": "{rw}"}}, "read": {side}, "write": {side}, "sync": {sync}}}"#)
}

fn fitted(text: &str) -> Result<Model, FitError> {
    fit(text, "mine", Known::default())
}

fn of_bytes(bytes: u64) -> Known {
    Known { capacity_bytes: Some(bytes), ..Known::default() }
}

fn report(jobs: &[String]) -> String {
    format!(r#"{{"global options": {{"iodepth": "1", "direct": "1"}}, "jobs": [{}]}}"#, jobs.join(","))
}

#[test]
fn slow_random_reads_are_those_of_a_disk_that_turns() {
    let text = report(&[job("randread", 0.3, 13_000.0, 0.0), job("read", 180.0, 500.0, 0.0)]);
    let model = fitted(&text).unwrap();
    let value = |name: &str| model.parameters[name].value;
    assert_eq!((model.kind, model.name.as_str()), (Family::Hdd, "mine"));
    assert!((value("average_seek_ms") - (13.0 - 30.0 / 7.2 - 0.1)).abs() < 1e-6);
    assert_eq!((value("outer_rate_mb_s"), value("inner_rate_mb_s")), (180.0, 90.0));
    let source = |name: &str| model.parameters[name].source.as_str();
    assert_eq!(source("outer_rate_mb_s"), "measured with fio: sequential reads");
    assert!(source("average_seek_ms").contains("which were not measured"));
    assert_eq!(source("inner_rate_mb_s"), "assumption: half of the measured outer rate");
    assert!(source("full_seek_ms").starts_with("assumption: "));
    assert!(source("rotation_rpm").starts_with("supplied model hdd-7200: 7200 rpm"));
    assert!(model.about.contains("its cache is lost at a power cut as there"));
    assert_eq!(parse_model(&toml::to_string(&model).unwrap()).unwrap(), model);
}

#[test]
fn fast_ones_are_those_of_flash() {
    let text = report(&[
        job("randread", 40.0, 95.0, 0.0),
        job("randwrite", 80.0, 35.0, 2400.0),
        job("write", 420.0, 100.0, 0.0),
    ]);
    let model = fitted(&text).unwrap();
    let value = |name: &str| model.parameters[name].value;
    assert_eq!(model.kind, Family::Flash);
    assert_eq!((value("read_us"), value("write_us"), value("flush_us")), (95.0, 25.0, 2400.0));
    assert_eq!(value("program_rate_mb_s"), 420.0);
    assert!(model.parameters["interface_rate_mb_s"].source.contains("MX200"), "what was not measured stays");
}

#[test]
fn reads_at_depth_give_the_rate_of_the_interface_and_the_channels() {
    let deep = r#"{"job options": {"rw": "randread", "iodepth": "32"},
        "read": {"bw_bytes": 3e8, "iops": 73000.5, "clat_ns": {"mean": 430000}},
        "write": {"bw_bytes": 0, "clat_ns": {"mean": 0}}}"#;
    let model = fitted(&report(&[job("randread", 40.0, 100.0, 0.0), deep.into()])).unwrap();
    let value = |name: &str| model.parameters[name].value;
    assert_eq!((value("interface_iops"), value("channels"), value("read_us")), (73000.5, 8.0, 100.0));
}

#[test]
fn a_flush_that_takes_nothing_is_that_of_a_protected_cache() {
    for (flush_us, volatile) in [(40.0, false), (99.0, false), (101.0, true)] {
        let text = report(&[job("randread", 40.0, 95.0, 0.0), job("randwrite", 80.0, 35.0, flush_us)]);
        let model = fitted(&text).unwrap();
        assert_eq!((model.volatile_cache, model.parameters["flush_us"].value), (volatile, flush_us));
    }
}

#[test]
fn the_capacity_is_what_was_given() {
    let model =
        fit(&report(&[job("randread", 40.0, 95.0, 0.0)]), "mine", of_bytes(2_000_398_934_016)).unwrap();
    assert_eq!(model.parameters["capacity_bytes"].value, 2_000_398_934_016.0);
    assert_eq!(model.parameters["capacity_bytes"].source, "as given with --capacity");
    assert!(fit(&report(&[job("randread", 40.0, 95.0, 0.0)]), "mine", of_bytes(7)).is_err());
}

/// Reports of fio 3.33 on disks of strata-disk, as docs/media.md has the call.
#[test]
fn what_fio_really_writes_gives_a_model_that_validates() {
    for (text, family) in
        [(include_str!("fio/turning.json"), Family::Hdd), (include_str!("fio/flash.json"), Family::Flash)]
    {
        let fitted = fitted(text).unwrap();
        assert_eq!(fitted.kind, family);
        let model = parse_model(&toml::to_string(&fitted).unwrap()).unwrap();
        assert_eq!(model, fitted);
        for figure in figures(&model).unwrap() {
            let share = figure.modelled_per_s / figure.implied_per_s;
            assert!((share - 1.0).abs() <= 0.1, "{family:?}: {figure:?}");
        }
        let measured =
            model.parameters.values().filter(|one| one.source.contains("measured with fio")).count();
        assert_eq!(measured, if family == Family::Hdd { 2 } else { 6 });
    }
}

#[test]
fn a_report_that_says_too_little_or_nonsense_is_refused() {
    assert!(fitted("{}").unwrap_err().to_string().contains("report of fio"));
    assert!(fitted(&report(&[job("read", 1.0, 1.0, 0.0)])).unwrap_err().to_string().contains("randread"));
    let slow = report(&[job("randread", 1.0, 9e9, 0.0)]);
    assert!(fitted(&slow).unwrap_err().to_string().contains("average_seek_ms"));
}

proptest! {
    #[test]
    fn no_report_brings_it_down(text in "\\PC{0,200}", latency in any::<f64>(), rate in any::<f64>()) {
        let _ = fitted(&text);
        let _ = fitted(&report(&[job("randread", rate, latency, rate), job("read", rate, rate, rate)]));
    }
}

#[test]
fn a_file_without_an_end_is_refused() {
    let error = strata_disk::text::read_text("/dev/zero".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "longer than 64 MiB");
}

/// What people have: text around the JSON, versions, and what fio was told to leave out.
#[test]
fn a_report_is_read_or_refused_in_words_of_fio() {
    for text in [include_str!("fio/note.json"), include_str!("fio/fio31.json")] {
        assert_eq!(fitted(text).unwrap().parameters["read_us"].value, 90.0);
    }
    let around =
        format!("fio: terminating on signal 15\n{}\nrr: (groupid=0)\n", include_str!("fio/fio31.json"));
    assert_eq!(fitted(&around).unwrap().parameters["read_us"].value, 90.0);
    for (text, words) in [
        (
            include_str!("fio/fio22.json"),
            "fio 2.2.10 does not say rw and iodepth of its jobs: use fio 3.2 or later",
        ),
        (include_str!("fio/gtod.json"), "job rr has no latencies (gtod_reduce, disable_clat)"),
        (include_str!("fio/failed.json"), "job rr ended with error 5"),
        (include_str!("fio/mixed.json"), "job rr has reads and writes in one figure (unified_rw_reporting)"),
        (include_str!("fio/client.json"), "it is of clients (--client)"),
        (include_str!("fio/buffered.json"), "job rr went through the page cache: run it with direct=1"),
        ("nothing but words", "no JSON in it"),
    ] {
        let refused = fitted(text).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

/// An engine that waits for each request has depth 1, whatever iodepth says: what it reads is no rate at depth.
#[test]
fn the_depth_is_the_one_that_was_reached() {
    let model = fitted(include_str!("fio/psync.json")).unwrap();
    assert_eq!(model.parameters["read_us"].value, 90.0);
    for name in ["interface_iops", "channels"] {
        assert!(model.parameters[name].source.starts_with("supplied model"), "{name}");
    }
}

#[test]
fn jobs_of_one_group_add_up() {
    let one = r#"{"jobname": "b", "job options": {"rw": "randread", "iodepth": "8"},
        "read": {"bw_bytes": 1e8, "iops": 20000, "clat_ns": {"mean": 400000}}, "write": {}}"#;
    let model = fitted(&report(&[job("randread", 40.0, 100.0, 0.0), one.into(), one.into()])).unwrap();
    assert_eq!(model.parameters["interface_iops"].value, 40_000.0);
    let alone = fitted(&report(&[job("randread", 40.0, 100.0, 0.0), one.into()])).unwrap();
    assert!(
        alone.parameters["interface_iops"].source.starts_with("supplied model"),
        "8 at once are not deep"
    );
}

#[test]
fn random_requests_of_another_size_are_refused() {
    for (block, taken) in
        [("4k", true), ("4096", true), ("4KiB", true), ("16k", false), ("8192", false), ("?", false)]
    {
        let text = report(&[job("randread", 40.0, 95.0, 0.0)])
            .replace("\"direct\"", &format!("\"bs\": \"{block}\", \"direct\""));
        assert_eq!(fitted(&text).is_ok(), taken, "{block}");
    }
}

#[test]
fn what_is_neither_a_disk_of_7200_turns_nor_flash_is_told_with_its_kind() {
    let cloud = include_str!("fio/cloud.json");
    let refused = fitted(cloud).unwrap_err().to_string();
    assert_eq!(
        refused,
        "random reads of 3.5 ms are too fast for a disk of 7200 rpm (at least 4.3 ms) and too slow for flash (at most 2 ms): \
         give --kind volume, or --kind hdd and --rpm"
    );
    let volume = fit(cloud, "mine", Known { kind: Some(Kind::Volume), ..Known::default() }).unwrap();
    assert_eq!((volume.kind, volume.parameters["latency_us"].value), (Family::Volume, 3500.0));
    assert_eq!(parse_model(&toml::to_string(&volume).unwrap()).unwrap(), volume);
    let fast = include_str!("fio/hdd15k.json");
    let turning = fit(fast, "mine", Known { rpm: Some(15_000.0), ..Known::default() }).unwrap();
    assert_eq!((turning.kind, turning.parameters["rotation_rpm"].value), (Family::Hdd, 15_000.0));
    assert!((turning.parameters["average_seek_ms"].value - (4.2 - 2.0 - 0.1)).abs() < 1e-9);
    let slower = fit(fast, "mine", Known { rpm: Some(7200.0), ..Known::default() }).unwrap_err().to_string();
    assert!(
        slower.starts_with("random reads of 4.2 ms are too fast for a disk of 7200 rpm (at least 4.3 ms): "),
        "{slower}"
    );
}
