//! Unit tests of `src/store/redis/net/identity.rs`.

use super::*;
use std::io::Read;
use std::os::unix::net::UnixStream;

fn identity(run: &str, replication: &str) -> Option<Identity> {
    let text =
        format!("# Server\r\nrun_id:{run}\r\n\r\n# Replication\r\nrole:master\r\nmaster_replid:{replication}\r\n");
    Identity::read(&Value::BulkString(text.into_bytes()))
}

/// A store's servers, and the far ends of its connections.
struct Met(Servers, Vec<(Arc<Socket>, UnixStream)>);

impl Met {
    fn new() -> Self {
        Self(Servers::default(), Vec::new())
    }

    /// Connects once more; returns the number, and which connections are not cut.
    fn meet(&mut self, identity: Option<Identity>) -> (u64, Vec<usize>) {
        self.meet_at("redis://host", identity)
    }

    fn meet_at(&mut self, url: &str, identity: Option<Identity>) -> (u64, Vec<usize>) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        far.set_nonblocking(true).expect("a socket");
        let near = Arc::new(Socket::of(near));
        assert!(self.0.meet(identity, &Address::parse(url).expect("a URL"), &near, &|| true));
        self.1.push((near, far));
        let is_open = |far: &UnixStream| (&*far).read(&mut [0]).is_err();
        (self.0.number(), (0..self.1.len()).filter(|n| is_open(&self.1[*n].1)).collect())
    }
}

#[test]
fn another_server_raises_the_number_and_ends_older_connections() {
    let mut met = Met::new();
    assert_eq!(met.meet(identity("a", "x")), (0, vec![0]));
    assert_eq!(met.meet(identity("a", "x")), (0, vec![0, 1]));
    // A restart; a promotion.
    assert_eq!(met.meet(identity("b", "x")), (1, vec![2]));
    assert_eq!(met.meet(identity("b", "y")), (2, vec![3]));
    assert_eq!(met.meet(identity("b", "y")), (2, vec![3, 4]));
}

#[test]
fn servers_that_answer_in_turn_at_one_address_do_not_end_each_others_connections() {
    let mut met = Met::new();
    assert_eq!(met.meet(identity("a", "x")), (0, vec![0]));
    assert_eq!(met.meet(identity("b", "x")), (1, vec![1]));
    assert_eq!(met.meet(identity("a", "x")), (2, vec![1, 2]));
    assert_eq!(met.meet(identity("b", "x")), (3, vec![1, 2, 3]));
    // At another address it is a failover, there and back.
    assert_eq!(met.meet_at("redis://other", identity("a", "x")), (4, vec![4]));
    assert_eq!(met.meet(identity("b", "x")), (5, vec![5]));
}

#[test]
fn another_address_ends_older_connections_whatever_is_known_of_the_servers() {
    let mut met = Met::new();
    assert_eq!(met.meet(None), (0, vec![0]));
    assert_eq!(met.meet_at("redis://other", None), (1, vec![1]));
    assert_eq!(met.meet_at("redis://other", None), (2, vec![1, 2]));
    assert_eq!(met.meet(identity("a", "x")), (3, vec![3]));
    // The same server by another name.
    assert_eq!(met.meet_at("redis://other", identity("a", "x")), (3, vec![3, 4]));
}

#[test]
fn a_connection_to_where_the_server_was_before_does_not_count() {
    let mut met = Met::new();
    met.meet(identity("a", "x"));
    let (near, _far) = UnixStream::pair().expect("a pair of sockets");
    let address = Address::parse("redis://old").expect("a URL");
    assert!(!met.0.meet(identity("old", "x"), &address, &Arc::new(Socket::of(near)), &|| false));
    assert_eq!(met.meet(identity("a", "x")), (0, vec![0, 1]));
}

#[test]
fn a_server_that_does_not_say_who_it_is_counts_as_new_each_time_and_ends_nothing() {
    let mut met = Met::new();
    assert_eq!(met.meet(None), (0, vec![0]));
    assert_eq!(met.meet(None), (1, vec![0, 1]));
    assert_eq!(met.meet(identity("a", "x")), (2, vec![0, 1, 2]));
    assert_eq!(met.meet(None), (3, vec![0, 1, 2, 3]));
    assert_eq!(met.meet(identity("a", "x")), (4, vec![0, 1, 2, 3, 4]));
    assert_eq!(met.meet(identity("b", "x")), (5, vec![5]));
}

#[test]
fn what_does_not_name_a_server_is_no_identity() {
    let read = |text: &str| Identity::read(&Value::BulkString(text.as_bytes().to_vec()));
    assert!(read("run_id:a\nmaster_replid:b").is_some());
    for text in ["", "run_id:a", "master_replid:b", "run_id:\r\nmaster_replid:b", "x_run_id:a\nmaster_replid:b"] {
        assert!(read(text).is_none(), "{text:?}");
    }
    assert!(Identity::read(&Value::Nil).is_none());
    assert!(Identity::read(&Value::BulkString(vec![0xff])).is_none());
}
