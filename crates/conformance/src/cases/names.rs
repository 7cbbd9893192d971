//! Names of keys.

use crate::suite::Suite;
use redis_dlock::port::LONGEST_KEY;

/// Names that an implementation might treat in a special way, or take for one another.
pub(super) fn of_all_kinds() -> Vec<String> {
    let longest = "é".repeat(LONGEST_KEY / 2);
    let other = format!("{}xx", &longest[2..]);
    let names = [
        "DLOCK_T_",
        "DLOCK_T_ ",
        "DLOCK_T_a b",
        "DLOCK_T_A b",
        "DLOCK_T_a\nb\r\n",
        "DLOCK_T_\0",
        "DLOCK_T_\0a",
        "DLOCK_T_a/b",
        "DLOCK_T_a.b",
        "DLOCK_T_$a",
        "DLOCK_T_{",
        "DLOCK_T_}",
        "DLOCK_T_{}",
        "DLOCK_T_{}a",
        "DLOCK_T_{a}b",
        "DLOCK_T_{a}c",
        "DLOCK_T_{b}",
        "DLOCK_T_}{",
        "DLOCK_T_{{a}}",
        "DLOCK_T_*?[a]\\",
        "DLOCK_T_%s%d",
        "DLOCK_T_schlüssel",
        "DLOCK_T_schlu\u{308}ssel",
        "DLOCK_T_钥匙",
        "DLOCK_T_🔑",
        "DLOCK_T_a:b:queue:c",
        "DLOCK_T_a b/c",
        "DLOCK_T_../a/..",
        &longest,
        &other,
    ];
    names.map(str::to_owned).to_vec()
}

pub(crate) fn of_all_kinds_are_kept_apart(suite: &Suite) {
    let (one, two) = (suite.client(), suite.client());
    let (mut inbox_of_one, mut inbox_of_two) = (one.listen(), two.listen());
    let hold = |name: &String| {
        let (a, b) = (one.holder(name), two.waiter(name));
        inbox_of_one.hear_contended(&a);
        (a, b)
    };
    let held: Vec<_> = of_all_kinds().iter().map(hold).collect();
    for (a, b) in &held {
        assert_eq!(b.poll_waiting().holder.as_ref(), Some(&a.locker));
        inbox_of_one.hear_contended(a);
        assert_eq!(suite.waiting(&a.key), 1);
    }
    for (a, b) in &held {
        a.release();
        inbox_of_two.hear_granted(b);
        assert!(b.holds());
    }
}

/// Shows: L2.
pub(crate) fn of_many_keys_leave_nothing_behind(suite: &Suite) {
    let (one, two) = (suite.client(), suite.client());
    let (_inbox_of_one, _inbox_of_two) = (one.listen(), two.listen());
    for n in 0..500 {
        let key = format!("DLOCK_T_{n}");
        let (a, b, next) = (one.holder(&key), two.waiter(&key), one.tenure(&key));
        a.release_to(&next);
        b.release();
        next.release();
    }
    assert_eq!(suite.store().leftovers(), [""; 0]);
}
