//! Memory that strides are read into.

use crate::sys::{self, Block};

/// Whole blocks, which begin where a block does: the disk can write into them.
#[derive(Default)]
pub(super) struct Memory(Vec<Block>);

impl Memory {
    /// For any `bytes` bytes of a file with the rest of the blocks that they begin and end in.
    pub(super) fn around(bytes: usize) -> Memory {
        Memory(vec![Block::ZERO; bytes.div_ceil(sys::BLOCK_BYTES) + 1])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        sys::bytes_of(&self.0)
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        sys::bytes_of_mut(&mut self.0)
    }
}
