//! The chunked transfer coding (RFC 9112 section 7.1): sizes, extensions, data, trailers.
//!
//! Lines must end in CR LF. A lone LF in a chunk header enables request smuggling, and real servers do not send it.

use super::{Framing, MAX_HEAD_BYTES, Malformed, MessagePhase};

const MAX_LINE_BYTES: u32 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkStep {
    Size,
    /// Ignored bytes from the digits to the CR.
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The first byte of a trailer line, or of the empty line that ends the body.
    TrailerStart,
    Trailer,
    EndLf,
}

impl Framing {
    /// Takes bytes of one step; returns how many, and whether they belong to the body. `bytes` is not empty.
    pub(super) fn feed_chunked(&mut self, step: ChunkStep, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let next = |framing: &mut Framing, step: ChunkStep| framing.phase = MessagePhase::Chunked(step);
        let byte = bytes[0];
        match step {
            ChunkStep::Size => {
                let Some(digit) = (byte as char).to_digit(16) else {
                    if self.line_bytes == 0 {
                        return Err(Malformed("a chunk without a size"));
                    }
                    match byte {
                        b'\r' => next(self, ChunkStep::SizeLf),
                        b';' | b' ' | b'\t' => next(self, ChunkStep::Extension),
                        _ => return Err(Malformed("a chunk size that is not a hexadecimal number")),
                    }
                    return Ok((1, false));
                };
                self.count_line_byte(1)?;
                self.remaining = self
                    .remaining
                    .checked_mul(16)
                    .and_then(|size| size.checked_add(u64::from(digit)))
                    .ok_or(Malformed("a chunk size of more than 64 bits"))?;
                Ok((1, false))
            }
            ChunkStep::Extension => {
                // Control characters other than tab are invalid in an extension; CR ends it.
                let end = bytes.iter().position(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f).unwrap_or(bytes.len());
                self.count_line_byte(end)?;
                match bytes.get(end) {
                    None => Ok((end, false)),
                    Some(b'\r') => {
                        next(self, ChunkStep::SizeLf);
                        Ok((end + 1, false))
                    }
                    Some(_) => Err(Malformed("a control character in a chunk extension")),
                }
            }
            ChunkStep::SizeLf => {
                expect_lf(byte)?;
                self.line_bytes = 0;
                next(self, if self.remaining == 0 { ChunkStep::TrailerStart } else { ChunkStep::Data });
                Ok((1, false))
            }
            ChunkStep::Data => {
                let part = bytes.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
                self.remaining -= part as u64;
                if self.remaining == 0 {
                    next(self, ChunkStep::DataCr);
                }
                Ok((part, true))
            }
            ChunkStep::DataCr if byte == b'\r' => {
                next(self, ChunkStep::DataLf);
                Ok((1, false))
            }
            ChunkStep::DataCr => Err(Malformed("chunk data longer than its size")),
            ChunkStep::DataLf => {
                expect_lf(byte)?;
                next(self, ChunkStep::Size);
                Ok((1, false))
            }
            ChunkStep::TrailerStart if byte == b'\r' => {
                next(self, ChunkStep::EndLf);
                Ok((1, false))
            }
            ChunkStep::TrailerStart | ChunkStep::Trailer => {
                let end = memchr::memchr(b'\n', bytes).map(|at| at + 1);
                let used = end.unwrap_or(bytes.len());
                self.line_bytes = self.line_bytes.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
                if self.line_bytes as usize > MAX_HEAD_BYTES {
                    return Err(Malformed("trailers of more than 64 KiB"));
                }
                next(self, if end.is_some() { ChunkStep::TrailerStart } else { ChunkStep::Trailer });
                Ok((used, false))
            }
            ChunkStep::EndLf => {
                expect_lf(byte)?;
                self.phase = MessagePhase::Done;
                Ok((1, false))
            }
        }
    }

    fn count_line_byte(&mut self, count: usize) -> Result<(), Malformed> {
        self.line_bytes = self.line_bytes.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.line_bytes > MAX_LINE_BYTES {
            return Err(Malformed("a chunk-size line of more than 4096 bytes"));
        }
        Ok(())
    }
}

fn expect_lf(byte: u8) -> Result<(), Malformed> {
    if byte == b'\n' { Ok(()) } else { Err(Malformed("a carriage return without a line feed in the chunked coding")) }
}
