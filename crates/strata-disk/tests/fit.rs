//! A model from a report of fio.

use proptest::prelude::*;
use strata_disk::fit::fit;
use strata_disk::media::model::{Family, parse_model};
use strata_disk::media::validation::figures;

fn job(rw: &str, mb_s: f64, latency_us: f64, flush_us: f64) -> String {
    let side = format!(r#"{{"bw_bytes": {}, "clat_ns": {{"mean": {}}}}}"#, mb_s * 1e6, latency_us * 1e3);
    let sync = format!(r#"{{"lat_ns": {{"mean": {}}}}}"#, flush_us * 1e3);
    format!(r#"{{"job options": {{"rw": "{rw}"}}, "read": {side}, "write": {side}, "sync": {sync}}}"#)
}

fn report(jobs: &[String]) -> String {
    format!(r#"{{"global options": {{"iodepth": "1"}}, "jobs": [{}]}}"#, jobs.join(","))
}

#[test]
fn slow_random_reads_are_those_of_a_disk_that_turns() {
    let text = report(&[job("randread", 0.3, 13_000.0, 0.0), job("read", 180.0, 500.0, 0.0)]);
    let model = fit(&text, "mine", None).unwrap();
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
    let model = fit(&text, "mine", None).unwrap();
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
    let model = fit(&report(&[job("randread", 40.0, 100.0, 0.0), deep.into()]), "mine", None).unwrap();
    let value = |name: &str| model.parameters[name].value;
    assert_eq!((value("interface_iops"), value("channels"), value("read_us")), (73000.5, 8.0, 100.0));
}

#[test]
fn a_flush_that_takes_nothing_is_that_of_a_protected_cache() {
    for (flush_us, volatile) in [(40.0, false), (99.0, false), (101.0, true)] {
        let text = report(&[job("randread", 40.0, 95.0, 0.0), job("randwrite", 80.0, 35.0, flush_us)]);
        let model = fit(&text, "mine", None).unwrap();
        assert_eq!((model.volatile_cache, model.parameters["flush_us"].value), (volatile, flush_us));
    }
}

#[test]
fn the_capacity_is_what_was_given() {
    let model = fit(&report(&[job("randread", 40.0, 95.0, 0.0)]), "mine", Some(2_000_398_934_016)).unwrap();
    assert_eq!(model.parameters["capacity_bytes"].value, 2_000_398_934_016.0);
    assert_eq!(model.parameters["capacity_bytes"].source, "as given with --capacity");
    assert!(fit(&report(&[job("randread", 40.0, 95.0, 0.0)]), "mine", Some(7)).is_err());
}

/// Reports of fio 3.33 on disks of strata-disk, as docs/media.md has the call.
#[test]
fn what_fio_really_writes_gives_a_model_that_validates() {
    for (text, family) in
        [(include_str!("fio-turning.json"), Family::Hdd), (include_str!("fio-flash.json"), Family::Flash)]
    {
        let fitted = fit(text, "mine", None).unwrap();
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
    assert!(fit("{}", "mine", None).unwrap_err().to_string().contains("report of fio"));
    assert!(
        fit(&report(&[job("read", 1.0, 1.0, 0.0)]), "mine", None)
            .unwrap_err()
            .to_string()
            .contains("randread")
    );
    let slow = report(&[job("randread", 1.0, 9e9, 0.0)]);
    assert!(fit(&slow, "mine", None).unwrap_err().to_string().contains("average_seek_ms"));
}

proptest! {
    #[test]
    fn no_report_brings_it_down(text in "\\PC{0,200}", latency in any::<f64>(), rate in any::<f64>()) {
        let _ = fit(&text, "mine", None);
        let _ = fit(&report(&[job("randread", rate, latency, rate), job("read", rate, rate, rate)]), "mine", None);
    }
}

#[test]
fn a_file_without_an_end_is_refused() {
    let error = strata_disk::text::read_text("/dev/zero".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "longer than 64 MiB");
}
