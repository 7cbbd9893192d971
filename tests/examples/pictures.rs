//! The pictures of the manual, as SVG: how a lock is handed over, and the times of a lease.
//!
//! ```sh
//! cargo run --example pictures
//! ```
//!
//! It writes them to src/manual/pictures, and to src/manual/pictures.md what shows them in the crate's documentation, where no file can stand beside
//! a page. A test compares both with what this program makes.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|path| path.join("ARCHITECTURE.md").exists());
    let root = root.ok_or("this is built outside the repository")?;
    for (path, text) in files() {
        std::fs::write(root.join(path), text)?;
    }
    Ok(())
}

/// Each file with its text.
pub(crate) fn files() -> Vec<(String, String)> {
    let pictures = [("hand_over.svg", hand_over()), ("lease.svg", lease())];
    let labels: String =
        pictures.iter().map(|(name, text)| format!("[{name}]: data:image/svg+xml,{}\n", encoded(text))).collect();
    let files = pictures.into_iter().map(|(name, text)| (format!("src/manual/pictures/{name}"), text));
    files.chain([("src/manual/pictures.md".to_owned(), labels)]).collect()
}

/// A text as a part of a URL.
fn encoded(text: &str) -> String {
    let mut url = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/:=,;".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// The lease of the picture, in seconds, and the lock-delay.
const LEASE: u32 = 30;
const DELAY: u32 = 6;

/// How wide a second is.
const SECOND: u32 = 20;

/// A picture that is being drawn. All numbers are pixels.
struct Picture {
    text: String,
}

impl Picture {
    fn new(width: u32, height: u32, title: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"14\">\n<title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        Self { text }
    }

    fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn say(&mut self, x: u32, y: u32, anchor: &str, words: &str) {
        let _ = writeln!(self.text, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>");
    }

    fn line(&mut self, from: (u32, u32), to: (u32, u32), look: &str) {
        let _ = writeln!(
            self.text,
            "<path d=\"M{} {}L{} {}\" stroke=\"#333\" fill=\"none\"{look}/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line with a head at its end. It is level or upright.
    fn arrow(&mut self, from: (u32, u32), to: (u32, u32)) {
        self.line(from, to, "");
        let (x, y) = to;
        let head = match (from.0.cmp(&x), from.1.cmp(&y)) {
            (std::cmp::Ordering::Less, _) => format!("{},{} {},{}", x - 9, y - 4, x - 9, y + 4),
            (std::cmp::Ordering::Greater, _) => format!("{},{} {},{}", x + 9, y - 4, x + 9, y + 4),
            (_, std::cmp::Ordering::Less) => format!("{},{} {},{}", x - 4, y - 9, x + 4, y - 9),
            _ => format!("{},{} {},{}", x - 4, y + 9, x + 4, y + 9),
        };
        let _ = writeln!(self.text, "<polygon points=\"{x},{y} {head}\" fill=\"#333\"/>");
    }

    fn bar(&mut self, x: u32, y: u32, width: u32, height: u32, colour: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" stroke=\"#333\"/>"
        );
    }
}

const HELD: &str = "#cde5cd";
const WAITS: &str = "#f6e3bd";
const DELAYED: &str = "#e3d3e8";

fn hand_over() -> String {
    let mut picture = Picture::new(860, 430, "How a lock is handed over");
    let (a, server, b) = (130, 430, 730);
    for (x, name) in [(a, "process A"), (server, "Redis"), (b, "process B")] {
        picture.say(x, 26, "middle", name);
        picture.line((x, 36), (x, 415), " stroke-dasharray=\"3 4\"");
    }
    picture.bar(a - 6, 44, 12, 226, HELD);
    picture.bar(a - 6, 320, 12, 95, WAITS);
    picture.bar(b - 6, 90, 12, 248, WAITS);
    picture.bar(b - 6, 338, 12, 77, HELD);
    picture.say(a - 14, 64, "end", "A holds");
    picture.say(a - 14, 80, "end", "the lock");
    // B asks.
    picture.arrow((b - 6, 100), (server, 100));
    picture.say(580, 92, "middle", "B asks, and wants to wait");
    picture.say(b + 14, 106, "start", "B waits");
    picture.say(server + 10, 128, "start", "queue: B");
    // A is told.
    picture.arrow((server, 150), (a + 6, 150));
    picture.say(285, 142, "middle", "message: others wait");
    picture.say(a + 14, 180, "start", "A passes the lock on among its threads,");
    picture.say(a + 14, 198, "start", "at most 16 times or for 10 ms");
    // A releases, and waits itself.
    picture.arrow((a + 6, 270), (server, 270));
    picture.say(285, 262, "middle", "A releases, and names its next waiter");
    picture.say(server + 10, 266, "start", "in one step: the lock is B's,");
    picture.say(server + 10, 284, "start", "with the next number;");
    picture.say(server + 10, 302, "start", "queue: A");
    picture.arrow((server, 338), (b - 6, 338));
    picture.say(580, 330, "middle", "message: granted");
    picture.arrow((server, 320), (a + 6, 320));
    picture.say(285, 312, "middle", "released");
    picture.say(a - 14, 350, "end", "A waits");
    picture.say(b + 14, 360, "start", "B holds");
    picture.say(b + 14, 378, "start", "the lock, and");
    picture.say(b + 14, 396, "start", "asks nobody");
    picture.end()
}

fn lease() -> String {
    let mut picture = Picture::new(900, 400, "The times of a lease");
    let left = 120;
    let at = |second: u32| left + second * SECOND;
    // What the store does.
    picture.say(left - 12, 64, "end", "the server");
    picture.bar(at(0) + 6, 46, LEASE * SECOND, 28, HELD);
    picture.bar(at(LEASE) + 6, 46, DELAY * SECOND, 28, DELAYED);
    picture.say(at(0) + 16, 65, "start", "keeps the key, if nothing is renewed");
    picture.say(at(LEASE) + 14, 65, "start", "lock-delay");
    // What the holder does: its lease is over earlier by the margin, and began earlier, too.
    picture.say(left - 12, 154, "end", "the holder");
    let margin = 9;
    picture.bar(at(0), 136, LEASE * SECOND - margin, 28, HELD);
    picture.say(at(0) + 10, 155, "start", "counts on the lease");
    picture.line((at(0), 36), (at(0), 200), " stroke-dasharray=\"3 4\"");
    picture.say(at(0), 30, "middle", "the command is sent");
    picture.say(at(0) + 10, 96, "start", "it arrives later: the server's lease ends later");
    let deadline = at(LEASE) - margin;
    picture.line((deadline, 110), (deadline, 200), " stroke-dasharray=\"3 4\"");
    picture.say(deadline - 6, 124, "end", "deadline: 1 % of the lease early");
    picture.say(deadline + 14, 155, "start", "the hold is lost");
    // Probes and the renewal.
    for probe in 1..6 {
        let x = at(probe * LEASE / 6);
        picture.arrow((x, 230), (x, 164));
    }
    picture.say(at(0), 250, "start", "probes, every sixth of the lease: is the key still mine?");
    let renewal = left + LEASE * SECOND * 3 / 4;
    picture.bar(renewal, 262, deadline - renewal, 28, WAITS);
    picture.arrow((renewal, 322), (renewal, 164));
    picture.say(renewal - 8, 281, "end", "renewal at 75 %");
    picture.say(renewal + 8, 281, "start", "tried again");
    picture.say(at(0), 324, "start", "A renewal that is answered gives the full lease again, from when it was sent.");
    // The axis.
    picture.line((at(0), 360), (at(LEASE + DELAY) + 20, 360), "");
    for second in (0..=LEASE + DELAY).step_by(5) {
        picture.line((at(second), 355), (at(second), 365), "");
        picture.say(at(second), 384, "middle", &format!("{second} s"));
    }
    picture.end()
}
