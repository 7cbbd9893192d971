//! Sentinels that lie, hang, or forget. A real one does none of this when asked to, so these are small programs of the test that speak its
//! protocol.

use crate::support::crew::eventually;
use crate::support::sentinels::SERVICE;
use crate::support::{RedisServer, free_port};
use redis_dlock::{DLockGenerator, Error};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What a fake says when it is asked for the master.
#[derive(Clone, Debug)]
enum Says {
    /// A master on this port of the loopback interface, with an epoch.
    Master(u16, u64),
    /// No such service.
    Unknown,
    /// Nothing, for ever.
    Nothing,
    /// Something that no Sentinel says.
    Rubbish,
}

struct Fake {
    port: u16,
    says: Arc<Mutex<Says>>,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (says, asked) = (Arc::new(Mutex::new(says)), Arc::new(AtomicUsize::new(0)));
        let fake =
            Self { port: listener.local_addr().unwrap().port(), says: Arc::clone(&says), asked: Arc::clone(&asked) };
        // Its threads end with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (says, asked) = (Arc::clone(&says), Arc::clone(&asked));
                thread::spawn(move || serve(&client, &says, &asked));
            }
        });
        fake
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Reads one command, as a list of bulk strings.
fn command(input: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = || {
        let mut line = String::new();
        (input.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let words: usize = line()?.strip_prefix('*')?.parse().ok()?;
    (0..words).map(|_| line().and_then(|_| line())).collect()
}

fn list(fields: &[(&str, String)]) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let words: String = fields.iter().map(|(name, value)| bulk(name) + &bulk(value)).collect();
    format!("*{}\r\n{words}", 2 * fields.len())
}

fn serve(client: &TcpStream, says: &Mutex<Says>, asked: &AtomicUsize) {
    let mut input = BufReader::new(client);
    while let Some(words) = command(&mut input) {
        let words: Vec<_> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let reply = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["HELLO", ..] => list(&[("version", "7.0.0".to_owned()), ("mode", "sentinel".to_owned())]),
            ["SENTINEL", "SENTINELS", ..] => "*0\r\n".to_owned(),
            ["SENTINEL", "MASTER", ..] => {
                asked.fetch_add(1, Ordering::SeqCst);
                let says = says.lock().unwrap().clone();
                match says {
                    Says::Master(port, epoch) => list(&[
                        ("ip", "127.0.0.1".to_owned()),
                        ("port", port.to_string()),
                        ("flags", "master".to_owned()),
                        ("config-epoch", epoch.to_string()),
                        ("down-after-milliseconds", "500".to_owned()),
                    ]),
                    Says::Unknown => "-ERR No such master with that name\r\n".to_owned(),
                    Says::Nothing => continue,
                    Says::Rubbish => "*2\r\n:1\r\n:2\r\n".to_owned(),
                }
            }
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        if (&*client).write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn url(fakes: &[&Fake]) -> String {
    let hosts: Vec<_> = fakes.iter().map(|fake| format!("127.0.0.1:{}", fake.port)).collect();
    format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
}

/// The server that has the key of a lock just taken. The lock is a new one each time: a hold that is lost leaves its key to its lease.
fn who_has(generator: &DLockGenerator, servers: &[&RedisServer]) -> usize {
    static LOCKS: AtomicUsize = AtomicUsize::new(0);
    let lock = generator.generate("SENTINEL", LOCKS.fetch_add(1, Ordering::SeqCst).to_string()).unwrap();
    let guard = lock.lock().unwrap();
    let key = lock.key().to_owned();
    let has = servers.iter().position(|server| server.run::<bool>(&["EXISTS", &key])).expect("somebody has it");
    // Where the client goes over to another server just now, the hold is lost.
    let _ = guard.unlock();
    has
}

#[test]
fn a_lie_about_the_master_is_found_out_by_the_server_itself() {
    let master = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let honest = [(); 2].map(|()| Fake::start(Says::Master(master.port(), 3)));
    for lie in [replica.port(), free_port()] {
        let liar = Fake::start(Says::Master(lie, 99));
        let generator = DLockGenerator::connect(&url(&[&liar, &honest[0], &honest[1]]));
        // The first connect may have met the liar; then the next one does better.
        let generator = generator.or_else(|_| DLockGenerator::connect(&url(&[&honest[0], &honest[1], &liar]))).unwrap();
        for _ in 0..3 {
            assert_eq!(who_has(&generator, &[&master, &replica]), 0);
        }
        // When all have been asked, the liar among them, it is still so.
        let asked = liar.asked();
        eventually("the liar is asked again", || liar.asked() > asked + 1);
        assert_eq!(who_has(&generator, &[&master, &replica]), 0);
    }
}

#[test]
fn one_that_hangs_forgets_or_talks_rubbish_does_not_keep_the_others_from_answering() {
    let master = RedisServer::start();
    let honest = Fake::start(Says::Master(master.port(), 1));
    for says in [Says::Nothing, Says::Unknown, Says::Rubbish] {
        let bad = Fake::start(says);
        let generator = DLockGenerator::connect(&url(&[&bad, &honest])).unwrap();
        assert_eq!(who_has(&generator, &[&master]), 0);
    }
    let silent = Fake::start(Says::Nothing);
    let error = DLockGenerator::connect(&url(&[&silent])).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains(&silent.port.to_string()), "{error:?}");
    let forgetful = Fake::start(Says::Unknown);
    assert!(matches!(DLockGenerator::connect(&url(&[&forgetful])), Err(Error::InvalidConfig { what: "service", .. })));
}

/// A Sentinel that does not answer is not one of those that a client hears before it begins, and one answer is enough if there are no more.
/// Shows: S1.
#[test]
fn a_client_that_begins_hears_more_than_half_of_them_if_so_many_answer() {
    let servers = [(); 2].map(|()| RedisServer::start());
    let [a, b] = servers.each_ref().map(RedisServer::port);
    let begins_on = |says: [Says; 3]| {
        let fakes = says.map(Fake::start);
        let generator = DLockGenerator::connect(&url(&fakes.each_ref())).unwrap();
        who_has(&generator, &servers.each_ref())
    };
    assert_eq!(begins_on([Says::Nothing, Says::Master(a, 4), Says::Master(b, 5)]), 1);
    assert_eq!(begins_on([Says::Nothing, Says::Master(a, 4), Says::Nothing]), 0);
}

/// Two servers with their ports, three fakes that name the first of them, and a client that follows.
fn followed() -> ([RedisServer; 2], [u16; 2], [Fake; 3], DLockGenerator) {
    let servers = [(); 2].map(|()| RedisServer::start());
    let ports = servers.each_ref().map(RedisServer::port);
    let fakes = [(); 3].map(|()| Fake::start(Says::Master(ports[0], 4)));
    let generator = DLockGenerator::connect(&url(&[&fakes[0], &fakes[1], &fakes[2]])).unwrap();
    assert_eq!(who_has(&generator, &servers.each_ref()), 0);
    (servers, ports, fakes, generator)
}

#[test]
fn a_stale_answer_leads_nobody_back_and_a_majority_may_begin_again() {
    let (servers, [a, b], fakes, generator) = followed();
    let servers = [&servers[0], &servers[1]];
    fakes[1].say(Says::Master(b, 5));
    eventually("the new epoch is followed", || who_has(&generator, &servers) == 1);
    // The other two still name the old one; all have been asked a few times.
    let asked = fakes[0].asked();
    eventually("they were asked again", || fakes[0].asked() > asked + 2);
    assert_eq!(who_has(&generator, &servers), 1);
    // After REMOVE and MONITOR the epochs begin at zero again.
    fakes[0].say(Says::Master(a, 0));
    let asked = fakes[0].asked();
    eventually("it was asked again", || fakes[0].asked() > asked + 2);
    assert_eq!(who_has(&generator, &servers), 1);
    fakes[2].say(Says::Master(a, 0));
    eventually("the majority is followed", || who_has(&generator, &servers) == 0);
}

/// An operator has told one of them of another master. Who would follow it is alone there, and so is who would not follow the majority.
/// Shows: S1.
#[test]
fn of_one_epoch_a_majority_decides() {
    let (servers, [a, b], fakes, generator) = followed();
    let servers = [&servers[0], &servers[1]];
    fakes[0].say(Says::Master(b, 4));
    let asked = fakes[0].asked();
    eventually("it was asked again", || fakes[0].asked() > asked + 2);
    assert_eq!(who_has(&generator, &servers), 0);
    // A client that begins asks all of them. On a busy machine the other two may answer it too late, so this is repeated.
    let mut late = None;
    eventually("a client begins with the majority", || {
        let client = DLockGenerator::connect(&url(&[&fakes[0], &fakes[1], &fakes[2]])).unwrap();
        who_has(late.insert(client), &servers) == 0
    });
    let late = late.unwrap();
    for (port, server) in [(b, 1), (a, 0)] {
        fakes[..2].iter().for_each(|fake| fake.say(Says::Master(port, 4)));
        for client in [&generator, &late] {
            eventually("the majority is followed", || who_has(client, &servers) == server);
        }
    }
}

/// One that hangs is asked less and less often, and what it has said before counts no more.
#[test]
fn one_that_hangs_later_is_asked_less_often_than_the_others() {
    let (servers, [_, b], fakes, generator) = followed();
    let servers = [&servers[0], &servers[1]];
    fakes[0].say(Says::Nothing);
    let before = fakes.each_ref().map(Fake::asked);
    eventually("the others are asked many times", || fakes[1].asked() >= before[1] + 12);
    let [hung, other] = [fakes[0].asked() - before[0], fakes[1].asked() - before[1]];
    assert!(2 * hung < other, "{hung} of {other}");
    // The others are followed as ever.
    fakes[1].say(Says::Master(b, 5));
    eventually("the new epoch is followed", || who_has(&generator, &servers) == 1);
}
