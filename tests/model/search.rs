//! Visits every state that can be reached, each once, and the nearest first: so the way to a state that is wrong is as short as any.

use crate::rules::Rules;
use crate::world::{Action, World};
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// More states than any model here has.
const ENOUGH: usize = 20_000_000;

/// What a search has found.
pub(crate) struct Search {
    /// The states that it has come to.
    pub(crate) states: usize,
    /// All steps from one of these to another.
    pub(crate) steps: usize,
    /// The first state that is wrong, and the way there.
    pub(crate) wrong: Option<(Vec<Action>, World)>,
}

impl Search {
    /// Ends at the first state that is wrong. It remembers 64 bits of a state: that two of three million states have the same ones, so that
    /// one of them is not visited, has a chance of one in four million.
    pub(crate) fn new(rules: &Rules, is_wrong: impl Fn(&World) -> bool) -> Self {
        let mut seen = HashSet::<u64, BuildHasherDefault<AsItIs>>::default();
        // How each state was reached first: from which one, and by what. The first one was not.
        let mut reached = vec![(0, Action::Tick)];
        let mut due = VecDeque::from([(0, World::new(rules))]);
        let mut search = Self { states: 1, steps: 0, wrong: None };
        let mut actions = Vec::new();
        seen.insert(fingerprint(&due[0].1));
        while let Some((number, world)) = due.pop_front() {
            if is_wrong(&world) {
                search.wrong = Some((way_to(number, &reached), world));
                break;
            }
            rules.actions(&world, &mut actions);
            for action in actions.drain(..) {
                let Some(next) = rules.next_state(&world, action) else { continue };
                search.steps += 1;
                if seen.insert(fingerprint(&next)) {
                    due.push_back((reached.len(), next));
                    reached.push((number, action));
                }
            }
            search.states = reached.len();
            assert!(search.states < ENOUGH, "the model is too large to be explored");
        }
        search
    }
}

fn way_to(mut number: usize, reached: &[(usize, Action)]) -> Vec<Action> {
    let mut way = Vec::new();
    while number != 0 {
        let (from, action) = reached[number];
        way.push(action);
        number = from;
    }
    way.reverse();
    way
}

fn fingerprint(world: &World) -> u64 {
    BuildHasherDefault::<Fingerprint>::default().hash_one(world)
}

/// Mixes in each word by a multiplication whose halves are folded.
struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x243F_6A88_85A3_08D3)
    }
}

impl Hasher for Fingerprint {
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.0)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value);
    }

    /// The lengths of lists, and which variant of an enum it is.
    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[inline]
fn fold(word: u64) -> u64 {
    let wide = u128::from(word) * 0x9E37_79B9_7F4A_7C15_u128;
    wide as u64 ^ (wide >> 64) as u64
}

/// A fingerprint is mixed already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are words");
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
