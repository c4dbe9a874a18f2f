//! The report as charts, each as SVG and, with the feature `png-charts`, as PNG.

#[cfg(feature = "png-charts")]
mod png;

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::full_palette::GREY_500;

use crate::simulate::Report;

/// Pixels of a chart.
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

/// A chart, for any format.
struct Chart<'r> {
    title: &'static str,
    /// Seconds between values.
    step: f64,
    /// The largest value that must fit.
    most: f64,
    lines: Vec<Line<'r>>,
}

/// Draws all charts into a folder.
///
/// # Errors
/// When a file cannot be written.
pub fn draw(report: &Report, folder: &Path) -> anyhow::Result<()> {
    #[cfg(feature = "png-charts")]
    png::use_own_font()?;
    for (name, chart) in [("gpus", cluster(report)), ("queues", queues(report))] {
        write(&folder.join(name).with_extension("svg"), svg(&chart)?.as_bytes())?;
        #[cfg(feature = "png-charts")]
        write(&folder.join(name).with_extension("png"), &png::png(&chart)?)?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| path.display().to_string())
}

fn svg(chart: &Chart) -> anyhow::Result<String> {
    let mut text = String::new();
    chart.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
    Ok(text)
}

fn cluster(report: &Report) -> Chart<'_> {
    Chart {
        title: "GPUs, as shares",
        step: report.step_seconds,
        most: 1.0,
        lines: vec![
            line("allocated", BLUE, &report.allocated),
            line("fragmentation of the free ones", RED, &report.fragmented),
        ],
    }
}

fn queues(report: &Report) -> Chart<'_> {
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
    Chart {
        title: "GPUs of queues",
        step: report.step_seconds,
        most,
        lines,
    }
}

fn line<'r>(name: &str, colour: RGBColor, values: &'r [f64]) -> Line<'r> {
    Line {
        name: name.to_owned(),
        colour,
        thin: false,
        values,
    }
}

impl Chart<'_> {
    /// Draws it on any backend.
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> anyhow::Result<()> {
        self.draw_on(area).map_err(|error| anyhow!("{}: {error}", self.title))
    }

    fn draw_on<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let steps = self
            .lines
            .iter()
            .map(|line| line.values.len())
            .max()
            .unwrap_or_default();
        let (unit, seconds) = match self.step * steps as f64 {
            ..600.0 => ("seconds", 1.0),
            600.0..36_000.0 => ("minutes", 60.0),
            36_000.0..864_000.0 => ("hours", 3_600.0),
            _ => ("days", 86_400.0),
        };
        area.fill(&WHITE)?;
        let end = (self.step * steps as f64 / seconds).max(f64::MIN_POSITIVE);
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..end, 0.0..self.most * 1.05)?;
        chart
            .configure_mesh()
            .x_desc(unit)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for Line {
            name,
            colour,
            thin,
            values,
        } in &self.lines
        {
            let width = if *thin { 1 } else { 2 };
            // Values are constant within a step.
            let points = values.iter().enumerate().flat_map(|(at, value)| {
                let at = at as f64;
                [at, at + 1.0].map(|at| (at * self.step / seconds, *value))
            });
            let series = LineSeries::new(points, colour.stroke_width(width));
            let colour = *colour;
            chart
                .draw_series(series)?
                .label(name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(width)));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(GREY_500)
            .draw()?;
        area.present()
    }
}
