//! Each model against what its parameters imply, on a virtual clock; and model files that cannot be.

use proptest::prelude::*;
use strata_disk::media::model::{Family, Model, find_model, parse_model, supplied};
use strata_disk::media::{Kind, Medium, Ns, Request, Stretched};
use strata_disk::rng::Rng;

const S: f64 = 1e9;

/// Keeps `depth` requests under way until `count` have completed; mean seconds between completions.
fn drive(medium: &mut dyn Medium, depth: usize, count: u64, mut next: impl FnMut(u64) -> Request) -> f64 {
    let mut now: Ns = 0;
    let mut sent = 0;
    for _ in 0..depth {
        medium.submit(now, sent, next(sent));
        sent += 1;
    }
    let mut done = 0;
    while done < count {
        now = medium.next_due().expect("a request is under way").max(now);
        while medium.take_due(now).is_some() {
            done += 1;
            medium.submit(now, sent, next(sent));
            sent += 1;
        }
    }
    now as f64 / S / count as f64
}

fn model(name: &str) -> Model {
    find_model(name).unwrap()
}

fn value(model: &Model, name: &str) -> f64 {
    model.parameters[name].value
}

fn random(kind: Kind, span: f64, length: u64) -> impl FnMut(u64) -> Request {
    let mut rng = Rng::new(1);
    move |_| Request { kind, offset: (rng.unit() * span) as u64 / 4096 * 4096, length }
}

fn sequential(kind: Kind, length: u64) -> impl FnMut(u64) -> Request {
    move |number| Request { kind, offset: number * length, length }
}

fn near(measured: f64, implied: f64, share: f64) {
    assert!((measured / implied - 1.0).abs() <= share, "measured {measured}, implied {implied}");
}

fn hdds() -> Vec<Model> {
    supplied().into_iter().filter(|model| model.kind == Family::Hdd).collect()
}

#[test]
fn random_reads_of_a_disk_take_a_seek_and_half_a_turn() {
    for model in hdds() {
        let span = value(&model, "capacity_bytes") * 0.999;
        let mut medium = model.medium(0).unwrap();
        let measured = drive(&mut *medium, 1, 4000, random(Kind::Read, span, 4096));
        let turn = 60.0 / value(&model, "rotation_rpm");
        let implied =
            (value(&model, "average_seek_ms") + value(&model, "command_overhead_ms")) / 1e3 + turn / 2.0;
        near(measured, implied, 0.1);
    }
}

#[test]
fn an_arm_that_stays_within_a_cylinder_does_not_seek() {
    let model = model("hdd-7200");
    let span = value(&model, "capacity_bytes") * 0.999;
    let mut far = model.medium(0).unwrap();
    drive(&mut *far, 1, 1000, random(Kind::Read, span, 4096));
    assert!(far.effort().seeks >= 990, "{} seeks of 1000 random reads", far.effort().seeks);
    let mut near = model.medium(0).unwrap();
    drive(&mut *near, 1, 1000, sequential(Kind::Read, 4096));
    assert!(near.effort().seeks <= 10, "{} seeks of 1000 sequential reads", near.effort().seeks);
}

#[test]
fn a_queue_makes_a_disk_faster() {
    let model = model("hdd-7200");
    let span = value(&model, "capacity_bytes") * 0.999;
    let one = drive(&mut *model.medium(0).unwrap(), 1, 2000, random(Kind::Read, span, 4096));
    let many = drive(&mut *model.medium(0).unwrap(), 32, 2000, random(Kind::Read, span, 4096));
    assert!(one / many > 1.8 && one / many < 4.0, "a queue of 32 gives {:.2}-fold", one / many);
}

#[test]
fn sequential_transfers_reach_the_rate_of_the_zone() {
    for model in hdds() {
        let length = 128 << 10;
        for kind in [Kind::Read, Kind::Write] {
            let took = drive(&mut *model.medium(0).unwrap(), 1, 8000, sequential(kind, length));
            near(length as f64 / took, value(&model, "outer_rate_mb_s") * 1e6, 0.1);
        }
    }
}

/// Write and flush, one after the other, to addresses next to each other: once a turn of the platter.
#[test]
fn flushed_sequential_writes_miss_a_turn_each() {
    for model in hdds() {
        let next = |number: u64| match number % 2 {
            0 => Request { kind: Kind::Write, offset: number / 2 * 8192, length: 8192 },
            _ => Request { kind: Kind::Flush, offset: 0, length: 0 },
        };
        let took = drive(&mut *model.medium(0).unwrap(), 1, 2000, next) * 2.0;
        near(took, 60.0 / value(&model, "rotation_rpm"), 0.1);
    }
}

#[test]
fn an_unflushed_burst_fits_the_cache_of_a_disk() {
    let model = model("hdd-7200");
    let span = value(&model, "capacity_bytes") * 0.999;
    let took = drive(&mut *model.medium(0).unwrap(), 1, 1000, random(Kind::Write, span, 8192));
    assert!(took < 0.001, "a write into the cache took {took} s");
}

#[test]
fn flash_has_the_rates_that_it_states() {
    for model in supplied().into_iter().filter(|model| model.kind == Family::Flash) {
        let span = 1e10;
        let parallel = value(&model, "channels") / value(&model, "read_us") * 1e6;
        let one = drive(&mut *model.medium(0).unwrap(), 1, 2000, random(Kind::Read, span, 4096));
        near(one, value(&model, "read_us") / 1e6, 0.1);
        let deep = 1.0 / drive(&mut *model.medium(0).unwrap(), 512, 40000, random(Kind::Read, span, 4096));
        near(deep, parallel.min(value(&model, "interface_iops")), 0.1);
        let length = 1 << 20;
        let written = drive(&mut *model.medium(0).unwrap(), 8, 20000, sequential(Kind::Write, length));
        near(length as f64 / written, value(&model, "program_rate_mb_s") * 1e6, 0.1);
        let next = |number: u64| match number % 2 {
            0 => Request { kind: Kind::Write, offset: number * 4096, length: 8192 },
            _ => Request { kind: Kind::Flush, offset: 0, length: 0 },
        };
        let flushed = drive(&mut *model.medium(0).unwrap(), 1, 1000, next) * 2.0;
        let draining = 8192.0 / value(&model, "program_rate_mb_s") / 1e6;
        near(flushed, (value(&model, "write_us") + value(&model, "flush_us")) / 1e6 + draining, 0.15);
    }
}

#[test]
fn sustained_random_writes_pay_for_cleaning() {
    for name in ["sata-ssd", "sata-ssd-plp", "nvme"] {
        let model = model(name);
        let (length, reserve) = (1u64 << 20, value(&model, "reserve_bytes"));
        let mut medium = model.medium(0).unwrap();
        let mut write = random(Kind::Write, 2e11, length);
        let before = drive(&mut *medium, 8, (reserve / 2.0 / length as f64) as u64, &mut write);
        let mut medium = model.medium(0).unwrap();
        let all = drive(&mut *medium, 8, (reserve * 3.0 / length as f64) as u64, &mut write);
        assert!(all / before > 2.0, "{name}: {before} then {all}");
    }
}

#[test]
fn a_volume_bursts_and_then_keeps_its_base_rate() {
    let model = model("cloud-volume");
    let credits = value(&model, "burst_credits") as u64;
    let mut medium = model.medium(0).unwrap();
    let burst = drive(&mut *medium, 64, 20_000, random(Kind::Read, 1e10, 4096));
    near(1.0 / burst, value(&model, "burst_iops"), 0.1);
    let mut medium = model.medium(0).unwrap();
    let spent = 2 * credits;
    let all = drive(&mut *medium, 64, spent + 2_000_000, random(Kind::Read, 1e10, 4096));
    let implied = (spent as f64 / 3000.0 + 2_000_000.0 / 1500.0) / (spent as f64 + 2_000_000.0);
    near(all, implied, 0.1);
}

#[test]
fn stretching_multiplies_every_time() {
    for model in supplied() {
        let plain = drive(&mut *model.medium(7).unwrap(), 4, 1000, random(Kind::Read, 1e10, 4096));
        let mut stretched = Stretched::new(model.medium(7).unwrap(), 25.0);
        near(drive(&mut stretched, 4, 1000, random(Kind::Read, 1e10, 4096)), plain * 25.0, 0.05);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever arrives, everything completes once, in the order of time and not before it was sent.
    #[test]
    fn everything_completes_once(which in 0..7usize, seed: u64, count in 1..120u64) {
        let mut medium = supplied()[which].medium(seed).unwrap();
        let mut rng = Rng::new(seed);
        let (mut now, mut done) = (0, vec![None; count as usize]);
        let mut sent_at = Vec::new();
        for id in 0..count {
            let kind = [Kind::Read, Kind::Write, Kind::Zero, Kind::Flush][rng.draw() as usize % 4];
            let request = Request { kind, offset: rng.draw() % 100 * 65536, length: (rng.draw() % 256 + 1) * 4096 };
            medium.submit(now, id, request);
            sent_at.push(now);
            now += rng.draw() % 3_000_000;
            while let Some((id, at)) = medium.take_due(now) {
                prop_assert!(done[id as usize].replace(at).is_none());
                prop_assert!(at >= sent_at[id as usize] && at <= now);
            }
        }
        while let Some(due) = medium.next_due() {
            prop_assert!(due >= now || medium.take_due(now).is_some());
            now = now.max(due);
            while let Some((id, at)) = medium.take_due(now) {
                prop_assert!(done[id as usize].replace(at).is_none());
                prop_assert!(at >= sent_at[id as usize]);
            }
        }
        prop_assert!(done.iter().all(Option::is_some));
    }

    #[test]
    fn no_text_of_a_model_brings_the_parser_down(text in "\\PC{0,200}", at: prop::sample::Index, byte: u8) {
        let _ = parse_model(&text);
        let mut changed = toml::to_string(&model("hdd-7200")).unwrap().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        let _ = parse_model(&String::from_utf8_lossy(&changed));
    }
}

fn refused(change: impl FnOnce(&mut Model)) -> String {
    let mut model = model("hdd-7200");
    change(&mut model);
    parse_model(&toml::to_string(&model).unwrap()).unwrap_err().to_string()
}

fn with(name: &'static str, to: f64) -> impl FnOnce(&mut Model) {
    move |model| model.parameters.get_mut(name).unwrap().value = to
}

#[test]
fn impossible_models_are_refused_with_the_parameter() {
    assert!(refused(with("rotation_rpm", 0.0)).contains("rotation_rpm"));
    assert!(refused(with("rotation_rpm", f64::NAN)).contains("rotation_rpm"));
    assert!(refused(with("capacity_bytes", -1.0)).contains("capacity_bytes"));
    assert!(refused(with("average_seek_ms", 0.1)).contains("seek times"));
    assert!(refused(with("full_seek_ms", 60.0)).contains("seek curve"));
    assert!(refused(with("inner_rate_mb_s", 500.0)).contains("inner zone"));
    assert!(refused(|model| drop(model.parameters.remove("heads"))).contains("heads is missing"));
    assert!(refused(|model| model.parameters.get_mut("heads").unwrap().source.clear()).contains("no source"));
    assert!(
        refused(|model| {
            let heads = model.parameters["heads"].clone();
            model.parameters.insert("haeds".into(), heads);
        })
        .contains("unknown parameter haeds")
    );
    assert!(find_model("hdd-15000").unwrap_err().to_string().contains("hdd-7200"));
}
