//! One lock key of this store: the [specification](super::spec), in the terms of the port.

use super::fence;
use super::inboxes::Inboxes;
use super::spec::{
    self, AcquireEffect, BusyReason, Claimant, DelayEffect, Environment, ExtendEffect, PollEffect, ReleaseEffect, Stop,
    Ticks,
};
use super::timing::{KEEP, LEAST_TOLD};
use crate::clock::Moment;
use crate::error::{BackendFailure, Error};
use crate::port::{
    self, AcquireOutcome, BreakOutcome, Claim, DelayReleaseOutcome, ExtendOutcome, Extension, Grant, Inspection,
    Message, NotOurs, Outcome, Parties, PollOutcome, ProbeOutcome, ReleaseOutcome, Request,
};
use std::time::Duration;

/// What an operation needs to know in addition to the key's state.
pub(super) struct Scene<'a> {
    /// The lock's unique key.
    pub(super) key: &'a str,
    /// The time of the operation.
    pub(super) now: Moment,
    /// Which clients are alive, and how to reach them.
    pub(super) inboxes: &'a mut Inboxes,
    /// The operations that are denied, by their Redis commands. Only tests deny any.
    pub(super) denied: &'a [&'static str],
}

/// The specification's unit of time is the nanosecond here.
impl Environment<String> for Scene<'_> {
    fn now(&self) -> Ticks {
        self.now.as_nanos()
    }

    fn hears(&mut self, locker: &String) -> bool {
        self.inboxes.hears(locker)
    }

    fn keep(&self) -> Ticks {
        ticks(KEEP)
    }

    fn call(&mut self, command: &'static str) -> Result<(), Stop> {
        if self.denied.contains(&command) { Err(Stop::Refused(command)) } else { Ok(()) }
    }

    fn issue(&mut self) -> u64 {
        fence::issue()
    }

    fn tell(&mut self, message: spec::Notice<String>) {
        let key = || self.key.to_owned();
        match message {
            spec::Notice::Granted { locker, grant } => {
                let grant = granted(grant);
                self.inboxes.tell(&locker, || Message::Granted { key: key(), locker: locker.clone(), grant });
            }
            spec::Notice::Contended { locker } => {
                self.inboxes.tell(&locker, || Message::Contended { key: key(), locker: locker.clone() });
            }
            spec::Notice::Broken { locker } => {
                self.inboxes.tell(&locker, || Message::Broken { key: key(), locker: locker.clone() });
            }
        }
    }
}

/// The state of one key.
#[derive(Debug, Default)]
pub(super) struct KeyEntry(spec::KeyState<String>);

impl KeyEntry {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets everything that has expired. Every operation begins with it.
    pub(super) fn expire(&mut self, now: Moment) {
        self.0.expire(now.as_nanos());
    }

    /// Executes a request that is about this key alone.
    pub(super) fn run(&mut self, scene: &mut Scene<'_>, request: &Request<'_>) -> Result<Outcome, Error> {
        Ok(match request {
            Request::Acquire(claim) | Request::Join(claim) => {
                let wait = matches!(request, Request::Join(_));
                Outcome::Acquire(match self.0.acquire(scene, tenure(claim), wait)? {
                    AcquireEffect::Acquired(grant) => AcquireOutcome::Acquired(granted(grant)),
                    AcquireEffect::Busy(other) => AcquireOutcome::Busy(busy(other)),
                })
            }
            Request::Poll(claim) => Outcome::Poll(match self.0.poll(scene, tenure(claim))? {
                PollEffect::Acquired(grant) => PollOutcome::Acquired(granted(grant)),
                PollEffect::Waiting(other) => PollOutcome::Waiting(busy(other)),
                PollEffect::Gone => PollOutcome::Gone,
            }),
            Request::Extend(claim) | Request::ExtendWithNumbers(claim) => {
                Outcome::Extend(match self.0.extend(scene, tenure(claim))? {
                    ExtendEffect::Extended { waiting } => {
                        let numbered = matches!(request, Request::ExtendWithNumbers(_));
                        let numbers = if numbered { fence::issue_range() } else { None };
                        ExtendOutcome::Extended(Extension::while_waiting(waiting).with_numbers(numbers))
                    }
                    ExtendEffect::NotOurs(holder) => ExtendOutcome::NotOurs(NotOurs::new(holder)),
                })
            }
            Request::Release(claim) => Outcome::Release(self.release(scene, claim, None)?),
            Request::HandOver(claim, next) => Outcome::Release(self.release(scene, claim, Some(next))?),
            Request::DelayRelease(claim, delay) => {
                let mark = Claimant { locker: delay.mark, lease: ticks(delay.time) };
                Outcome::DelayRelease(match self.0.delay_release(scene, claim.locker, mark)? {
                    DelayEffect::Delayed => DelayReleaseOutcome::Delayed,
                    DelayEffect::NotOurs(holder) => DelayReleaseOutcome::NotOurs(NotOurs::new(holder)),
                })
            }
            Request::Probe(claim) => Outcome::Probe(if self.0.is_held_by(claim.locker) {
                ProbeOutcome::Ours
            } else {
                ProbeOutcome::NotOurs(NotOurs::new(self.0.held_by()))
            }),
            Request::Inspect { .. } => Outcome::Inspect(self.inspect(scene.now)),
            Request::Break(_) | Request::Broken { .. } | Request::Settle(_) => return Err(request.unsupported()),
        })
    }

    fn release(
        &mut self,
        scene: &mut Scene<'_>,
        claim: &Claim<'_>,
        next: Option<&Claim<'_>>,
    ) -> Result<ReleaseOutcome, Error> {
        let gap = claim.poller_gap.map(|gap| spec::PollingGap { length: ticks(gap.length), every: ticks(gap.every) });
        Ok(match self.0.release(scene, tenure(claim), next.map(tenure), gap)? {
            ReleaseEffect::Released { waiting } => ReleaseOutcome::Released { waiting },
            ReleaseEffect::Passed(grant) => ReleaseOutcome::Passed(granted(grant)),
            ReleaseEffect::Queued(other) => ReleaseOutcome::Queued(busy(other)),
            ReleaseEffect::NotOurs(holder) => ReleaseOutcome::NotOurs(NotOurs::new(holder)),
        })
    }

    /// Returns the outcome, and until when a break is told of, if there was one.
    pub(super) fn break_hold(
        &mut self,
        scene: &mut Scene<'_>,
        locker: &str,
    ) -> Result<(BreakOutcome, Option<Moment>), Error> {
        let lease_ends = self.0.holder.as_ref().and_then(|holder| holder.until).map(Moment::from_nanos);
        let least = scene.now + LEAST_TOLD;
        Ok(match self.0.break_hold(scene, locker)? {
            spec::BreakEffect::Broken { next, waiting } => {
                (BreakOutcome::Broken { next, waiting }, Some(lease_ends.map_or(least, |ends| ends.max(least))))
            }
            spec::BreakEffect::NotHeldBy(holder) => (BreakOutcome::NotHeldBy { holder }, None),
        })
    }

    fn inspect(&self, now: Moment) -> Inspection {
        let found = match self.0.held(now.as_nanos()).map(busy) {
            Some(held) => Inspection { holder: held.holder, remaining: held.remaining, waiting: 0 },
            None => Inspection::free(),
        };
        found.with_waiting(self.0.waiting())
    }

    /// Returns who holds the key, and who waits.
    pub(super) fn parties(&self, now: Moment, most: usize) -> Parties {
        let Inspection { holder, remaining, waiting } = self.inspect(now);
        let lockers = self.0.queue.iter().take(most).map(|tenure| tenure.locker.clone()).collect();
        Parties::new(holder, remaining).with_waiting(lockers, waiting)
    }

    /// Does what an administrator's `DEL` does.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn delete(&mut self) -> bool {
        self.0.holder.take().is_some()
    }

    /// Does what an administrator's `SET` does.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn overwrite(&mut self, now: Moment, locker: &str, lease: Option<Duration>) {
        let until = lease.map(|lease| (now + lease).as_nanos());
        self.0.holder = Some(spec::KeyHolder { locker: locker.to_owned(), until });
    }
}

fn tenure<'a>(claim: &Claim<'a>) -> Claimant<&'a str> {
    Claimant { locker: claim.locker, lease: ticks(claim.lease) }
}

/// A duration in ticks. One that is too long becomes [`Moment::NEVER`].
fn ticks(duration: Duration) -> Ticks {
    (Moment::from_nanos(0) + duration).as_nanos()
}

fn granted(grant: spec::NumberedGrant) -> Grant {
    Grant::new(grant.number, grant.waiting)
}

fn busy(busy: BusyReason<String>) -> port::Busy {
    match busy {
        BusyReason::Held { by, left } => port::Busy::new(by, left.map(Duration::from_nanos)),
        BusyReason::Gap { left } => port::Busy::free(Some(Duration::from_nanos(left))),
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Refused(command) => {
                Self::Denied { message: format!("the embedded store was told to deny {command}") }
            }
            Stop::Raised => Self::backend(
                BackendFailure::Unknown,
                "the embedded store was told to deny a command, and another one that would have undone the operation",
            ),
        }
    }
}
