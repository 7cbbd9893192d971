//! Pictures, as SVG.

use plotters::prelude::*;
use std::path::Path;

/// A line with its name.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What is drawn, and in which scale.
pub(crate) struct Picture<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) log_x: bool,
    pub(crate) lines: Vec<Line>,
}

impl Picture<'_> {
    pub(crate) fn draw(&self, file: &Path) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = points().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
        let y = 0.0..points().fold(0.0, |high: f64, (_, y)| high.max(*y)) * 1.1;
        let root = SVGBackend::new(file, (900, 500)).into_drawing_area();
        root.fill(&WHITE).unwrap();
        let mut builder = ChartBuilder::on(&root);
        builder.caption(self.title, ("sans-serif", 20)).margin(15);
        builder.x_label_area_size(40).y_label_area_size(70);
        // A macro, because the two kinds of axes make charts of two types.
        macro_rules! draw {
            ($x:expr) => {{
                let mut chart = builder.build_cartesian_2d($x, y).unwrap();
                chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw().unwrap();
                for (i, line) in self.lines.iter().enumerate() {
                    let style = Palette99::pick(i).stroke_width(2);
                    chart
                        .draw_series(LineSeries::new(line.points.iter().copied(), style))
                        .unwrap()
                        .label(&line.name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
                }
                chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().unwrap();
            }};
        }
        if self.log_x {
            draw!((x.0..x.1).log_scale());
        } else {
            draw!(x.0..x.1);
        }
        root.present().unwrap();
    }
}
