//! Patterns of names.

/// Returns whether a text is like a pattern: `*` stands for any text, `?` for any character, `\` takes the meaning of the next one away. It
/// takes no longer than the product of both lengths, whatever the pattern is.
pub(crate) fn matches(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and where in the text it is tried.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('\\') if p + 1 < pattern.len() => (pattern[p + 1] == text[t]).then_some(2),
            Some(c) => (*c == text[t]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(step), _) => (p, t) = (p + step, t + 1),
            (None, Some((behind, tried))) => {
                star = Some((behind, tried + 1));
                (p, t) = (behind, tried + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
#[path = "../../../tests/white_box/lock/glob.rs"]
mod tests;
