//! A model from a report of fio.

use proptest::prelude::*;
use strata_disk::fit::fit;
use strata_disk::media::model::{Family, parse_model};

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
    let model = fit(&text, "mine").unwrap();
    let value = |name: &str| model.parameters[name].value;
    assert_eq!((model.kind, model.name.as_str()), (Family::Hdd, "mine"));
    assert!((value("average_seek_ms") - (13.0 - 30.0 / 7.2 - 0.1)).abs() < 1e-6);
    assert_eq!((value("outer_rate_mb_s"), value("inner_rate_mb_s")), (180.0, 90.0));
    assert_eq!(model.parameters["outer_rate_mb_s"].source, "measured with fio");
    assert_eq!(parse_model(&toml::to_string(&model).unwrap()).unwrap(), model);
}

#[test]
fn fast_ones_are_those_of_flash() {
    let text = report(&[
        job("randread", 40.0, 95.0, 0.0),
        job("randwrite", 80.0, 35.0, 2400.0),
        job("write", 420.0, 100.0, 0.0),
    ]);
    let model = fit(&text, "mine").unwrap();
    let value = |name: &str| model.parameters[name].value;
    assert_eq!(model.kind, Family::Flash);
    assert_eq!((value("read_us"), value("write_us"), value("flush_us")), (95.0, 35.0, 2400.0));
    assert_eq!(value("program_rate_mb_s"), 420.0);
    assert!(model.parameters["interface_rate_mb_s"].source.contains("MX200"), "what was not measured stays");
}

#[test]
fn a_report_that_says_too_little_or_nonsense_is_refused() {
    assert!(fit("{}", "mine").unwrap_err().to_string().contains("report of fio"));
    assert!(
        fit(&report(&[job("read", 1.0, 1.0, 0.0)]), "mine").unwrap_err().to_string().contains("randread")
    );
    let slow = report(&[job("randread", 1.0, 9e9, 0.0)]);
    assert!(fit(&slow, "mine").unwrap_err().to_string().contains("average_seek_ms"));
}

proptest! {
    #[test]
    fn no_report_brings_it_down(text in "\\PC{0,200}", latency in any::<f64>(), rate in any::<f64>()) {
        let _ = fit(&text, "mine");
        let _ = fit(&report(&[job("randread", rate, latency, rate), job("read", rate, rate, rate)]), "mine");
    }
}

#[test]
fn a_file_without_an_end_is_refused() {
    let error = strata_disk::text::read_text("/dev/zero".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "longer than 64 MiB");
}
