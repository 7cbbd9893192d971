//! What a node says of the cluster: `CLUSTER NODES`.

use super::Node;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Who owns which slots, by the ids of the nodes. Nodes without slots are not there.
pub(crate) type Owners = BTreeMap<String, Vec<RangeInclusive<u16>>>;

/// One node, as another one or itself sees it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    /// The port that it announces.
    pub(crate) port: u16,
    /// Such as `myself`, `master`, `slave`, `fail?`, `fail`, `handshake`, `noaddr`.
    pub(crate) flags: Vec<String>,
    /// The id of its master, if it is a replica.
    pub(crate) master: Option<String>,
    /// Whether it is connected on the bus.
    pub(crate) is_linked: bool,
    /// Without those that are on the move to it.
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

impl Seen {
    pub(crate) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// Whether nobody doubts it.
    pub(super) fn is_well(&self) -> bool {
        let doubts = ["fail?", "fail", "handshake", "noaddr"];
        (self.is_linked || self.is("myself")) && !doubts.iter().any(|doubt| self.is(doubt))
    }

    /// `id ip:port@bus,name flags master ping pong epoch link slot slots …`
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let (place, _) = words.get(1)?.split_once('@')?;
        let slots = words.get(8..)?.iter().filter(|slots| !slots.starts_with('['));
        Some(Self {
            id: words[0].to_owned(),
            port: place.rsplit_once(':')?.1.parse().ok()?,
            flags: words[2].split(',').map(str::to_owned).collect(),
            master: Some(words[3]).filter(|master| *master != "-").map(str::to_owned),
            is_linked: words[7] == "connected",
            slots: slots.map(|slots| range(slots)).collect::<Option<_>>()?,
        })
    }
}

/// `0-5460` or `7`.
fn range(slots: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// All nodes in the answer to `CLUSTER NODES`, or in a node's file `nodes.conf`.
pub(super) fn parse(text: &str) -> Vec<Seen> {
    text.lines().filter_map(Seen::parse).collect()
}

/// Who owns which slots in a view.
pub(super) fn owners(view: &[Seen]) -> Owners {
    let with_slots = view.iter().filter(|seen| !seen.slots.is_empty());
    with_slots.map(|seen| (seen.id.clone(), seen.slots.clone())).collect()
}

/// Who owns a slot.
pub(super) fn owner(owners: &Owners, slot: u16) -> Option<&String> {
    owners.iter().find(|(_, ranges)| ranges.iter().any(|range| range.contains(&slot))).map(|(id, _)| id)
}

impl Node {
    /// How it sees the cluster. `None` if it does not answer.
    pub(crate) fn view(&self) -> Option<Vec<Seen>> {
        Some(parse(&self.ask::<String>(&["CLUSTER", "NODES"])?))
    }

    /// How it sees itself. `None` if it does not answer.
    pub(crate) fn itself(&self) -> Option<Seen> {
        self.view()?.into_iter().find(|seen| seen.is("myself"))
    }

    /// Whether it says that the cluster works.
    pub(crate) fn is_content(&self) -> bool {
        self.ask::<String>(&["CLUSTER", "INFO"]).is_some_and(|info| info.contains("cluster_state:ok"))
    }
}

#[test]
fn a_view_is_read() {
    let text = "a1 127.0.0.1:7000@17000,host myself,master - 0 0 1 connected 0-99 200 [7->-b2]\n\
                b2 127.0.0.1:7001@17001 slave,fail? a1 5 6 1 disconnected\n\
                vars currentEpoch 6 lastVoteEpoch 0\n";
    let view = parse(text);
    assert_eq!(view.len(), 2);
    assert_eq!((view[0].port, view[0].slots.as_slice()), (7000, &[0..=99, 200..=200][..]));
    assert!(view[0].is("master") && view[0].is_well() && !view[1].is_well());
    assert_eq!(view[1].master.as_deref(), Some("a1"));
    assert_eq!(owner(&owners(&view), 200).map(String::as_str), Some("a1"));
    assert_eq!(owner(&owners(&view), 100), None);
}
