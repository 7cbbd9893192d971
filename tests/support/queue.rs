//! The queue of a lock, as the server has it.

use super::RedisServer;

/// Whether an entry of a queue is no waiter: a gap for pollers, or the time for which waiters that nobody hears keep their places.
fn is_mark(entry: &str) -> bool {
    entry.starts_with("gap ") || entry.starts_with("keep ")
}

impl RedisServer {
    /// The name of the queue of a lock's key, if it is there.
    pub(crate) fn queue_of(&self, key: &str) -> Option<String> {
        self.run::<Vec<String>>(&["KEYS", &format!("DLOCK:1:{{*}}:queue:{key}")]).pop()
    }

    /// What stands in the queue of a lock's key, first to last.
    pub(crate) fn entries_of(&self, key: &str) -> Vec<String> {
        self.queue_of(key).map_or_else(Vec::new, |queue| self.run(&["LRANGE", &queue, "0", "-1"]))
    }

    /// The lockers in the queue of a lock's key, first to last.
    pub(crate) fn waiters_of(&self, key: &str) -> Vec<String> {
        let mut entries = self.entries_of(key);
        entries.retain(|entry| !is_mark(entry));
        entries.iter().map(|entry| entry.split_once(' ').expect("a lease and a locker").1.to_owned()).collect()
    }

    /// Lets the time be over for which waiters that nobody hears keep their places: the next hand-over drops them.
    pub(crate) fn outlast_the_unheard(&self) {
        outlast_the_unheard(&mut self.connection());
    }
}

/// See the method of the same name.
pub(crate) fn outlast_the_unheard(admin: &mut redis::Connection) {
    rewrite_keeps(admin, "return 1");
}

/// As if that time began now in each queue where it goes on; however slow a test is. What a test has made to be over stays so.
pub(crate) fn begin_the_time_of_the_unheard(admin: &mut redis::Connection) {
    rewrite_keeps(admin, "return ends > now - 50000 and now + 1000 or ends");
}

/// Replaces the end of that time in all queues by what a function of `ends` and `now` returns, in the server's milliseconds.
fn rewrite_keeps(admin: &mut redis::Connection, body: &str) {
    let script = format!(
        "local function new(ends, now) {body} end
        local time = redis.call('TIME')
        for _, queue in ipairs(redis.call('KEYS', 'DLOCK:1:{{*}}:queue:*')) do
            for place = 0, 1 do
                local entry = redis.call('LINDEX', queue, place)
                local ends, count = string.match(entry or '', '^keep (%d+) (%d+)$')
                if ends then
                    local now = time[1] * 1000 + math.floor(time[2] / 1000)
                    redis.call('LSET', queue, place, string.format('keep %.0f %s', new(tonumber(ends), now), count))
                end
            end
        end"
    );
    redis::cmd("EVAL").arg(script).arg(0).exec(admin).unwrap();
}
