//! Which models a front can give.

use strata_disk::calibrate::{Rates, range};
use strata_disk::media::model::{find_model, supplied};

fn front(reads_per_s: f64) -> Rates {
    Rates {
        front: "loop",
        reads_per_s,
        writes_per_s: reads_per_s,
        flushed_writes_per_s: reads_per_s / 2.0,
        deep_reads_per_s: reads_per_s * 4.0,
    }
}

#[test]
fn a_slow_host_gives_slow_media_alone() {
    let slow = front(2000.0);
    let within: Vec<String> = supplied()
        .iter()
        .map(|model| range(model, &slow))
        .filter(|range| range.beyond.is_empty())
        .map(|range| range.model)
        .collect();
    assert_eq!(within, ["hdd-7200", "hdd-5400", "cloud-volume"]);
}

#[test]
fn a_fast_host_gives_everything() {
    for model in supplied() {
        let range = range(&model, &front(1e6));
        assert!(range.beyond.is_empty(), "{range:?}");
        assert_eq!(range.smallest_stretch, 1.0);
    }
}

#[test]
fn stretched_enough_every_medium_can_be_had() {
    let slow = front(2000.0);
    for model in supplied() {
        let range = range(&model, &slow);
        let reached = |stretch: f64| {
            range.beyond.iter().all(|one| one.implied_per_s / stretch <= one.host_per_s * 1.0001)
        };
        assert!(reached(range.smallest_stretch), "{range:?}");
        assert!(range.beyond.is_empty() || !reached(range.smallest_stretch * 0.99), "{range:?}");
    }
}

#[test]
fn what_is_beyond_is_named_with_both_rates() {
    let range = range(&find_model("nvme").unwrap(), &front(10_000.0));
    let read = range.beyond.iter().find(|one| one.load.rw == "randread" && one.load.depth == 1).unwrap();
    assert_eq!((read.host_per_s, read.implied_per_s.round()), (10_000.0, 11_765.0));
}
