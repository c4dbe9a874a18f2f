//! What subscribers are told by a watch that runs, on virtual time.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch::{self as channel, Sender};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::components::leadership::{Scope, Term, refused};

/// How long a watch takes, in seconds. Nothing changes meanwhile.
const WATCH: u32 = 20;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How an API server answers requests about one kind.
struct Server {
    /// Number of objects. A list has one on each page.
    objects: u32,
    /// How long a page takes.
    page: Duration,
    /// The status with which all requests are refused.
    refuses: Option<u16>,
    /// Lists of whole objects so far.
    lists: u32,
    /// Requests that were refused so far.
    refused: u32,
}

impl Server {
    fn of(objects: u32) -> Self {
        Self {
            objects,
            page: Duration::ZERO,
            refuses: None,
            lists: 0,
            refused: 0,
        }
    }

    /// How long the answer takes, its status and its content.
    fn answer(&mut self, request: &Request<Body>) -> (Duration, u16, Value) {
        if let Some(code) = self.refuses {
            self.refused += 1;
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
            return (Duration::ZERO, code, status);
        }
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            let object = json!({"kind": "Any", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}});
            let bookmark = json!({"type": "BOOKMARK", "object": object});
            return (seconds(WATCH.into()), 200, bookmark);
        }
        let accept = request.headers().get("accept");
        if accept.is_some_and(|accept| accept.to_str().unwrap().contains("PartialObjectMetadata")) {
            return (Duration::ZERO, 200, list((0..self.objects).collect(), None));
        }
        let page = query.split('&').find_map(|part| part.strip_prefix("continue="));
        let page: u32 = page.map_or(0, |page| page.parse().unwrap());
        self.lists += u32::from(page == 0);
        let next = Some(page + 1).filter(|next| *next < self.objects);
        (self.page, 200, list(vec![page], next))
    }
}

/// A list of these objects; `next`: its next page.
fn list(objects: Vec<u32>, next: Option<u32>) -> Value {
    let object = |number: u32| {
        let metadata =
            json!({"name": format!("object-{number}"), "uid": format!("uid-{number}"), "resourceVersion": "1"});
        json!({"metadata": metadata, "provisioner": "any", "spec": {}})
    };
    let items: Vec<Value> = objects.into_iter().map(object).collect();
    let next = next.map(|next| next.to_string()).unwrap_or_default();
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "continue": next}, "items": items})
}

/// A watch that runs in a process that leads nothing at first.
struct Case {
    server: Arc<Mutex<Server>>,
    leading: Sender<Terms>,
    readiness: Readiness,
    inboxes: bus::Inboxes,
    watching: JoinHandle<Result<(), Error>>,
}

impl Drop for Case {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Case {
    fn start(kind: Kind, server: Server) -> Self {
        let server = Arc::new(Mutex::new(server));
        let answers = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (after, code, content) = answers.lock().unwrap().answer(&request);
            let response = Response::builder().status(code);
            let response = response.body(Body::from(serde_json::to_vec(&content).unwrap()));
            async move {
                sleep(after).await;
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        let (mut feed, readiness, _, inboxes) = feed(Client::new(service, "default"));
        let (leading, terms) = channel::channel(Terms::default());
        feed.leading = terms;
        feed.config = watcher::Config::default().timeout(WATCH);
        Self {
            server,
            leading,
            readiness,
            inboxes,
            watching: tokio::spawn(kinds::start(kind, feed)),
        }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    /// A term of that number begins.
    fn lead(&self, number: u64) {
        let writes = refused();
        let term = Term { number, writes };
        self.leading.send_modify(|terms| terms.begin(&Scope::Cluster, term));
    }

    /// What the scheduler is told in this time.
    async fn told(&mut self, time: Duration) -> Vec<String> {
        sleep(time).await;
        let told = std::iter::from_fn(|| self.inboxes.schedulers[0].try_recv().ok());
        told.map(|told| match told {
            ToScheduler::Change(PackedChange::Applied(object), _) => {
                format!("{} is there", object.identity().names().1)
            }
            ToScheduler::Change(PackedChange::Deleted(object), _) => format!("{} is gone", object.identity().names().1),
            ToScheduler::Synced(_) => "listed".to_owned(),
            ToScheduler::Current(_, term) => format!("current in term {term}"),
            other => panic!("{other:?}"),
        })
        .collect()
    }
}

/// As in a cluster with very many pods.
#[tokio::test(start_paused = true)]
async fn a_first_list_is_not_begun_again_however_long_it_takes() {
    let mut case = Case::start(
        Kind::Queue,
        Server {
            page: seconds(4),
            ..Server::of(30)
        },
    );
    case.lead(1);
    let told = case.told(seconds(110)).await;
    assert!(told.iter().all(|told| told.ends_with("is there")), "{told:?}");
    let told = case.told(seconds(20)).await;
    assert_eq!(
        told.last_chunk::<2>(),
        Some(&["current in term 1", "listed"].map(str::to_owned))
    );
    assert_eq!(case.server().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_show_what_is_missing_is_replaced() {
    let mut case = Case::start(Kind::Queue, Server::of(1));
    assert_eq!(case.told(seconds(1)).await, ["object-0 is there", "listed"]);
    case.server().objects = 2;
    case.lead(1);
    assert_eq!(
        case.told(seconds(6)).await,
        ["object-1 is there", "current in term 1", "listed"]
    );
}

/// Neither that list nor the watch after it shows its deletion.
#[test]
fn an_object_that_a_list_from_before_the_term_drops_is_not_waited_for() {
    let watch = Watch::new();
    let mut state = State::<Queue>::new(&watch.stores.queues, &watch.handle);
    let listed = |name: &str| Event::InitApply(good(name, "1"));
    for event in [
        Event::Init,
        listed("gone"),
        listed("stays"),
        Event::InitDone,
        Event::Init,
    ] {
        state.advance(event);
    }
    state.catch_up = Some(CatchUp::begin(vec![1], Instant::now()));
    let stays = json!({"metadata": {"name": "stays", "resourceVersion": "1"}});
    let listing = json!({"metadata": {"resourceVersion": "9"}, "items": [stays]});
    assert!(state.listed_versions(serde_json::from_value(listing).unwrap()));
    assert_eq!(state.caught_up(), None);
    state.advance(listed("stays"));
    state.advance(Event::InitDone);
    assert_eq!(state.caught_up(), Some(vec![1]));
}

/// Its definition is deleted, or the right to read it.
#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_becomes_absent_has_no_objects_after_a_while() {
    for (code, leads) in [(404, false), (404, true), (403, false), (403, true)] {
        let mut case = Case::start(Kind::StorageClass, Server::of(2));
        let there = ["object-0 is there", "object-1 is there", "listed"];
        assert_eq!(case.told(seconds(1)).await, there);
        case.server().refuses = Some(code);
        if leads {
            case.lead(1);
        }
        assert_eq!(
            case.told(seconds(10)).await,
            [""; 0],
            "it may be there again in a moment"
        );
        let mut told = case.told(seconds(60)).await;
        if !leads {
            case.lead(1);
            told.extend(case.told(seconds(1)).await);
        }
        let gone = ["object-0 is gone", "object-1 is gone", "listed", "current in term 1"];
        assert_eq!(told, gone, "{code} {leads}");
        case.lead(2);
        assert_eq!(case.told(seconds(1)).await, ["current in term 2"]);
        assert_eq!(case.readiness.waiting(), []);
        case.server().refuses = None;
        assert_eq!(case.told(seconds(10)).await, there, "it is back");
    }
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_an_optional_kind_stay_if_it_is_absent_for_moments_only() {
    let mut case = Case::start(Kind::StorageClass, Server::of(1));
    assert_eq!(case.told(seconds(1)).await, ["object-0 is there", "listed"]);
    // The watch ends after 20 s, and the next one is refused for some seconds.
    case.server().refuses = Some(404);
    assert_eq!(case.told(seconds(25)).await, [""; 0]);
    case.server().refuses = None;
    assert_eq!(case.told(seconds(30)).await, [""; 0]);
    // Again, long after. As no watch has shown a change, it is not known that they worked meanwhile; a list shows that the kind is there.
    case.server().refuses = Some(404);
    assert_eq!(case.told(seconds(15)).await, [""; 0]);
    case.server().refuses = None;
    assert_eq!(case.told(seconds(30)).await, ["listed"]);
    // An API server that starts again may say this and that.
    for code in [404, 500, 404, 500, 403, 503] {
        case.server().refuses = Some(code);
        assert_eq!(case.told(seconds(8)).await, [""; 0]);
    }
    case.server().refuses = None;
    assert_eq!(case.told(seconds(30)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_required_kind_stay_however_long_it_is_absent() {
    let mut case = Case::start(Kind::Queue, Server::of(1));
    assert_eq!(case.told(seconds(1)).await, ["object-0 is there", "listed"]);
    case.server().refuses = Some(404);
    case.lead(1);
    assert_eq!(case.told(seconds(300)).await, [""; 0]);
    case.server().refuses = None;
    let mut told = case.told(seconds(10)).await;
    told.sort();
    assert_eq!(told, ["current in term 1", "listed"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_asked_for_less_and_less_often() {
    let mut case = Case::start(
        Kind::StorageClass,
        Server {
            refuses: Some(404),
            ..Server::of(1)
        },
    );
    assert_eq!(case.told(seconds(60)).await, ["listed"]);
    assert!(case.server().refused < 20, "{} requests", case.server().refused);
    case.server().refuses = None;
    assert_eq!(case.told(seconds(6)).await, ["object-0 is there", "listed"]);
}

/// An API server that starts does not know all kinds and rights yet.
#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_is_absent_for_a_moment_at_the_start_is_listed_before_anything_is_decided() {
    for code in [403, 404] {
        let mut case = Case::start(
            Kind::StorageClass,
            Server {
                refuses: Some(code),
                page: seconds(4),
                ..Server::of(2)
            },
        );
        case.lead(1);
        assert_eq!(case.told(Duration::from_millis(50)).await, [""; 0]);
        case.server().refuses = None;
        assert_eq!(case.told(seconds(6)).await, ["object-0 is there"]);
        let rest = ["object-1 is there", "current in term 1", "listed"];
        assert_eq!(case.told(seconds(4)).await, rest, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_was_absent_is_not_current_while_it_is_listed() {
    let mut case = Case::start(
        Kind::StorageClass,
        Server {
            refuses: Some(404),
            page: seconds(4),
            ..Server::of(2)
        },
    );
    assert_eq!(case.told(seconds(1)).await, [""; 0], "it may be there in a moment");
    assert_eq!(case.told(seconds(1)).await, ["listed"], "without objects");
    case.server().refuses = None;
    assert_eq!(case.told(seconds(6)).await, ["object-0 is there"]);
    case.lead(1);
    assert_eq!(case.told(seconds(2)).await, [""; 0]);
    assert_eq!(
        case.told(seconds(2)).await,
        ["object-1 is there", "current in term 1", "listed"]
    );
}
