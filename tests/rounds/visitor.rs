//! A visitor: comes back, looks, writes, looks again, each time as a new request of an application.

use tidegate_client::{
    Client, DirectPool, Guarantee, Policy, Read, ReadError, Role, Session, SessionOptions,
};
use tidegate_lab::history::{Answer, Checker};
use tidegate_lab::postgres::Cluster;
use tidegate_lab::service::PARTITION;
use tokio_postgres::Error;

/// What visitors bring to their reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carries {
    /// What they were given: a token, or who they are.
    Session,
    /// Nothing: the wrong way.
    Nothing,
}

/// What all visitors of a run share.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) pool: DirectPool,
    pub(crate) checker: Checker,
    pub(crate) carries: Carries,
}

/// One visitor.
#[derive(Debug)]
pub(crate) struct Visitor {
    id: i64,
    name: String,
    /// Known by name alone, or by the tokens carried and nothing else.
    by_name: bool,
    tokens: Vec<String>,
    version: i64,
    leader: tokio_postgres::Client,
    /// Reads that were refused or broke off; they promise nothing.
    pub(crate) unanswered: u64,
}

impl Visitor {
    pub(crate) async fn arrive(id: i64, cluster: &Cluster) -> Self {
        let leader = cluster.leader().connect("postgres", "postgres").await;
        let leader = leader.expect("the leader takes connections");
        let (name, tokens, by_name) = (format!("visitor-{id}"), Vec::new(), id % 2 == 0);
        Self { id, name, by_name, tokens, version: 0, leader, unanswered: 0 }
    }

    fn request(&self, place: &Place) -> Session {
        let options = SessionOptions::new(PARTITION);
        place.client.session(if self.by_name {
            options.subject(&self.name)
        } else {
            options.tokens(self.tokens.clone())
        })
    }

    /// One round: a look at what was written last time, a write, and a look at that.
    pub(crate) async fn round(&mut self, place: &Place) {
        if self.version > 0 {
            self.look(place).await;
        }
        self.write(place).await;
        self.look(place).await;
        let mut lacking = false;
        for standby in place.cluster.standbys() {
            // One that is down says nothing.
            let query = format!("select max(version) from rounds where visitor = {}", self.id);
            let shown = standby.value::<Option<i64>>(&query).await;
            lacking |= shown.is_ok_and(|shown| shown < Some(self.version));
        }
        if lacking {
            place.checker.standby_lacked();
        }
    }

    async fn write(&mut self, place: &Place) {
        let (session, next) = (self.request(place), self.version + 1);
        let id = self.id;
        let insert = async |transaction: &tokio_postgres::Transaction<'_>| {
            transaction.execute("insert into rounds values ($1, $2)", &[&id, &next]).await
        };
        session.write(&mut self.leader, insert).await.expect("the leader never fails here");
        self.version = next;
        self.carry(&session);
        place.checker.wrote(&self.name, "version", next.unsigned_abs());
    }

    async fn look(&mut self, place: &Place) {
        let reading = place.checker.begin(&self.name, "version");
        let session = match place.carries {
            Carries::Session => self.request(place),
            Carries::Nothing => place.client.session(SessionOptions::new(PARTITION)),
        };
        let id = self.id;
        let newest = async |client: &tokio_postgres::Client| {
            let query = "select max(version) from rounds where visitor = $1";
            client.query_one(query, &[&id]).await?.try_get::<_, Option<i64>>(0)
        };
        let read: Result<Read<Option<i64>>, ReadError<_, Error>> =
            session.read(&place.pool, &Policy::default(), newest).await;
        if place.carries == Carries::Session {
            self.carry(&session);
        }
        match read {
            Ok(read) => {
                let seen = read.value.map(i64::unsigned_abs);
                _ = place.checker.end(reading, seen, &answer_of(&read));
            }
            Err(_) => self.unanswered += 1,
        }
    }

    fn carry(&mut self, session: &Session) {
        if !self.by_name {
            self.tokens = session.tokens();
        }
    }
}

fn answer_of(read: &Read<Option<i64>>) -> Answer {
    let node = read.node.name.clone();
    if read.stale.is_some() || !read.met.contains(&Guarantee::ReadYourWrites) {
        Answer::Flagged(node)
    } else if read.node.role == Role::Leader {
        Answer::Leader(node)
    } else {
        Answer::Replica(node)
    }
}
