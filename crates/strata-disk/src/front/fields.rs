//! Bytes of fields, one behind the other, in the byte order of the host: as the kernel's structures have them.

#[derive(Default)]
pub(crate) struct Fields(pub Vec<u8>);

impl Fields {
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn zeroes(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}
