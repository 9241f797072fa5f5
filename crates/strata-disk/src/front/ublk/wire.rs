//! Structures of ublk, as linux/ublk_cmd.h has them: commands to the driver, and what it asks. Pure.
//!
//! Commands carry the number of an ioctl, as kernels take them since 6.4; what the driver can is told since 6.5.

use crate::front::fields::Fields;

/// Bytes of the unit in which the driver counts.
pub const SECTOR: u64 = 512;
/// Bytes of struct ublksrv_ctrl_dev_info.
pub const INFO_BYTES: usize = 64;
pub(crate) const FEATURES_BYTES: usize = 8;
/// Bytes of struct ublksrv_io_desc.
pub const DESCRIPTOR_BYTES: usize = 24;

const CONTROL_COMMAND_BYTES: u32 = 32;
const REQUEST_COMMAND_BYTES: u32 = 16;

/// The direction in the number of an ioctl.
const FROM_KERNEL: u32 = 2;
const BOTH_WAYS: u32 = 3;

/// UBLK_U_CMD_GET_DEV_INFO.
pub const GET_INFO: u32 = number(FROM_KERNEL, 0x02, CONTROL_COMMAND_BYTES);
/// UBLK_U_CMD_ADD_DEV.
pub const ADD: u32 = number(BOTH_WAYS, 0x04, CONTROL_COMMAND_BYTES);
pub(crate) const DELETE: u32 = number(BOTH_WAYS, 0x05, CONTROL_COMMAND_BYTES);
pub(crate) const START: u32 = number(BOTH_WAYS, 0x06, CONTROL_COMMAND_BYTES);
pub(crate) const STOP: u32 = number(BOTH_WAYS, 0x07, CONTROL_COMMAND_BYTES);
pub(crate) const SET_PARAMETERS: u32 = number(BOTH_WAYS, 0x08, CONTROL_COMMAND_BYTES);
pub(crate) const GET_FEATURES: u32 = number(FROM_KERNEL, 0x13, CONTROL_COMMAND_BYTES);
pub(crate) const FETCH: u32 = number(BOTH_WAYS, 0x20, REQUEST_COMMAND_BYTES);
/// UBLK_U_IO_COMMIT_AND_FETCH_REQ.
pub const COMMIT_AND_FETCH: u32 = number(BOTH_WAYS, 0x21, REQUEST_COMMAND_BYTES);

/// The number that lets the driver choose one.
pub const ANY_DEVICE: u32 = u32::MAX;

const VOLATILE_CACHE: u32 = 1 << 2;
const BASIC: u32 = 1 << 0;
const DISCARD: u32 = 1 << 1;
/// Of one discard or write of zeroes.
const LARGEST_ZERO: u64 = 1 << 30;

/// As _IOR and _IOWR of asm-generic/ioctl.h.
const fn number(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// struct ublksrv_ctrl_cmd, of no queue, in what an entry of 128 bytes has for it.
pub fn control(device: u32, address: u64, bytes: u16, data: u64) -> [u8; 80] {
    let fields = Fields::default().u32(device).u16(u16::MAX).u16(bytes).u64(address).u64(data);
    padded(&fields.0)
}

/// struct ublksrv_io_cmd, of the first queue: the result of a request is in bytes, or negative an error's number.
pub fn request(tag: u16, result: i32, address: u64) -> [u8; 16] {
    padded(&Fields::default().u16(0).u16(tag).u32(result as u32).u64(address).0)
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut whole = [0; N];
    whole[..bytes.len()].copy_from_slice(bytes);
    whole
}

/// struct ublksrv_ctrl_dev_info, of a new device with one queue. `mark` is kept by the driver and means nothing to it.
pub fn info(depth: u16, largest_request: u32, mark: u64) -> Vec<u8> {
    let fields = Fields::default().u16(1).u16(depth).zeroes(4).u32(largest_request).u32(ANY_DEVICE);
    fields.zeroes(16).u64(mark).zeroes(24).0
}

/// The device's number and its mark.
pub fn read_info(info: &[u8; INFO_BYTES]) -> (u32, u64) {
    (u32::from_ne_bytes(part(info, 12)), u64::from_ne_bytes(part(info, 32)))
}

fn part<const N: usize, const ALL: usize>(bytes: &[u8; ALL], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

/// What a device is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub bytes: u64,
    pub block_bytes: u64,
    /// Whether it has discard and write zeroes.
    pub zeroes: bool,
}

/// struct ublk_params. As a loop device has it: a cache that flushes empty, no FUA (the kernel flushes after such a write),
/// not rotational.
pub fn parameters(of: &Geometry, largest_request: u32) -> Vec<u8> {
    const BYTES: u32 = 60;
    let types = if of.zeroes { BASIC | DISCARD } else { BASIC };
    let shift = of.block_bytes.trailing_zeros() as u8;
    let basic =
        Fields::default().u32(BYTES).u32(types).u32(VOLATILE_CACHE).u8(shift).u8(shift).u8(shift).u8(shift);
    let sectors = basic.u32(largest_request / SECTOR as u32).u32(0).u64(of.bytes / SECTOR).u64(0);
    let most = (LARGEST_ZERO / SECTOR) as u32;
    sectors.u32(0).u32(of.block_bytes as u32).u32(most).u32(most).u16(1).u16(0).0
}

/// What a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Read { offset: u64, length: u64 },
    Write { offset: u64, length: u64, fua: bool },
    Zero { offset: u64, length: u64, discard: bool },
    Flush,
    Other,
}

/// struct ublksrv_io_desc.
pub fn read_descriptor(descriptor: &[u8; DESCRIPTOR_BYTES]) -> Asked {
    let flags = u32::from_ne_bytes(part(descriptor, 0));
    let length = u64::from(u32::from_ne_bytes(part(descriptor, 4))) * SECTOR;
    let offset = u64::from_ne_bytes(part(descriptor, 8)).saturating_mul(SECTOR);
    match flags & 0xff {
        0 => Asked::Read { offset, length },
        1 => Asked::Write { offset, length, fua: flags & (1 << 13) != 0 },
        2 => Asked::Flush,
        3 => Asked::Zero { offset, length, discard: true },
        5 => Asked::Zero { offset, length, discard: false },
        _ => Asked::Other,
    }
}
