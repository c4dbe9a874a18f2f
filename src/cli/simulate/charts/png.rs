//! Charts as PNG. Text is drawn with a font that is part of the binary: no font of the machine is read.

use std::io::Write;

use anyhow::{Context, anyhow};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::{Chart, SIZE};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Eight bits for each of red, green and blue; zlib; filters by row; not interlaced.
const FORMAT: [u8; 5] = [8, 2, 0, 0, 0];
const PIXEL: usize = 3;
/// The filter of a row: each byte is the difference from the byte above it.
const UP: u8 = 2;

/// Makes the font of this binary the one that charts use.
///
/// # Errors
/// When the font is invalid.
pub fn use_own_font() -> anyhow::Result<()> {
    let registered = register_font("sans-serif", FontStyle::Normal, ttf_noto_sans::REGULAR);
    registered.map_err(|_| anyhow!("the font of the charts is invalid"))
}

/// The chart as a PNG file.
///
/// # Errors
/// When it cannot be drawn.
pub fn png(chart: &Chart) -> anyhow::Result<Vec<u8>> {
    let (width, height) = SIZE;
    let mut pixels = vec![0; width as usize * height as usize * PIXEL];
    chart.draw(&BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
    encode(&pixels).context(chart.title)
}

fn encode(pixels: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (width, height) = SIZE;
    let mut file = SIGNATURE.to_vec();
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &FORMAT].concat();
    chunk(&mut file, b"IHDR", &header)?;
    let row = width as usize * PIXEL;
    let mut above = vec![0; row];
    let mut compressed = ZlibEncoder::new(Vec::new(), Compression::best());
    for pixels in pixels.chunks(row) {
        let differences = pixels.iter().zip(&above).map(|(byte, above)| byte.wrapping_sub(*above));
        let filtered: Vec<u8> = std::iter::once(UP).chain(differences).collect();
        compressed.write_all(&filtered)?;
        above.copy_from_slice(pixels);
    }
    chunk(&mut file, b"IDAT", &compressed.finish()?)?;
    chunk(&mut file, b"IEND", &[])?;
    Ok(file)
}

/// A chunk: its length, kind, content and checksum.
fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) -> anyhow::Result<()> {
    let mut checksum = Crc::new();
    checksum.update(kind);
    checksum.update(content);
    file.extend(u32::try_from(content.len())?.to_be_bytes());
    file.extend(kind);
    file.extend(content);
    file.extend(checksum.sum().to_be_bytes());
    Ok(())
}
