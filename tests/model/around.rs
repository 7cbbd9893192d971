//! What a script sees of the world around the key, and the mistakes that it could make there.

use crate::rules::{Mutant, Rules};
use crate::server::{Fence, Granted, Locker, Lockers, Refusal, number};
use crate::spec::{Environment, Notice, Stop, Ticks};

/// What a script sees of the world around the key.
pub(crate) struct Around<'a> {
    pub(crate) rules: &'a Rules,
    /// For each client, whether anybody hears its inbox.
    pub(crate) hears: [bool; 3],
    pub(crate) refusal: Refusal,
    /// How many calls there were, and whether one was refused.
    pub(crate) calls: u8,
    pub(crate) refused: bool,
    /// Whether the script was told last that somebody hears an inbox.
    pub(crate) heard: bool,
    pub(crate) unheard: Lockers,
    /// Whether the script came to a message of a grant, and whether it has raised an error.
    pub(crate) tells: bool,
    pub(crate) raised: bool,
    /// Whether a winner was not put back.
    pub(crate) forgot: bool,
    pub(crate) fence: Fence,
    pub(crate) warm: bool,
    /// The locker that a poll is about.
    pub(crate) polls: Option<Locker>,
    pub(crate) granted: Option<Granted>,
}

impl<'a> Around<'a> {
    pub(crate) fn new(
        rules: &'a Rules,
        hears: [bool; 3],
        refusal: Refusal,
        fence: Fence,
        warm: bool,
        polls: Option<Locker>,
    ) -> Self {
        Self {
            rules,
            hears,
            refusal,
            calls: 0,
            refused: false,
            heard: false,
            unheard: Lockers::default(),
            tells: false,
            raised: false,
            forgot: false,
            fence,
            warm,
            polls,
            granted: None,
        }
    }
}

impl Around<'_> {
    /// Whether an error is raised here, or was before.
    fn raises(&mut self) -> bool {
        let here = matches!(self.refusal, Refusal::Raised(first) if self.calls >= first);
        self.raised |= here;
        self.refused |= here;
        here
    }
}

impl Environment<Locker> for Around<'_> {
    fn now(&self) -> Ticks {
        0
    }

    fn hears(&mut self, locker: &Locker) -> bool {
        self.heard = self.hears[usize::from(locker.client)] || self.rules.is(Mutant::GrantsToTheDead);
        if !self.heard {
            self.unheard.push(*locker);
        }
        self.heard
    }

    fn keep(&self) -> Ticks {
        self.rules.keep.into()
    }

    fn call(&mut self, command: &'static str) -> Result<(), Stop> {
        if command == "LPUSH" && self.rules.sets_before_pop() {
            // There is nothing to put back.
            return Ok(());
        }
        if self.raises() {
            self.calls += 1;
            return Err(Stop::Raised);
        }
        let refuses = match self.refusal {
            Refusal::None | Refusal::Raised(_) => false,
            Refusal::Only(only) => self.calls == only,
            Refusal::From(first) => self.calls >= first,
        };
        self.calls += 1;
        self.refused |= refuses;
        if command == "LPUSH" && self.rules.is(Mutant::PopsAndForgets) {
            self.forgot = true;
            return Err(Stop::Raised);
        }
        if refuses {
            return Err(Stop::Refused(command));
        }
        let hands_over = self.heard && matches!(command, "SET" | "LPUSH");
        if hands_over && self.rules.is(Mutant::PublishesFirst) && !self.rules.publish {
            return Err(Stop::Raised);
        }
        Ok(())
    }

    /// With a fine clock, every number costs at least one unit of it.
    fn issue(&mut self) -> u64 {
        let fence = &mut self.fence;
        fence.last += 1;
        if let Some(clock) = self.rules.clock {
            fence.clock += 1;
            let slack = if self.warm || self.rules.is(Mutant::SlackWhenFresh) { clock.slack } else { 0 };
            if fence.last < fence.clock - slack {
                fence.last = fence.clock;
            }
        }
        fence.fell |= fence.last <= fence.highest;
        fence.highest = fence.highest.max(fence.last);
        fence.last.into()
    }

    fn tell(&mut self, message: Notice<Locker>) {
        if let Notice::Granted { locker, grant } = message {
            self.tells = true;
            if self.raises() {
                return;
            }
            self.granted = Some(Granted { locker, number: number(grant) });
        }
    }
}
