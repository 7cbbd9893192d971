//! In a build without the stores that vote.

use crate::Plan;
use crate::support::report::Section;

pub(crate) fn run(_plan: &Plan) -> Section {
    let mut section = Section::new("Stores that vote");
    section.paragraph("Left out: they need the features `consul` and `etcd`.");
    section
}

pub(crate) fn take_turns() {}
