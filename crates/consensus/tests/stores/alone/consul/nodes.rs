//! Sessions of Consul and the nodes of its catalog: servers and agents that die or leave, and a node that somebody takes out.

use crate::consensus::{ConsensusStore, Consul, Quorum};
use crate::support::crew::{eventually, queue_by};
use redis_dlock::port::{Claim, Operations, PollOutcome};
use redis_dlock::{DLockConfig, DLockGenerator, DLockGuard, DistributedReentrantLock, LossCause};
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than Consul needs to take a dead server's node out of the catalog.
const LEASE: Duration = Duration::from_secs(40);

/// So many locks are held.
const KEYS: usize = 20;

/// Locks of one client, by servers and agents on these ports.
fn locks(
    servers: &Consul,
    ports: &[u16],
    config: impl Fn(DLockConfig) -> DLockConfig,
) -> Vec<DistributedReentrantLock> {
    let generator = DLockGenerator::new(Consul::processor(&servers.url_by(ports, "a"))).unwrap();
    let of = |key| generator.generate_with(config(DLockConfig::new("NODES", format!("{key}")).with_lease(LEASE)));
    (0..KEYS).map(|key| of(key).unwrap()).collect()
}

/// Waits until a node is not in the catalog any more. Consul's leader looks once a minute for members whose leave it has missed, which is
/// longer than a hang takes elsewhere.
fn is_taken_out(servers: &Consul, node: &str) {
    let start = Instant::now();
    while servers.nodes().iter().any(|name| name == node) {
        assert!(start.elapsed() < Duration::from_secs(150), "{node} is still in the catalog");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Holds all locks by the server or agent on the first of these ports, and removes its node. Then nobody else gets any of them, and each
/// holder still has its own.
fn holders_outlive(servers: &mut Consul, ports: &[u16], node: &str, remove: impl FnOnce(&mut Consul)) {
    let held = locks(servers, ports, |config| config);
    let others = locks(servers, &ports[1..], |config| config);
    let guards: Vec<_> = held.iter().map(|lock| lock.lock().unwrap()).collect();
    assert!(servers.nodes().iter().any(|name| name == node), "{:?}", servers.nodes());
    remove(servers);
    is_taken_out(servers, node);
    let both = |(other, guard): (&DistributedReentrantLock, &DLockGuard<'_>)| {
        // The question comes first: whoever gets the lock while the holder is valid is the second one.
        other.try_lock().unwrap().is_some() && guard.is_valid()
    };
    assert_eq!(others.iter().zip(&guards).filter(|pair| both(*pair)).count(), 0, "second holders");
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
}

/// Autopilot takes the node of a dead server out of the catalog.
///
/// Shows: G1, G3.
#[test]
fn a_server_that_dies_ends_no_session() {
    let mut servers = Consul::start(3);
    let dead = (servers.leader() + 1) % 3;
    let mut ports = servers.ports();
    ports.rotate_left(dead);
    holders_outlive(&mut servers, &ports, &format!("server{dead}"), |servers| servers.servers()[dead].kill());
}

/// Shows: G1, G3.
#[test]
fn a_server_that_leaves_ends_no_session() {
    let mut servers = Consul::start(3);
    let gone = (servers.leader() + 1) % 3;
    let mut ports = servers.ports();
    ports.rotate_left(gone);
    holders_outlive(&mut servers, &ports, &format!("server{gone}"), |servers| servers.leave(gone));
}

/// An agent that is told to end by SIGTERM leaves.
///
/// Shows: G1, G3.
#[test]
fn an_agent_that_is_told_to_end_ends_no_session() {
    let mut servers = Consul::start(1);
    let mut agent = servers.agent();
    let ports = [agent.port(), servers.ports()[0]];
    holders_outlive(&mut servers, &ports, "agent", |_| agent.signal(Signal::TERM));
}

/// Whoever takes the node out of the catalog ends all sessions. Their holders are told, and the next session has the node registered again.
///
/// Shows: G5, L1.
#[test]
fn a_node_that_was_taken_out_is_registered_again() {
    let servers = Consul::start(1);
    let locks = [(); 2].map(|()| locks(&servers, &servers.ports(), |config| config).remove(0));
    let [held, other] = &locks;
    let guard = held.lock().unwrap();
    let waiter = queue_by(other, |lock| lock.lock().unwrap().unlock().unwrap());
    servers.deregister("dlock");
    waiter.join();
    eventually("its holder is told", || !guard.is_valid());
    assert!(matches!(guard.loss(), Some(loss) if loss.cause != LossCause::Deadline), "{:?}", guard.loss());
    drop(guard);
    let _guard = held.lock().unwrap();
    let sessions = servers.all_sessions();
    assert!(!sessions.is_empty() && sessions.iter().all(|session| session["Node"] == "dlock"), "{sessions:?}");
}

/// The lock-delay is Consul's own: it also counts for a session that a person has ended.
///
/// Shows: G1.
#[test]
fn a_lock_delay_keeps_others_out_after_a_session_was_ended() {
    let servers = Consul::start(1);
    let delayed = |config: DLockConfig| config.with_lock_delay(Duration::from_secs(60));
    let locks = [(); 2].map(|()| locks(&servers, &servers.ports(), delayed).remove(0));
    let [held, other] = &locks;
    let guard = held.lock().unwrap();
    servers.deregister("dlock");
    assert!(other.try_lock().unwrap().is_none(), "the delay is not over");
    eventually("its holder is told", || !guard.is_valid());
    assert!(other.try_lock().unwrap().is_none(), "the delay is not over");
}

/// A server that reads its log anew begins the lock-delays in it anew, also of a key that somebody else holds since. The holder gives it back
/// or hands it over, and who waits gets it.
///
/// Shows: L1.
#[test]
fn a_lock_delay_that_begins_anew_hinders_no_release() {
    const DELAY: Duration = Duration::from_secs(6);
    /// Keys: whether the holder hands over to itself, and whether another process waits.
    const CASES: [(&str, bool, bool); 3] = [("1", false, true), ("2", true, true), ("3", true, false)];
    let mut servers = Consul::start(1);
    let processor = Consul::processor(&servers.url("a"));
    let claim = |key, n: u32| Claim::new(key, "h-1-c0ffee", format!("h-1-c0ffee-{key}{n}").leak(), LEASE);
    let gets = |claim: &Claim<'_>| {
        eventually("it has the key", || matches!(processor.poll(claim, LEASE).unwrap(), PollOutcome::Acquired(_)));
    };
    for (key, ..) in CASES {
        // Its locker says the lock-delay.
        let locker = format!("h-1-c0ffee-{key}0D{}L", DELAY.as_millis());
        processor.acquire(&Claim::new(key, "h-1-c0ffee", &locker, LEASE), LEASE).unwrap();
    }
    for session in servers.all_sessions() {
        servers.end_session(session["ID"].as_str().unwrap());
    }
    for (key, _, is_waited_for) in CASES {
        processor.join(&claim(key, 1), LEASE).unwrap();
        gets(&claim(key, 1));
        if is_waited_for {
            processor.join(&claim(key, 2), LEASE).unwrap();
        }
    }
    servers.servers()[0].restart();
    for (key, is_handed_over, _) in CASES {
        let held = claim(key, 1);
        if is_handed_over {
            processor.hand_over(&held, &claim(key, 3), LEASE).unwrap();
        } else {
            processor.release(&held, LEASE).unwrap();
        }
    }
    for (key, is_handed_over, is_waited_for) in CASES {
        if is_waited_for {
            gets(&claim(key, 2));
            processor.release(&claim(key, 2), LEASE).unwrap();
        }
        if is_handed_over {
            gets(&claim(key, 3));
            processor.release(&claim(key, 3), LEASE).unwrap();
        }
    }
    assert!(servers.list("a/").iter().all(|path| path.starts_with("a/.inbox/") || path.starts_with("a/.session/")));
}
