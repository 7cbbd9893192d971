//! What a worker process is told to do: a line of words.

use std::fmt;
use std::str::FromStr;

/// The lock that all workers want.
pub(crate) const KEY: (&str, &str, &str) = ("FAULTS", "x", "DLOCK_FAULTS_x");

/// What a worker process is to do; times in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) url: String,
    /// The ports that the process must write in the place of others that Sentinels or nodes tell.
    pub(crate) ports: PortMap,
    /// How many replicas must have confirmed what a hold rests on, within a third of `io`.
    pub(crate) acks: u8,
    /// Where the history goes.
    pub(crate) file: String,
    /// The port of the fenced store.
    pub(crate) fenced: u16,
    /// The locks on other nodes.
    pub(crate) elsewhere: Others,
    pub(crate) process: u32,
    pub(crate) threads: u32,
    pub(crate) lease: u64,
    /// The shortest and the longest hold, and the pause between two.
    pub(crate) hold: (u64, u64),
    pub(crate) pause: u64,
    /// How many of a hundred acquires are `try_lock` and `try_lock_for`, how many of the others are campaigns of leaders, and how many holds are
    /// reentered.
    pub(crate) tries: u64,
    pub(crate) leads: u64,
    pub(crate) reentries: u64,
    /// Whether all acquires are for several locks at once.
    pub(crate) together: bool,
    /// How many of a hundred guards and holds keep the lock from everybody for a while after their end, and for how long at most.
    pub(crate) delays: (u64, u64),
    pub(crate) io: u64,
    pub(crate) listener: bool,
    pub(crate) seed: u64,
}

impl Work {
    /// Returns the file with the history of a lock that is taken together with the scene's own.
    pub(crate) fn file_beside(&self, target: &str) -> String {
        format!("{}-{target}", self.file)
    }

    /// Where the history of a lock on another node goes.
    pub(crate) fn file_of_other(&self, n: usize) -> String {
        format!("{}-{n}", self.file)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, ports, acks, file, fenced, elsewhere, process, threads, lease, hold, .. } = self;
        let Self { pause, tries, leads, reentries, together, delays, io, listener, seed, .. } = self;
        let ((shortest, longest), (delayed, delay)) = (hold, delays);
        write!(
            f,
            "{url} {ports} {acks} {file} {fenced} {elsewhere} {process} {threads} {lease} {shortest} {longest} "
        )?;
        write!(f, "{pause} {tries} {leads} {reentries} {together} {delayed} {delay} {io} {listener} {seed}")
    }
}

impl FromStr for Work {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or("");
        Ok(Self {
            url: word().to_owned(),
            ports: word().parse()?,
            acks: word().parse()?,
            file: word().to_owned(),
            fenced: word().parse()?,
            elsewhere: word().parse()?,
            process: word().parse()?,
            threads: word().parse()?,
            lease: word().parse()?,
            hold: (word().parse()?, word().parse()?),
            pause: word().parse()?,
            tries: word().parse()?,
            leads: word().parse()?,
            reentries: word().parse()?,
            together: word() == "true",
            delays: (word().parse()?, word().parse()?),
            io: word().parse()?,
            listener: word() == "true",
            seed: word().parse()?,
        })
    }
}

/// Pairs of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortMap(pub(crate) Vec<(u16, u16)>);

impl PortMap {
    pub(crate) fn get(&self, port: u16) -> u16 {
        self.0.iter().find(|(from, _)| *from == port).map_or(port, |(_, to)| *to)
    }
}

/// `1=2,3=4`, or `-`.
impl fmt::Display for PortMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<_> = self.0.iter().map(|(from, to)| format!("{from}={to}")).collect();
        f.write_str(if pairs.is_empty() { "-" } else { "" })?;
        f.write_str(&pairs.join(","))
    }
}

impl FromStr for PortMap {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(from, to)| Ok((from.parse()?, to.parse()?))).collect::<Result<_, _>>().map(Self)
    }
}

/// A lock on another node: what makes its key, its fenced store, and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) target: String,
    pub(crate) fenced: u16,
    pub(crate) lease: u64,
    pub(crate) hold: (u64, u64),
    /// Whether all processes want it, or the first one alone.
    pub(crate) is_for_all: bool,
}

/// Some of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others(pub(crate) Vec<Other>);

impl FromIterator<Other> for Others {
    fn from_iter<I: IntoIterator<Item = Other>>(others: I) -> Self {
        Self(others.into_iter().collect())
    }
}

/// `target:fenced:lease:shortest:longest:is_for_all,…`, or `-`.
impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |Other { target, fenced, lease, hold: (shortest, longest), is_for_all }: &Other| {
            format!("{target}:{fenced}:{lease}:{shortest}:{longest}:{is_for_all}")
        };
        let others: Vec<_> = self.0.iter().map(text).collect();
        f.write_str(if others.is_empty() { "-" } else { "" })?;
        f.write_str(&others.join(","))
    }
}

impl FromStr for Others {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let other = |text: &str| {
            let mut words = text.split(':');
            let mut word = || words.next().unwrap_or("");
            Ok(Other {
                target: word().to_owned(),
                fenced: word().parse()?,
                lease: word().parse()?,
                hold: (word().parse()?, word().parse()?),
                is_for_all: word() == "true",
            })
        };
        text.split(',').filter(|text| *text != "-").map(other).collect::<Result<_, _>>().map(Self)
    }
}

#[test]
fn work_is_read_as_it_was_written() {
    let work = crate::setup::Setup::of("a name").work;
    for pairs in [vec![], vec![(1, 2)], vec![(1, 2), (3, 65535)]] {
        let work =
            Work { url: "redis://host/".to_owned(), file: "f".to_owned(), ports: PortMap(pairs), ..work.clone() };
        assert_eq!(work.to_string().parse(), Ok(work.clone()));
        let other = Other { target: "t1".to_owned(), fenced: 7, lease: 1000, hold: (20, 60), is_for_all: true };
        let work = Work { elsewhere: Others(vec![other.clone(), other]), together: true, ..work };
        assert_eq!(work.to_string().parse(), Ok(work));
    }
}
