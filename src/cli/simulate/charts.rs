//! The report as charts.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::full_palette::GREY_500;

use crate::simulate::Report;

const SIZE: (u32, u32) = (1_200, 500);
/// Queues in a chart: those with the most GPUs.
const QUEUES: usize = 8;

/// A line of a chart: its name, its colour, whether it is thin, its values step by step.
struct Line<'r> {
    name: String,
    colour: RGBColor,
    thin: bool,
    values: &'r [f64],
}

/// Draws all charts into a folder.
///
/// # Errors
/// When a file cannot be written.
pub fn draw(report: &Report, folder: &Path) -> anyhow::Result<()> {
    let cluster = [
        line("allocated", BLUE, &report.allocated),
        line("fragmentation of the free ones", RED, &report.fragmented),
    ];
    chart(
        &folder.join("gpus.svg"),
        "GPUs, as shares",
        report.step_seconds,
        1.0,
        &cluster,
    )?;
    let mut queues: Vec<_> = report.queues.iter().collect();
    queues.sort_by(|one, other| other.mean_allocated.total_cmp(&one.mean_allocated));
    let lines = queues.iter().take(QUEUES).enumerate().flat_map(|(at, queue)| {
        let RGBAColor(red, green, blue, _) = Palette99::pick(at).to_rgba();
        let colour = RGBColor(red, green, blue);
        let fair = Line {
            thin: true,
            ..line(&format!("{}, fair share", queue.name), colour, &queue.fair_share)
        };
        [
            line(&format!("{}, allocated", queue.name), colour, &queue.allocated),
            fair,
        ]
    });
    let lines: Vec<Line> = lines.collect();
    let most = lines.iter().flat_map(|line| line.values).copied().fold(1.0, f64::max);
    chart(
        &folder.join("queues.svg"),
        "GPUs of queues",
        report.step_seconds,
        most,
        &lines,
    )
}

fn line<'r>(name: &str, colour: RGBColor, values: &'r [f64]) -> Line<'r> {
    Line {
        name: name.to_owned(),
        colour,
        thin: false,
        values,
    }
}

fn chart(path: &Path, title: &str, step: f64, most: f64, lines: &[Line]) -> anyhow::Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    let steps = lines.iter().map(|line| line.values.len()).max().unwrap_or_default();
    let (unit, seconds) = match step * steps as f64 {
        ..600.0 => ("seconds", 1.0),
        600.0..36_000.0 => ("minutes", 60.0),
        36_000.0..864_000.0 => ("hours", 3_600.0),
        _ => ("days", 86_400.0),
    };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let end = (step * steps as f64 / seconds).max(f64::MIN_POSITIVE);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..end, 0.0..most * 1.05)
        .map_err(|error| failed(&error))?;
    let mesh = chart.configure_mesh().x_desc(unit).light_line_style(TRANSPARENT).draw();
    mesh.map_err(|error| failed(&error))?;
    for Line {
        name,
        colour,
        thin,
        values,
    } in lines
    {
        let width = if *thin { 1 } else { 2 };
        // Values are constant within a step.
        let points = values.iter().enumerate().flat_map(|(at, value)| {
            let at = at as f64;
            [at, at + 1.0].map(|at| (at * step / seconds, *value))
        });
        let series = LineSeries::new(points, colour.stroke_width(width));
        let drawn = chart.draw_series(series).map_err(|error| failed(&error))?;
        let colour = *colour;
        drawn
            .label(name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(width)));
    }
    let labels = chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(GREY_500)
        .draw();
    labels.map_err(|error| failed(&error))?;
    area.present().map_err(|error| failed(&error))
}
