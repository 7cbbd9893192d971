//! Mistakes that can be built into the transport, one at a time. The scenarios must detect each of them.

use super::scenarios::*;
use crate::check::model::mutants::{FORGOTTEN, caught_each};

/// A call is left waiting, for good or until a time-out.
const LEFT: &[&str] = &["deadlock", "exceeded max_steps", "without a reason"];

const UNHEARD: &[&str] = &["nobody waits for the answer", "closed without an answer", "without an answer"];

caught_each! {
    reader_leaves_alone: ReaderLeavesAlone, SHARING, LEFT;
    writer_leaves_alone: WriterLeavesAlone, LEAVING, LEFT;
    departs_with_duty: DepartsWithDuty, LEFT_BEHIND, LEFT;
    fails_nobody: FailsNobody, SHARING.faulty(), FORGOTTEN;
    forgets_backlog: ForgetsBacklog, NARROW, &["deadlock", "exceeded max_steps", "without a reason", "without an answer"];
    leaves_the_order: LeavesTheOrder, LEAVING, &["the answer of another", "was answered", "without a reason"];
    gives_passage_back_early: GivesPassageBackEarly, COMING_AGAIN, &["overtakes"];
    forgets_posted_at_close: ForgetsPostedAtClose, CLOSING, &["deadlock", "nobody waits for the answer", "closed without an answer"];
    leaves_posted_behind: LeavesPostedBehind, LEFT_BEHIND, UNHEARD;
    posts_unread: PostsUnread, POSTING_AT_LAST, LEFT;
    writes_unread: WritesUnread, REFUSED, FORGOTTEN;
    reads_on_in_duty: ReadsOnInDuty, NARROW, LEFT;
    waits_twice: WaitsTwice, PAIRS.faulty(), FORGOTTEN;
    appoints_itself: AppointsItself, LEFT_BEHIND, FORGOTTEN;
    takes_over_and_leaves: TakesOverAndLeaves, SHARING, LEFT;
    keeps_the_role: KeepsTheRole, SHARING, LEFT;
    posts_and_leaves: PostsAndLeaves, POSTING, &["is not sent when its poster goes on"];
    leaves_kept_behind: LeavesKeptBehind, KEEPING, &["is not sent"];
    attends_to_kept: AttendsToKept, KEEPING, LEFT;
    repeats_late: RepeatsLate, POSTING.unknown(2), &["overtakes"];
    keeps_role_in_panic: KeepsRoleInPanic, POSTS.panicking(), LEFT;
    breaks_without_time: BreaksWithoutTime, NO_TIME, &["without a reason", "is not sent when its poster goes on"];
    throws_connects_away: ThrowsConnectsAway, CONNECTING,
        &["connects in vain", "without a reason", "is not sent when its poster goes on"];
    takes_connect_along: TakesConnectAlong, CONNECTING, &["connects in vain"];
    leaves_tellers_behind: LeavesTellersBehind, CONNECTING_REFUSED, UNHEARD;
    connects_unheard: ConnectsUnheard, CONNECTING, LEFT;
    confirms_unheard: ConfirmsUnheard, CONFIRMING, LEFT;
    holds_back_unread: HoldsBackUnread, CONFIRMING_AND_LEAVING, LEFT;
    confirms_twice: ConfirmsTwice, CONFIRMING, &["confirmation is under way"];
    answers_unconfirmed: AnswersUnconfirmed, CONFIRMING, &["is not confirmed"];
}
