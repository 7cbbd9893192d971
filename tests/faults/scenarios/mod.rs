//! The faults, each with the rule that it would break.

mod holder;
