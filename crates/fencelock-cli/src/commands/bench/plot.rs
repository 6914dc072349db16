//! Plots as SVG, by hand: bars that lie, and lines over steps. Colours and fonts are the page's; no meaning is in a
//! colour alone.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ticks of a scale, a dozen at most")]

use std::fmt::Write as _;

/// Of every plot. The heights go by what is in it.
const WIDTH: f64 = 760.0;
/// Before the first mark: the figures of an upright axis.
const LEFT: f64 = 64.0;
/// Behind the longest bar: its figure.
const RIGHT: f64 = 150.0;
/// A line of text, or a bar with its gap.
const LINE: f64 = 18.0;
/// Colours and shapes, by which lines are told apart.
pub(super) const COLOURS: usize = 8;
const SHAPES: [&str; 5] =
    ["M-4-4h8v8h-8z", "M0-5 5 4H-5z", "M0-6 6 0 0 6-6 0z", "M0 5 5-4H-5z", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0"];

/// What a plot says beside its marks.
pub(super) struct Plot<'a> {
    /// Unique in its page.
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    /// What the values are, and their unit.
    pub(super) axis: &'a str,
    /// A value as it is written.
    pub(super) figure: fn(f64) -> String,
}

/// Bars that belong together.
pub(super) struct Group {
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    /// `ours` or `bare`, and what that means.
    pub(super) class: &'static str,
    pub(super) what: &'static str,
    pub(super) value: f64,
}

pub(super) struct Line {
    pub(super) name: String,
    /// Which of the colours and shapes.
    pub(super) style: usize,
    pub(super) dashed: bool,
    /// Which of the steps, and the value there.
    pub(super) points: Vec<(usize, f64)>,
}

/// Text, or the value of an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Bars from the left, a group below the other; dots where the values span decades: a bar's length would lie there.
pub(super) fn bars(plot: &Plot<'_>, groups: &[Group]) -> String {
    let all = || groups.iter().flat_map(|group| &group.bars);
    let scale = Scale::over(all().map(|bar| bar.value), LEFT, WIDTH - RIGHT);
    let mut sides: Vec<_> = all().map(|bar| (bar.class, bar.what)).collect();
    sides.sort_unstable();
    sides.dedup();
    sides.reverse();
    let (mut svg, mut said) = (String::new(), Vec::new());
    for (n, (class, what)) in sides.iter().enumerate() {
        let x = LEFT + 170.0 * n as f64;
        let _ = write!(
            svg,
            "<rect class='mark {class}' x={x} y=4 width=12 height=12 /><text x={} y=14>{what}</text>",
            x + 18.0
        );
    }
    let top = 1.5 * LINE;
    let height: f64 = groups.iter().map(|group| LINE * (1.5 + group.bars.len() as f64)).sum();
    let bottom = top + height;
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let _ = write!(svg, "<path class=grid d='M{x:.1} {top}V{bottom}' />");
        let _ = write!(
            svg,
            "<text class=tick x={x:.1} y={} text-anchor=middle>{}</text>",
            bottom + 16.0,
            (plot.figure)(tick)
        );
    }
    let mut y = top;
    for group in groups {
        y += LINE;
        let label = escape(&group.label);
        let _ = write!(svg, "<text class=name x={LEFT} y={:.1}>{label}</text>", y - 4.0);
        for Bar { class, what, value } in &group.bars {
            let (x, middle, figure) = (scale.at(*value), y + LINE / 2.0 - 2.0, (plot.figure)(*value));
            let about = format!("<title>{label}: {figure} {what}</title>");
            let _ = if scale.log {
                write!(
                    svg,
                    "<path class=grid d='M{LEFT} {middle}H{x:.1}' />\
                     <circle class='mark {class}' cx={x:.1} cy={middle} r=6>{about}</circle>"
                )
            } else {
                let width = (x - LEFT).max(1.0);
                write!(svg, "<rect class='mark {class}' x={LEFT} y={y} width={width:.1} height=14>{about}</rect>")
            };
            let _ = write!(svg, "<text class=figure x={:.1} y={:.1}>{figure}</text>", x + 10.0, middle + 4.0);
            said.push(format!("{label}: {figure} {what}"));
            y += LINE;
        }
        y += LINE / 2.0;
    }
    let title = axis_title(plot, &scale);
    let _ = write!(
        svg,
        "<text class=axis x={:.1} y={} text-anchor=middle>{title}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        bottom + 36.0
    );
    framed(plot, bottom + 44.0, &said.join("; "), &svg)
}

/// Lines from step to step: the steps are evenly spaced, whatever they are.
pub(super) fn lines(plot: &Plot<'_>, steps: &[usize], across: &str, lines: &[Line]) -> String {
    const TOP: f64 = 24.0;
    const HEIGHT: f64 = 260.0;
    let scale = Scale::over(lines.iter().flat_map(|line| &line.points).map(|point| point.1), TOP + HEIGHT, TOP);
    let space = (WIDTH - LEFT - 40.0) / steps.len().max(1) as f64;
    let x = |step: usize| LEFT + space * (step as f64 + 0.5);
    let (mut svg, mut said) = (String::new(), Vec::new());
    let _ = write!(svg, "<text class=axis x=4 y=12>{}</text>", axis_title(plot, &scale));
    for tick in scale.ticks() {
        let y = scale.at(tick);
        let _ = write!(svg, "<path class=grid d='M{LEFT} {y:.1}H{}' />", WIDTH - 40.0);
        let _ = write!(
            svg,
            "<text class=tick x={} y={:.1} text-anchor=end>{}</text>",
            LEFT - 8.0,
            y + 4.0,
            (plot.figure)(tick)
        );
    }
    for (n, step) in steps.iter().enumerate() {
        let _ =
            write!(svg, "<text class=tick x={:.1} y={} text-anchor=middle>{step}</text>", x(n), TOP + HEIGHT + LINE);
    }
    let below = TOP + HEIGHT + 2.0 * LINE;
    let _ = write!(
        svg,
        "<text class=axis x={:.1} y={below} text-anchor=middle>{across}</text>",
        (LEFT + WIDTH - 40.0) / 2.0
    );
    // Two in a row, the median and the p99 of one engine, if there is room for what they are called.
    let in_a_row = if lines.iter().all(|line| line.name.chars().count() <= 44) { 2 } else { 1 };
    for (n, Line { name, style, dashed, points }) in lines.iter().enumerate() {
        let (colour, shape, name) = (style % COLOURS, SHAPES[style % SHAPES.len()], escape(name));
        let class = format!("c{colour}{}", if *dashed { " dashed" } else { "" });
        let path: Vec<_> =
            points.iter().map(|(step, value)| format!("{:.1} {:.1}", x(*step), scale.at(*value))).collect();
        let _ = write!(svg, "<path class='line {class}' d='M{}' />", path.join("L"));
        for ((step, value), at) in points.iter().zip(&path) {
            let (figure, step) = ((plot.figure)(*value), steps[*step]);
            let _ = write!(
                svg,
                "<path class='mark {class}' transform='translate({at})' d='{shape}'>\
                 <title>{name}, {step}: {figure}</title></path>"
            );
            said.push(format!("{name}, {step}: {figure}"));
        }
        let (left, y) = (LEFT + 340.0 * (n % in_a_row) as f64, below + LINE * (1.5 + (n / in_a_row) as f64));
        let _ = write!(
            svg,
            "<path class='line {class}' d='M{left} {y}h36' />\
             <path class='mark {class}' transform='translate({} {y})' d='{shape}' />",
            left + 18.0
        );
        let _ = write!(svg, "<text x={} y={:.1}>{name}</text>", left + 44.0, y + 4.0);
    }
    let height = below + LINE * (2.0 + lines.len().div_ceil(in_a_row) as f64);
    framed(plot, height, &said.join("; "), &svg)
}

fn axis_title(plot: &Plot<'_>, scale: &Scale) -> String {
    format!("{}{}", plot.axis, if scale.log { " (logarithmic)" } else { "" })
}

fn framed(plot: &Plot<'_>, height: f64, said: &str, marks: &str) -> String {
    let Plot { id, title, .. } = plot;
    format!(
        "<svg id={id} role=img aria-labelledby='{id}-title {id}-desc' width={WIDTH} height={height} \
         viewBox='0 0 {WIDTH} {height}'>\
         <title id={id}-title>{title}</title><desc id={id}-desc>{said}</desc>{marks}</svg>\n"
    )
}

/// From values to places.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From nought to a round number, or by decades where the least would be too small to be seen beside the greatest.
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if most > 30.0 * least {
            let (low, high) = (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
            return Self { log: true, low, high, from, to };
        }
        let step = step(most);
        Self { log: false, low: 0.0, high: ((most / step).ceil() * step).max(step), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|n| self.low * 10_f64.powi(n)).collect();
        }
        let step = step(self.high);
        (0..=(self.high / step).round() as u32).map(|n| f64::from(n) * step).collect()
    }
}

/// 1, 2 or 5 times a power of ten: some five of them make so much.
fn step(most: f64) -> f64 {
    let rough = if most > 0.0 { most / 5.0 } else { 1.0 };
    let decade = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_every_value_and_round_ticks() {
        let scale = Scale::over([420.0, 73.0, 0.0].into_iter(), 100.0, 200.0);
        assert_eq!((scale.log, scale.ticks()), (false, vec![0.0, 100.0, 200.0, 300.0, 400.0, 500.0]));
        assert_eq!((scale.at(0.0), scale.at(250.0), scale.at(500.0)), (100.0, 150.0, 200.0));
        let scale = Scale::over([70_000.0, 250.0, 0.0].into_iter(), 300.0, 0.0);
        let ticks: Vec<_> = scale.ticks().iter().map(|tick| tick.round()).collect();
        assert_eq!((scale.log, ticks), (true, vec![100.0, 1_000.0, 10_000.0, 100_000.0]));
        assert!((scale.at(1_000.0) - 200.0).abs() < 1e-6 && (scale.at(0.0) - 300.0).abs() < 1e-6);
        for most in [0.0, 0.3, 1.0, 9.9, 10.0, 11.0, 123_456.0] {
            let scale = Scale::over([most].into_iter(), 0.0, 1.0);
            let ticks = scale.ticks();
            assert!((2..=12).contains(&ticks.len()) && scale.high >= most, "{most}: {ticks:?}");
        }
    }
}
