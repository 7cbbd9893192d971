//! Medians of interleaved rounds, and percentiles.

/// One way to do it: a round of it, and the figure that it gives.
pub(crate) type Variant<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// Runs all variants in turn, as many rounds; each round begins with another one, and the first round of all is thrown away.
/// The figures of each variant, round by round.
pub(crate) fn interleave(rounds: usize, variants: &mut [Variant<'_>]) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::new(); variants.len()];
    for round in 0..=rounds {
        for turn in 0..variants.len() {
            let i = (round + turn) % variants.len();
            let figure = variants[i]();
            if round > 0 {
                figures[i].push(figure);
            }
        }
    }
    figures
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50.0)
}

pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((n - 1) as f64 * percent / 100.0).round() as usize],
    }
}

/// The median over the rounds of what the one was relative to the other in the same round: what slows down a whole round does not count.
pub(crate) fn ratio(values: &[f64], base: &[f64]) -> f64 {
    median(&values.iter().zip(base).map(|(value, base)| value / base).collect::<Vec<_>>())
}
