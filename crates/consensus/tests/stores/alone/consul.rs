//! What Consul has. `tests/run.sh` leaves these out, by the name of this module, where there is no Consul.

mod beside;
mod inboxes;
mod nodes;
mod places;
mod shared;
