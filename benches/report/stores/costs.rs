//! What a lock costs the servers: entries in the log on which they agree, and requests.

use super::kit::{Counter, counted_url};
use super::ways::Way;
use super::{Peer, ours, pair};
use crate::Plan;
use crate::support::report::{Limit, Section};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// The servers write to their log, too, now and then. A median does not see that. In a short round there are fewer.
const TIMES: [usize; 2] = [11, 3];

/// How much requests and log rise.
type Rise = [u64; 2];

/// A way to lock, twice: of two clients.
type Two = [Box<dyn Way>; 2];

pub(super) fn run<V: Peer>(plan: &Plan, section: &mut Section) {
    let times = plan.size(TIMES[0], TIMES[1]);
    let servers = V::start(1);
    let counter = Counter::to(servers.address());
    let count = || [counter.requests(), servers.log_index()];
    let url = counted_url(&servers, &counter, "costs");
    let ways: [Two; 2] =
        [[(); 2].map(|()| ours::<V>(&url, "costs")), [(); 2].map(|()| V::peer(counter.address(), "costs"))];
    let [[our_pair, our_turn], [peers_pair, peers_turn]] = ways.map(|mut two| {
        // A client that has never waited hears of nobody who waits.
        for n in 0..2 {
            turn(&mut two, n, &count);
        }
        let pairs = (0..times).map(|_| rise(count, || pair(&mut two[0]))).collect();
        let turns: Vec<_> = (0..times).map(|n| turn(&mut two, n % 2, &count)).collect();
        [median(pairs), median(turns)]
    });
    let what = |what: &str| format!("{}: writes to the log, {what}", V::NAME);
    section.target(what("a pair"), Limit::AtMost(2.0), our_pair[1] as f64);
    // The holder's, and that of the waiter, which confirms: so a dead one is passed over in half a lease.
    section.target(what("a hand-over"), Limit::AtMost(2.0), our_turn[1] as f64);
    let row = |name: &str, ours: Rise, peers: Rise| {
        let cells = [ours[0], peers[0], ours[1], peers[1]].map(|n| n.to_string());
        [name.to_owned()].into_iter().chain(cells).collect()
    };
    let rows = [
        row("lock, unlock", our_pair, peers_pair),
        row("from the holder's unlock until the waiter has it", our_turn, peers_turn),
    ];
    section.table(&["", "requests", V::PEER, "writes to the log", V::PEER], &rows);
}

fn rise(count: impl Fn() -> Rise, work: impl FnOnce()) -> Rise {
    let before = count();
    work();
    let after = count();
    [after[0] - before[0], after[1] - before[1]]
}

fn median(mut rises: Vec<Rise>) -> Rise {
    [0, 1].map(|which| {
        rises.sort_unstable_by_key(|rise| rise[which]);
        rises[rises.len() / 2][which]
    })
}

/// What it costs that one of two hands the lock over to the other, with all that either does on this account.
fn turn(two: &mut Two, from: usize, count: &(impl Fn() -> Rise + Sync)) -> Rise {
    let [first, second] = two;
    let (holder, waiter) = if from == 0 { (first, second) } else { (second, first) };
    holder.lock();
    let ((says, has_it), (tell, told)) = (channel(), channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            waiter.lock();
            says.send(()).unwrap();
            told.recv().unwrap();
            waiter.unlock();
        });
        let before = at_rest(count);
        holder.unlock();
        has_it.recv().unwrap();
        let after = at_rest(count);
        tell.send(()).unwrap();
        [after[0] - before[0], after[1] - before[1]]
    })
}

/// Waits until a count stands still.
pub(super) fn at_rest<T: PartialEq>(count: impl Fn() -> T) -> T {
    let mut last = count();
    loop {
        thread::sleep(Duration::from_millis(200));
        let now = count();
        if now == last {
            return now;
        }
        last = now;
    }
}
