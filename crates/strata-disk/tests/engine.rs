//! The engine without a front: faults, power, the log and timing; and the control socket's parser.

use proptest::prelude::*;
use std::io::BufReader;
use strata_disk::durability::Keep;
use strata_disk::engine::{Answer, Cut, Engine, Op, Power, Refused, Timed, Timing};
use strata_disk::fault::{Effect, Fault, On};
use strata_disk::log::Event;
use strata_disk::log::behind::Behind;
use strata_disk::log::native::{Reader, Writer};
use strata_disk::media::model::find_model;
use strata_disk::nature::Nature;
use strata_disk::protocol::{Asked, parse_asked};
use strata_disk::states::Lying;
use strata_disk::states::choice::{Chosen, Whole};
use strata_disk::states::replay::Replay;
use strata_disk::store::{Image, Keeping, Snapshot};

const SIZE: u64 = 1 << 20;
const ALL: Cut = Cut { disks: None, keep: Keep::Nothing, torn: false, seed: 0 };

fn image() -> Image {
    let keeping = Keeping { nature: Nature::default(), cache_bytes: u64::MAX };
    Image::over(&Snapshot::blank(SIZE), keeping)
}

struct Bench {
    engine: Engine<u64>,
    sent: u64,
}

impl Bench {
    fn new(media: Option<&str>) -> Self {
        let mut engine = Engine::new(None);
        let timed = media.map(|name| Timed {
            model: name.into(),
            parameters: Default::default(),
            stretch: 1.0,
            timing: Timing::On,
            medium: find_model(name).unwrap().medium(0).unwrap(),
        });
        engine.add(0, "a", image(), timed).unwrap();
        Self { engine, sent: 0 }
    }

    fn send(&mut self, now: u64, op: Op<'_>) -> Vec<Answer<u64>> {
        let (mut out, mut certain) = (Vec::new(), None);
        self.engine.submit(now, 0, op, self.sent, |reply| certain = Some(reply), &mut out);
        self.sent += 1;
        out.extend(certain.map(|reply| Answer { reply, result: Ok(Vec::new()) }));
        out
    }

    fn ask(&mut self, op: Op<'_>) -> Result<Vec<u8>, Refused> {
        self.send(0, op).pop().expect("answered at once").result
    }

    fn write(&mut self, offset: u64, byte: u8) -> Result<Vec<u8>, Refused> {
        self.ask(Op::Write { offset, data: &[byte; 4096], fua: false })
    }

    fn read(&mut self, offset: u64) -> Result<u8, Refused> {
        Ok(self.ask(Op::Read { offset, length: 4096 })?[0])
    }

    fn fault(&mut self, on: On, effect: Effect, after: u64, count: Option<u64>) {
        let fault = Fault { on, effect, from: 4096, to: 8192, after, count };
        self.engine.add_fault("a", fault).unwrap();
    }
}

#[test]
fn a_cut_loses_what_was_not_flushed_and_the_disk_stays_off() {
    let mut bench = Bench::new(None);
    bench.write(0, 1).unwrap();
    bench.ask(Op::Flush).unwrap();
    bench.write(0, 2).unwrap();
    bench.engine.cut(ALL, None).unwrap();
    assert_eq!(bench.read(0), Err(Refused::Io));
    bench.engine.power_on("a").unwrap();
    assert_eq!(bench.read(0), Ok(1));
}

#[test]
fn power_can_be_cut_at_a_number_of_the_sequence() {
    let mut bench = Bench::new(None);
    let at = bench.engine.seq() + 2;
    bench.engine.cut(Cut { keep: Keep::Everything, ..ALL }, Some(at)).unwrap();
    bench.write(0, 1).unwrap();
    assert_eq!(bench.write(4096, 2), Err(Refused::Io));
    bench.engine.power_on("a").unwrap();
    assert_eq!((bench.read(0), bench.read(4096)), (Ok(1), Ok(0)));
}

#[test]
fn faults_meet_their_range_and_count() {
    let mut bench = Bench::new(None);
    bench.fault(On::Write, Effect::Error, 1, Some(2));
    let results: Vec<bool> = (0..5).map(|_| bench.write(4096, 1).is_ok()).collect();
    assert_eq!(results, [true, false, false, true, true]);
    bench.fault(On::Read, Effect::Error, 0, None);
    assert_eq!((bench.read(4096), bench.read(0)), (Err(Refused::Io), Ok(0)));
    bench.fault(On::Flush, Effect::Error, 0, Some(1));
    assert_eq!((bench.ask(Op::Flush).is_err(), bench.ask(Op::Flush).is_ok()), (true, true));
    bench.engine.clear_faults("a").unwrap();
    assert_eq!(bench.read(4096), Ok(1));
}

#[test]
fn a_delay_holds_a_request_back_by_its_time() {
    let mut bench = Bench::new(None);
    bench.fault(On::Write, Effect::DelayMs(3.0), 0, Some(1));
    assert!(bench.send(10, Op::Write { offset: 4096, data: &[1; 512], fua: false }).is_empty());
    assert_eq!(bench.engine.next_due(), Some(3_000_010));
    let mut out = Vec::new();
    bench.engine.advance(3_000_009, &mut out);
    assert!(out.is_empty());
    bench.engine.advance(3_000_010, &mut out);
    assert!(out.len() == 1 && out[0].result.is_ok());
}

#[test]
fn a_disk_can_be_slow_for_a_number_of_requests_and_then_fast_again() {
    let mut bench = Bench::new(Some("nvme"));
    bench.fault(On::Read, Effect::DelayMs(5.0), 1, Some(2));
    let (mut now, mut took) = (0, Vec::new());
    for _ in 0..5 {
        assert!(bench.send(now, Op::Read { offset: 4096, length: 4096 }).is_empty());
        let (began, mut out) = (now, Vec::new());
        while out.is_empty() {
            now = bench.engine.next_due().expect("a request is under way").max(now);
            bench.engine.advance(now, &mut out);
        }
        assert!(out[0].result.is_ok());
        took.push(now - began);
    }
    let slow: Vec<bool> = took.iter().map(|taken| *taken >= 5_000_000).collect();
    assert_eq!(slow, [false, true, true, false, false], "{took:?}");
    assert!(took[0] < 1_000_000 && took[4] < 1_000_000, "{took:?}");
}

#[test]
fn while_its_timing_is_off_a_disk_answers_at_once_and_counts_what_it_answered_so() {
    let mut bench = Bench::new(Some("hdd-7200"));
    let names = ["a".to_string()];
    let write = Op::Write { offset: 4096, data: &[1; 4096], fua: false };
    bench.engine.set_timing(&names, Timing::Off).unwrap();
    assert_eq!(bench.send(0, write).len(), 1);
    assert_eq!(bench.send(0, Op::Flush).len(), 1);
    bench.engine.set_timing(&names, Timing::On).unwrap();
    assert!(bench.send(0, write).is_empty());
    let told = &bench.engine.statistics(0)[0];
    assert_eq!((told.timing, told.counters.untimed), (Some(Timing::On), 2));
    assert_eq!(told.late_percent_counts.as_ref().unwrap().iter().sum::<u64>(), 0);
}

#[test]
fn what_was_under_way_when_the_timing_went_off_completes_when_the_medium_says() {
    let mut bench = Bench::new(Some("hdd-7200"));
    assert!(bench.send(0, Op::Read { offset: 1 << 19, length: 4096 }).is_empty());
    bench.engine.set_timing(&["a".to_string()], Timing::Off).unwrap();
    let due = bench.engine.next_due().unwrap();
    let mut out = Vec::new();
    bench.engine.advance(due + 100_000_000, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(bench.engine.statistics(0)[0].counters.untimed, 0);
}

#[test]
fn only_the_timing_of_a_model_can_be_switched_and_of_all_that_are_named_or_none() {
    let mut bench = Bench::new(Some("hdd-7200"));
    bench.engine.add(0, "b", image(), None).unwrap();
    let both = ["a".to_string(), "b".to_string()];
    let refused = bench.engine.set_timing(&both, Timing::Off).unwrap_err();
    assert_eq!(refused.to_string(), "disk \"b\" has no model");
    assert_eq!(bench.engine.statistics(0)[0].timing, Some(Timing::On));
}

#[test]
fn a_pulled_disk_fails_what_is_under_way() {
    let mut bench = Bench::new(Some("hdd-7200"));
    assert!(bench.send(0, Op::Read { offset: 0, length: 4096 }).is_empty());
    let failed = bench.engine.pull("a").unwrap();
    assert!(failed.len() == 1 && failed[0].result == Err(Refused::Io));
    let disk = &bench.engine.statistics(1)[0];
    assert_eq!((disk.power, disk.counters.errors), (Power::Gone, 1));
    let mut out = Vec::new();
    bench.engine.advance(u64::MAX / 2, &mut out);
    assert!(out.is_empty());
}

#[test]
fn requests_outside_of_the_disk_or_across_blocks_are_refused() {
    let mut bench = Bench::new(None);
    let refused = |bench: &mut Bench, offset, length| bench.ask(Op::Zero { offset, length, discard: true });
    assert_eq!(refused(&mut bench, SIZE, 512), Err(Refused::OutOfRange));
    assert_eq!(refused(&mut bench, u64::MAX - 511, 512), Err(Refused::OutOfRange));
    assert_eq!(refused(&mut bench, 100, 512), Err(Refused::OutOfRange));
    assert!(refused(&mut bench, 512, 512).is_ok());
}

#[test]
fn a_disk_that_is_open_is_removed_by_force_alone() {
    let mut bench = Bench::new(None);
    bench.engine.named("a").unwrap().opened = 1;
    let refused = bench.engine.remove("a", false).err().unwrap();
    assert_eq!(refused.to_string(), "disk \"a\" is open");
    assert!(bench.engine.remove("a", true).is_ok());
    assert_eq!(bench.read(0), Err(Refused::Io));
}

#[test]
fn only_a_change_that_takes_no_time_and_cannot_fail_is_answered_before_it_is_made() {
    let write = Op::Write { offset: 4096, data: &[1; 4096], fua: false };
    let certain = |bench: &mut Bench, op: Op<'_>| {
        let (mut certain, mut out) = (false, Vec::new());
        bench.engine.submit(0, 0, op, 7, |reply| certain = reply == 7, &mut out);
        (certain, out.len())
    };
    let mut bench = Bench::new(None);
    assert_eq!(certain(&mut bench, write), (true, 0));
    assert_eq!(certain(&mut bench, Op::Zero { offset: 0, length: 4096, discard: true }), (true, 0));
    assert_eq!(certain(&mut bench, Op::Flush), (true, 0));
    assert_eq!(bench.read(4096), Ok(1));
    assert_eq!(certain(&mut bench, Op::Read { offset: 0, length: 4096 }), (false, 1));
    assert_eq!(certain(&mut bench, Op::Write { offset: SIZE, data: &[1; 4096], fua: false }), (false, 1));
    bench.fault(On::Write, Effect::DelayMs(1.0), 0, Some(1));
    assert_eq!(certain(&mut bench, write), (false, 0));
    // beside one that is under way
    assert_eq!(certain(&mut bench, write), (false, 1));
    assert_eq!(certain(&mut Bench::new(Some("sata-ssd")), write), (false, 0));
    let path = std::env::temp_dir().join(format!("strata-disk-certain-{}", std::process::id()));
    let file = std::fs::OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let keeping = Keeping { nature: Nature::default(), cache_bytes: 1 << 20 };
    let mut bench = Bench { engine: Engine::new(None), sent: 0 };
    bench.engine.add(0, "a", Image::in_file(file, SIZE, keeping).unwrap(), None).unwrap();
    assert_eq!(certain(&mut bench, write), (false, 1));
}

#[test]
fn the_log_has_a_completion_before_its_answer() {
    let path = std::env::temp_dir().join(format!("strata-disk-engine-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let mut engine = Engine::new(Some(Writer::new(Behind::new(file).unwrap()).unwrap()));
    engine.add(0, "a", image(), None).unwrap();
    let mut out = Vec::new();
    let write = Op::Write { offset: 512, data: &[9; 512], fua: false };
    engine.submit(0, 0, write, 0u64, |_| {}, &mut out);
    engine.submit(0, 0, Op::Flush, 1, |_| {}, &mut out);
    let mark = engine.mark("acknowledged 1").unwrap();
    engine.flush_log().unwrap();
    let mut reader = Reader::new(BufReader::new(std::fs::File::open(&path).unwrap())).unwrap();
    std::fs::remove_file(&path).unwrap();
    let records: Vec<_> = std::iter::from_fn(|| reader.read().unwrap()).collect();
    let events: Vec<_> = records.iter().map(|record| record.event.clone()).collect();
    let expected = [
        Event::Added { name: "a".into(), size: SIZE, nature: Nature::default() },
        Event::Write { offset: 512, fua: false, data: vec![9; 512] },
        Event::Completed { of: 2, failed: false },
        Event::Flush,
        Event::Completed { of: 4, failed: false },
        Event::Mark { text: "acknowledged 1".into() },
    ];
    assert_eq!(events, expected);
    assert_eq!(records.last().map(|record| record.seq), Some(mark));
}

#[test]
fn the_log_has_what_a_disk_began_with() {
    let keeping = Keeping { nature: Nature::default(), cache_bytes: 1 << 20 };
    let mut earlier = Image::over(&Snapshot::blank(64 << 20), keeping);
    for (seq, offset) in [(1, 8192), (2, 40 << 20)] {
        earlier.write(seq, offset, &[seq as u8; 8192], false).unwrap();
    }
    let began = earlier.snapshot().unwrap();
    let path = std::env::temp_dir().join(format!("strata-disk-content-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let mut engine: Engine<u64> = Engine::new(Some(Writer::new(Behind::new(file).unwrap()).unwrap()));
    engine.add(0, "a", Image::over(&began, keeping), None).unwrap();
    let begun = engine.mark("begin").unwrap();
    engine.flush_log().unwrap();
    let log = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut replay = Replay::new(&log[..], Lying::default()).unwrap();
    replay.advance(begun).unwrap();
    assert!(replay.is_quiet());
    let nothing = Chosen { whole: Whole::Nothing, torn: Vec::new() };
    let left = replay.left(&nothing).unwrap().remove(0);
    assert_eq!(left.written(u64::MAX), began.written(u64::MAX));
    assert_eq!(began.written(4096).len(), 4);
}

#[test]
fn requests_of_the_socket_are_understood() {
    for line in [
        r#"{"op": "add", "disk": "d0", "size": 4096, "media": "hdd-7200", "stretch": 2}"#,
        r#"{"op": "remove", "disk": "d0"}"#,
        r#"{"op": "cut", "keep": {"only": [1, 2]}, "torn": true, "at": 9}"#,
        r#"{"op": "fault", "disk": "d0", "fault": {"on": "read", "effect": {"delay_ms": 2}, "count": 3}}"#,
        r#"{"op": "lie", "disk": "d0", "flushes": {"last": 3}}"#,
        r#"{"op": "add", "disk": "d0", "size": 4096, "media": "hdd-7200", "timing": "off"}"#,
        r#"{"op": "timing", "disks": ["d0"], "set": "on"}"#,
        r#"{"op": "stats"}"#,
    ] {
        let asked: Asked = parse_asked(line).unwrap();
        let again = parse_asked(&serde_json::to_string(&asked).unwrap()).unwrap();
        assert_eq!(format!("{asked:?}"), format!("{again:?}"));
    }
    for line in ["", "{}", "[]", "nonsense", r#"{"op": "addd"}"#, r#"{"op": "mark", "text": 1}"#] {
        assert!(parse_asked(line).unwrap_err().to_string().starts_with("no request"), "{line}");
    }
}

proptest! {
    #[test]
    fn no_line_brings_the_parser_down(line in "\\PC{0,300}", op in "[a-z_]{0,12}", value in "[-0-9eE.nul\\[\\]{}\"]{0,12}") {
        let _ = parse_asked(&line);
        let _ = parse_asked(&format!(r#"{{"op": "{op}", "disk": {value}, "size": {value}}}"#));
        let _ = parse_asked(&format!(r#"{{"op": "cut", "keep": {{"only": {value}}}, "at": {value}}}"#));
    }
}
