//! The cases. A case is a function over a [`Suite`](super::Suite); the list in [`list`](super::list) names each of them.

pub(super) mod acquire;
pub(super) mod batch;
pub(super) mod breaking;
pub(super) mod delayed;
pub(super) mod denied;
pub(super) mod directory;
pub(super) mod gap;
pub(super) mod hand_over;
pub(super) mod keep;
pub(super) mod lease;
pub(super) mod names;
pub(super) mod numbers;
pub(super) mod posting;
pub(super) mod queue;
pub(super) mod release;
pub(super) mod required;
pub(super) mod settling;
pub(super) mod threads;
