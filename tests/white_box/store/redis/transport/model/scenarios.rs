//! The scenarios that are explored.

use super::network::{Faults, NO_FAULTS};
use crate::check::model::explorer::{explore_both, explored};
use Act::{Call, Close, Collect, Confirm, ConfirmPair, EndIdle, Keep, Nap, Pair, Post, PostPair, Renew};
use Limit::{Long, None, Short};

/// How much time a caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    Short,
    Long,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// That many commands about a key, as one call that waits for the answers.
    Call(u8, u8, Limit),
    /// The same, but a limit that ends breaks the connection.
    Renew(u8, u8, Limit),
    /// A command about each of two keys.
    Pair(u8, u8),
    /// A command about a key that is to be confirmed.
    Confirm(u8, Limit),
    /// A command about each of two keys, both to be confirmed.
    ConfirmPair(u8, u8, Limit),
    /// A command about a key, posted without waiting for the answer.
    Post(u8, Limit),
    /// A command about each of two keys, posted together.
    PostPair(u8, u8, Limit),
    /// A command about each of two keys, posted to be sent with what the caller does next.
    Keep(u8, u8),
    Collect,
    Close,
    /// Connections that nobody uses at the moment are ended.
    EndIdle,
    /// A pause longer than a short limit, and longer than a connection may be idle before it is checked.
    Nap,
}

/// What each caller does, and on which network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) callers: &'static [&'static [Act]],
    pub(super) faults: Faults,
    /// Whether a connection may be full.
    pub(super) is_narrow: bool,
    /// Whether a connect takes longer than a short limit.
    pub(super) is_far: bool,
}

const SOME: Faults = Faults { breaks: 2, refusals: 1, stalls: 1, threads: 1, ..NO_FAULTS };

impl Scenario {
    pub(super) const fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// The same, where connections break, are refused or stall.
    pub(super) const fn faulty(self) -> Self {
        self.with(SOME)
    }

    /// The same, where steps of connections panic.
    pub(super) const fn panicking(self) -> Self {
        self.with(Faults { panics: 2, breaks: 1, ..NO_FAULTS })
    }

    /// The same with a server that does not know the short forms of so many commands: they are sent again, and no other command with them.
    pub(super) const fn unknown(self, unknown: u32) -> Self {
        Self { faults: Faults { unknown, ..self.faults }, ..self }
    }

    /// The same, where connections may be full.
    pub(super) const fn narrow(self) -> Self {
        Self { is_narrow: true, ..self }
    }
}

/// Callers have all the time they want.
pub(super) const CALLS: Scenario = Scenario {
    callers: &[&[Call(0, 2, Long), Call(1, 1, Long)], &[Call(1, 1, Long)], &[Call(2, 3, Long)]],
    faults: NO_FAULTS,
    is_narrow: false,
    is_far: false,
};

/// Some callers post, others wait.
pub(super) const POSTS: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Post(0, Long), Call(0, 1, Long)],
        &[Call(1, 1, Long), Post(1, Long)],
        &[Call(2, 1, Long), Collect],
    ],
    ..CALLS
};

/// Several callers post on one connection and go on, while others call.
pub(super) const POSTING: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Post(0, Long), Call(0, 1, Long), Call(0, 1, Long)],
        &[Call(0, 1, Long), Post(0, Long), Call(0, 1, Long)],
        &[Call(0, 2, Long)],
    ],
    ..CALLS
};

/// The last call is posted: no caller comes after it.
pub(super) const POSTING_AT_LAST: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Post(0, Long)],
        &[Call(0, 1, Long), Post(0, Long)],
        &[Call(0, 2, Long), Call(0, 1, Long), Post(0, Long)],
    ],
    ..CALLS
};

/// The same with short forms that are unknown: the last reader writes what must be sent again.
pub(super) const POSTING_UNKNOWN_AT_LAST: Scenario = Scenario {
    callers: &[&[Call(0, 1, Long), Post(0, Long)], &[Call(0, 1, Long), Post(0, Long)], &[Call(0, 2, Long)]],
    faults: Faults { unknown: 2, ..NO_FAULTS },
    ..CALLS
};

/// Some callers post, others leave, and a caller that collects may be the reader.
pub(super) const LEAVING: Scenario = Scenario {
    callers: &[
        &[Call(0, 2, Short), Call(0, 1, Long), Post(0, Short)],
        &[Call(1, 1, Short), Post(1, Short), Call(1, 1, Long)],
        &[Call(2, 1, None), Collect, Call(2, 1, Long)],
    ],
    ..CALLS
};

/// Callers share one connection, which may be full.
pub(super) const NARROW: Scenario = Scenario {
    callers: &[
        &[Call(0, 3, Short), Call(0, 2, Long)],
        &[Call(0, 2, Long), Post(0, Short)],
        &[Call(0, 1, None), Post(0, Short), Collect],
    ],
    is_narrow: true,
    ..CALLS
};

/// Callers share one connection.
pub(super) const SHARING: Scenario = Scenario {
    callers: &[&[Call(0, 1, Long)], &[Call(0, 2, Long)], &[Call(0, 1, Long)], &[Call(0, 1, Long)]],
    ..CALLS
};

/// The first connect of two callers is refused: one of them calls between the refusal and the failure of the other's call.
pub(super) const REFUSED: Scenario = Scenario {
    callers: &[&[Call(0, 1, Long)], &[Call(0, 1, Long)]],
    faults: Faults { refusals: 1, one_in: 1, ..NO_FAULTS },
    ..CALLS
};

/// Callers that come again together share one connection.
pub(super) const CROWD: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Call(0, 1, Long)],
        &[Call(0, 1, Long), Call(0, 1, Long)],
        &[Call(0, 1, Long), Post(0, Long), Call(0, 1, Long)],
        &[Call(0, 1, Long), Call(0, 1, Short)],
    ],
    ..CALLS
};

/// Callers that write for others leave before everything is written.
pub(super) const LEFT_BEHIND: Scenario = Scenario {
    callers: &[&[Call(0, 3, Short)], &[Post(0, Long)], &[Post(0, Short)], &[Post(0, Long)]],
    is_narrow: true,
    ..CALLS
};

/// Callers leave, and come again with the same key, while the server is stalled.
pub(super) const COMING_AGAIN: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Call(0, 1, Short), Call(0, 1, Short), Call(0, 1, Long)],
        &[Call(1, 1, Long), Call(1, 1, Short), Call(1, 1, Short), Call(1, 1, Long)],
        &[Call(2, 1, Long), Call(2, 1, Short), Post(2, Long)],
    ],
    faults: Faults { stalls: 2, ..NO_FAULTS },
    ..CALLS
};

/// Commands of one caller go over several connections.
pub(super) const PAIRS: Scenario = Scenario {
    callers: &[&[Post(0, Long), Pair(0, 1)], &[Post(1, Long), Pair(1, 2)], &[Call(2, 1, Short), Pair(2, 0)]],
    ..CALLS
};

/// Commands are posted together, over several connections.
pub(super) const POSTING_PAIRS: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), PostPair(0, 1, Long), Call(1, 1, Long)],
        &[Post(1, Long), PostPair(1, 2, Long), Call(2, 1, Long)],
        &[Call(2, 1, Short), PostPair(2, 0, Short), Collect],
    ],
    ..CALLS
};

/// Posted commands wait for what their posters do next.
pub(super) const KEEPING: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Keep(0, 1), Call(0, 1, Long), Call(1, 1, Long)],
        &[Call(1, 1, Long), Keep(1, 2), Collect, Call(2, 1, Long)],
        &[Call(2, 1, Long), Keep(2, 0), Call(1, 1, Long)],
    ],
    ..CALLS
};

/// What their posters do next may have no time.
pub(super) const KEEPING_SHORT: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Keep(0, 1), Call(0, 1, None), Call(1, 1, Long)],
        &[Call(1, 1, Short), Keep(1, 2), Call(0, 1, Short)],
        &[Call(2, 1, Short), Keep(2, 0), Collect],
    ],
    ..CALLS
};

pub(super) const KEEPING_AT_THE_CLOSING: Scenario = Scenario {
    callers: &[&[Call(0, 1, Long), Keep(0, 1), Call(0, 1, Long)], &[Keep(1, 0), Collect], &[Call(1, 1, Long), Close]],
    ..CALLS
};

/// Limits that end break connections; one limit is over at once, and breaks none.
pub(super) const RENEWING: Scenario = Scenario {
    callers: &[
        &[Renew(0, 2, Short), Call(0, 1, Long)],
        &[Renew(1, 1, Short), Post(1, Long), Call(1, 1, Long)],
        &[Renew(2, 1, None), Call(2, 1, Long)],
    ],
    ..CALLS
};

pub(super) const NO_TIME: Scenario =
    Scenario { callers: &[&[Renew(0, 1, None)], &[Post(1, Long), Call(1, 1, Long)], &[Call(2, 1, Long)]], ..CALLS };

/// One caller closes the transport while others use it.
pub(super) const CLOSING: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), Post(0, Long)],
        &[Post(1, Long), Call(1, 1, Long)],
        &[Call(2, 1, Short), Post(2, Short)],
        &[Close],
    ],
    ..CALLS
};

/// Connections were idle for a while.
pub(super) const IDLE: Scenario = Scenario {
    callers: &[&[Call(0, 1, Long), Nap, Post(0, Long), Call(0, 1, Long)], &[Nap, Post(1, Long), Nap, Call(0, 1, Long)]],
    faults: SOME,
    ..CALLS
};

/// Connections are ended that nobody uses at the moment, while callers come and go.
pub(super) const ENDING_IDLE: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Long), EndIdle, Post(0, Long), Call(0, 1, Long)],
        &[Call(0, 2, Short), EndIdle, Post(1, Long), EndIdle],
        &[Confirm(0, Long), EndIdle, Call(0, 1, Long)],
    ],
    faults: Faults { stalls: 1, ..NO_FAULTS },
    ..CALLS
};

/// A connect takes longer than most callers have. One of them has time, and some post and leave.
pub(super) const CONNECTING: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Short), Call(0, 1, Short), Post(0, Short), Call(0, 1, Short)],
        &[Call(0, 1, Short), Post(0, Short), Collect, Call(0, 2, Short)],
        &[Call(0, 1, Short), Call(0, 1, Short), Post(0, Long), Call(0, 1, Long)],
    ],
    is_far: true,
    ..CALLS
};

/// Connects that may be refused fail calls whose posters have left, while others collect the answers.
pub(super) const CONNECTING_REFUSED: Scenario = Scenario {
    callers: &[&[Post(0, Short)], &[Post(0, Short), Collect]],
    faults: Faults { refusals: 2, ..NO_FAULTS },
    ..CONNECTING
};

/// Several connections are opened: for commands that go over several of them, and for renewals.
pub(super) const CONNECTING_PAIRS: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Short), Pair(0, 1), Post(1, Short)],
        &[Renew(1, 1, Short), Renew(1, 1, Short), Pair(1, 2)],
        &[Call(2, 1, Short), Pair(2, 0), Renew(2, 1, Short)],
    ],
    faults: SOME,
    ..CONNECTING
};

/// One caller closes the transport while a connect is under way.
pub(super) const CONNECTING_AT_THE_CLOSING: Scenario = Scenario {
    callers: &[
        &[Call(0, 1, Short), Post(0, Short), Call(0, 1, Long)],
        &[Call(1, 1, Short), Call(0, 1, Long)],
        &[Call(2, 1, Short), Close],
    ],
    ..CONNECTING
};

/// Some calls are answered only when their write is confirmed. Some of their callers leave.
pub(super) const CONFIRMING: Scenario = Scenario {
    callers: &[
        &[Confirm(0, Long), Confirm(0, Long)],
        &[Confirm(0, Short), Post(0, Long), Confirm(0, Long)],
        &[Confirm(0, Short), Confirm(0, Short)],
        &[Confirm(0, Long), Call(0, 1, Long)],
    ],
    ..CALLS
};

/// The callers whose calls are confirmed leave, and others have none but calls that wait for that.
pub(super) const CONFIRMING_AND_LEAVING: Scenario = Scenario {
    callers: &[
        &[Confirm(0, Short), Confirm(0, Short)],
        &[Confirm(0, Long), Post(0, Short)],
        &[Confirm(0, Long)],
        &[Call(0, 1, Short), Collect],
    ],
    ..CALLS
};

/// Commands that are to be confirmed go over several connections, on which others wait, too.
pub(super) const CONFIRMING_PAIRS: Scenario = Scenario {
    callers: &[
        &[ConfirmPair(0, 1, Long), Post(1, Long)],
        &[ConfirmPair(1, 2, Short), Confirm(1, Long)],
        &[Confirm(0, Long), ConfirmPair(2, 0, Long)],
    ],
    ..CALLS
};

pub(super) const CONFIRMING_AT_THE_CLOSING: Scenario = Scenario {
    callers: &[
        &[Confirm(0, Long), Post(0, Long)],
        &[Confirm(0, Long), Confirm(0, Long)],
        &[Confirm(0, Short), Call(0, 1, Long)],
        &[Close],
    ],
    ..CALLS
};

explored! {
    callers_share_connections: CALLS;
    callers_share_connections_that_break: CALLS.faulty();
    short_forms_that_are_unknown_are_sent_in_full: CALLS.unknown(4);
    short_forms_that_are_unknown_are_sent_in_full_on_a_shared_connection: SHARING.unknown(4);
    short_forms_are_unknown_while_callers_leave_and_connections_break: CROWD.faulty().narrow().unknown(4);
    some_do_not_wait: POSTS;
    some_do_not_wait_and_connections_break: POSTS.faulty();
    a_panic_of_a_connection_leaves_no_role_behind: POSTS.panicking();
    who_posts_goes_on_when_it_is_sent: POSTING;
    who_posts_last_goes_on_when_it_is_sent: POSTING_AT_LAST;
    who_posts_last_is_answered_also_where_short_forms_are_unknown: POSTING_UNKNOWN_AT_LAST;
    a_posted_short_form_that_is_unknown_is_sent_again: POSTING.unknown(2);
    a_posted_short_form_that_is_unknown_is_sent_again_and_connections_break: POSTING.faulty().unknown(1);
    who_posts_on_a_full_connection_goes_on_when_it_is_sent: POSTING.narrow();
    callers_leave: LEAVING;
    callers_leave_and_connections_break: LEAVING.faulty();
    callers_leave_full_connections: NARROW;
    callers_leave_full_connections_that_break: NARROW.faulty();
    a_connection_is_shared: SHARING;
    a_connection_that_breaks_is_shared: SHARING.faulty();
    a_connection_is_shared_whose_first_connect_is_refused: REFUSED;
    a_connection_is_shared_by_callers_that_come_again: CROWD;
    a_narrow_connection_that_breaks_is_shared_by_callers_that_come_again: CROWD.faulty().narrow();
    who_writes_for_others_leaves: LEFT_BEHIND;
    callers_leave_and_come_again: COMING_AGAIN;
    commands_go_several_ways: PAIRS;
    commands_go_several_ways_that_break: PAIRS.faulty();
    commands_go_several_ways_that_are_full: PAIRS.narrow();
    commands_are_posted_together: POSTING_PAIRS;
    commands_are_posted_together_and_connections_break: POSTING_PAIRS.faulty().narrow();
    short_forms_that_are_unknown_are_posted_together: POSTING_PAIRS.unknown(4);
    posted_commands_wait_for_the_next: KEEPING;
    posted_commands_wait_for_the_next_which_may_have_no_time: KEEPING_SHORT;
    posted_commands_wait_for_the_next_and_connections_break: KEEPING_SHORT.faulty().narrow().unknown(1);
    posted_commands_wait_at_the_closing: KEEPING_AT_THE_CLOSING;
    limits_break_connections: RENEWING;
    limits_break_connections_that_break: RENEWING.faulty().narrow();
    who_has_no_time_harms_nobody: NO_TIME;
    callers_are_there_at_the_closing: CLOSING;
    callers_are_there_at_the_closing_and_connections_break: CLOSING.faulty().narrow();
    connections_are_idle_for_a_while: IDLE;
    connections_that_nobody_uses_are_ended: ENDING_IDLE;
    a_connect_outlasts_its_callers: CONNECTING;
    a_connect_that_may_fail_outlasts_its_callers: CONNECTING.faulty().narrow();
    a_connect_that_is_refused_outlasts_its_callers: CONNECTING_REFUSED;
    several_connects_outlast_their_callers: CONNECTING_PAIRS;
    a_connect_outlasts_the_closing: CONNECTING_AT_THE_CLOSING;
    calls_are_confirmed: CONFIRMING;
    calls_are_confirmed_on_connections_that_break: CONFIRMING.faulty().narrow();
    who_is_confirmed_leaves: CONFIRMING_AND_LEAVING;
    who_is_confirmed_leaves_a_connection_that_may_break: CONFIRMING_AND_LEAVING.with(Faults { stalls: 2, breaks: 1, ..NO_FAULTS }).narrow();
    calls_are_confirmed_several_ways: CONFIRMING_PAIRS;
    calls_are_confirmed_several_ways_that_break: CONFIRMING_PAIRS.faulty();
    calls_are_confirmed_whose_short_forms_are_unknown: CONFIRMING_PAIRS.unknown(4);
    calls_are_confirmed_whose_short_forms_are_unknown_on_connections_that_break: CONFIRMING.faulty().narrow().unknown(4);
    a_panic_while_calls_are_confirmed_leaves_no_role_behind: CONFIRMING.panicking();
    calls_are_confirmed_at_the_closing: CONFIRMING_AT_THE_CLOSING;
}
