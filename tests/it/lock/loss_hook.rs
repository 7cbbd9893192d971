//! The builder's `on_lost`: told of each loss of a hold, once, and never in the way.

use crate::support::crew::HANG;
use crate::support::lab::{Lab, config, on_both_stores};
use crate::support::watched::{Kind, Watched};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use redis_dlock::{DLockGenerator, LeaseLoss, LossCause};
use std::time::Duration;

on_both_stores!(
    it_is_told_of_each_loss_with_its_cause,
    it_is_not_told_of_a_hold_that_ended_in_time,
    a_slow_one_delays_no_renewal,
);

fn told(lab: &Lab) -> (DLockGenerator, Receiver<LeaseLoss>) {
    let (say, losses) = unbounded();
    let builder = lab.builder().on_lost(move |loss| say.send(loss.clone()).unwrap());
    (builder.build(Watched::unseen(lab.processor())).unwrap(), losses)
}

fn it_is_told_of_each_loss_with_its_cause(lab: &Lab) {
    let (generator, losses) = told(lab);
    {
        let lock = generator.generate_with(config("x", 3000)).unwrap();
        let guard = lock.lock().unwrap();
        let locker = lab.holder(lock.key()).unwrap().holder;
        lab.delete(lock.key());
        let loss = lab.time.recv(&losses);
        assert_eq!((&*loss.key, &*loss.locker, &loss.cause), (lock.key(), &*locker, &LossCause::Deleted));
        assert!(guard.unlock().is_err());

        let guard = lock.lock().unwrap();
        lab.overwrite(lock.key(), "somebody", Duration::from_millis(900));
        assert_eq!(lab.time.recv(&losses).cause, LossCause::TakenOver { by: "somebody".to_owned() });
        assert!(guard.unlock().is_err());
    }
    {
        let lock = generator.generate_with(config("y", 3000).with_max_hold(Duration::from_millis(50))).unwrap();
        let guard = lock.lock().unwrap();
        assert_eq!(lab.time.recv(&losses).cause, LossCause::HeldTooLong);
        assert!(guard.unlock().is_err());
    }
    drop(generator);
    assert_eq!(losses.recv_timeout(HANG), Err(RecvTimeoutError::Disconnected), "each once, and its thread ends");
}

fn it_is_not_told_of_a_hold_that_ended_in_time(lab: &Lab) {
    let (generator, losses) = told(lab);
    let lock = generator.generate_with(config("x", 200)).unwrap();
    for _ in 0..100 {
        lock.lock().unwrap().unlock().unwrap();
    }
    generator.close();
    assert!(losses.try_recv().is_err());
}

/// Shows: G3.
fn a_slow_one_delays_no_renewal(lab: &Lab) {
    let (arrive, arrived) = bounded(1);
    let (leave, left) = bounded::<()>(0);
    let (processor, watch) = lab.watched();
    let told = move |_: &LeaseLoss| {
        arrive.send(()).unwrap();
        let _ = left.recv();
    };
    let generator = lab.builder().on_lost(told).build(processor).unwrap();
    // It is extended often, and long enough for a machine on which many others want to run.
    let kept = generator.generate_with(config("kept", 3000).with_renew_at(0.1)).unwrap();
    let kept = kept.lock().unwrap();
    let victim = generator.generate_with(config("victim", 300)).unwrap();
    let guard = victim.lock().unwrap();
    lab.delete(victim.key());
    lab.time.recv(&arrived);
    watch.wait_for_more(Kind::Extend, 4);
    assert!(kept.is_valid());
    assert!(guard.unlock().is_err(), "nor an unlock");
    drop(leave);
}
