//! Whether the processes of a scene with a Cluster hear what they believe to hear.

use crate::elsewhere::Elsewhere;
use crate::scene::Scene;
use crate::servers::Servers;
use crate::work::KEY;
use std::cell::RefCell;

impl Scene {
    /// Fails if a process believes that it hears of a lock, and the node of the lock has no subscription of it.
    #[track_caller]
    pub(crate) fn assert_hears(&mut self) {
        let Servers::Cluster(cluster, _) = &self.server else { return };
        let mut keys: Vec<_> = self.elsewhere.iter().map(Elsewhere::key).collect();
        keys.extend(self.beside.iter().map(|lock| lock.key).chain([KEY.2]).map(str::to_owned));
        for cast in &mut self.cast {
            cast.worker.tell("client");
            let client = cast.worker.answer_about("client");
            let worker = RefCell::new(&mut cast.worker);
            cluster.assert_hears(&client, &keys, |key| {
                let worker = &mut worker.borrow_mut();
                worker.tell(&format!("hears {client} {key}"));
                worker.answer_about("hears") == "true"
            });
        }
    }
}
