//! A table of a database that refuses who is late: each row knows the largest fencing token that has written it.
//!
//! ```sh
//! cargo run --example table
//! ```
//!
//! A holder whose lease is over may not know it yet: its thread stood still, or its command was on the way for long. The database decides
//! by the token, in the statement that writes. The lock is on the embedded store, so that this needs no server.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use redis_dlock::{DLockGenerator, MemoryLockProcessor};
use rusqlite::{Connection, params};
use std::error::Error;

/// Takes one from the stock, unless somebody with a larger token has written since. Returns whether it did.
fn take_one(database: &Connection, item: &str, token: u64) -> Result<bool, Box<dyn Error>> {
    let statement = "UPDATE stock SET count = count - 1, token = ?1 WHERE item = ?2 AND token <= ?1";
    // A token fits: it stays below 2^63.
    Ok(database.execute(statement, params![i64::try_from(token)?, item])? == 1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let database = Connection::open_in_memory()?;
    database.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER, token INTEGER)", ())?;
    database.execute("INSERT INTO stock VALUES ('tea', 10, 0)", ())?;

    let store = MemoryLockProcessor::new();
    let [first, second] = [DLockGenerator::new(store.clone())?, DLockGenerator::new(store)?];
    let [slow, fast] = [first.generate("STOCK", "tea")?, second.generate("STOCK", "tea")?];

    // The first process holds the lock, and stands still before it writes.
    let stale = slow.lock()?;
    let token = stale.fencing_token();
    // Somebody ends its hold. That its lease is over, or that the server has failed over, would do the same.
    let holder = fast.holder()?.ok_or("somebody holds it")?;
    second.break_lock("STOCK", "tea", &holder.locker, "it stands still")?;

    let guard = fast.lock()?;
    let is_written = take_one(&database, "tea", guard.fencing_token())?;
    println!("token {} writes: {is_written}", guard.fencing_token());
    guard.unlock()?;

    // The first process goes on.
    let is_refused = !take_one(&database, "tea", token)?;
    println!("token {token} is refused: {is_refused}");
    drop(stale);

    let left: i64 = database.query_row("SELECT count FROM stock WHERE item = 'tea'", (), |row| row.get(0))?;
    if is_written && is_refused && left == 9 {
        println!("{left} left");
        Ok(())
    } else {
        Err(format!("{left} left: a stale holder has written").into())
    }
}
