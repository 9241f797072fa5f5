//! Each model against what its parameters imply, on a virtual clock; and model files that cannot be.

use proptest::prelude::*;
use strata_disk::media::model::{Family, Model, find_model, parse_model, supplied};
use strata_disk::media::page::render_page;
use strata_disk::media::validation::{Driver, figures, flushed, random, sequential};
use strata_disk::media::{Kind, Medium, Request, Stretched};
use strata_disk::rng::Rng;

fn drive(medium: Box<dyn Medium>, depth: usize, count: u64, next: impl FnMut(u64) -> Request) -> f64 {
    Driver::new(medium).run(depth, count, next)
}

fn model(name: &str) -> Model {
    find_model(name).unwrap()
}

fn value(model: &Model, name: &str) -> f64 {
    model.parameters[name].value
}

fn near(measured: f64, implied: f64, share: f64) {
    assert!((measured / implied - 1.0).abs() <= share, "measured {measured}, implied {implied}");
}

#[test]
fn every_model_gives_what_its_parameters_imply() {
    for model in supplied() {
        for figure in figures(&model).unwrap() {
            let share = figure.modelled_per_s / figure.implied_per_s;
            assert!((share - 1.0).abs() <= 0.1, "{}: {figure:?}", model.name);
        }
    }
}

#[test]
fn sequential_reads_of_a_disk_that_turns_are_far_faster_than_random_ones() {
    for model in supplied().into_iter().filter(|model| model.kind == Family::Hdd) {
        let span = value(&model, "capacity_bytes") * 0.999;
        let far = drive(model.medium(0).unwrap(), 1, 2000, random(Kind::Read, span, 8192));
        let near = drive(model.medium(0).unwrap(), 1, 2000, sequential(Kind::Read, 8192));
        assert!(far / near > 20.0, "{}: random {far} s, sequential {near} s", model.name);
    }
}

#[test]
fn every_source_is_named_or_called_an_assumption() {
    for model in supplied() {
        for (name, parameter) in &model.parameters {
            let vague =
                ["estimate", "typical of", "usual"].iter().any(|word| parameter.source.contains(word));
            assert!(!vague && parameter.source.len() > 12, "{} {name}: {}", model.name, parameter.source);
        }
    }
}

#[test]
fn the_committed_page_is_that_of_the_models() {
    let committed = include_str!("../../../docs/reference/media-models.md");
    assert!(committed == render_page(&supplied()).unwrap(), "run: make docs");
}

#[test]
fn an_arm_that_stays_within_a_cylinder_does_not_seek() {
    let model = model("hdd-7200");
    let span = value(&model, "capacity_bytes") * 0.999;
    let mut far = Driver::new(model.medium(0).unwrap());
    far.run(1, 1000, random(Kind::Read, span, 4096));
    assert!(far.medium.effort().seeks >= 990, "{} seeks", far.medium.effort().seeks);
    let mut near = Driver::new(model.medium(0).unwrap());
    near.run(1, 1000, sequential(Kind::Read, 4096));
    assert!(near.medium.effort().seeks <= 10, "{} seeks", near.medium.effort().seeks);
}

#[test]
fn a_queue_makes_a_disk_faster() {
    let model = model("hdd-7200");
    let span = value(&model, "capacity_bytes") * 0.999;
    let one = drive(model.medium(0).unwrap(), 1, 2000, random(Kind::Read, span, 4096));
    let many = drive(model.medium(0).unwrap(), 32, 2000, random(Kind::Read, span, 4096));
    assert!(one / many > 1.8 && one / many < 4.0, "a queue of 32 gives {:.2}-fold", one / many);
}

#[test]
fn an_unflushed_burst_fits_the_cache_of_a_disk() {
    let model = model("hdd-7200");
    let span = value(&model, "capacity_bytes") * 0.999;
    let took = drive(model.medium(0).unwrap(), 1, 1000, random(Kind::Write, span, 8192));
    assert!(took < 0.001, "a write into the cache took {took} s");
}

#[test]
fn a_flush_is_work() {
    let model = model("sata-ssd");
    let count = 2000;
    let mut one = Driver::new(model.medium(0).unwrap());
    let elapsed_s = one.run(1, count, flushed(random(Kind::Write, 1e10, 8192))) * count as f64;
    let busy = one.medium.effort().busy_s / elapsed_s;
    assert!((0.9..=1.0).contains(&busy), "busy for {busy} of the time");
}

#[test]
fn flushes_at_once_are_not_more_work_than_there_was_time() {
    let mut many = Driver::new(model("sata-ssd").medium(0).unwrap());
    let elapsed_s = many.run(16, 2000, |_| Request { kind: Kind::Flush, offset: 0, length: 0 }) * 2000.0;
    near(many.medium.effort().busy_s, elapsed_s, 0.01);
}

#[test]
fn a_volume_is_busy_by_its_buckets_and_not_by_its_latency() {
    let mut volume = Driver::new(model("cloud-volume").medium(0).unwrap());
    volume.run(1, 100, |_| Request { kind: Kind::Flush, offset: 0, length: 0 });
    assert_eq!(volume.medium.effort().busy_s, 0.0);
}

#[test]
fn sustained_random_writes_pay_for_cleaning() {
    for name in ["sata-ssd", "sata-ssd-plp", "nvme"] {
        let model = model(name);
        let (length, reserve) = (1u64 << 20, value(&model, "reserve_bytes"));
        let mut write = random(Kind::Write, 2e11, length);
        let before = drive(model.medium(0).unwrap(), 8, (reserve / 2.0 / length as f64) as u64, &mut write);
        let all = drive(model.medium(0).unwrap(), 8, (reserve * 3.0 / length as f64) as u64, &mut write);
        assert!(all / before > 2.0, "{name}: {before} then {all}");
    }
}

#[test]
fn stretching_multiplies_every_time() {
    for model in supplied() {
        let plain = drive(model.medium(7).unwrap(), 4, 1000, random(Kind::Read, 1e10, 4096));
        let stretched = Box::new(Stretched::new(model.medium(7).unwrap(), 25.0));
        near(drive(stretched, 4, 1000, random(Kind::Read, 1e10, 4096)), plain * 25.0, 0.05);
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
