//! What Consul alone has. `tests/run.sh` leaves these out by their names where there is no Consul.

mod beside;
mod inboxes;
mod nodes;
