//! Numbers as a token body holds them: LEB128, in their shortest form only.
//!
//! Reads never panic and never allocate. It does not know what the numbers mean.

/// Bytes of the longest number: 2^64, one more than a position can be, still fits.
const NUMBER_BYTES_MAX: usize = 10;
/// Bytes of it that fit into 64 bits together.
const LOW_BYTES: usize = NUMBER_BYTES_MAX - 1;

/// Appends numbers to a buffer.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.wide(u128::from(number));
    }

    pub(super) fn count(&mut self, count: usize) {
        // usize has at most 64 bits wherever this builds.
        self.wide(count as u128);
    }

    /// A number of at most 70 bits.
    pub(super) fn wide(&mut self, mut number: u128) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.0.push(low & 0x7F);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    /// A signed number: small ones of either sign are short.
    pub(super) fn signed(&mut self, number: i64) {
        self.number((number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
    }
}

/// Takes numbers off a slice; `None` where there is none in its shortest form.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        u64::try_from(self.wide()?).ok()
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub(super) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    pub(super) fn wide(&mut self) -> Option<u128> {
        let (bytes, mut low) = (self.0, 0_u64);
        for (place, byte) in bytes.iter().enumerate().take(NUMBER_BYTES_MAX) {
            let bits = byte & 0x7F;
            // Arithmetic of 128 bits is slow, and only the last byte of the longest needs it.
            if place < LOW_BYTES {
                low |= u64::from(bits) << (7 * place);
            }
            if byte & 0x80 == 0 {
                // A last byte of zero means that a shorter form exists.
                if *byte == 0 && place > 0 {
                    return None;
                }
                self.0 = bytes.get(place + 1..)?;
                let high = if place < LOW_BYTES { 0 } else { u128::from(bits) << (7 * LOW_BYTES) };
                return Some(high | u128::from(low));
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let folded = self.number()?;
        Some((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: u128) -> Vec<u8> {
        let mut writer = Writer::with_capacity(0);
        writer.wide(number);
        writer.finish()
    }

    #[test]
    fn a_number_has_one_form_only() {
        for bad in [&[][..], &[0x80], &[0x80, 0x00], &[0xFF, 0x80, 0x00], &[0x80; 11]] {
            assert_eq!(Reader::new(bad).wide(), None, "{bad:02x?}");
        }
        for number in [0, 1, 127, 128, 16_383, 16_384, u128::from(u64::MAX), 1 << 64] {
            assert_eq!(Reader::new(&written(number)).wide(), Some(number));
        }
    }

    #[test]
    fn a_number_past_its_type_is_refused() {
        assert_eq!(Reader::new(&written(1 << 64)).number(), None);
        assert_eq!(Reader::new(&written(1 << 32)).small(), None);
    }

    #[test]
    fn signed_numbers_return() {
        for number in [0, -1, 1, 63, -64, 64, i64::MIN, i64::MAX] {
            let mut writer = Writer::with_capacity(0);
            writer.signed(number);
            let bytes = writer.finish();
            assert_eq!(Reader::new(&bytes).signed(), Some(number));
        }
        assert_eq!(written(126), {
            let mut writer = Writer::with_capacity(0);
            writer.signed(63);
            writer.finish()
        });
    }
}
