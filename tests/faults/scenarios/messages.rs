//! Faults of the messages by which waiters hear that they were given the lock: they cost time, and nothing else.

use crate::report::Bounds;
use crate::setup::Setup;
use crate::worker::now;

/// Shows: G10, L1.
#[test]
fn without_any_message_waiters_proceed_by_asking() {
    Setup::of("every message lost")
        .play(Bounds::default(), |scene| {
            scene.processes().for_each(|process| scene.proxy(process).lose_messages(true));
            scene.sleep(2.0);
        })
        .assert_clean();
}

/// Shows: G10, L1.
#[test]
fn an_inbox_that_hears_nothing_any_more_costs_each_grant_a_poll() {
    Setup::of("half-open to a listener")
        .play(Bounds::default(), |scene| {
            scene.proxy(1).silence_only(true);
            scene.sleep(2.0);
        })
        .assert_clean();
}

/// Shows: L1.
#[test]
fn inboxes_that_the_server_closes_are_opened_again() {
    Setup::of("listeners closed by CLIENT KILL")
        .play(Bounds::default(), |scene| {
            let until = now() + 2_000_000 * scene.lease;
            while now() < until {
                scene.server.close_inboxes();
                scene.sleep(0.1);
            }
        })
        .assert_clean();
}

/// Shows: L1.
#[test]
fn inboxes_that_the_server_closes_for_their_size_are_opened_again() {
    Setup::of("listeners closed for their output buffer")
        .play(Bounds::default(), |scene| {
            scene.server.config("client-output-buffer-limit", "pubsub 1kb 1kb 1");
            let much = "x".repeat(100_000);
            let until = now() + 2_000_000 * scene.lease;
            let mut heard = 0;
            while now() < until {
                let inboxes: Vec<String> = scene.server.run(&["PUBSUB", "CHANNELS", "DLOCK:1:inbox:*"]);
                for inbox in inboxes {
                    heard += scene.server.run::<u64>(&["PUBLISH", &inbox, &much]);
                }
                scene.sleep(0.1);
            }
            assert!(heard > 3, "there were inboxes to close");
        })
        .assert_clean();
}
