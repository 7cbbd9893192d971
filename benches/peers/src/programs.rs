//! Locks for other languages, each a program that works when it is told to.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A running program. Dropping it ends its input, and so the program.
pub struct Program {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    child: Child,
}

impl Program {
    /// Starts a program, whose words are separated by tabs, with two further arguments.
    pub fn start(words: &str, port: u16, threads: usize) -> Self {
        let mut words = words.split('\t');
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args([port.to_string(), threads.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { input, output: BufReader::new(output), child }
    }

    /// Lets it work for a while. Returns its pairs a second.
    pub fn work(&mut self, window: Duration) -> f64 {
        writeln!(self.input.as_ref().expect("it was not dropped"), "{}", window.as_millis()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().expect("pairs a second")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
