//! The structures of ublk, held against the offsets and numbers of linux/ublk_cmd.h.

use proptest::prelude::*;
use strata_disk::front::ublk::wire::{
    self, Asked, DESCRIPTOR_BYTES, Geometry, INFO_BYTES, SECTOR, read_descriptor, read_info,
};

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// struct ublksrv_io_desc.
fn descriptor(op: u32, flags: u32, sectors: u32, first: u64) -> [u8; DESCRIPTOR_BYTES] {
    let mut bytes = [0; DESCRIPTOR_BYTES];
    bytes[..4].copy_from_slice(&(op | flags).to_ne_bytes());
    bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
    bytes[8..16].copy_from_slice(&first.to_ne_bytes());
    bytes
}

#[test]
fn commands_have_the_numbers_of_ioctls() {
    // _IOWR('u', 0x04, 32 bytes), _IOR('u', 0x02, 32 bytes), _IOWR('u', 0x21, 16 bytes)
    assert_eq!(wire::ADD, 0xc020_7504);
    assert_eq!(wire::GET_INFO, 0x8020_7502);
    assert_eq!(wire::COMMIT_AND_FETCH, 0xc010_7521);
}

#[test]
fn a_command_to_the_driver_is_of_no_queue() {
    let body = wire::control(7, 0x1234_5678_9abc, 64, 99);
    assert_eq!((u32_at(&body, 0), u16_at(&body, 4), u16_at(&body, 6)), (7, u16::MAX, 64));
    assert_eq!((u64_at(&body, 8), u64_at(&body, 16)), (0x1234_5678_9abc, 99));
    assert!(body[24..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_result_may_be_negative() {
    let body = wire::request(12, -5, 0xabc);
    assert_eq!((u16_at(&body, 0), u16_at(&body, 2), u32_at(&body, 4) as i32), (0, 12, -5));
    assert_eq!(u64_at(&body, 8), 0xabc);
}

#[test]
fn a_new_device_has_one_queue_and_its_mark() {
    let info = wire::info(128, 1 << 19, 0xfeed_beef_0123_4567);
    assert_eq!((u16_at(&info, 0), u16_at(&info, 2), u32_at(&info, 8)), (1, 128, 1 << 19));
    let info: [u8; INFO_BYTES] = info.try_into().unwrap();
    assert_eq!(read_info(&info), (wire::ANY_DEVICE, 0xfeed_beef_0123_4567));
}

#[test]
fn a_device_has_a_cache_and_no_fua() {
    let of = Geometry { bytes: 1 << 30, block_bytes: 4096, zeroes: true };
    let with = wire::parameters(&of, 1 << 19);
    assert_eq!((u32_at(&with, 0) as usize, u32_at(&with, 4)), (with.len(), 0b11));
    // UBLK_ATTR_VOLATILE_CACHE alone
    assert_eq!((u32_at(&with, 8), &with[12..16]), (1 << 2, [12; 4].as_slice()));
    assert_eq!((u32_at(&with, 16), u64_at(&with, 24)), (1024, (1 << 30) / SECTOR));
    assert_eq!((u32_at(&with, 44), u16_at(&with, 56)), (4096, 1));
    let without = wire::parameters(&Geometry { zeroes: false, ..of }, 1 << 19);
    assert_eq!(u32_at(&without, 4), 0b1);
}

#[test]
fn requests_are_in_bytes() {
    let (offset, length) = (8 * SECTOR, 16 * SECTOR);
    let asked = |op, flags| read_descriptor(&descriptor(op, flags, 16, 8));
    assert_eq!(asked(0, 0), Asked::Read { offset, length });
    assert_eq!(asked(1, 0), Asked::Write { offset, length, fua: false });
    assert_eq!(asked(1, 1 << 13), Asked::Write { offset, length, fua: true });
    assert_eq!(asked(2, 0), Asked::Flush);
    assert_eq!(asked(3, 0), Asked::Zero { offset, length, discard: true });
    assert_eq!(asked(5, 1 << 15), Asked::Zero { offset, length, discard: false });
    assert_eq!(asked(4, 0), Asked::Other);
}

proptest! {
    #[test]
    fn no_descriptor_brings_it_down(descriptor in any::<[u8; DESCRIPTOR_BYTES]>(), info in prop::array::uniform32(any::<u8>())) {
        read_descriptor(&descriptor);
        let mut whole = [0; INFO_BYTES];
        whole[..32].copy_from_slice(&info);
        read_info(&whole);
    }
}
