use super::{charts, text};
use crate::simulate::{Report, Scenario, run};

fn report() -> Report {
    let scenario = Scenario::read(
        "{nodes: [{name: n, gpus: 4}], workloads: [
            {name: low, queue: q, gpus: 4, duration: 100s},
            {name: high, queue: q, gpus: 2, priority: 75, at: 50s, duration: 10m},
            {name: large, queue: q, gpus: 8, duration: 1s}]}",
    );
    run(&scenario.expect("a scenario"), Vec::new(), Vec::new(), &mut |_, _| ()).expect("it makes sense")
}

#[test]
fn the_report_is_printed_and_charts_are_written() {
    let report = report();
    let table = text::table(&report);
    for part in [
        "jobs began",
        "evictions: preempt 1; work lost:",
        "waits: large:",
        "wait until the start, by GPUs",
        "queue (GPUs)",
    ] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    charts::draw(&report, folder.path()).expect("charts are drawn");
    for (file, part) in [
        ("gpus.svg", "fragmentation of the free ones"),
        ("queues.svg", "q, fair share"),
    ] {
        let svg = std::fs::read_to_string(folder.path().join(file)).expect(file);
        assert!(svg.starts_with("<svg") && svg.contains(part), "{file}");
    }
}

#[test]
fn names_in_a_trace_neither_control_the_terminal_nor_look_like_other_rows() {
    let mut report = report();
    report.problems = vec!["Job \u{7}\nwaits: forged".to_owned()];
    report.reasons[0].0 = "large\u{1b}[2J\nwaits: forged".to_owned();
    report.queues[0].name = "q\u{9b}31m\nforged".to_owned();
    let text = text::table(&report);
    for line in [
        "\nnot usable: Job \\u{7}\\nwaits: forged\n",
        "\nwaits: large\\u{1b}[2J\\nwaits: forged: ",
        "\nq\\u{9b}31m\\nforged ",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

/// Width, height and pixels of a PNG file, read by the rules of the format.
#[cfg(feature = "png-charts")]
fn pixels(file: &[u8]) -> (u32, u32, Vec<[u8; 3]>) {
    use std::io::Read;

    let mut rest = file
        .strip_prefix(b"\x89PNG\r\n\x1a\n")
        .expect("the signature of the format");
    let (mut header, mut data, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (named, after) = after.split_at(4 + u32::from_be_bytes(*length) as usize);
        let (sum, after) = after.split_first_chunk::<4>().expect("a checksum");
        let mut checksum = flate2::Crc::new();
        checksum.update(named);
        assert_eq!(checksum.sum(), u32::from_be_bytes(*sum), "the checksum of a chunk");
        match &named[..4] {
            b"IHDR" => header.extend_from_slice(&named[4..]),
            b"IDAT" => data.extend_from_slice(&named[4..]),
            _ => {}
        }
        kinds.push(named[..4].to_vec());
        rest = after;
    }
    assert_eq!(kinds, [b"IHDR", b"IDAT", b"IEND"]);
    assert_eq!(
        header[8..],
        [8, 2, 0, 0, 0],
        "eight bits for each of red, green and blue"
    );
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (width, height) = (number(0), number(4));
    let mut rows = Vec::new();
    flate2::read::ZlibDecoder::new(&*data)
        .read_to_end(&mut rows)
        .expect("zlib");
    let row = width as usize * 3;
    assert_eq!(rows.len(), (row + 1) * height as usize);
    let mut above = vec![0_u8; row];
    let mut pixels = Vec::new();
    for filtered in rows.chunks(row + 1) {
        assert_eq!(filtered[0], 2, "the filter that adds the row above");
        for (byte, difference) in above.iter_mut().zip(&filtered[1..]) {
            *byte = byte.wrapping_add(*difference);
        }
        pixels.extend(above.chunks(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
    }
    (width, height, pixels)
}

#[cfg(feature = "png-charts")]
#[test]
fn each_chart_is_written_as_png_too_with_its_lines_and_its_text() {
    const WHITE: [u8; 3] = [255; 3];
    let mut report = report();
    let drawn = |report: &Report| {
        let folder = tempfile::tempdir().expect("a folder");
        charts::draw(report, folder.path()).expect("charts are drawn");
        ["gpus", "queues"].map(|name| {
            let file = folder.path().join(name).with_extension("png");
            let (width, height, pixels) = pixels(&std::fs::read(file).expect(name));
            assert_eq!((width, height), (1_200, 500), "{name}");
            pixels
        })
    };
    let count = |pixels: &[[u8; 3]], colour: [u8; 3]| pixels.iter().filter(|pixel| **pixel == colour).count();
    let [gpus, queues] = drawn(&report);
    // The lines: blue is what is allocated, red the fragmentation.
    assert!(
        count(&gpus, [0, 0, 255]) > 1_000,
        "{} blue pixels",
        count(&gpus, [0, 0, 255])
    );
    assert!(
        count(&gpus, [255, 0, 0]) > 1_000,
        "{} red pixels",
        count(&gpus, [255, 0, 0])
    );
    // The title, in the middle of the uppermost rows: grey between black and white, as only text has it there.
    let title = &gpus[..35 * 1_200];
    let grey = |pixel: &&[u8; 3]| **pixel != WHITE && pixel[0] == pixel[1] && pixel[1] == pixel[2];
    let inked = title.iter().filter(grey).count();
    assert!((200..4_000).contains(&inked), "{inked} pixels of the title");
    // Another name of the queue is another text in the legend, and changes nothing else: the same rows as the legend.
    report.queues[0].name = "a-much-longer-name".to_owned();
    let [same, renamed] = drawn(&report);
    assert!(same == gpus, "the chart of the cluster names no queues");
    let changed: Vec<usize> = (0..queues.len()).filter(|at| queues[*at] != renamed[*at]).collect();
    assert!(changed.len() > 200, "{} pixels changed", changed.len());
    assert!(changed.iter().all(|at| at % 1_200 > 800), "the legend is at the right");
}
