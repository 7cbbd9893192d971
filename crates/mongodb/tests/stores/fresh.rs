//! [`Store`] for MongoDB: one server for all cases, a database for each.

use crate::server::Server;
use dlock_conformance::Store;
use dlock_mongodb::MongoLockProcessor;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::{Client, Collection, Database};
use redis_dlock::port::LockProcessor;
use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A fresh store.
pub(crate) struct Fresh {
    pub(crate) server: Arc<Server>,
    database: Database,
    name: String,
    runtime: Runtime,
}

static CASES: AtomicUsize = AtomicUsize::new(0);

impl Fresh {
    pub(crate) fn start() -> Self {
        Self::on(Server::shared())
    }

    pub(crate) fn on(server: Arc<Server>) -> Self {
        // On a real server, what a run before has left is another run's.
        let name = format!("dlock_test_{}_{}", std::process::id(), CASES.fetch_add(1, Ordering::SeqCst));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(Client::with_uri_str(server.url(&name))).unwrap();
        Self { database: client.database(&name), server, name, runtime }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    pub(crate) fn database_name(&self) -> &str {
        &self.name
    }

    /// What an administrator does.
    pub(crate) fn admin<T>(&self, work: impl Future<Output = Result<T, Error>>) -> T {
        self.runtime.block_on(work).unwrap()
    }

    pub(crate) fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    fn locks(&self) -> Collection<Document> {
        self.collection("locks")
    }

    /// The documents of a collection, with the time of the server, as `at`.
    pub(crate) fn documents(&self, collection: &str) -> Vec<Document> {
        let collection = self.collection(collection);
        self.admin(async move {
            let mut cursor = collection.aggregate([doc! { "$set": { "at": "$$NOW" } }]).await?;
            let mut found = Vec::new();
            while cursor.advance().await? {
                found.push(cursor.deserialize_current()?);
            }
            Ok(found)
        })
    }
}

fn is_held(document: &Document) -> bool {
    let at = document.get_datetime("at").unwrap();
    document.get_i32("state").is_ok_and(|state| state == 2)
        && document.get_datetime("until").map_or(true, |until| until > at)
}

fn is_waited_for(document: &Document) -> bool {
    let at = document.get_datetime("at").unwrap().timestamp_millis();
    let lives = |waiter: &Bson| {
        let waiter = waiter.as_document().unwrap();
        waiter.get_datetime("seen").unwrap().timestamp_millis() + waiter.get_i64("lease").unwrap() > at
    };
    document.get_array("queue").is_ok_and(|queue| queue.iter().any(lives))
}

impl Store for Fresh {
    fn processor(&self) -> Arc<dyn LockProcessor> {
        Arc::new(MongoLockProcessor::new(&self.url()).unwrap())
    }

    /// As one frees a lock of the original by hand. The document stays, with its queue.
    fn delete(&self, key: &str) -> bool {
        let found =
            self.documents("locks").into_iter().find(|document| document.get_str("_id").is_ok_and(|id| id == key));
        let existed = found.is_some_and(|document| is_held(&document));
        self.admin(async { self.locks().update_one(doc! { "_id": key }, doc! { "$set": { "state": 0 } }).await });
        existed
    }

    fn overwrite(&self, key: &str, holder: &str, lease: Option<Duration>) {
        let millis = lease.map(|lease| i64::try_from(lease.as_millis()).unwrap());
        let until = millis.map_or(Bson::from("$$REMOVE"), |millis| {
            doc! { "$toDate": { "$add": [{ "$toLong": "$$NOW" }, millis] } }.into()
        });
        let fields = doc! {
            "state": 2,
            "who": { "$literal": holder },
            "until": until,
            "process": "$$REMOVE",
            "ts": { "$ifNull": ["$ts", 1_i64] },
        };
        let update = vec![doc! { "$set": fields }];
        self.admin(async { self.locks().update_one(doc! { "_id": key }, update).upsert(true).await });
    }

    fn flush(&self) {
        self.admin(async { self.locks().delete_many(doc! {}).await });
    }

    fn pass_time(&self, time: Duration) {
        // The server's clock counts whole milliseconds.
        std::thread::sleep(time + Duration::from_millis(2));
    }

    fn leftovers(&self) -> Vec<String> {
        let kept = |document: &Document| is_held(document) || is_waited_for(document);
        let names = self.documents("locks").into_iter().filter(kept);
        names.map(|document| document.get_str("_id").unwrap().to_owned()).collect()
    }

    fn name(&self) -> &'static str {
        "MongoDB"
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // A real server goes on; whether this works decides nothing.
        let _ = self.runtime.block_on(self.database.drop().into_future());
    }
}
